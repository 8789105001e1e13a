"""Launches the backward pass of fused additive attention, a piece of the batch and the queries at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from jumok.attention.kernels import additive_gradients
from jumok.attention.kernels.additive_fused import (
    INTERPRETED,
    Exponentials,
    Reach,
    Scorer,
    Tiling,
    blocks,
    cuts,
    empty_plane,
    exponentials,
    multiprocessors,
    padded,
    power_of_two,
)


class Gradients(NamedTuple):
    """Of what the scores were made from, and of the values."""

    query: Tensor
    key: Tensor
    v: Tensor
    value: Tensor | None = None


def backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    reach: Reach, seed: Tensor | None, dropout: float,
) -> Gradients:  # fmt: skip
    """The gradients of everything, the same to the bit in every run; float32."""
    (batches, queries, _), keys = query.shape, key.shape[1]
    d_out, wide = d_out.float(), value.float()
    delta = (d_out * out.float()).sum(-1)
    scorer, sides = Scorer(query, key, v), Sides(query, key, v)
    d_value = torch.zeros_like(wide)
    for some, rows in cuts(batches, queries, keys, planes=3):
        weights = scorer.scores(some, rows)
        d_scores = empty_plane(weights.shape[0], weights.shape[1], keys, query.device)
        d_scores[:, :, :keys] = torch.bmm(d_out[some, rows], wide[some].mT)
        turned = upstream(weights, d_scores, lse, delta, reach, seed, dropout, some, rows, keys)
        d_value[some] += torch.bmm(weights[:, :, :keys].mT, d_out[some, rows])
        sides.add(d_scores, turned, some, rows)
    return sides.gradients()._replace(value=d_value)


def scores_backward(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> Gradients:
    """The gradients of scores that were written out."""
    (batches, queries, _), keys = query.shape, key.shape[1]
    sides = Sides(query, key, v)
    for some, rows in cuts(batches, queries, keys, planes=2):
        given = d_scores[some, rows].float()
        plane, turned = (filled(part) for part in (given, given.mT))
        sides.add(plane, turned, some, rows)
    return sides.gradients()


def filled(part: Tensor) -> Tensor:
    """A copy as a plane, with zeros in its padding."""
    batches, rows, cols = part.shape
    plane = empty_plane(batches, padded(rows), cols, part.device).zero_()
    plane[:, :rows, :cols] = part
    return plane[:, :rows]


def upstream(
    weights: Tensor, d_scores: Tensor, lse: Tensor, delta: Tensor, reach: Reach, seed: Tensor | None, dropout: float,
    some: slice, rows: slice, keys: int,
) -> Tensor:  # fmt: skip
    """Scores to weights and the weights' gradient to the scores', in place; gives the latter with keys first."""
    batches, count = weights.shape[:2]
    turned = empty_plane(batches, padded(keys), count, weights.device)
    height = min(32, power_of_two(count))
    grid = (batches * blocks(padded(count), height), blocks(padded(keys), 64))
    additive_gradients.upstream_kernel[grid](
        weights, d_scores, turned, *weights.stride()[:2], *turned.stride()[:2], lse, delta,
        *reach.arguments(lse), lse if seed is None else seed,
        lse.shape[1], some.start, rows.start, count, padded(count), lse.shape[2], keys,
        ROWS=height, COLS=64, **reach.switches, DROPOUT=dropout, num_warps=4,
    )  # fmt: skip
    return turned[:, :keys]


class Sides:
    """Adds up the gradients of queries and keys over the pieces."""

    def __init__(self, query: Tensor, key: Tensor, v: Tensor) -> None:
        self.query, self.key, self.v = query, key, v
        self.up, self.down = exponentials(query, by_feature=False), exponentials(key, by_feature=False)
        self.d_query, self.d_key = (torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (query, key))
        self.sums = torch.zeros(query.shape[0], query.shape[2], dtype=torch.float32, device=query.device)

    def add(self, d_scores: Tensor, turned: Tensor, some: slice, rows: slice) -> None:
        """One piece more: the gradient of its scores [batch, query, key] and the same turned."""
        keys = slice(0, self.key.shape[1])
        own = one_side(self.query, self.up, self.key, self.down, turned, some, rows, keys, sums=True)
        other = one_side(self.key, self.down, self.query, self.up, d_scores, some, keys, rows, sums=False)
        self.d_query[some, rows] += own[0]
        self.d_key[some] += other[0]
        self.sums[some] += d_scores.sum((1, 2))[:, None] - 2 * own[1]

    def gradients(self) -> Gradients:
        """What they add up to."""
        factor = 4 * self.v.float()[:, None]
        d_v = self.sums if self.v.shape[0] > 1 else self.sums.sum(0, keepdim=True)
        return Gradients(self.d_query.mul_(factor), self.d_key.mul_(factor), d_v)


def one_side(
    own: Tensor, up: Exponentials, other: Tensor, down: Exponentials, plane: Tensor,
    some: slice, at: slice, others: slice, *, sums: bool, tiling: Tiling | None = None, parts: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Σ w r (1 − r) for each [time, feature] of one side, and Σ w r for each feature; `plane` holds w, others first."""
    own, other = own[some, at], other[some, others]
    (batches, times, dim), count = own.shape, other.shape[1]
    tiling = tiling or side_tiling(times, dim)
    programs = batches * blocks(times, tiling.rows)
    if parts is None:
        parts = side_parts(programs * blocks(dim, tiling.cols), count, own.device)
    share = blocks(blocks(count, parts), 4) * 4
    parts = blocks(count, share)
    slopes = torch.empty(parts, batches, times, dim, dtype=torch.float32, device=own.device)
    totals = torch.empty(parts, batches, blocks(times, tiling.rows), dim, dtype=torch.float32, device=own.device)
    additive_gradients.one_side_kernel[(programs * parts, blocks(dim, tiling.cols))](
        up.grown[(some.start * up.times + at.start) * up.dims :], up.times * up.dims, own, *own.stride(),
        up.peaks[some].flatten()[at.start :], up.times,
        down.grown[(some.start * down.times + others.start) * down.dims :], down.times * down.dims,
        other, *other.stride(), down.peaks[some].flatten()[others.start :], down.times,
        plane, *plane.stride()[:2], slopes, totals, batches, times, count, share, dim, up.dims,
        TIMES=tiling.rows, DIMS=tiling.cols, SUMS=sums, ASSEMBLY=not INTERPRETED,
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
    return (slopes[0] if parts == 1 else slopes.sum(0)), totals.sum((0, 2))


def side_tiling(times: int, dim: int) -> Tiling:
    """Squares of 64 where there is that much; a few times take more features instead."""
    if times > 16 and dim > 32:
        return Tiling(64 if times > 32 else 32, 64, 8 if times > 32 else 4)
    rows = min(32, power_of_two(times))
    return Tiling(rows, min(power_of_two(dim), max(32, 1024 // rows)), 4)


def side_parts(programs: int, count: int, device: torch.device) -> int:
    """Into how many parts the other side is cut so that the card is full."""
    wanted = 2 * multiprocessors(device)
    return 1 if 2 * programs >= wanted else max(1, min(blocks(count, 32), wanted // programs))
