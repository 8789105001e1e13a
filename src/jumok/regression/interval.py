"""Confidence intervals of kernel regression: ŷ(x) ± z √(σ²(x) Σ α²), the pointwise interval of the smoothed mean.

ŷ = Σ αᵢ yᵢ is a weighted mean of independent outputs, so its variance is Σ αᵢ² σᵢ², near x about σ²(x) Σ αᵢ². The noise
σ²(x) is smoothed like the outputs, from the squared residuals rᵢ = yᵢ − ŷ(xᵢ). A fit follows its own points, which
makes residuals too small: their variance is σ² (1 − 2αᵢᵢ + Σⱼ αᵢⱼ²), and each rᵢ² is divided by that bracket. Of many
points only a sample near the queries gives residuals: enough for each query to have ENOUGH of them.

The interval is one of the mean of ŷ, the curve as the kernel smooths it. It is one of the true curve only where the
bandwidth is so small that the smoothing does not matter; at the best bandwidth, bias and standard error are of the same
order.
"""

from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.regression.smoother import FEW, Smoother, SortedSmoother
from jumok.regression.sums import PointBlocks, gaps, surely_within, within

LEAST = 1e-6
"""A point whose residual keeps less than this share of the noise has no neighbours to estimate it from."""
ENOUGH = 128
"""Residuals per query: σ is then known to 1 / √256, 6 %, and an interval of 95 % holds the mean 94.8 % of the time."""
BOXES, PAIRS = 4096, 2**22
"""Largest number of boxes of queries, and of pairs of a box and a block compared at once."""


def interval(
    smoother: Smoother,
    query: Float[Tensor, "query dim"],
    level: float,
    order: Int[Tensor, " place"] | None = None,
    *,
    verbose: bool = False,
) -> list[Float[Tensor, "query output"]]:
    """The fit, and the ends of the interval that holds the smoothed mean with probability `level` at each query."""
    if not smoother.is_plain:
        fit, variance = _by_weights(smoother, query)
    elif smoother.kernel == "constant":
        fit, variance = _of_plain_mean(smoother, len(query))
    else:
        points = SortedSmoother.of(smoother.kernel, smoother.bandwidth, smoother.x, smoother.y_and_one, order)
        fit, _, evenness = _local_fit(points, query, verbose)
        variance = _noise(smoother, points, query, evenness, verbose) * evenness
    half = NormalDist().inv_cdf((1 + level) / 2) * variance.sqrt()
    return [end.to(query.dtype) for end in (fit, fit - half, fit + half)]


class LocalFit(NamedTuple):
    """The fit at each query, and what its weights say of its variance."""

    mean: Float[Tensor, "query output"]
    largest: Float[Tensor, "query 1"]
    """Weight of a training point at the query itself."""
    evenness: Float[Tensor, "query 1"]
    """Σ α²."""


def _of_plain_mean(smoother: Smoother, queries: int) -> tuple[Float[Tensor, "query output"], ...]:
    """The mean and σ²/n, the same for every query: the sums below with every weight 1/n, without n² of them."""
    y = smoother.y_and_one[:, :-1].double()
    variance = y.var(0) / len(y) if len(y) > 1 else torch.full_like(y[0], torch.nan)
    return tuple(number.expand(queries, -1) for number in (y.mean(0), variance))


