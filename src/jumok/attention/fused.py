"""Fused additive attention on a GPU: whether a call can run through its Triton kernels, and how it does.

Triton is imported when a call runs, not before.
"""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.attention.additive_scores import Additive
from jumok.attention.lookup import Lookup
from jumok.attention.normalise import softmax
from jumok.attention.score import Score
from jumok.attention.visible import Both, Causal, Either, Lengths, Tile, Visible, Window

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def why_not(lookup: Lookup) -> str | None:
    """Why this call cannot run through it; None if it can."""
    if not isinstance(lookup.score, Additive):
        return f"{lookup.score} is not additive"
    if lookup.normalise is not softmax:
        return "it normalises by softmax only"
    if lookup.visible is not None and lookup.visible.graded:
        return "a Gaussian window multiplies the weights after the softmax"
    if lookup.pairs == 0 or lookup.query.shape[-1] == 0 or lookup.value.shape[-1] == 0:
        return "there is nothing to compare"
    return why_no_kernels(lookup.query)


def why_no_kernels(query: Tensor) -> str | None:
    """Why the kernels cannot run where these queries live."""
    if query.device.type != "cuda" and not (query.is_cpu and os.environ.get("TRITON_INTERPRET") == "1"):
        return f"it runs on a CUDA GPU and query is on {query.device}"
    if query.dtype not in DTYPES:
        return f"it takes float32, bfloat16 and float16 and query is {query.dtype}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; pip install triton"
    if query.is_cuda and torch.cuda.get_device_properties(query.device).major < 8:
        return "the GPU is older than Ampere (compute capability 8.0)"
    return None


def twin(score: Score, query: Tensor) -> Score:
    """The faster form of a score, or the score itself."""
    if not isinstance(score, Additive) or why_no_kernels(query) is not None:
        return score
    from jumok.attention.kernels.additive_ops import AdditiveFused

    return AdditiveFused(score.v.to(query.dtype))


def run(lookup: Lookup) -> Tensor:
    """Σ softmax(v · tanh(q + k)) value; tanh(q + k) is never built, and weights only of some rows at a time."""
    from jumok.attention.kernels.additive_ops import attention, flat, flat_vector

    assert isinstance(lookup.score, Additive)
    lead = tuple(lookup.query.shape[:-2])
    query, key, value = (flat(tensor, lead) for tensor in (lookup.query, lookup.key, lookup.value))
    view = limits(lookup.visible, lookup.tile) if lookup.visible is not None else View()
    seed = torch.randint(2**62, (1,), device=query.device) if lookup.dropout else None
    mixed = attention(
        query, key, value, flat_vector(lookup.score.v, lead), *view.flat(lead, lookup), seed, float(lookup.dropout)
    )
    return mixed.reshape(*lead, *mixed.shape[-2:])


@dataclass(frozen=True, eq=False)
class View:
    """A mask as the kernels read it: for each query the keys from `first` to before `beyond`, and a boolean tensor."""

    first: Int[Tensor, "*#lead #rows"] | None = None
    beyond: Int[Tensor, "*#lead #rows"] | None = None
    mask: Bool[Tensor, "*#lead #rows #keys"] | None = None

    def __and__(self, other: "View") -> "View":
        return View(
            _joined(self.first, other.first, torch.maximum),
            _joined(self.beyond, other.beyond, torch.minimum),
            _joined(self.mask, other.mask, torch.logical_and),
        )

    def flat(self, lead: tuple[int, ...], lookup: Lookup) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The same with one leading axis."""
        queries, keys = lookup.query.shape[-2], lookup.key.shape[-2]
        first, beyond, mask = self.first, self.beyond, self.mask
        if first is not None or beyond is not None:
            nothing = torch.zeros((), dtype=torch.int32, device=lookup.query.device)
            first, beyond = (
                (nothing + default if limit is None else limit.clamp(0, keys).to(torch.int32))
                .expand(*lead, queries)
                .reshape(-1, queries)
                .contiguous()
                for limit, default in ((first, 0), (beyond, keys))
            )
        if mask is not None:
            rows = mask.shape[-2]
            mask = mask.expand(*lead, rows, keys).reshape(-1, rows, keys)
        return first, beyond, mask


def limits(visible: Visible, tile: Tile) -> View:
    """Lengths, causal and windowed masks as intervals, of which there is one for a query; others as they are."""
    if isinstance(visible, Both) and not isinstance(visible, Either):
        return limits(visible.one, tile) & limits(visible.other, tile)
    if isinstance(visible, Lengths):
        missing = len(tile.lead) - visible.lengths.dim()
        return View(beyond=visible.lengths.reshape(*visible.lengths.shape, *[1] * (missing + 1)))
    if isinstance(visible, Causal):
        return View(beyond=tile.rows + (visible.offset + 1))
    if isinstance(visible, Window):
        return _window(visible, tile)
    return View(mask=visible.tile(tile))


def _window(window: Window, tile: Tile) -> View:
    """Whole keys from centre − before to centre + after."""
    centre = tile.rows + window.offset if window.centre is None else window.centre.detach().float()
    first, last = (centre - window.before).double().ceil(), (centre + window.after).double().floor()
    # A centre that is not a number shows nothing.
    first, last = first.nan_to_num(nan=tile.keys), last.nan_to_num(nan=-1)
    return View(first.clamp(0, tile.keys).long(), (last + 1).clamp(0, tile.keys).long())


def _joined(one: Tensor | None, other: Tensor | None, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return join(one, other)


def with_twin(lookup: Lookup) -> Lookup:
    """The same call with the faster score, from which weights are rebuilt."""
    return replace(lookup, score=twin(lookup.score, lookup.query))
