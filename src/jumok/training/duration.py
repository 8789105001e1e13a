"""How long training will take on a CPU, by a piece of its first batch: so that nobody waits a day by mistake."""

import time

import torch
from torch import nn

from jumok.data import Batches
from jumok.training.config import TrainingConfig
from jumok.training.step import autocast
from jumok.training.task import SEQUENCES, cut

LONG = 1800.0
"""Seconds worth a word."""
FASTEST = 5e10
"""Operations a second of two cores: what is short at this pace need not be measured."""
PIECE = 24
"""Sentences that are measured."""


def seconds_on_cpu(model: nn.Module, batches: Batches, config: TrainingConfig) -> float:
    """Roughly how long all steps take; 0 where they are sure to take less than half an hour.

    Forward and backward pass of a few sentences are measured, the second time they are done, and taken for all
    sentences of all steps. Neither weights nor random draws are changed by it.
    """
    batch = batches.batch(0, 0)
    weights = sum(parameter.numel() for parameter in model.parameters())
    per_step = config.accumulate * SEQUENCES.items(batch)
    if 6 * weights * per_step * config.steps < LONG * FASTEST:
        return 0.0
    piece = cut(batch, 0, min(PIECE, len(batch.source)))
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