def _by_weights(smoother: Smoother, query: Float[Tensor, "query dim"]) -> tuple[Float[Tensor, "query output"], ...]:
    """The fit and its variance from the weights themselves, for lines and for points that count differently."""
    y, points = smoother.y_and_one[:, :-1], len(smoother.x)
    rows = torch.arange(0, points, -(-points // FEW), device=query.device)  # evenly spread if there are too many
    squares, known = y.new_zeros(points, y.shape[1]), y.new_zeros(points, 1)
    for part in smoother.chunks(rows):
        weights = smoother.weights(smoother.x[part])
        own = weights.gather(1, part[:, None])
        kept = 1 - 2 * own + weights.square().sum(1, keepdim=True)
        known[part] = (kept > LEAST).to(y.dtype)
        squares[part] = torch.where(kept > LEAST, (y[part] - weights @ y).square() / kept, 0)
    fit, variance = torch.empty_like(y[:1]).expand(len(query), -1).clone(), y.new_empty(len(query), y.shape[1])
    mean = replace(smoother, degree=0)
    for part in smoother.chunks(torch.arange(len(query), device=query.device)):
        weights, near = smoother.weights(query[part]), mean.weights(query[part])
        fit[part], reached = weights @ y, near @ known
        noise = torch.where(reached > 0, near @ squares / reached, squares.sum(0) / known.sum())
        variance[part] = noise * weights.square().sum(1, keepdim=True)
    return fit, variance


def _local_fit(
    points: SortedSmoother, query: Float[Tensor, "query dim"], verbose: bool, what: str = "predicting"
) -> LocalFit:
    sums = points.sums(query, squares=True, what=what, verbose=verbose)
    total, squares = sums[:, -2:-1], sums[:, -1:]
    return LocalFit(sums[:, :-2] / total, 1 / total, squares / total**2)


def _noise(
    smoother: Smoother, points: SortedSmoother, query: Float[Tensor, "query dim"], evenness: Tensor, verbose: bool
) -> Float[Tensor, "query output"]:
    """σ²(x); where no point near x has neighbours, that of all points together."""
    rows, times = _sampled(points, query, evenness)
    own = _local_fit(points, smoother.x[rows], verbose, "finding the noise")
    kept = 1 - 2 * own.largest + own.evenness
    known = kept > LEAST
    squares = torch.where(known, (smoother.y_and_one[rows, :-1] - own.mean).square() / kept, 0)
    squares, known = times * squares, times * known
    values = query.new_zeros(len(smoother.x), squares.shape[1] + 2)
    values[rows, :-1], values[:, -1] = torch.cat([squares, known], 1).to(values.dtype), 1
    sums = points.with_values(values).sums(query, verbose=verbose)
    return torch.where(sums[:, -2:-1] > 0, sums[:, :-2] / sums[:, -2:-1], squares.sum(0) / known.sum())


def _sampled(
    points: SortedSmoother, query: Float[Tensor, "query dim"], evenness: Float[Tensor, "query 1"]
) -> tuple[Int[Tensor, " row"], Float[Tensor, "row 1"]]:
    """The points whose residuals are used, at least one per block, and how many points each of them stands for."""
    blocks = points.points.blocks
    if blocks.points <= FEW:
        rows = torch.arange(blocks.points, device=query.device)
        return rows, torch.ones_like(rows, dtype=query.dtype)[:, None]
    count = (_shares(points, query / points.stretch, evenness) * blocks.size).ceil().clamp(min=1).long()[:, None]
    place = torch.arange(blocks.size, device=query.device)
    chosen = (place * count % blocks.size < count) & (blocks.order.view(-1, blocks.size) < blocks.points)
    times = (blocks.size / count).expand(chosen.shape)[chosen]
    return blocks.order.view(-1, blocks.size)[chosen], times[:, None]


def _shares(
    points: SortedSmoother, query: Float[Tensor, "query dim"], evenness: Float[Tensor, "query 1"]
) -> Float[Tensor, " block"]:
    """Share of each block that gives every query near it ENOUGH residuals: Σ α² = 1/n for n equal weights."""
    blocks = points.points.blocks
    queries = PointBlocks.of(query, max(1, len(query) // BOXES))
    wanted = (ENOUGH * queries.at_places(evenness).view(queries.count, -1).amax(1)).clamp(max=1)
    width = points.bandwidth * (query.shape[1] ** 0.5 + 2 if points.kernel == "gaussian" else 1)
    shares = wanted.new_zeros(blocks.count)
    for part in torch.split(torch.arange(queries.count, device=query.device), max(1, PAIRS // blocks.count)):
        low, high = queries.low[part], queries.high[part]
        reach = (surely_within(low, high, blocks).sqrt() + width).square()
        near = within(gaps(low, high, blocks), reach[:, None])
        shares = torch.maximum(shares, (near * wanted[part, None]).amax(0))
    return shares
