"""Additive attention over one source by one query after another, on a CPU.

The same arithmetic as in additive_cpu.py, arranged for the loop of a recurrent decoder: the exponentials of the keys
are computed once for all steps, and the gradients of keys, values and v are gathered over the steps in one place
instead of being added up, whole tensors of them, by autograd after each step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from jumok.attention.additive_scores import Additive
from jumok.attention.attended import Attended, Weights
from jumok.attention.kernels.additive_cpu import LARGEST, TILE
from jumok.attention.kernels.additive_cpu import why_not as why_not_additive
from jumok.attention.lookup import Lookup
from jumok.attention.normalise import softmax
from jumok.attention.score import Score
from jumok.attention.visible import Mask, Tile


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


@dataclass(eq=False)
class Totals:
    """What all looks of one backward pass add up to: it ends when the gradient of the source is asked for."""

    d_key: Tensor | None = None
    """Without its factor 4 v."""
    d_v: Tensor | None = None
    """Without its factor −2."""
    weights: list[Tensor] = field(default_factory=list)
    d_values: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Opened:
    """A source with the exponentials of its keys."""

    key: Float[Tensor, "batch key dim"]
    value: Float[Tensor, "batch key value_dim"]
    v: Float[Tensor, " dim"]
    visible: Bool[Tensor, "batch 1 key"] | None
    down: Float[Tensor, "batch key dim"]
    blind: Bool[Tensor, "batch 1 1"] | None
    """Where there is nothing to see; None if there is something everywhere."""
    totals: Totals
    ticket: Float[Tensor, "0"]
    """Stands for the source in autograd's graph: its gradient is asked for when every look has given its own."""

    def look(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """The values mixed for these queries, and the weights."""
        values, weights = _Look.apply(query, self.ticket, self)  # type: ignore[no-untyped-call]
        tile = Tile(tuple(query.shape[:1]), query.shape[1], self.key.shape[1], query.device)
        visible = None if self.visible is None else Mask(self.visible)
        lookup = Lookup(query, self.key, self.value, Additive(self.v), softmax, visible, 0.0, tile)
        return Attended(values, Weights(lookup, weights))


def opened(key: Tensor, value: Tensor, score: Score, visible: Tensor | None) -> Opened:
    """Compute what all looks share."""
    assert isinstance(score, Additive)
    blind = None if visible is None or bool(visible.any(-1).all()) else ~visible.any(-1, keepdim=True)
    totals = Totals()
    ticket = _Open.apply(key, value, score.v, totals)  # type: ignore[no-untyped-call]
    return Opened(key, value, score.v, visible, (2 * key.detach()).exp(), blind, totals, ticket)


class _Open(torch.autograd.Function):
    """The gradients of the source, once all looks have added theirs."""

    @staticmethod
    def forward(ctx: Any, key: Tensor, value: Tensor, v: Tensor, totals: Totals) -> Tensor:
        ctx.save_for_backward(v)
        ctx.totals = totals
        return key.new_zeros(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (v,), totals = ctx.saved_tensors, ctx.totals
        d_value = torch.cat(totals.weights, 1).mT @ torch.cat(totals.d_values, 1)
        gradients = totals.d_key.mul_(4 * v), d_value, totals.d_v.mul_(-2), None
        totals.d_key = totals.d_v = None
        totals.weights.clear()
        totals.d_values.clear()
        return gradients


class _Look(torch.autograd.Function):
    """softmax(v · tanh(q + k)), masked, and the values mixed by it."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, ticket: Tensor, source: Opened) -> tuple[Tensor, Tensor]:
        up, v = (2 * query).exp(), -2 * source.v
        scores = query.new_empty(*query.shape[:2], source.key.shape[1])
        for some, tile in _tiles(up, source.down):
            scores[some] = tile @ v
        if source.visible is not None:
            scores.masked_fill_(~source.visible, -torch.inf)
        weights = scores.softmax(-1)
        if source.blind is not None:
            weights.masked_fill_(source.blind, 0)
        ctx.save_for_backward(up, weights)
        ctx.source = source
        return weights @ source.value, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_values: Tensor, d_weights: Tensor) -> tuple[Tensor, Tensor, None]:
        (up, weights), source = ctx.saved_tensors, ctx.source
        totals = source.totals
        if totals.d_key is None:
            totals.d_key, totals.d_v = torch.zeros_like(source.key), torch.zeros_like(source.v)
        totals.weights.append(weights)
        totals.d_values.append(d_values)
        d_weights = torch.baddbmm(d_weights, d_values, source.value.mT)
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        d_query = torch.empty_like(up)
        for some, tile in _tiles(up, source.down):
            upstream = d_scores[some]
            totals.d_v += upstream.reshape(-1) @ tile.flatten(0, 2)
            # tanh' = 1 − tanh² = 4 (¼ − tile²)
            slope = torch.addcmul(up.new_full(up.shape[-1:], 0.25), tile, tile, value=-1, out=tile)
            d_query[some] = (upstream[:, :, None] @ slope).squeeze(2)
            for row in range(slope.shape[1]):
                totals.d_key[some].addcmul_(slope[:, row], upstream[:, row, :, None])
        return d_query.mul_(4 * source.v), up.new_zeros(0), None


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
