"""Additive attention over one source by one query after another, on a CPU.

The same arithmetic as in cpu.py, arranged for the loop of a recurrent decoder: the exponentials of the keys
are computed once for all steps, and every step is one function of autograd, which adds up the gradients of keys, values
and v over the steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.additive.cpu import LARGEST
from jumok.attention.additive.cpu import why_not as why_not_additive
from jumok.attention.additive.reference import Additive
from jumok.attention.call import AttentionCall
from jumok.attention.masks import Mask, Tile
from jumok.attention.normalise import softmax
from jumok.attention.scores import Score
from jumok.attention.weights import Attended, Weights

TILE = 2**18
"""Numbers in a tile: 1 MiB of float32 stays in a core's own cache from the first operation on it to the last."""


def why_not(score: Score, key: Tensor, value: Tensor) -> str | None:
    """Why this score, these keys and these values cannot be remembered here; None if they can."""
    reason = why_not_additive(score, key)
    if reason is not None:
        return reason
    if key.dim() != 3 or value.dim() != 3 or key.dtype != value.dtype or 0 in key.shape or 0 in value.shape:
        return "key and value are not [batch, key, dim] of one type"
    if not (fits(key) and bool(value.detach().sum().isfinite())):
        return "a key or a value is too large or not a number"
    return None


def fits(tensor: Tensor) -> bool:
    """Whether the exponentials are finite and not 0; False for a NaN, too."""
    lowest, highest = tensor.detach().aminmax()
    return bool(lowest > -LARGEST) and bool(highest < LARGEST)


