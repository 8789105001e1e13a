"""Local lines (degree=1) through the points near each query; far points are never read.

A compact kernel ends at the bandwidth h. Of a Gaussian, n points further than √(b² + 2h² log(n / ε)) weigh less than ε
of those within b together. A local mean takes the nearest point's distance for b; a line also needs a second place, and
where points lie far apart its weight may be tiny beside that of the first. So b here reaches a whole block of points,
and where a block may lie in a single place, every point is read.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.progress import progress
from jumok.regression.smoother import Smoother, SortedSmoother
from jumok.regression.sums import (
    PointBlocks,
    QueryBlock,
    gaps,
    keep_memory,
    means,
    nearest_sums,
    negligible,
    surely_within,
    within,
)


def predict_nearby(
    smoother: Smoother,
    query: Float[Tensor, "query dim"],
    order: Int[Tensor, " place"],
    own: Int[Tensor, " query"] | None = None,
    *,
    verbose: bool = False,
) -> Float[Tensor, "query output"]:
    """Σ α y as the smoother's, from points in an order of neighbours; `own` are points that queries must not see."""
    y = query.new_empty(len(query), smoother.y_and_one.shape[1] - 1)
    sorted_points = SortedSmoother.of(smoother.kernel, smoother.bandwidth, smoother.x, smoother.y_and_one, order)
    points, by = sorted_points.points, sorted_points.stretch
    queries = PointBlocks.of(query / by, sorted_points.block_size(len(query)))
    places = None if own is None else points.blocks.place[own]
    keep_memory(query.device)
    for block in progress(range(queries.count), "predicting", queries.count, show=verbose):
        rows = queries.order[block * queries.size : (block + 1) * queries.size]
        near = _near(sorted_points, queries.low[block], queries.high[block])
        lost = _fill(y, smoother.among(near), query, rows[rows < len(query)], near, own)
        if len(lost):
            unreached = QueryBlock(query[lost] / by, None if places is None else places[lost])
            y[lost] = means(nearest_sums(unreached, points)).to(y.dtype)
    return y


def _near(smoother: SortedSmoother, low: Tensor, high: Tensor) -> Int[Tensor, " point"]:
    """The points that queries in a box may mix."""
    blocks = smoother.points.blocks
    reached = within(gaps(low, high, blocks), _reach(smoother, low, high)[None])
    near = blocks.order[blocks.places(reached.nonzero()[:, 0])]
    return near[near < blocks.points]


def _reach(smoother: SortedSmoother, low: Tensor, high: Tensor) -> Float[Tensor, ""]:
    """The squared distance from a box of queries beyond which points do not count."""
    if smoother.kernel != "gaussian":
        return low.new_tensor(smoother.bandwidth).square()
    blocks = smoother.points.blocks
    whole = blocks.points // blocks.size
    if (blocks.low[:whole] == blocks.high[:whole]).any():
        return low.new_tensor(torch.inf)
    return surely_within(low, high, blocks) + negligible(smoother.bandwidth, blocks.points, low.dtype)


def _fill(
    y: Tensor, smoother: Smoother, query: Tensor, rows: Tensor, near: Tensor, own: Tensor | None
) -> Int[Tensor, " lost"]:
    """Predict some rows from the points `near`, which the smoother has; return those that no kernel reaches."""
    if not len(near):
        return rows
    lost = [rows[:0]]
    for part in smoother.chunks(rows):
        visible = None if own is None else own[part, None] != near
        y[part], reached = smoother.local(query[part], visible)
        lost.append(part[~reached])
    return torch.cat(lost)
