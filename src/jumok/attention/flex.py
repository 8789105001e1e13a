"""A caller's function of score and positions in one kernel: PyTorch's flex attention, inside compiled code on a GPU.

The compiler builds a kernel around the function. Outside compiled code there is nothing to build it, and a function
made anew for every call would be compiled for every call; there, the scores are computed as written.
"""

from collections.abc import Callable
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention.call import AttentionCall
from jumok.attention.masks import Tile, Visible
from jumok.attention.modified_dot import ModifiedDot

ScoreChange = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def run(call: AttentionCall) -> Float[Tensor, "*lead query value_dim"]:
    """Σ softmax(score) v, with every score changed inside the kernel."""
    from torch.nn.attention.flex_attention import flex_attention

    assert isinstance(call.score, ModifiedDot)
    lead = call.tile.lead
    query, key, value = (_four_axes(tensor, lead) for tensor in (call.query, call.key, call.value))
    change = score_change(call.score, call.visible, call.tile)
    values = flex_attention(query, key, value, score_mod=change, scale=call.score.scale)
    assert isinstance(values, Tensor)
    return values.reshape(*lead, *values.shape[-2:])


def score_change(score: ModifiedDot, visible: Visible | None, tile: Tile) -> ScoreChange:
    """All that happens to scale · q·k, for one pair: cap, function, slopes, bias and mask."""
    lead, size = tile.lead, (tile.queries, tile.keys)
    slopes = None if score.slopes is None else _on_two_axes(score.slopes, lead, ())
    bias = None if score.bias is None else _on_two_axes(score.bias, lead, size)
    mask = None if visible is None else _on_two_axes(visible.tile(tile), lead, size)

    def change(scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        if score.soft_cap is not None:
            scores = score.soft_cap * torch.tanh(scores / score.soft_cap)
        if score.change is not None:
            scores = score.change(scores, batch, head, query, key)
        if slopes is not None:
            scores = scores - slopes[batch, head] * (query + score.offset - key).abs()
        if bias is not None:
            scores = scores + bias[batch, head, query, key]
        return scores if mask is None else torch.where(mask[batch, head, query, key], scores, -torch.inf)

    return change


def _four_axes(tensor: Tensor, lead: tuple[int, ...]) -> Tensor:
    """[*lead, time, dim] as [batch, head, time, dim]."""
    four = (prod(lead[:-1]), lead[-1]) if lead else (1, 1)
    return tensor.reshape(*four, *tensor.shape[-2:])


def _on_two_axes(tensor: Tensor, lead: tuple[int, ...], own: tuple[int, ...]) -> Tensor:
    """A tensor that broadcasts to [*lead, *own] as a view [batch, head, *own], copied only where it must be."""
    expanded = tensor.expand(*lead, *own)
    four = (prod(lead[:-1]), lead[-1]) if lead else (1, 1)
    return expanded if len(lead) == 2 else expanded.reshape(*four, *own)
