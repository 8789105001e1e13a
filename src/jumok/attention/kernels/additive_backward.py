"""Launches the backward pass of fused additive attention, a piece of the batch and the queries at a time."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jumok.attention.kernels import additive_gradients
from jumok.attention.kernels.additive_fused import (
    INTERPRETED,
    Exponentials,
    Reach,
    Scorer,
    Tiling,
    blocks,
    coefficients,
    cuts,
    empty_plane,
    exponentials,
    multiprocessors,
    padded,
    power_of_two,
)

EVERYWHERE = Reach()


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
    scorer = Scorer(query, key, v)
    sides = Sides(query, key, v, (scorer.u, scorer.u_step))
    d_value = torch.empty(value.shape, dtype=torch.float32, device=value.device)
    for some, rows in cuts(batches, queries, keys, planes=3):
        weights = scorer.scores(some, rows, reach)
        d_scores = empty_plane(weights.shape[0], weights.shape[1], keys, query.device)
        torch.bmm(d_out[some, rows], wide[some].mT, out=d_scores[:, :, :keys])
        turned = upstream(weights, d_scores, lse, delta, reach, seed, dropout, some, rows, keys)
        d_value[some].baddbmm_(weights[:, :, :keys].mT, d_out[some, rows], beta=int(rows.start > 0))
        sides.add(d_scores, turned, some, rows, reach)
    return sides.gradients()._replace(value=d_value)


def scores_backward(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> Gradients:
    """The gradients of scores that were written out."""
    (batches, queries, _), keys = query.shape, key.shape[1]
    sides = Sides(query, key, v, coefficients(v))
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

    def __init__(self, query: Tensor, key: Tensor, v: Tensor, shared: tuple[Tensor, int]) -> None:
        self.query, self.key, self.v = query, key, v
        self.u, self.u_step = shared
        self.up, self.down = exponentials(query), exponentials(key)
        self.d_query, self.d_key = (torch.empty(x.shape, dtype=torch.float32, device=x.device) for x in (query, key))
        self.sums: list[tuple[slice, Tensor, Tensor]] = []

    def add(self, d_scores: Tensor, turned: Tensor, some: slice, rows: slice, reach: Reach = EVERYWHERE) -> None:
        """One piece more: the gradient of its scores [batch, query, key] and the same turned."""
        keys = slice(0, self.key.shape[1])
        shared = self.u[some.start if self.u_step else 0 :], self.u_step
        sides = Side(self.query, self.up, some, rows), Side(self.key, self.down, some, keys)
        tilings = [side_tiling(side.times.stop - side.times.start, self.query.shape[2]) for side in sides]
        spans: tuple[Tensor | None, Tensor | None] = (None, None)
        if reach.first is not None and reach.beyond is not None:
            spans = both_spans(reach.first[some, rows], reach.beyond[some, rows], keys.stop, *tilings)
        sums = one_side(*sides, turned, shared, self.d_query[some, rows], tilings[0], spans[0], sums=True)
        one_side(*sides[::-1], d_scores, shared, self.d_key[some], tilings[1], spans[1], add=rows.start > 0)
        self.sums.append((some, sums, d_scores.sum((1, 2))))

    def gradients(self) -> Gradients:
        """What they add up to."""
        if len(self.sums) == 1 and self.v.shape[0] == 1:  # the usual case, in fewer steps
            _, sums, totals = self.sums[0]
            return Gradients(self.d_query, self.d_key, (totals.sum() - 2 * sums.sum((0, 1, 2)))[None])
        d_v = torch.zeros(self.query.shape[0], self.query.shape[2], dtype=torch.float32, device=self.query.device)
        for some, sums, totals in self.sums:
            d_v[some] += totals[:, None] - 2 * sums.sum((0, 2))
        return Gradients(self.d_query, self.d_key, d_v if self.v.shape[0] > 1 else d_v.sum(0, keepdim=True))


class Side(NamedTuple):
    """Some queries or keys of some entries of the batch, and the exponentials of all."""

    whole: Tensor
    exponentials: Exponentials
    some: slice
    times: slice

    def arguments(self) -> tuple[Any, ...]:
        """What the kernel calls it."""
        own, grown = self.whole[self.some, self.times], self.exponentials
        start = self.some.start * grown.times + self.times.start
        peaks = grown.peaks.view(-1)[start:]
        return (
            *(grown.grown[start * grown.dims :], grown.times * grown.dims),
            *(own, *own.stride(), peaks, grown.times),
        )


def one_side(
    own: Side, other: Side, plane: Tensor, shared: tuple[Tensor, int], out: Tensor, tiling: Tiling,
    spans: Tensor | None = None, *, sums: bool = False, add: bool = False, parts: int | None = None,
) -> Tensor:  # fmt: skip
    """Writes 4 v Σ w r (1 − r) of each [time, feature] of one side to `out`; gives Σ w r in parts.

    `plane` holds w, the other side's time steps first; `spans` says for each tile where it is not 0.
    """
    (batches, times, dim), count = out.shape, other.times.stop - other.times.start
    programs = batches * blocks(times, tiling.rows)
    if parts is None:
        parts = side_parts(programs * blocks(dim, tiling.cols), count, out.device)
    share = blocks(blocks(count, parts), 4) * 4
    parts = blocks(count, share)
    slopes = out if parts == 1 else torch.empty(parts, *out.shape, dtype=torch.float32, device=out.device)
    strides = (slopes.stride(-3), 0 if parts == 1 else slopes.stride(0))
    totals = torch.empty(parts, batches, blocks(times, tiling.rows), dim, dtype=torch.float32, device=out.device)
    additive_gradients.one_side_kernel[(programs * parts, blocks(dim, tiling.cols))](
        *own.arguments(), *other.arguments(), plane, *plane.stride()[:2], *shared,
        plane if spans is None else spans, slopes, *strides, totals,
        batches, times, count, share, dim, DIM=own.exponentials.dims,
        TIMES=tiling.rows, DIMS=tiling.cols, SPANS=spans is not None, SUMS=sums, ADD=add and parts == 1,
        ASSEMBLY=not INTERPRETED, num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
    if parts > 1:
        out.copy_(slopes.sum(0) + out if add else slopes.sum(0))
    return totals


def both_spans(
    first: Tensor, beyond: Tensor, keys: int, for_queries: Tiling, for_keys: Tiling
) -> tuple[Tensor, Tensor]:
    """For each tile of queries the span of keys it sees, and for each tile of keys the span of queries that see it."""
    batches, queries = first.shape
    missing = -queries % for_queries.rows
    starts = F.pad(first, (0, missing), value=keys).view(batches, -1, for_queries.rows).amin(-1)
    ends = F.pad(beyond, (0, missing), value=0).view(batches, -1, for_queries.rows).amax(-1)
    from_key = torch.arange(0, keys, for_keys.rows, device=first.device)[:, None]
    seen = (first[:, None] < from_key + for_keys.rows) & (beyond[:, None] > from_key)
    place = torch.arange(queries, device=first.device, dtype=torch.int32)
    earliest = torch.where(seen, place, queries).amin(-1)
    latest = torch.where(seen, place + 1, 0).amax(-1)
    return torch.stack((starts, ends), -1), torch.stack((earliest, latest), -1)


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
