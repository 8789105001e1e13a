"""Packed sequences on a CPU, one after another, so that pairs of different sequences cost nothing.

A kernel that gets a mask computes the pairs of all sequences and then hides most of them. On a GPU, jumok's kernels
skip what is hidden themselves.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.additive.reference import Additive
from jumok.attention.call import AttentionCall
from jumok.attention.masks import Both, Causal, Tile, Visible
from jumok.attention.packed import Packed
from jumok.attention.scores import Dot
from jumok.attention.windows import Window

PAIRS = 2**13
"""Query-key pairs that take about as long as one more call of a kernel."""


def in_sequences(compute: Callable[[AttentionCall], Tensor], call: AttentionCall) -> Tensor:
    """The values, computed for one packed sequence at a time where that is faster."""
    if type(call.visible) not in (Packed, Both) or not tracing.is_readable(call.query):
        return compute(call)
    masks = list(_conjuncts(call.visible))
    if sum(isinstance(mask, Packed) for mask in masks) != 1:
        return compute(call)
    parts = _parts(call, masks)
    pairs = sum(part.pairs for part in parts)
    if not parts or (call.pairs - pairs) * call.planes < PAIRS * len(parts):
        return compute(call)
    values = [compute(part) if part.pairs else part.value.new_zeros(_shape(part)) for part in parts]
    return torch.cat([*values, call.value.new_zeros(_shape(call, sum(part.tile.queries for part in parts)))], -2)


def _shape(call: AttentionCall, without: int = 0) -> tuple[int, ...]:
    """The shape of the values, without some of the queries."""
    return (*call.tile.lead, call.tile.queries - without, call.value.shape[-1])


def _conjuncts(visible: Visible | None) -> Iterator[Visible]:
    """The masks that `&` has combined."""
    if type(visible) is Both:
        yield from _conjuncts(visible.left)
        yield from _conjuncts(visible.right)
    elif visible is not None:
        yield visible


def _parts(call: AttentionCall, masks: list[Visible]) -> list[AttentionCall]:
    """A call for each sequence; none if the score or a mask is not the same function of distances everywhere."""
    packed, *more = sorted(masks, key=lambda mask: not isinstance(mask, Packed))
    assert isinstance(packed, Packed)
    of_distance = all(isinstance(mask, Causal) or (isinstance(mask, Window) and mask.centre is None) for mask in more)
    if not of_distance or not isinstance(call.score, Dot | Additive):
        return []
    query_ends, key_ends = packed.query_ends.tolist(), packed.key_ends.tolist()
    parts = []
    for query, key, value, first_row, first_key in zip(
        _split(call.query, query_ends),
        _split(call.key, key_ends),
        _split(call.value, key_ends),
        [0, *query_ends][:-1],
        [0, *key_ends][:-1],
        strict=True,
    ):
        shifted = [replace(mask, offset=mask.offset + first_row - first_key) for mask in more]  # type: ignore[attr-defined, type-var]
        visible = reduce(Both, shifted) if shifted else None
        tile = Tile(call.tile.lead, query.shape[-2], key.shape[-2], call.tile.device)
        parts.append(replace(call, query=query, key=key, value=value, visible=visible, tile=tile, sees_nonfinite=None))
    return parts


def _split(tensor: Tensor, ends: list[int]) -> tuple[Tensor, ...]:
    """The sequences of a tensor; its gradient joins theirs in one pass, unlike that of slices."""
    lengths = [end - start for start, end in pairwise([0, *ends, tensor.shape[-2]])]
    return torch.split(tensor, lengths, -2)[:-1]
