"""Which way a call of attention is computed: the one place that decides, and can say why."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jumok.attention import blocks, sdpa, tracing
from jumok.attention.additive import cpu, fused
from jumok.attention.blocks import bytes_at_once, in_blocks
from jumok.attention.call import AttentionCall
from jumok.attention.normalise import NORMALISERS
from jumok.attention.weights import Attended, Weights, versions
from jumok.errors import ArgumentError, BackendError

NAMES = ("sdpa", "fused", "blocked", "direct")
"""From the fastest to the one that always works."""


@dataclass(frozen=True)
class Plan:
    """Which backend runs, and what stands against each of the others."""

    backend: str
    reason: str
    against: dict[str, str]

    def __str__(self) -> str:
        others = [f"  not {name}: {reason}" for name, reason in self.against.items()]
        return "\n".join([f"{self.backend}: {self.reason}", *others])


def plan(call: AttentionCall, backend: str = "auto") -> Plan:
    """Choose the backend for a call, or check that the one asked for can run it."""
    if backend == "auto" and tracing.in_transform():
        return Plan("direct", _why("direct", call), dict.fromkeys(OBSTACLES, tracing.REASON))
    if backend == "auto":
        against: dict[str, str] = {}
        for name, why_not in OBSTACLES.items():
            if (reason := why_not(call)) is None:
                return Plan(name, _why(name, call), against)
            against[name] = reason
        return Plan("direct", _why("direct", call), against)
    if backend not in NAMES:
        raise ArgumentError(f"backend must be auto or one of {', '.join(NAMES)}, but it is {backend!r}")
    if backend in REFUSALS and (obstacle := REFUSALS[backend](call)) is not None:
        raise BackendError(
            f'backend "{backend}" was asked for, but {obstacle}; "auto" would run "{plan(call).backend}"'
        )
    return Plan(backend, "asked for by name", {})


def run(call: AttentionCall, backend: str) -> Attended:
    """Compute a call with a backend that `plan` chose."""
    if backend == "sdpa":
        return _answer(call, sdpa.run(call), built=None)
    if backend == "fused":
        values, call = fused.run(call)
        return _answer(call, values, built=None)
    if backend == "blocked":
        call = replace(call, score=cpu.twin(call.score, call.query))
        return _answer(call, _joined(call), built=None)
    weights = call.weights()
    return _answer(call, call.mix(weights), built=weights)


def _joined(call: AttentionCall) -> Tensor:
    """The values of all blocks, one after another."""
    if torch.is_grad_enabled():
        return torch.cat(list(in_blocks(_values, call)), -2)
    # Small results kept between large blocks would leave holes in memory that no later block fits into.
    joined, start = call.value.new_empty(*call.query.shape[:-1], call.value.shape[-1]), 0
    for values in in_blocks(_values, call):
        joined[..., start : start + values.shape[-2], :] = values
        start += values.shape[-2]
    return joined


def _values(block: AttentionCall) -> Tensor:
    return block.mix(block.weights())


def _answer(call: AttentionCall, values: Tensor, built: Tensor | None) -> Attended:
    if call.sees_nonfinite is not None:
        values = values.masked_fill(call.sees_nonfinite[..., None], torch.nan)
        built = None if built is None else built.masked_fill(call.sees_nonfinite[..., None], torch.nan)
    return Attended(values, Weights(call, built, versions(call) if built is None else ()))


def _why_not_blocked(call: AttentionCall) -> str | None:
    """Why blocks cannot run, or would not be the better way."""
    if (reason := blocks.why_not(call)) is not None:
        return reason
    if call.normalise not in NORMALISERS.values():
        name = getattr(call.normalise, "__name__", "of the caller")
        return f"normalise {name} is a function that may need to see every row at once"
    if tracing.is_symbolic(*call.query.shape, *call.key.shape):
        return "it is for large calls, and how large this call will be is not known yet"
    if cpu.why_not(call.score, call.query) is None or bytes_at_once(call) > blocks.BLOCK_BYTES:
        return None
    # A compiler that leaves sizes open has no number to print.
    size = "" if torch.compiler.is_compiling() else f", {_size(bytes_at_once(call))},"
    return f"its largest tensor{size} is small enough to build at once"


REFUSALS: dict[str, Callable[[AttentionCall], str | None]] = {
    "sdpa": sdpa.why_not,
    "fused": fused.why_not,
    "blocked": blocks.why_not,
}
"""Why a backend cannot run a call, even where it is asked for by name."""

OBSTACLES = REFUSALS | {"blocked": _why_not_blocked}
"""What stands against each backend, from the fastest on; nothing stands against "direct"."""


def _why(chosen: str, call: AttentionCall) -> str:
    if chosen == "sdpa":
        return "a softmax over dot products runs in PyTorch's fused kernel; weights are rebuilt when asked for"
    if chosen == "fused":
        return (
            "Triton kernels make scores from shared exponentials; weights are rebuilt from the kept sums when asked for"
        )
    if chosen == "direct":
        return "it is computed as the equation is written, all rows at once"
    if cpu.why_not(call.score, call.query) is None:
        return "tanh comes from shared exponentials, a cache-sized tile at a time, and is recomputed for the gradient"
    return "it is computed in blocks of rows, recomputed for the gradient"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"
