"""One update of the weights by the gradient of one or more batches, which are split if memory runs out."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW

from jumok.errors import ConfigError, TrainingError
from jumok.training.config import TrainingConfig
from jumok.training.objective import SEQUENCES, AnyObjective
from jumok.training.optimiser import update
from jumok.training.parallel import Alone


class StepOutcome(NamedTuple):
    """The outcome of a step; tensors stay on their device, so that nothing waits for them before they are needed."""

    cross_entropy: Float[Tensor, ""]
    """Cross-entropy summed over the tokens, in nats."""
    tokens: int
    norm: Float[Tensor, ""]
    """Length of the gradient before clipping."""
    skipped: Float[Tensor, ""]
    """1 if the gradient was not finite and the weights stayed as they were, else 0."""
    splits: int
    """How often a batch was split because memory ran out."""


def train_step(
    model: nn.Module,
    optimiser: AdamW,
    batches: Sequence[Any],
    config: TrainingConfig,
    *,
    step: int,
    say: Callable[[str], None],
    task: AnyObjective = SEQUENCES,
    tokens: int | None = None,
    parallel: Alone | None = None,
) -> StepOutcome:
    """Update the weights once by the mean gradient over all tokens, or whatever the task counts, of `batches`.

    What dropout draws depends on (config.seed, step) alone, not on what was drawn before. In a run of several processes
    `batches` are this one's share, `tokens` counts those of all, and `parallel` sums the gradients.
    `cuda_graph.StepGraphs` does the same by replaying recorded steps.
    """
    parallel = parallel or Alone(model, task)
    task = parallel.task
    pieces, splits = list(batches), 0
    while True:
        result = gradients(model, optimiser, pieces, config, step, task, tokens=tokens, parallel=parallel)
        if result.failed is None:
            break
        # Out here nothing refers to the tensors of the failed piece any more.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not parallel.splits:
            raise TrainingError(
                f"out of memory with a batch of {task.size(pieces[result.failed])}, which cannot be split because "
                "other processes have part of its gradient; use smaller batches, such as a lower batch.tokens"
            )
        say(f"step {step}: out of memory with a batch of {task.size(pieces[result.failed])}; splitting it in two")
        pieces[result.failed : result.failed + 1] = task.halves(pieces[result.failed])
        splits += 1
    cross_entropy = parallel.combine(result.cross_entropy)
    try:
        norm, skipped = update(optimiser, clip=config.clip)
    except torch.OutOfMemoryError:
        raise TrainingError("out of memory for AdamW's optimiser state; train a smaller model") from None
    return StepOutcome(cross_entropy, result.tokens, norm, skipped, splits)


class BackwardResult(NamedTuple):
    """What a backward pass returns beside the gradients, which are stored with the weights."""

    cross_entropy: Float[Tensor, ""]
    tokens: int
    failed: int | None
    """The piece that did not fit in memory, in which case the rest is unfinished."""


def gradients(
    model: nn.Module,
    optimiser: AdamW,
    pieces: Sequence[Any],
    config: TrainingConfig,
    step: int,
    task: AnyObjective = SEQUENCES,
    *,
    tokens: int | None = None,
    parallel: Alone | None = None,
) -> BackwardResult:
    """Fill in the gradient of these pieces' part of the mean over all tokens; they are the whole of it by default.

    When a piece does not fit, what its backward pass had already added cannot be told from the rest: all begin anew.
    """
    optimiser.zero_grad(set_to_none=True)
    device = next(model.parameters()).device
    parallel = parallel or Alone(model, task)
    tokens = max(sum(task.items(piece) for piece in pieces), 1) if tokens is None else tokens
    cross_entropy = torch.zeros((), device=device)
    share = torch.full((), float(tokens), device=device)
    for number, (seed, piece) in enumerate(zip(parallel.numbers(), pieces, strict=False)):
        draw_from(seed_of(config.seed, step, seed), device)
        parallel.begin_piece(last=number == len(pieces) - 1)
        try:
            loss = add_gradient(piece, share, config, parallel)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            return BackwardResult(cross_entropy, tokens, number)
        cross_entropy = cross_entropy + loss
    return BackwardResult(cross_entropy, tokens, None)


def add_gradient(piece: Any, tokens: Float[Tensor, ""], config: TrainingConfig, parallel: Alone) -> Float[Tensor, ""]:
    """Add the gradient of a piece's loss / `tokens` to the weights; the cross-entropy of the piece."""
    device = tokens.device
    with autocast(config, device):
        loss = parallel.loss(piece, device, config)
    (loss.total / tokens).backward()  # type: ignore[no-untyped-call]
    return loss.cross_entropy


def seed_of(*numbers: int) -> int:
    """A seed that depends on all of the numbers, and is unrelated to those of their neighbours."""
    return int.from_bytes(sha256(repr(numbers).encode()).digest()[:8], "little")


def draw_from(seed: int, device: torch.device) -> None:
    """Seed the generator that dropout on `device` uses; torch.manual_seed would seed those of all devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def autocast(config: TrainingConfig, device: torch.device) -> AbstractContextManager[object]:
    """The precision of matrix products."""
    if config.precision == "bf16" and device.type not in ("cuda", "cpu"):
        raise ConfigError(
            f'training.precision = "bf16" needs a CUDA GPU or a CPU, but the model is on {device}; '
            'set it to "float32" or "auto"'
        )
    wanted = config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda" and _has_bf16())
    return torch.autocast(device.type, torch.bfloat16) if wanted else nullcontext()


def _has_bf16() -> bool:
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _out_of_memory(error: RuntimeError) -> bool:
    # The CPU's allocator has no exception of its own.
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