@dataclass(frozen=True, eq=False)
class KeyExponentials:
    """A source with the exponentials of its keys."""

    key: Float[Tensor, "batch key dim"]
    value: Float[Tensor, "batch key value_dim"]
    v: Float[Tensor, " dim"]
    visible: Bool[Tensor, "batch 1 key"] | None
    down: Float[Tensor, "batch key dim"]
    blind: Bool[Tensor, "batch 1 1"] | None
    """Where there is nothing to see; None if there is something everywhere."""
    changes: tuple[int, ...]
    """How often key, value and `visible` had been changed in place when `down` and `blind` were computed from them."""

    def takes(self, query: Tensor) -> bool:
        """Whether these queries fit the source and the kernel, and the source still holds what it held."""
        batch, _, dim = self.key.shape
        if query.dim() != 3 or query.shape[::2] != (batch, dim) or not query.shape[1]:
            return False
        if query.dtype != self.key.dtype or query.device != self.key.device:
            return False
        return self.changes == _changes(self.key, self.value, self.visible) and fits(query)

    def attend(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """The values mixed for these queries, and the weights."""
        source = self.key, self.value, self.v, self.visible
        values, weights = _AdditiveStep.apply(query, *source, self.down, self.blind)  # type: ignore[no-untyped-call]
        return Attended(values, Weights(_call(query, *source), weights))


def opened(key: Tensor, value: Tensor, score: Score, visible: Tensor | None) -> KeyExponentials:
    """Compute what all looks share."""
    assert isinstance(score, Additive)
    blind = None if visible is None or bool(visible.any(-1).all()) else ~visible.any(-1, keepdim=True)
    return KeyExponentials(key, value, score.v, visible, (2 * key.detach()).exp(), blind, _changes(key, value, visible))


def _changes(*tensors: Tensor | None) -> tuple[int, ...]:
    """How often each was changed in place; inference tensors do not count it."""
    return tuple(tensor._version for tensor in tensors if tensor is not None and not tensor.is_inference())


def _call(query: Tensor, key: Tensor, value: Tensor, v: Tensor, visible: Tensor | None) -> AttentionCall:
    """The same as a call of attention."""
    tile = Tile(tuple(query.shape[:1]), query.shape[1], key.shape[1], query.device)
    mask = None if visible is None else Mask(visible)
    return AttentionCall(query, key, value, Additive(v), softmax, mask, 0.0, tile)


class _AdditiveStep(torch.autograd.Function):
    """softmax(v · tanh(q + k)), masked, and the values mixed by it."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        v: Tensor,
        visible: Tensor | None,
        down: Tensor,
        blind: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        up, minus_two_v = (2 * query).exp(), -2 * v
        scores = query.new_empty(*query.shape[:2], key.shape[1])
        for some, tile in _tiles(up, down):
            scores[some] = tile @ minus_two_v
        if visible is not None:
            scores.masked_fill_(~visible, -torch.inf)
        weights = scores.softmax(-1)
        if blind is not None:
            weights.masked_fill_(blind, 0)
        ctx.save_for_backward(query, key, value, v, visible, up, down, weights)
        return weights @ value, weights

    @staticmethod
    def backward(ctx: Any, d_values: Tensor, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, v, visible, up, down, weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient of the gradient is wanted
            gradients = _gradients_by_definition(d_values, d_weights, visible, query, key, value, v)
        else:
            gradients = _gradients(d_values, d_weights, value, v, up, down, weights)
        return (*gradients, None, None, None)


def _gradients(
    d_values: Float[Tensor, "batch query value_dim"],
    d_weights: Float[Tensor, "batch query key"],
    value: Float[Tensor, "batch key value_dim"],
    v: Float[Tensor, " dim"],
    up: Float[Tensor, "batch query dim"],
    down: Float[Tensor, "batch key dim"],
    weights: Float[Tensor, "batch query key"],
) -> tuple[Tensor, ...]:
    """Those of query, key, value and v."""
    # An outer product is three times as fast as the matrix product that it is.
    d_value = weights.mT * d_values if up.shape[1] == 1 else weights.mT @ d_values
    d_weights = torch.baddbmm(d_weights, d_values, value.mT)
    d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
    d_query, d_key, d_v = torch.empty_like(up), torch.empty_like(down), torch.zeros_like(v)
    quarter, four_v = torch.full_like(v, 0.25), 4 * v
    for some, tile in _tiles(up, down):
        upstream = d_scores[some]
        d_v += upstream.reshape(-1) @ tile.flatten(0, 2)
        # tanh' = 1 − tanh² = 4 (¼ − tile²)
        slope = torch.addcmul(quarter, tile, tile, value=-1, out=tile)
        d_query[some] = (upstream[:, :, None] @ slope).squeeze(2)
        torch.mul(slope[:, 0], upstream[:, 0, :, None], out=d_key[some])
        for row in range(1, slope.shape[1]):
            d_key[some].addcmul_(slope[:, row], upstream[:, row, :, None])
        d_key[some].mul_(four_v)
    return d_query.mul_(four_v), d_key, d_value, d_v.mul_(-2)


def _gradients_by_definition(
    d_values: Tensor, d_weights: Tensor, visible: Tensor | None, *inputs: Tensor
) -> tuple[Tensor, ...]:
    """The same from the direct form, so that they have gradients themselves."""
    leaves = tracing.graph_inputs(*inputs)
    query, key, value, v = leaves
    call = _call(query, key, value, v, visible)
    weights = call.weights()
    return torch.autograd.grad((call.mix(weights), weights), leaves, (d_values, d_weights), create_graph=True)


def _tiles(
    up: Float[Tensor, "batch query dim"], down: Float[Tensor, "batch key dim"]
) -> Iterator[tuple[slice, Float[Tensor, "some query key dim"]]]:
    """1 / (1 + e²𐞥 e²ᵏ) − ½ = −½ tanh(q + k) for some of the batch after another, each in the same memory."""
    (batch, queries, dim), keys = up.shape, down.shape[1]
    size = max(1, min(batch, TILE // (queries * keys * dim)))
    one, minus_half = up.new_ones(dim), up.new_full((dim,), -0.5)  # rows, not scalars: those are slower
    memory = up.new_empty(size, queries, keys, dim)
    for start in range(0, batch, size):
        some = slice(start, min(start + size, batch))
        tile = memory[: some.stop - start]
        torch.addcmul(one, up[some, :, None], down[some, None], out=tile)
        yield some, torch.addcdiv(minus_half, one, tile, out=tile)
