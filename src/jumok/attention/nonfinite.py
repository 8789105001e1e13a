"""NaN and infinity behind a mask stay there.

A hidden key has weight 0, but 0 · NaN is NaN: in the sum over values, and again in every gradient that multiplies by a
key or a value. So what is not finite is taken out before any arithmetic, that of the score's own projections included,
and with it what nobody sees: a finite number can be large enough to become infinite on the way.
A query that does see such a key or value gets NaN for its answer, as it should, and passes no gradient on; no other
query is touched.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.masks import Tile, Visible

PLANE = 2**25
"""How many query-key pairs are looked at together, a byte each."""


class FiniteInputs(NamedTuple):
    """Queries, keys and values without NaN and infinity."""

    query: Float[Tensor, "*#lead query query_dim"]
    key: Float[Tensor, "*#lead key key_dim"]
    value: Float[Tensor, "*#lead key value_dim"]
    sees_nonfinite: Bool[Tensor, "*lead query"] | None
    """Queries that see, or are, what was taken out; None if nothing was."""


def isolate_nonfinite(query: Tensor, key: Tensor, value: Tensor, visible: Visible | None, tile: Tile) -> FiniteInputs:
    """The same with finite numbers only, and the queries that see others marked as sees_nonfinite."""
    if visible is None or _all_harmless(query, key, value):
        return FiniteInputs(query, key, value, None)
    broken_query, broken_key, broken_value = _broken(query), _broken(key), _broken(value)
    broken = (broken_key | broken_value)[..., None, :]
    sees_nonfinite, looking, looked_at = [], [], torch.zeros((), dtype=torch.bool, device=query.device)
    for part in _parts(tile):
        seen = visible.tile(part)
        sees_nonfinite.append(_every_row((seen & broken).any(-1), part))
        looking.append(_every_row(seen.any(-1), part))
        looked_at = looked_at | seen.any(-2)
    sees_something = torch.cat(looking, -1)
    unseen = ~looked_at
    return FiniteInputs(
        _emptied(query, broken_query | _wherever(~sees_something, query)),
        _emptied(key, broken_key | _wherever(unseen, key)),
        _emptied(value, broken_value | _wherever(unseen, value)),
        (torch.cat(sees_nonfinite, -1) | (sees_something & broken_query)).expand(*tile.lead, query.shape[-2]),
    )


def _all_harmless(*tensors: Tensor) -> bool:
    """Whether it is known that no number is so large that a product of two could overflow."""
    return all(
        tracing.is_readable(tensor) and _largest(tensor) < torch.finfo(tensor.dtype).max ** 0.5 for tensor in tensors
    )


def _largest(tensor: Tensor) -> float:
    """The largest absolute value, NaN if there is one; cheaper than abs, which would make a copy."""
    if not tensor.numel():
        return 0.0
    lowest, highest = tensor.detach().aminmax()
    return float(torch.maximum(-lowest, highest))


def _parts(tile: Tile) -> Iterator[Tile]:
    """The tile, a few rows at a time: the whole plane may be far larger than all else."""
    sizes = (*tile.lead, tile.keys)
    rows = tile.height if tracing.is_symbolic(*sizes, tile.height) else max(1, PLANE // max(1, prod(sizes)))
    if tile.height <= rows:
        yield tile
        return
    for start in range(0, tile.height, rows):
        yield replace(tile, some=tile.rows[start : start + rows])


def _every_row(rows: Bool[Tensor, "*lead #rows"], tile: Tile) -> Bool[Tensor, "*lead rows"]:
    return rows.expand(*rows.shape[:-1], tile.height)


def _wherever(rows: Bool[Tensor, "*lead #row"], tensor: Float[Tensor, "*own row dim"]) -> Bool[Tensor, "*#own #row"]:
    """The rows for which it holds wherever they are broadcast to: a key shared by all heads is seen if one sees it."""
    own = tensor.shape[:-1]
    rows = rows.reshape(-1, *rows.shape[rows.dim() - len(own) :]).all(0) if rows.dim() > len(own) else rows
    for axis in range(-rows.dim(), -1):
        if own[axis] == 1:
            rows = rows.all(axis, keepdim=True)
    return rows


def _broken(tensor: Tensor) -> Bool[Tensor, "*lead row"]:
    return ~tensor.detach().isfinite().all(-1)


def _emptied(tensor: Tensor, rows: Bool[Tensor, "*lead row"]) -> Tensor:
    return tensor.masked_fill(rows[..., None], 0)
