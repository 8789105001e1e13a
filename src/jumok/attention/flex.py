"""A caller's function of score and positions in one kernel: PyTorch's flex attention, inside compiled code on a GPU.

The compiler builds a kernel around the function. Outside compiled code there is nothing to build it, and a function
made anew for every call would be compiled for every call; there, the scores are computed as written.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention.call import AttentionCall
from jumok.attention.masks import Both, Causal, Either, Inverted, Lengths, Tile, Visible
from jumok.attention.modified_dot import ModifiedDot
from jumok.attention.windows import Window

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

ScoreChange = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Formula = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def run(call: AttentionCall) -> Float[Tensor, "*lead query value_dim"]:
    """Σ softmax(score) v, with every score changed inside the kernel, which skips blocks that the mask hides."""
    from torch.nn.attention.flex_attention import flex_attention

    assert isinstance(call.score, ModifiedDot)
    lead = call.tile.lead
    query, key, value = (_four_axes(tensor, lead) for tensor in (call.query, call.key, call.value))
    values = flex_attention(
        query,
        key,
        value,
        score_mod=score_change(call.score, call.tile),
        block_mask=None if call.visible is None else block_mask(call.visible, call.tile),
        scale=call.score.scale,
    )
    assert isinstance(values, Tensor)
    return values.reshape(*lead, *values.shape[-2:])


def score_change(score: ModifiedDot, tile: Tile) -> ScoreChange:
    """All that happens to scale · q·k, for one pair: cap, function, slopes and bias."""
    lead, size = tile.lead, (tile.queries, tile.keys)
    slopes = None if score.slopes is None else _on_two_axes(score.slopes, lead, ())
    bias = None if score.bias is None else _on_two_axes(score.bias, lead, size)

    def change(scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        if score.soft_cap is not None:
            scores = score.soft_cap * torch.tanh(scores / score.soft_cap)
        if score.change is not None:
            scores = score.change(scores, batch, head, query, key)
        if slopes is not None:
            scores = scores - slopes[batch, head] * (query + score.offset - key).abs()
        return scores if bias is None else scores + bias[batch, head, query, key]

    return change


def block_mask(visible: Visible, tile: Tile) -> "BlockMask":
    """Which blocks of the matrix a mask shows, once for all sentences or heads that share it."""
    from torch.nn.attention.flex_attention import create_block_mask

    first_row = visible.tile(replace(tile, row_index=tile.rows[:1]))
    shared = (*[1] * (len(tile.lead) + 2 - first_row.dim()), *first_row.shape[:-2])
    batch = 1 if all(size == 1 for size in shared[:-1]) else prod(tile.lead[:-1])
    heads = 1 if not shared or shared[-1] == 1 else tile.lead[-1]
    return create_block_mask(formula(visible, tile), batch, heads, tile.queries, tile.keys, device=tile.device)


def formula(visible: Visible, tile: Tile) -> Formula:
    """A mask as a function of one query and one key; masks that have no formula are read from their matrix."""
    if isinstance(visible, Inverted):
        shown = formula(visible.mask, tile)
        return lambda batch, head, query, key: ~shown(batch, head, query, key)
    if isinstance(visible, Both):
        left, right = formula(visible.left, tile), formula(visible.right, tile)
        if isinstance(visible, Either):
            return lambda batch, head, query, key: left(batch, head, query, key) | right(batch, head, query, key)
        return lambda batch, head, query, key: left(batch, head, query, key) & right(batch, head, query, key)
    if isinstance(visible, Causal):
        offset = visible.offset
        return lambda batch, head, query, key: key <= query + offset
    if isinstance(visible, Window) and visible.centre is None:
        first, last = visible.offset - visible.before, visible.offset + visible.after
        return lambda batch, head, query, key: (key >= query + first) & (key <= query + last)
    if isinstance(visible, Lengths):
        return _before_lengths(visible, tile.lead)
    matrix = _on_two_axes(visible.tile(tile), tile.lead, (tile.queries, tile.keys))
    return lambda batch, head, query, key: matrix[batch, head, query, key]


def _before_lengths(visible: Lengths, lead: tuple[int, ...]) -> Formula:
    """Keys before the length of their sentence, for queries before theirs."""
    keys, queries = (
        None if lengths is None else _on_two_axes(lengths[(..., *[None] * (len(lead) - lengths.dim()))], lead, ())
        for lengths in (visible.lengths, visible.query_lengths)
    )
    assert keys is not None
    if queries is None:
        return lambda batch, head, query, key: key < keys[batch, head]
    return lambda batch, head, query, key: (key < keys[batch, head]) & (query < queries[batch, head])


def _four_axes(tensor: Tensor, lead: tuple[int, ...]) -> Tensor:
    """[*lead, time, dim] as [batch, head, time, dim]."""
    four = (prod(lead[:-1]), lead[-1]) if lead else (1, 1)
    return tensor.reshape(*four, *tensor.shape[-2:])


def _on_two_axes(tensor: Tensor, lead: tuple[int, ...], own: tuple[int, ...]) -> Tensor:
    """A tensor that broadcasts to [*lead, *own] as a view [batch, head, *own], copied only where it must be."""
    expanded = tensor.expand(*lead, *own)
    four = (prod(lead[:-1]), lead[-1]) if lead else (1, 1)
    return expanded if len(lead) == 2 else expanded.reshape(*four, *own)
