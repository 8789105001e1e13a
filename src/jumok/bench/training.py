"""Training: one step of a Transformer and of two recurrent models, with label smoothing, clipping and AdamW."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jumok.bench import JUMOK, Size
from jumok.bench.peers import (
    SPECIALS,
    PlainRnn,
    PlainTransformer,
    RnnShape,
    TransformerShape,
    jumok_rnn,
    jumok_transformer,
    marian,
)
from jumok.bench.timing import Call, Work
from jumok.data import Batch
from jumok.devices import keep_freed_memory
from jumok.models import EncoderDecoder
from jumok.screen import to_screen
from jumok.training.config import TrainingConfig
from jumok.training.cuda_graph import StepGraphs, pinned
from jumok.training.objective import SEQUENCES
from jumok.training.optimiser import make_optimiser, set_rate
from jumok.training.step import autocast, train_step


class TrainingSizes(NamedTuple):
    """Both models, and a batch of each: sentences × tokens, none of them padding."""

    transformer: TransformerShape
    transformer_batch: tuple[int, int]
    rnn: RnnShape
    rnn_batch: tuple[int, int]


SIZES: dict[str, dict[Size, TrainingSizes]] = {
    "cpu": {
        "small": TrainingSizes(TransformerShape(2, 64, 1_000), (16, 16), RnnShape(32, 64, 1_000), (16, 16)),
        "medium": TrainingSizes(TransformerShape(3, 256, 8_000), (64, 16), RnnShape(256, 512, 8_000), (64, 16)),
        "large": TrainingSizes(TransformerShape(6, 512, 32_000), (64, 32), RnnShape(256, 512, 8_000), (128, 32)),
    },
    "cuda": {
        "small": TrainingSizes(TransformerShape(3, 256, 8_000), (64, 32), RnnShape(128, 256, 8_000), (64, 16)),
        "medium": TrainingSizes(TransformerShape(6, 512, 32_000), (100, 64), RnnShape(256, 512, 8_000), (128, 32)),
        "large": TrainingSizes(TransformerShape(6, 512, 32_000), (400, 64), RnnShape(512, 1024, 32_000), (128, 32)),
    },
}
CONFIG = TrainingConfig(learning_rate=1e-4)
"""The defaults of recipes: label smoothing 0.1, gradients clipped at 1, bf16 on a GPU that has it."""


def works(device: torch.device, size: Size) -> Iterator[Work]:
    """In tokens of the target per second."""
    sizes = SIZES[device.type][size]
    shape, (sentences, length) = sizes.transformer, sizes.transformer_batch
    batch = random_batch(sentences, length, shape.vocabulary)
    yield Work(
        f"{shape}, {sentences} × {length} tokens",
        {
            JUMOK: partial(_jumok_step, partial(jumok_transformer, shape), batch, device),
            "torch.nn.Transformer": partial(_plain_step, partial(PlainTransformer, shape), batch, device),
            "Hugging Face Marian": partial(_marian_step, shape, batch, device),
        },
        tokens=sentences * length,
    )
    rnn, (sentences, length) = sizes.rnn, sizes.rnn_batch
    few = random_batch(sentences, length, rnn.vocabulary)
    for attention, name in (("additive", "RNNsearch"), ("general", "Luong with input feeding")):
        yield Work(
            f"{name}, {rnn}, {sentences} × {length} tokens",
            {
                JUMOK: partial(_jumok_step, partial(jumok_rnn, rnn, attention), few, device),
                "PyTorch loop": partial(_plain_step, partial(PlainRnn, rnn, attention), few, device),
            },
            tokens=sentences * length,
        )


def random_batch(sentences: int, length: int, vocabulary: int) -> Batch:
    """Random tokens without padding."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(SPECIALS, vocabulary, (3, sentences, length), generator=generator)
    visible = torch.ones(sentences, length, dtype=torch.bool)
    return Batch(ids[0], visible, ids[1], ids[2], visible)


def _jumok_step(make: Callable[[], EncoderDecoder], batch: Batch, device: torch.device) -> Call:
    """The step that `jumok train` runs: on a GPU with fused operators, recorded as a CUDA graph."""
    if device.type == "cpu":
        keep_freed_memory()
    model = make().to(device).train()
    optimiser = make_optimiser(model, CONFIG)
    set_rate(optimiser, CONFIG.learning_rate)
    placed = pinned(batch) if device.type == "cuda" else batch
    graphs = StepGraphs(model, optimiser, CONFIG, SEQUENCES, to_screen)

    def step() -> object:
        outcome = graphs.step([placed], step=1)
        return outcome or train_step(model, optimiser, [placed], CONFIG, step=1, say=to_screen)

    return step


def _plain_step(make: Callable[[], nn.Module], batch: Batch, device: torch.device) -> Call:
    model, placed = make().to(device), batch.to(device)
    return _stepped(model, lambda: model(placed.source, placed.target_in), placed.target_out, device)


def _marian_step(shape: TransformerShape, batch: Batch, device: torch.device) -> Call:
    model, placed = marian(shape).to(device), batch.to(device)

    def logits() -> Tensor:
        output = model(
            input_ids=placed.source,
            attention_mask=placed.source_visible.long(),
            decoder_input_ids=placed.target_in,
            use_cache=False,
        )
        scores: Tensor = output.logits
        return scores

    return _stepped(model, logits, placed.target_out, device)


def _stepped(model: nn.Module, logits: Callable[[], Tensor], target: Tensor, device: torch.device) -> Call:
    """The usual loop: cross-entropy with smoothed labels, backward, clip, AdamW."""
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=CONFIG.learning_rate, fused=True)

    def step() -> None:
        with autocast(CONFIG, device):
            scores = logits()
        loss = F.cross_entropy(scores.flatten(0, 1), target.flatten(), label_smoothing=CONFIG.label_smoothing)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CONFIG.clip)
        optimiser.step()

    return step
