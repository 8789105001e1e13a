"""NaN and infinity behind a mask stay there.

A hidden key has weight 0, but 0 · NaN is NaN: in the sum over values, and again in every gradient that multiplies by a
key or a value. So what is not finite is taken out before any arithmetic, that of the score's own projections included.
A query that does see such a key or value gets NaN for its answer, as it should, and passes no gradient on; no other
query is touched.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention.visible import Tile, Visible


class Finite(NamedTuple):
    """Queries, keys and values without NaN and infinity."""

    query: Float[Tensor, "*#lead query query_dim"]
    key: Float[Tensor, "*#lead key key_dim"]
    value: Float[Tensor, "*#lead key value_dim"]
    spoilt: Bool[Tensor, "*lead query"] | None
    """Queries that see, or are, what was taken out; None if nothing was."""


def quarantine(query: Tensor, key: Tensor, value: Tensor, visible: Visible | None, tile: Tile) -> Finite:
    """The same with finite numbers only, and the queries that see others marked as spoilt."""
    if visible is None or _all_finite(query, key, value):
        return Finite(query, key, value, None)
    broken_query, broken_key, broken_value = _broken(query), _broken(key), _broken(value)
    seen = visible.tile(tile)
    spoilt = (seen & (broken_key | broken_value)[..., None, :]).any(-1) | (seen.any(-1) & broken_query)
    return Finite(
        _emptied(query, broken_query),
        _emptied(key, broken_key),
        _emptied(value, broken_value),
        spoilt.expand(*tile.lead, query.shape[-2]),
    )


def _all_finite(*tensors: Tensor) -> bool:
    # One sum per tensor is the cheapest test on a CPU. On an accelerator, reading its answer would make the host wait.
    return all(tensor.is_cpu and bool(tensor.detach().sum().isfinite()) for tensor in tensors)


def _broken(tensor: Tensor) -> Bool[Tensor, "*lead row"]:
    return ~tensor.detach().isfinite().all(-1)


def _emptied(tensor: Tensor, rows: Bool[Tensor, "*lead row"]) -> Tensor:
    return tensor.masked_fill(rows[..., None], 0)
