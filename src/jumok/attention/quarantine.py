"""NaN and infinity behind a mask stay there.

A hidden key has weight 0, but 0 · NaN is NaN: in the sum over values, and again in every gradient that multiplies by a
key or a value. So what is not finite is taken out before the arithmetic. A query that does see such a key or value gets
NaN for its answer, as it should, and passes no gradient on; no other query is touched.
"""

from dataclasses import replace

from jaxtyping import Bool
from torch import Tensor

from jumok.attention.lookup import Lookup


def quarantine(lookup: Lookup) -> Lookup:
    """The same lookup with finite numbers only, and the queries that see others marked as spoilt."""
    if lookup.visible is None or _all_finite(lookup):
        return lookup
    broken_key = _broken(lookup.key) | _broken(lookup.value)
    visible = lookup.visible.tile(lookup.tile)
    spoilt = (visible & broken_key[..., None, :]).any(-1) | (visible.any(-1) & _broken(lookup.query))
    return replace(
        lookup,
        query=_emptied(lookup.query, _broken(lookup.query)),
        key=_emptied(lookup.key, broken_key),
        value=_emptied(lookup.value, broken_key),
        spoilt=spoilt.expand(lookup.query.shape[:-1]),
    )


def _all_finite(lookup: Lookup) -> bool:
    # One sum per tensor is the cheapest test on a CPU. On an accelerator, reading its answer would make the host wait.
    tensors = (lookup.query, lookup.key, lookup.value)
    return lookup.query.is_cpu and all(bool(tensor.detach().sum().isfinite()) for tensor in tensors)


def _broken(tensor: Tensor) -> Bool[Tensor, "*lead row"]:
    return ~tensor.detach().isfinite().all(-1)


def _emptied(tensor: Tensor, rows: Bool[Tensor, "*lead row"]) -> Tensor:
    return tensor.masked_fill(rows[..., None], 0)
