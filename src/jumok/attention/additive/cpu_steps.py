"""Additive attention over one source by one query after another, on a CPU.

The arithmetic of cpu.py, arranged for the loop of a recurrent decoder: the exponentials of the keys are computed once
for all steps. Every step is one autograd function; autograd adds up the gradients of keys, values and v over the steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.additive.cpu import LARGEST
from jumok.attention.additive.reference import Additive
from jumok.attention.call import AttentionCall
from jumok.attention.masks import Mask, Tile
from jumok.attention.normalise import softmax
from jumok.attention.scores import Score
from jumok.attention.weights import Attended, Weights

TILE = 2**18
"""Numbers in a tile: 1 MiB of float32 stays in a core's own cache from the first operation to the last."""


def in_range(tensor: Tensor) -> bool:
    """Whether e²ˣ is finite and not 0 for every number x; False for NaN."""
    lowest, highest = tensor.detach().aminmax()
    return bool(lowest > -LARGEST) and bool(highest < LARGEST)


@dataclass(frozen=True, eq=False)
class KeyExponentials:
    """Keys and values with the exponentials e²ᵏ."""

    key: Float[Tensor, "batch key dim"]
    value: Float[Tensor, "batch key value_dim"]
    v: Float[Tensor, " dim"]
    visible: Bool[Tensor, "batch 1 key"] | None
    key_exp: Float[Tensor, "batch key dim"]
    sees_nothing: Bool[Tensor, "batch 1 1"] | None
    """Rows of the batch without a visible key; None if there are none."""
    versions: tuple[int, ...]
    """How often key, value and `visible` had been modified in place when `key_exp` and `sees_nothing` were computed."""

    @staticmethod
    def of(key: Tensor, value: Tensor, score: Score, visible: Tensor | None) -> "KeyExponentials":
        """Compute what all steps share."""
        assert isinstance(score, Additive)
        nothing = None if visible is None or bool(visible.any(-1).all()) else ~visible.any(-1, keepdim=True)
        key_exp, versions = (2 * key.detach()).exp(), _versions(key, value, visible)
        return KeyExponentials(key, value, score.v, visible, key_exp, nothing, versions)

    def accepts(self, query: Tensor) -> bool:
        """Whether the queries fit keys and kernel, and keys, values and mask are unmodified."""
        batch, _, dim = self.key.shape
        if query.dim() != 3 or query.shape[::2] != (batch, dim) or not query.shape[1]:
            return False
        if query.dtype != self.key.dtype or query.device != self.key.device:
            return False
        return self.versions == _versions(self.key, self.value, self.visible) and in_range(query)

    def attend(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """Values and weights for these queries."""
        source = self.key, self.value, self.v, self.visible
        values, weights = _AdditiveStep.apply(query, *source, self.key_exp, self.sees_nothing)  # type: ignore[no-untyped-call]
        return Attended(values, Weights(_call(query, *source), weights))


def _versions(*tensors: Tensor | None) -> tuple[int, ...]:
    """How often each was modified in place; inference tensors have no count."""
    return tuple(tensor._version for tensor in tensors if tensor is not None and not tensor.is_inference())


def _call(query: Tensor, key: Tensor, value: Tensor, v: Tensor, visible: Tensor | None) -> AttentionCall:
    """The step as a call of attention."""
    tile = Tile(tuple(query.shape[:1]), query.shape[1], key.shape[1], query.device)
    mask = None if visible is None else Mask(visible)
    return AttentionCall(query, key, value, Additive(v), softmax, mask, 0.0, tile)


class _AdditiveStep(torch.autograd.Function):
    """α = softmax(v · tanh(q + k)) over the visible keys, and Σ α v."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        v: Tensor,
        visible: Tensor | None,
        key_exp: Tensor,
        sees_nothing: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        query_exp, minus_two_v = (2 * query).exp(), -2 * v
        scores = query.new_empty(*query.shape[:2], key.shape[1])
        for part, tile in _tiles(query_exp, key_exp):
            scores[part] = tile @ minus_two_v
        if visible is not None:
            scores.masked_fill_(~visible, -torch.inf)
        weights = scores.softmax(-1)
        if sees_nothing is not None:
            weights.masked_fill_(sees_nothing, 0)
        ctx.save_for_backward(query, key, value, v, visible, query_exp, key_exp, weights)
        return weights @ value, weights

    @staticmethod
    def backward(ctx: Any, d_values: Tensor, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, v, visible, query_exp, key_exp, weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second gradient
            gradients = _gradients_by_definition(d_values, d_weights, visible, query, key, value, v)
        else:
            gradients = _gradients(d_values, d_weights, value, v, query_exp, key_exp, weights)
        return (*gradients, None, None, None)


def _gradients(
    d_values: Float[Tensor, "batch query value_dim"],
    d_weights: Float[Tensor, "batch query key"],
    value: Float[Tensor, "batch key value_dim"],
    v: Float[Tensor, " dim"],
    query_exp: Float[Tensor, "batch query dim"],
    key_exp: Float[Tensor, "batch key dim"],
    weights: Float[Tensor, "batch query key"],
) -> tuple[Tensor, ...]:
    """The gradients of query, key, value and v."""
    # For one query an outer product is three times as fast as the equal matrix product.
    d_value = weights.mT * d_values if query_exp.shape[1] == 1 else weights.mT @ d_values
    d_weights = torch.baddbmm(d_weights, d_values, value.mT)
    d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
    d_query, d_key, d_v = torch.empty_like(query_exp), torch.empty_like(key_exp), torch.zeros_like(v)
    quarter, four_v = torch.full_like(v, 0.25), 4 * v
    for part, tile in _tiles(query_exp, key_exp):
        upstream = d_scores[part]
        d_v += upstream.reshape(-1) @ tile.flatten(0, 2)
        # tanh' = 1 − tanh² = 4 (¼ − tile²)
        slope = torch.addcmul(quarter, tile, tile, value=-1, out=tile)
        d_query[part] = (upstream[:, :, None] @ slope).squeeze(2)
        torch.mul(slope[:, 0], upstream[:, 0, :, None], out=d_key[part])
        for row in range(1, slope.shape[1]):
            d_key[part].addcmul_(slope[:, row], upstream[:, row, :, None])
        d_key[part].mul_(four_v)
    return d_query.mul_(four_v), d_key, d_value, d_v.mul_(-2)


def _gradients_by_definition(
    d_values: Tensor, d_weights: Tensor, visible: Tensor | None, *inputs: Tensor
) -> tuple[Tensor, ...]:
    """The gradients from the equation itself, so that autograd can differentiate them again."""
    leaves = tracing.graph_inputs(*inputs)
    query, key, value, v = leaves
    call = _call(query, key, value, v, visible)
    weights = call.weights()
    return torch.autograd.grad((call.mix(weights), weights), leaves, (d_values, d_weights), create_graph=True)


def _tiles(
    query_exp: Float[Tensor, "batch query dim"], key_exp: Float[Tensor, "batch key dim"]
) -> Iterator[tuple[slice, Float[Tensor, "part query key dim"]]]:
    """1 / (1 + e²𐞥 e²ᵏ) − ½ = −½ tanh(q + k) for parts of the batch in turn, each in the same memory."""
    (batch, queries, dim), keys = query_exp.shape, key_exp.shape[1]
    size = max(1, min(batch, TILE // (queries * keys * dim)))
    ones, minus_half = query_exp.new_ones(dim), query_exp.new_full((dim,), -0.5)  # vectors: scalars are slower
    memory = query_exp.new_empty(size, queries, keys, dim)
    for start in range(0, batch, size):
        part = slice(start, min(start + size, batch))
        tile = memory[: part.stop - start]
        torch.addcmul(ones, query_exp[part, :, None], key_exp[part, None], out=tile)
        yield part, torch.addcdiv(minus_half, ones, tile, out=tile)
