"""How long the training of a translation model takes on a CPU, measured before it begins."""

import time

import torch
from torch import nn

from jumok.tasks.recipes import TranslationRecipe
from jumok.training.config import TrainingConfig
from jumok.training.objective import SEQUENCES, BatchSource
from jumok.training.step import autocast

LONG = 1800.0
"""Seconds of training after which a warning is given."""
FASTEST = 5e10
"""Operations a second of two cores: what is short at this pace need not be measured."""
MEASURED = 24
"""Sentences whose pass is timed."""


def duration_warning(model: nn.Module, batches: BatchSource, recipe: TranslationRecipe) -> str:
    """A warning of a run that takes more than half an hour on a CPU; "" for others and for those limited in minutes."""
    seconds = 0.0 if recipe.training.minutes else seconds_on_cpu(model, batches, recipe.training)
    if seconds < LONG:
        return ""
    hours = f"{seconds / 3600:.1f}" if seconds < 36_000 else f"{seconds / 3600:,.0f}"
    return (
        f"{recipe.training.steps:,} steps will take about {hours} h on this CPU; recipes/small-cpu.toml takes minutes: "
        "jumok train small-cpu --set data.source=… --set data.target=…"
    )


def seconds_on_cpu(model: nn.Module, batches: BatchSource, config: TrainingConfig) -> float:
    """Roughly how long all steps take; 0 where they are sure to take less than half an hour.

    Forward and backward pass of a few sentences are measured, the second time they are done, and taken for all
    sentences of all steps. Neither weights nor random draws are changed by it.
    """
    batch = batches.batch(0, 0)
    weights = sum(parameter.numel() for parameter in model.parameters())
    per_step = config.accumulate * SEQUENCES.items(batch)
    if 6 * weights * per_step * config.steps < LONG * FASTEST:
        return 0.0
    piece = SEQUENCES.cut(batch, 0, min(MEASURED, len(batch.source)))
    with torch.random.fork_rng(devices=[]):
        _pass(model, piece, config)
        began = time.perf_counter()
        _pass(model, piece, config)
        seconds = time.perf_counter() - began
    model.zero_grad(set_to_none=True)
    return seconds / SEQUENCES.items(piece) * per_step * config.steps


def _pass(model: nn.Module, batch: object, config: TrainingConfig) -> None:
    device = torch.device("cpu")
    with autocast(config, device):
        loss = SEQUENCES.loss(model, batch, device, config)  # type: ignore[arg-type]
    loss.total.backward()  # type: ignore[no-untyped-call]
