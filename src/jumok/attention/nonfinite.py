"""NaN and infinity behind a mask do not spread.

A hidden key has weight 0, but 0 · NaN is NaN: in the sum over values, and again in every gradient that multiplies by a
key or a value. So numbers that are not finite are replaced by 0 before any arithmetic, including the projections of the
score. Rows that no query sees are replaced too, because a large finite number can overflow in a projection.
A query that does see such a key or value gets NaN as its output and passes no gradient on; no other query is affected.
"""

import math
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
"""Query-key pairs of the mask that are computed at once, one byte each."""


class FiniteInputs(NamedTuple):
    """Queries, keys and values without NaN and infinity."""

    query: Float[Tensor, "*#lead query query_dim"]
    key: Float[Tensor, "*#lead key key_dim"]
    value: Float[Tensor, "*#lead key value_dim"]
    sees_nonfinite: Bool[Tensor, "*lead query"] | None
    """Queries that see, or hold, a number that was replaced; None if nothing was replaced."""


def isolate_nonfinite(query: Tensor, key: Tensor, value: Tensor, visible: Visible, tile: Tile) -> FiniteInputs:
    """Replace numbers that are not finite by 0, and mark the queries that see them."""
    if _all_harmless(query, key, value):
        return FiniteInputs(query, key, value, None)
    broken_query, broken_key, broken_value = _broken(query), _broken(key), _broken(value)
    broken = (broken_key | broken_value)[..., None, :]
    sees_nonfinite, looking, looked_at = [], [], torch.zeros((), dtype=torch.bool, device=query.device)
    for part in _parts(tile):
        mask = visible.tile(part)
        sees_nonfinite.append(_every_row((mask & broken).any(-1), part))
        looking.append(_every_row(mask.any(-1), part))
        looked_at = looked_at | mask.any(-2)
    sees_something = torch.cat(looking, -1)
    unseen = ~looked_at
    return FiniteInputs(
        _emptied(query, broken_query | _wherever(~sees_something, query)),
        _emptied(key, broken_key | _wherever(unseen, key)),
        _emptied(value, broken_value | _wherever(unseen, value)),
        (torch.cat(sees_nonfinite, -1) | (sees_something & broken_query)).expand(*tile.lead, query.shape[-2]),
    )


def _all_harmless(*tensors: Tensor) -> bool:
    """Whether all numbers are known to be so small that a product of two cannot overflow."""
    if not tracing.is_readable(tensors[0]):
        return False
    limit = torch.finfo(tensors[0].dtype).max
    return all(_sum_of_squares(tensor) < limit / 4 or _largest(tensor) < limit**0.5 for tensor in tensors)


def all_finite(*tensors: Tensor) -> bool:
    """Whether no number is NaN or infinite, by the cheapest pass; large numbers may be taken for infinite ones."""
    return all(math.isfinite(tensor.sum().item()) for tensor in tensors)


def _sum_of_squares(tensor: Tensor) -> float:
    """An upper bound on every square, or NaN; infinite where it is not found by the fastest pass over memory."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not tensor.is_contiguous():
        tensor = tensor.transpose(1, 2) if tensor.dim() == 4 else tensor  # heads split from one vector
        if not tensor.is_contiguous():
            return math.inf
    if tensor.dtype is torch.float16:
        return math.inf
    numbers = tensor.view(-1)
    return torch.dot(numbers, numbers).item()


def _largest(tensor: Tensor) -> float:
    """The largest absolute value, or NaN; cheaper than abs, which makes a copy."""
    if not tensor.numel():
        return 0.0
    lowest, highest = tensor.detach().aminmax()
    return float(torch.maximum(-lowest, highest))


def _parts(tile: Tile) -> Iterator[Tile]:
    """The tile, a few rows at a time: the whole mask may be far larger than the other tensors."""
    sizes = (*tile.lead, tile.keys)
    rows = tile.height if tracing.is_symbolic(*sizes, tile.height) else max(1, PLANE // max(1, prod(sizes)))
    if tile.height <= rows:
        yield tile
        return
    for start in range(0, tile.height, rows):
        yield replace(tile, row_index=tile.rows[start : start + rows])


def _every_row(rows: Bool[Tensor, "*lead #rows"], tile: Tile) -> Bool[Tensor, "*lead rows"]:
    return rows.expand(*rows.shape[:-1], tile.height)


def _wherever(rows: Bool[Tensor, "*lead #row"], tensor: Float[Tensor, "*own row dim"]) -> Bool[Tensor, "*#own #row"]:
    """The rows for which it holds in all heads they are broadcast to: a key shared by heads is seen if one sees it."""
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
