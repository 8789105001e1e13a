"""Fused additive attention on a GPU: whether a call can run through its Triton kernels, and how it does.

Triton is imported when a call runs, not before.
"""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.additive.reference import Additive
from jumok.attention.call import AttentionCall
from jumok.attention.masks import Both, Causal, Either, Lengths, Tile, Visible, Window, places
from jumok.attention.normalise import Normaliser, softmax
from jumok.attention.scores import Score

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
HAS_TRITON = importlib.util.find_spec("triton") is not None


def why_not(call: AttentionCall) -> str | None:
    """Why this call cannot run through it; None if it can."""
    if call.pairs == 0 or call.query.shape[-1] == 0 or call.value.shape[-1] == 0:
        return "there is nothing to compare"
    if not isinstance(call.score, Additive):
        return f"{call.named} is not additive"
    return _why_not(call.normalise, call.visible, call.query)


def takes(score: Score, normaliser: Normaliser, visible: Visible | None, query: Tensor, value: Tensor) -> bool:
    """Whether it can run a call that has queries, keys and values."""
    if not isinstance(score, Additive) or query.shape[-1] == 0 or value.shape[-1] == 0:
        return False
    return _why_not(normaliser, visible, query) is None


def _why_not(normaliser: Normaliser, visible: Visible | None, query: Tensor) -> str | None:
    if tracing.in_transform():
        return tracing.REASON
    if normaliser is not softmax:
        return "it normalises by softmax only"
    if visible is not None and visible.scales_weights:
        return "a Gaussian window multiplies the weights after the softmax"
    return why_no_kernels(query)


def why_no_kernels(query: Tensor) -> str | None:
    """Why the kernels cannot run where these queries live."""
    if not (query.is_cuda or (query.is_cpu and os.environ.get("TRITON_INTERPRET") == "1")):
        return f"it runs on a CUDA GPU and query is on {query.device}"
    if query.dtype not in DTYPES:
        return f"it takes float32, bfloat16 and float16 and query is {query.dtype}"
    if not HAS_TRITON:
        return "Triton is not installed; pip install triton"
    if query.is_cuda and not _is_ampere(query.device):
        return "the GPU is older than Ampere (compute capability 8.0)"
    return None


@cache
def _is_ampere(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 8


def twin(score: Score, query: Tensor) -> Score:
    """The faster form of a score, or the score itself."""
    if not isinstance(score, Additive) or why_no_kernels(query) is not None:
        return score
    from jumok.attention.additive.gpu.operators import AdditiveFused

    return AdditiveFused(score.v)


def run(call: AttentionCall) -> tuple[Tensor, AttentionCall]:
    """Σ softmax(v · tanh(q + k)) value, and the call as weights are rebuilt from it.

    tanh(q + k) is never built, and scores only of some rows at a time.
    """
    from jumok.attention.additive.gpu.operators import attention, flat, flat_vector

    assert isinstance(call.score, Additive)
    lead = tuple(call.query.shape[:-2])
    query, key, value = (flat(tensor, lead) for tensor in (call.query, call.key, call.value))
    view = limits(call.visible, call.tile) if call.visible is not None else View()
    seed = torch.randint(2**62, (1,), device=query.device) if call.dropout else None
    mixed, sums = attention(
        query, key, value, flat_vector(call.score.v, lead), *view.flat(lead), seed, float(call.dropout)
    )
    if len(lead) != 1:
        mixed, sums = mixed.reshape(*lead, *mixed.shape[-2:]), sums.reshape(2, *lead, sums.shape[-1])
    return mixed, replace(call, score=twin(call.score, call.query), sums=sums)


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

    def flat(self, lead: tuple[int, ...]) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The same with one leading axis."""
        first, beyond = (
            None if limit is None else limit.expand(*lead, limit.shape[-1]).reshape(-1, limit.shape[-1])
            for limit in (self.first, self.beyond)
        )
        return first, beyond, None if self.mask is None else _flat_mask(self.mask, lead)


def _flat_mask(mask: Bool[Tensor, "*#lead #rows #keys"], lead: tuple[int, ...]) -> Bool[Tensor, "shared #rows #keys"]:
    """One leading axis; those that heads share at the end are left out, so that nothing is copied for them."""
    own = list(mask.shape[:-2])
    while own and own[-1] == 1:
        own.pop()
    if not own:
        return mask.reshape(1, *mask.shape[-2:])
    axes = lead[: len(lead) - (mask.dim() - 2 - len(own))]
    return mask.reshape(*own, *mask.shape[-2:]).expand(*axes, *mask.shape[-2:]).reshape(-1, *mask.shape[-2:])


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
    centre = tile.rows + window.offset if window.centre is None else places(window.centre.detach())
    first, last = (centre - window.before).double().ceil(), (centre + window.after).double().floor()
    # A centre that is not a number shows nothing.
    first, last = first.nan_to_num(nan=tile.keys), last.nan_to_num(nan=-1)
    return View(first.clamp(0, tile.keys).long(), (last + 1).clamp(0, tile.keys).long())


def _joined(one: Tensor | None, other: Tensor | None, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return join(one, other)
