"""The additive score on a CPU: tanh from shared exponentials, one cache-sized tile at a time.

tanh(a + b) = 1 − 2 / (1 + e²ᵃ e²ᵇ). The exponentials depend on single queries and keys, so each (query, key, feature)
costs a multiplication, an addition and a reciprocal, about a tenth of a tanh. Nothing larger than a tile and the scores
is kept; the backward pass computes the tiles again.
"""

from collections.abc import Iterator
from math import isqrt, prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention.additive.reference import Additive

Three = tuple[Tensor, Tensor, Tensor]

TILE = 2**20
"""Numbers in a tile: 4 MiB of float32 stay in the cache from the first operation to the last."""

LARGEST = 40.0
"""Below this, e²ᵃ is finite and not 0; the product may overflow to inf or underflow to 0, which gives tanh = ±1.

Beyond it every pair computes its own exponential, 1 / (1 + e²⁽ᵃ⁺ᵇ⁾), at about the cost of a tanh.
"""


class TiledAdditive(Additive):
    """v · tanh(q + k): `Additive`, computed in tiles."""

    def __call__(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""
        lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])  # type: ignore[no-untyped-call]
        query, key = (
            tensor.expand(*lead, *tensor.shape[-2:]).flatten(0, -3) if lead else tensor[None] for tensor in (query, key)
        )
        compute: Any = additive_scores_cpu if torch.compiler.is_compiling() else _Scores.apply
        scores: Tensor = compute(query, key, self.v)
        return scores.reshape(*lead, *scores.shape[-2:])

    def planes(self, query: Tensor) -> int:
        """Tiles are small for every width."""
        return 1


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, v)
        return _scores(query, key, v)

    @staticmethod
    def backward(ctx: Any, d_scores: Tensor) -> tuple[Tensor, ...]:
        # For a second gradient autograd has to follow.
        gradients = _gradients_by_definition if torch.is_grad_enabled() else _gradients
        return gradients(d_scores, *ctx.saved_tensors)


@torch.library.custom_op("jumok::additive_scores_cpu", mutates_args=())
def additive_scores_cpu(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """`_Scores` for torch.compile, which cannot trace a choice that depends on numbers."""
    return _scores(query, key, v)


@additive_scores_cpu.register_fake
def _scores_shape(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return query.new_empty(*query.shape[:-1], key.shape[1])


@torch.library.custom_op("jumok::additive_scores_cpu_backward", mutates_args=())
def additive_scores_cpu_backward(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> Three:
    """The gradients of query, key and v."""
    return _gradients(d_scores, query, key, v)


@additive_scores_cpu_backward.register_fake
def _gradient_shapes(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> Three:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(v)


def _keep(ctx: Any, inputs: Three, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, d_scores: Tensor) -> Three:
    gradients: Three = additive_scores_cpu_backward(d_scores, *ctx.saved_tensors)
    return gradients


additive_scores_cpu.register_autograd(_backward, setup_context=_keep)


def _scores(query: Tensor, key: Tensor, v: Tensor) -> Float[Tensor, "batch query key"]:
    scores = query.new_empty(*query.shape[:-1], key.shape[1])
    for place, tile in _tiles(query, key):
        scores[place] = tile @ (-2 * v)
    return scores


def _gradients(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> Three:
    d_query, d_key, d_v = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(v)
    quarter = torch.full_like(v, 0.25)
    for (batches, rows, keys), tile in _tiles(query, key):
        upstream = d_scores[batches, rows, keys].contiguous()
        d_v += upstream.flatten() @ tile.flatten(0, 2)
        # tanh' = 1 − tanh² = 4 (¼ − tile²)
        slope = torch.addcmul(quarter, tile, tile, value=-1, out=tile).mul_(upstream[..., None])
        d_query[batches, rows] += slope.sum(2)
        d_key[batches, keys] += slope.sum(1)
    return d_query * (4 * v), d_key * (4 * v), -2 * d_v


def _gradients_by_definition(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> Three:
    """The gradients from the equation, with tanh(q + k) for all pairs at once, so that autograd can follow."""
    tanh = (query[:, :, None] + key[:, None]).tanh()
    slope = (1 - tanh**2) * v * d_scores[..., None]
    return slope.sum(2), slope.sum(1), (tanh * d_scores[..., None]).sum((0, 1, 2))


def _tiles(
    query: Tensor, key: Tensor
) -> Iterator[tuple[tuple[slice, slice, slice], Float[Tensor, "batches rows keys dim"]]]:
    """1 / (1 + e²𐞥 e²ᵏ) − ½ = −½ tanh(q + k) for one tile after another, each in the same memory.

    Tiles have about as many rows as keys, so that sums over either take few steps and round little.
    """
    (batch, queries, dim), keys = query.shape, key.shape[1]
    small = all(_largest(tensor) < LARGEST for tensor in (query, key))  # and not NaN
    of_query, of_key = ((2 * query).exp(), (2 * key).exp()) if small else (-2 * query, -2 * key)
    per_key = max(1, min(keys, isqrt(TILE // max(1, dim))))
    per_row = max(1, min(queries, TILE // max(1, dim * per_key)))
    per_batch = max(1, min(batch, TILE // max(1, dim * per_key * per_row)))
    ones, minus_half = query.new_ones(dim), query.new_full((dim,), -0.5)  # vectors: scalars are slower
    memory = query.new_empty(per_batch * per_row * per_key * dim)
    for batches in _slices(batch, per_batch):
        for rows in _slices(queries, per_row):
            for cols in _slices(keys, per_key):
                a, b = of_query[batches, rows, None, :], of_key[batches, None, cols, :]
                shape = (a.shape[0], a.shape[1], b.shape[2], dim)
                tile = memory[: prod(shape)].view(shape)
                if small:
                    torch.addcdiv(minus_half, ones, torch.addcmul(ones, a, b, out=tile), out=tile)
                else:
                    torch.add(a, b, out=tile).sigmoid_().sub_(0.5)
                yield (batches, rows, cols), tile


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().amax()) if tensor.numel() else 0.0


def _slices(size: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, size)) for start in range(0, size, step))
