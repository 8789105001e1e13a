"""A cache of checked arguments and chosen backends for calls of `attend` with the same signature.

On a CPU, and for small problems on a GPU, the kernel takes less time than checking arguments and choosing a backend.
Both depend on shapes, dtypes, devices and names alone, for the usual calls: softmax over a scaled dot product, under no
mask or one that has a signature. Everything else is checked every time, as are lengths on a CPU against the keys.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.backends import Plan
from jumok.attention.call import AttentionCall
from jumok.attention.masks import Tile, Visible
from jumok.attention.normalise import Normaliser
from jumok.attention.scores import Dot, Score

MOST = 10_000
"""Maximum number of remembered signatures."""

Signature = tuple[Any, ...]


class CachedCall(NamedTuple):
    """What calls of one signature have in common."""

    caller_score: Score
    score: Dot
    normalise: Normaliser
    tile: Tile
    plan: Plan

    def call(self, query: Tensor, key: Tensor, value: Tensor, visible: Visible | None) -> AttentionCall:
        """A prepared call; NaN behind the mask has not been isolated."""
        if visible is not None and query.is_cpu and not visible.fits(self.tile):
            visible.check(self.tile)
        return AttentionCall(
            query, key, value, self.score, self.normalise, visible, 0.0, self.tile, None, None, False, self.caller_score
        )


_cached: dict[Signature, CachedCall] = {}


def signature(
    query: Any, key: Any, value: Any, score: Any, normalise: Any, visible: Any, dropout: Any, backend: Any
) -> Signature | None:
    """What decides how a call is checked and computed; None for calls that are checked every time."""
    if not type(query) is type(key) is type(value) is Tensor or tracing.is_traced():
        return None
    mask_key: Any = None
    if visible is not None:
        mask_key = visible.signature() if isinstance(visible, Visible) else None
        if mask_key is None:
            return None
    dtype, device, dense = query.dtype, query.device, torch.strided
    if key.dtype is not dtype or value.dtype is not dtype or key.device != device or value.device != device:
        return None
    if not query.layout is key.layout is value.layout is dense or query.is_nested or key.is_nested or value.is_nested:
        return None
    if not type(score) is type(normalise) is type(backend) is str or type(dropout) is not float or dropout != 0:
        return None
    return score, normalise, mask_key, backend, dtype, device, query.shape, key.shape, value.shape


def cached_plan(call_signature: Signature | None) -> CachedCall | None:
    """What is known about calls of this signature."""
    return None if call_signature is None else _cached.get(call_signature)


def store_plan(call_signature: Signature | None, call: AttentionCall, plan: Plan) -> None:
    """Keep what a checked call has found out, if it can serve others."""
    if call_signature is None or plan.backend not in ("sdpa", "fused"):
        return
    score, query, key = call.score.prepare(call.query, call.key)
    if type(score) is not Dot or query is not call.query or key is not call.key:
        return  # a projection, such as that of "cosine"
    if any(tensor.shape[:-2] != call.tile.lead for tensor in (query, key, call.value)):
        return
    if len(_cached) >= MOST:
        _cached.clear()
    tile = replace(call.tile, read_only=True)
    _cached[call_signature] = CachedCall(call.score, score, call.normalise, tile, plan)
