"""Which way a call of attention is computed: the one place that decides, and can say why."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jumok.attention import blocks, sdpa, transforms
from jumok.attention.additive import cpu as additive_cpu
from jumok.attention.additive import fused
from jumok.attention.blocks import bytes_at_once, in_blocks
from jumok.attention.call import Lookup
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


def plan(lookup: Lookup, backend: str = "auto") -> Plan:
    """Choose the backend for a call, or check that the one asked for can run it."""
    if backend == "auto" and transforms.at_work():
        return Plan("direct", _why("direct", lookup), dict.fromkeys(OBSTACLES, transforms.REASON))
    if backend == "auto":
        against: dict[str, str] = {}
        for name, why_not in OBSTACLES.items():
            if (reason := why_not(lookup)) is None:
                return Plan(name, _why(name, lookup), against)
            against[name] = reason
        return Plan("direct", _why("direct", lookup), against)
    if backend not in NAMES:
        raise ArgumentError(f"backend must be auto or one of {', '.join(NAMES)}, but it is {backend!r}")
    if backend in REFUSALS and (obstacle := REFUSALS[backend](lookup)) is not None:
        raise BackendError(
            f'backend "{backend}" was asked for, but {obstacle}; "auto" would run "{plan(lookup).backend}"'
        )
    return Plan(backend, "asked for by name", {})


def run(lookup: Lookup, backend: str) -> Attended:
    """Compute a call with a backend that `plan` chose."""
    if backend == "sdpa":
        return _answer(lookup, sdpa.run(lookup), built=None)
    if backend == "fused":
        values, lookup = fused.run(lookup)
        return _answer(lookup, values, built=None)
    if backend == "blocked":
        lookup = replace(lookup, score=additive_cpu.twin(lookup.score, lookup.query))
        return _answer(lookup, _joined(lookup), built=None)
    weights = lookup.weights()
    return _answer(lookup, lookup.mix(weights), built=weights)


def _joined(lookup: Lookup) -> Tensor:
    """The values of all blocks, one after another."""
    if torch.is_grad_enabled():
        return torch.cat(list(in_blocks(_values, lookup)), -2)
    # Small results kept between large blocks would leave holes in memory that no later block fits into.
    joined, start = lookup.value.new_empty(*lookup.query.shape[:-1], lookup.value.shape[-1]), 0
    for values in in_blocks(_values, lookup):
        joined[..., start : start + values.shape[-2], :] = values
        start += values.shape[-2]
    return joined


def _values(block: Lookup) -> Tensor:
    return block.mix(block.weights())


def _answer(lookup: Lookup, values: Tensor, built: Tensor | None) -> Attended:
    if lookup.spoilt is not None:
        values = values.masked_fill(lookup.spoilt[..., None], torch.nan)
        built = None if built is None else built.masked_fill(lookup.spoilt[..., None], torch.nan)
    return Attended(values, Weights(lookup, built, versions(lookup) if built is None else ()))


def _why_not_blocked(lookup: Lookup) -> str | None:
    """Why blocks cannot run, or would not be the better way."""
    if (reason := blocks.why_not(lookup)) is not None:
        return reason
    if lookup.normalise not in NORMALISERS.values():
        name = getattr(lookup.normalise, "__name__", "of the caller")
        return f"normalise {name} is a function that may need to see every row at once"
    if transforms.is_open(*lookup.query.shape, *lookup.key.shape):
        return "it is for large calls, and how large this call will be is not known yet"
    if additive_cpu.why_not(lookup.score, lookup.query) is None or bytes_at_once(lookup) > blocks.BLOCK_BYTES:
        return None
    # A compiler that leaves sizes open has no number to print.
    size = "" if torch.compiler.is_compiling() else f", {_size(bytes_at_once(lookup))},"
    return f"its largest tensor{size} is small enough to build at once"


REFUSALS: dict[str, Callable[[Lookup], str | None]] = {
    "sdpa": sdpa.why_not,
    "fused": fused.why_not,
    "blocked": blocks.why_not,
}
"""Why a backend cannot run a call, even where it is asked for by name."""

OBSTACLES = REFUSALS | {"blocked": _why_not_blocked}
"""What stands against each backend, from the fastest on; nothing stands against "direct"."""


def _why(chosen: str, lookup: Lookup) -> str:
    if chosen == "sdpa":
        return "a softmax over dot products runs in PyTorch's fused kernel; weights are rebuilt when asked for"
    if chosen == "fused":
        return (
            "Triton kernels make scores from shared exponentials; weights are rebuilt from the kept sums when asked for"
        )
    if chosen == "direct":
        return "it is computed as the equation is written, all rows at once"
    if additive_cpu.why_not(lookup.score, lookup.query) is None:
        return "tanh comes from shared exponentials, a cache-sized tile at a time, and is recomputed for the gradient"
    return "it is computed in blocks of rows, recomputed for the gradient"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"
