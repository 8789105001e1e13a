"""Backward pass of fused additive attention: launches the Triton kernels, one piece of batch and queries at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from jumok.attention.additive.gpu import backward_kernels, few_query_kernels
from jumok.attention.additive.gpu.forward import (
    FEW,
    WIDEST,
    Inputs,
    Scorer,
    blocks,
    cuts,
    empty_plane,
    first_keys,
    in_type,
    multiprocessors,
    padded,
)
from jumok.attention.additive.gpu.mask_intervals import EVERYWHERE, MaskIntervals
from jumok.attention.triton_launch import INTERPRETED, next_power_of_two

KEYS_AT_ONCE = (16, 4)
"""Keys per program, and warps, for few queries."""


class AdditiveGradients(NamedTuple):
    """The gradients of query, key, v and value."""

    query: Tensor
    key: Tensor
    v: Tensor
    value: Tensor | None = None


def backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    mask: MaskIntervals, seed: Tensor | None, dropout: float, scores: Tensor | None = None,
) -> AdditiveGradients:  # fmt: skip
    """The gradients of all inputs, identical to the bit in every run; from the `scores` if they were kept."""
    inputs = Inputs(query, key, value, v)
    batches, queries, keys, _, width = inputs.sizes
    if queries <= FEW and width <= WIDEST:
        return backward_of_few(d_out, inputs, out, lse, mask, seed, dropout)
    sums = GradientSums(query, key, v, scored=scores is not None)
    d_value = torch.empty(value.shape, dtype=torch.float32, device=value.device)
    d_out, wide = in_type(d_out, torch.float32), in_type(value, torch.float32)
    sound = None
    if any(mask.switches.values()):
        # Where the output is NaN, dO most likely is too, and 0 · NaN would reach keys that the query does not see.
        sound = torch.linalg.vector_norm(out, torch.inf, -1) < torch.inf
        d_out = torch.where(sound[..., None], d_out, 0)
    pieces = cuts(batches, queries, keys, planes=3)
    for entries, rows in pieces:
        plane = sums.scorer.scores(entries, rows, mask) if scores is None else scores
        weights = plane if scores is None else empty_plane(len(plane), plane.shape[1], keys, query.device)
        d_scores = empty_plane(len(plane), plane.shape[1], keys, query.device)
        d_rows, values = (d_out, wide) if len(pieces) == 1 else (d_out[entries, rows], wide[entries])
        torch.bmm(d_rows, values.mT, out=first_keys(d_scores, keys))
        turned = upstream(plane, weights, d_scores, lse, sound, mask, seed, dropout, entries, rows, keys)
        whole = d_value if len(pieces) == 1 else d_value[entries]
        whole.baddbmm_(first_keys(weights, keys).mT, d_rows, beta=int(rows.start > 0))
        sums.add(d_scores, turned, entries, rows, mask)
    return sums.gradients()._replace(value=d_value)


def backward_of_few(
    d_out: Tensor, inputs: Inputs, out: Tensor, lse: Tensor, mask: MaskIntervals, seed: Tensor | None, dropout: float
) -> AdditiveGradients:
    """`backward` in one pass over keys and values, with a program for some keys of one batch entry."""
    query, (batches, queries, keys, dim, values) = inputs.query, inputs.sizes
    cols, warps = KEYS_AT_ONCE
    parts = blocks(keys, cols)
    # Several queries add to the same key, in single precision.
    kind = query.dtype if queries == 1 else torch.float32
    d_key = torch.empty(inputs.key.shape, dtype=kind, device=query.device)
    d_value = torch.empty(inputs.value.shape, dtype=kind, device=query.device)
    d_query, d_v = torch.empty(2, parts, batches, queries, dim, dtype=torch.float32, device=query.device)
    few_query_kernels.few_gradients_kernel(
        (batches * parts,), d_out, query, inputs.key, inputs.value, inputs.v, inputs.v_step, out, lse,
        *mask.arguments(lse, batches), lse if seed is None else seed, d_query, d_key, d_value, d_v,
        batches, queries, keys, dim, values, **mask.switches, DROPOUT=dropout,
        BLOCK_DIM=min(128, next_power_of_two(dim)), VALUES=min(128, next_power_of_two(values)), COLS=cols,
        ASSEMBLY=not INTERPRETED, warps=warps,
    )  # fmt: skip
    of_v = d_v.sum((0, 2)) if inputs.v.shape[0] > 1 else d_v.sum((0, 1, 2))[None]
    return AdditiveGradients(d_query[0] if parts == 1 else d_query.sum(0), d_key, of_v, d_value)


def scores_backward(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> AdditiveGradients:
    """The gradients of query, key and v from those of the scores."""
    (batches, queries, _), keys = query.shape, key.shape[1]
    sums = GradientSums(query, key, v, scored=True)
    for entries, rows in cuts(batches, queries, keys, planes=2):
        d_rows = d_scores[entries, rows].float()
        plane, turned = (filled(part) for part in (d_rows, d_rows.mT))
        sums.add(plane, turned, entries, rows)
    return sums.gradients()


def filled(part: Tensor) -> Tensor:
    """A copy as a plane, with zeros in its padding."""
    batches, rows, cols = part.shape
    plane = empty_plane(batches, padded(rows), cols, part.device).zero_()
    plane[:, :rows, :cols] = part
    return plane


def upstream(
    scores: Tensor, weights: Tensor, d_scores: Tensor, lse: Tensor, sound: Tensor | None, mask: MaskIntervals,
    seed: Tensor | None, dropout: float, entries: slice, rows: slice, keys: int,
) -> Tensor:  # fmt: skip
    """Scores to weights, gradients of weights to those of scores, in place; returns the latter transposed."""
    batches, count = weights.shape[:2]
    turned = empty_plane(batches, padded(keys, 64), count, weights.device)
    height = 32 if count > 16 else 16
    backward_kernels.upstream_kernel(
        (batches * blocks(padded(count), height),),
        scores, weights, d_scores, turned, weights.stride(0), weights.stride(1), turned.stride(0), turned.stride(1),
        lse, lse if sound is None else sound.view(torch.uint8), *mask.arguments(lse, lse.shape[1]),
        lse if seed is None else seed,
        lse.shape[1], entries.start, rows.start, count, padded(count), lse.shape[2], keys,
        **mask.switches, DROPOUT=dropout, ROWS=height, COLS=64,
    )  # fmt: skip
    return turned


class GradientSums:
    """The gradients of queries, keys and v, summed over the pieces."""

    def __init__(self, query: Tensor, key: Tensor, v: Tensor, *, scored: bool = False) -> None:
        self.query, self.key, self.v = query, key, v
        self.scorer = Scorer(query, key, v, tiled=not scored, by_time=True)
        self.tiling = side_tiling(query.shape[1], key.shape[1], query.shape[2])
        self.d_query, self.d_key = (torch.empty(x.shape, dtype=torch.float32, device=x.device) for x in (query, key))
        self.sums: list[tuple[slice, Tensor]] = []

    def add(self, plane: Tensor, turned: Tensor, entries: slice, rows: slice, mask: MaskIntervals = EVERYWHERE) -> None:
        """Add a piece: the gradient of its scores [batch, query, key], and the same transposed."""
        (batches, queries, dim), keys, scorer = self.query.shape, self.key.shape[1], self.scorer
        number, count, tiling = entries.stop - entries.start, rows.stop - rows.start, self.tiling
        tiles = blocks(count, tiling.rows), blocks(keys, tiling.cols)
        grid = number * sum(tiles), blocks(dim, tiling.dims)
        parts = side_parts(grid[0] * grid[1], max(count, keys), plane.device)
        d_query, d_key = self.d_query, self.d_key
        if parts > 1:
            d_query, d_key = (torch.empty(parts, *x.shape, device=x.device) for x in (self.query, self.key))
        sums = torch.empty(parts, number, tiles[0], dim, device=plane.device)
        backward_kernels.sides_kernel(
            (grid[0] * parts, grid[1]), self.query, self.key, self.v, dim if self.v.shape[0] > 1 else 0, scorer.room,
            plane, plane.stride(0), plane.stride(1), turned, turned.stride(0), turned.stride(1),
            *mask.limits(plane), d_query, d_key, sums, batches, scorer.vectors, number, entries.start, rows.start,
            count, queries, keys, *scorer.times, dim, parts, int(parts == 1 and rows.start > 0),
            **mask.bounds, DIM=scorer.dims, TILED=scorer.tiled, ROWS=tiling.rows, COLS=tiling.cols, DIMS=tiling.dims,
            ASSEMBLY=not INTERPRETED, warps=tiling.warps, stages=1, registers=128,
        )  # fmt: skip
        if parts > 1:
            self.d_query[entries, rows] = d_query[:, entries, rows].sum(0)
            together = d_key[:, entries].sum(0)
            self.d_key[entries] = together + self.d_key[entries] if rows.start > 0 else together
        self.sums.append((entries, sums))

    def gradients(self) -> AdditiveGradients:
        """The sums."""
        if len(self.sums) == 1 and self.v.shape[0] == 1:  # the usual case, in one step
            return AdditiveGradients(self.d_query, self.d_key, self.sums[0][1].sum((0, 1, 2))[None])
        d_v = torch.zeros(self.query.shape[0], self.query.shape[2], dtype=torch.float32, device=self.query.device)
        for entries, sums in self.sums:
            d_v[entries] += sums.sum((0, 2))
        return AdditiveGradients(self.d_query, self.d_key, d_v if self.v.shape[0] > 1 else d_v.sum(0, keepdim=True))


class SideTiling(NamedTuple):
    """Tile sizes of the gradients of queries and keys: positions of each, features, and warps per tile."""

    rows: int
    cols: int
    dims: int
    warps: int


def side_tiling(queries: int, keys: int, dim: int) -> SideTiling:
    """64 positions, or as many as there are, and 32 features; with fewer than 64, the other way round."""
    rows, cols = (min(64, max(16, next_power_of_two(times))) for times in (queries, keys))
    if min(rows, cols) < 64:
        rows, cols = min(32, rows), min(32, cols)
    return SideTiling(rows, cols, min(32 if rows == 64 else 64, max(16, next_power_of_two(dim))), 4)


def side_parts(programs: int, count: int, device: torch.device) -> int:
    """The number of parts of the other side that fills the GPU."""
    wanted = 4 * multiprocessors(device)
    return 1 if 2 * programs >= wanted else max(1, min(blocks(count, 32), wanted // programs))
