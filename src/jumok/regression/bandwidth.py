"""Choosing a bandwidth by leave-one-out: the h that minimises Σᵢ ‖yᵢ − ŷ₋ᵢ(xᵢ)‖², where ŷ₋ᵢ does not see point i.

One pass over the points gives the error of many bandwidths, for each distance serves all of them. Of two Gaussians √2
apart the narrower is the square of the wider. The other kernels are 1 − (d / h)ᵖ within h: a pair is added to the
narrowest bandwidth that reaches it, 1 and dᵖ separately, and running sums give every wider one.
"""

import math
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.distance_scores import rounded_squares
from jumok.progress import ProgressBars, progress
from jumok.regression.nearby import predict_nearby
from jumok.regression.smoother import Smoother, SortedSmoother
from jumok.regression.sums import (
    TILE,
    DistanceTile,
    Points,
    QueryBlock,
    exponentials,
    keep_memory,
    means,
    nearest_squared,
    nearest_sums,
    negligible,
    of_device,
    within,
)

STEPS = {"gaussian": 8, "boxcar": 32, "epanechnikov": 32, "triangular": 32}
"""Bandwidths tried in each octave. The Gaussian's error is smooth between them, that of a kernel with an edge jumps."""
PASSES = 4
"""The same where each bandwidth takes a pass over the points: for lines and for points that count differently."""
NODES = 10
"""Number of errors that a polynomial interpolates to find a smooth minimum."""
FINER = 64
"""Places per step at which the polynomial is evaluated."""
SMOOTH = 1.1
"""An interpolated minimum lower than the smallest error by more than this factor is discarded."""
AS_GOOD = 1.005
"""Errors up to this factor of the least count as equal to it."""
DESCENTS, EVALUATIONS = 60, 75
"""Largest numbers of L-BFGS iterations and of passes over the points; usually a few suffice."""
FAR = math.log(1000)
"""Largest change of a learned log h: beyond it nothing changes any more, and exp would overflow."""
SQUARINGS = 3
"""Times a weight is squared before the next exponential; each squaring doubles its relative rounding error."""
POWERS = {"boxcar": 0, "triangular": 1, "epanechnikov": 2}
"""p of the compact kernels K = 1 − (d / h)ᵖ, with K = 1 for p = 0."""
NOTHING = 1e-9
"""Points at the very edge of a kernel weigh no more than the rounding of 1 − (d / h)ᵖ: they do not count."""


class Chosen(NamedTuple):
    """A bandwidth and its mean squared leave-one-out error."""

    bandwidth: Float[Tensor, "*dim"]
    error: float


def search_grid(
    smoother: Smoother,
    rows: Int[Tensor, " row"],
    order: Int[Tensor, " place"] | None = None,
    *,
    verbose: bool = False,
) -> Chosen:
    """Find the best multiple of the smoother's bandwidth in one pass over the points.

    Of equally deep minima the widest bandwidth wins: the error of a kernel with an edge jumps, and its deepest minimum
    may be chance.
    """
    low, high = _range(smoother)
    steps = STEPS[smoother.kernel] if smoother.is_plain else PASSES
    grid = BandwidthGrid(math.exp(high), steps, 1 + math.ceil((high - low) / math.log(2) * steps))
    if smoother.is_plain:
        errors = loo_errors(_in_units(smoother, order), rows, grid, verbose=verbose)
    else:
        errors = _errors_by_passes(smoother, rows, grid, order, verbose=verbose)
    bottom = _bottom if smoother.kernel == "gaussian" else lambda errors, step: (step, errors[step])
    valleys = [bottom(errors, step) for step in _valleys(errors)]
    least = min(error for _, error in valleys)
    step, error = min(valley for valley in valleys if valley[1] <= AS_GOOD * least)
    return Chosen(smoother.bandwidth * grid.bandwidth(step), error)


def learn(
    smoother: Smoother,
    rows: Int[Tensor, " row"],
    order: Int[Tensor, " place"] | None = None,
    *,
    verbose: bool = False,
) -> Chosen:
    """Descend the gradient of the leave-one-out error in log h, from the best multiple on the grid.

    The error has several minima, so the start matters. With one h per dimension, dimensions that do not matter get
    ever wider bandwidths until they no longer count.
    """
    best = start = search_grid(smoother, rows, order, verbose=verbose)
    log_factor = torch.zeros_like(start.bandwidth, dtype=torch.float64, requires_grad=True)
    spread = float(_outputs(smoother).var(0, correction=0).sum()) or 1.0
    descent = torch.optim.LBFGS(
        [log_factor], max_iter=DESCENTS, max_eval=EVALUATIONS, tolerance_grad=1e-8, line_search_fn="strong_wolfe"
    )
    parts, evaluations = smoother.chunks(rows), count(1)

    @torch.enable_grad()
    def closure() -> float:
        nonlocal best
        descent.zero_grad()
        total = 0.0
        for part in parts:  # each part frees its graph before the next
            bandwidth = start.bandwidth * log_factor.clamp(-FAR, FAR).exp().to(start.bandwidth.dtype)
            error = _squared_errors(replace(smoother, bandwidth=bandwidth), part) / len(rows)
            (error / spread).backward()  # type: ignore[no-untyped-call]
            total += error.item()
        bars.show_share("learning the bandwidth", next(evaluations) / EVALUATIONS)
        if total < best.error:
            best = Chosen(bandwidth.detach(), total)
        return total / spread

    with ProgressBars(show=verbose) as bars:
        descent.step(closure)  # type: ignore[no-untyped-call]
    return best


def _in_units(smoother: Smoother, order: Int[Tensor, " place"] | None = None) -> SortedSmoother:
    """Points divided by the bandwidth, so that what is tried are multiples of it."""
    unit = torch.ones((), dtype=smoother.x.dtype, device=smoother.x.device)
    return SortedSmoother.of(smoother.kernel, unit, smoother.x / smoother.bandwidth, smoother.y_and_one, order)


def _valleys(errors: list[float]) -> list[int]:
    """The steps of the grid at local minima."""
    beside = zip([math.inf, *errors], errors, [*errors[1:], math.inf], strict=False)
    return [step for step, (before, here, after) in enumerate(beside) if here <= before and here <= after]


def _bottom(errors: list[float], step: int) -> tuple[float, float]:
    """The lowest place near a step, and how low it is, on the polynomial through the errors around (Lagrange)."""
    first = max(0, min(step + 1 - NODES // 2, len(errors) - NODES))
    window = torch.tensor(errors[first : first + NODES], dtype=torch.float64)
    nodes, parts = torch.arange(len(window), dtype=torch.float64), torch.arange(-FINER, FINER + 1) / FINER
    places = (step - first + parts.double()).clamp(0, len(window) - 1)
    same = torch.eye(len(window), dtype=torch.bool)
    factors = (places[:, None, None] - nodes) / (nodes[:, None] - nodes).masked_fill(same, 1.0)
    curve = factors.masked_fill(same, 1.0).prod(-1) @ window
    lowest = int(curve.argmin())
    if curve[lowest] < errors[step] / SMOOTH:  # errors that fall by powers of ten, as without noise, are no polynomial
        return step, errors[step]
    return first + float(places[lowest]), float(curve[lowest])


def _squared_errors(smoother: Smoother, rows: Int[Tensor, " row"]) -> Float[Tensor, ""]:
    others = rows[:, None] != torch.arange(len(smoother.x), device=rows.device)
    squares = (_outputs(smoother)[rows] - smoother(smoother.x[rows], others)).square()
    return (squares if smoother.weight is None else smoother.weight[rows, None] * squares).sum()


def _outputs(smoother: Smoother) -> Float[Tensor, "point output"]:
    return smoother.y_and_one[:, :-1]


def _range(smoother: Smoother) -> tuple[float, float]:
    """log of the multiples from half the spacing of points on a line to twice the diagonal of their bounding box."""
    scaled = smoother.x / smoother.bandwidth
    diagonal = float((scaled.amax(0) - scaled.amin(0)).norm()) or 1.0
    return math.log(diagonal / len(scaled) / 2), math.log(2 * diagonal)


@dataclass(frozen=True)
class BandwidthGrid:
    """Bandwidths from the widest down, in an even number of steps per octave."""

    widest: float
    steps: int
    count: int

    def bandwidth(self, step: float) -> float:
        """The bandwidth `step` steps below the widest."""
        return self.widest * 2 ** (-step / self.steps)

    @property
    def bandwidths(self) -> list[float]:
        """All bandwidths, the widest first."""
        return [self.bandwidth(step) for step in range(self.count)]

    def reaching(self, squared: Float[Tensor, "query point"]) -> Int[Tensor, "query point"]:
        """The number of bandwidths at least as wide as each distance."""
        steps = squared.log2().sub_(2 * math.log2(self.widest)).mul_(-self.steps / 2)
        return steps.clamp_(-1, self.count - 1).floor_().add_(1).long()

    def exactly(
        self, squared: Float[Tensor, "query point"], reaching: Int[Tensor, "query point"]
    ) -> Int[Tensor, "query point"]:
        """The same where logarithms have rounded a distance to the other side of a bandwidth: d² ≤ h² is the rule."""
        bandwidths = squared.new_tensor(self.bandwidths)
        edges = torch.cat([squared.new_tensor([torch.inf]), bandwidths.square(), squared.new_tensor([-1.0])])
        return reaching + (squared <= edges[reaching + 1]).long() - (squared > edges[reaching]).long()


@torch.no_grad()
def _errors_by_passes(
    smoother: Smoother,
    rows: Int[Tensor, " row"],
    grid: BandwidthGrid,
    order: Int[Tensor, " place"] | None,
    *,
    verbose: bool = False,
) -> list[float]:
    """As `loo_errors`, for one bandwidth after another."""
    errors, parts = [], smoother.chunks(rows)
    for bandwidth in progress(grid.bandwidths, "leaving points out", len(grid.bandwidths), show=verbose):
        tried = replace(smoother, bandwidth=smoother.bandwidth * bandwidth)
        if order is not None:
            predictions = predict_nearby(tried, smoother.x[rows], order, rows)
            errors.append((_outputs(smoother)[rows] - predictions).square().sum().item() / len(rows))
        else:
            errors.append(sum(_squared_errors(tried, part).item() for part in parts) / len(rows))
    return errors


def loo_errors(
    smoother: SortedSmoother, rows: Int[Tensor, " row"], grid: BandwidthGrid, *, verbose: bool = False
) -> list[float]:
    """Mean of ‖yᵢ − ŷ₋ᵢ(xᵢ)‖² over `rows`, for each of the bandwidths, in one pass over the points."""
    keep_memory(rows.device)
    total = torch.zeros(grid.count, dtype=torch.float64, device=rows.device)
    # The sums of all bandwidths, a number for each query and value, are to take no more than a tile.
    held = of_device(TILE, rows) // (grid.count * len(smoother.points.values))
    size = max(1, min(smoother.block_size(len(rows)), held))
    blocks = query_places(smoother.points, rows, size)
    for places in progress(blocks, "leaving points out", len(blocks), show=verbose):
        queries = QueryBlock(smoother.points.blocks.x[places], places)
        predictions = leave_one_out(queries, smoother.points, smoother.kernel, grid)
        total += (predictions - smoother.points.values[:-1, places].mT).square().sum((1, 2))
    return (total / len(rows)).tolist()


def leave_one_out(
    queries: QueryBlock, points: Points, kernel: str, grid: BandwidthGrid
) -> Float[Tensor, "bandwidth query value"]:
    """Each query's prediction without its own point, at every bandwidth of the grid."""
    if kernel == "gaussian":
        return _or_nearest(_gaussian(queries, points, grid), queries, points)
    return _or_nearest(_compact(queries, points, POWERS[kernel], grid), queries, points)


def _or_nearest(sums: Tensor, queries: QueryBlock, points: Points) -> Tensor:
    """Queries that no kernel reaches take the mean of their nearest points."""
    lost = (sums[..., -1] == 0).any(0)
    if lost.any():
        near = nearest_sums(queries.select(lost), points)
        sums[:, lost] = torch.where(sums[:, lost, -1:] == 0, near, sums[:, lost])
    return means(sums)


def _gaussian(queries: QueryBlock, points: Points, grid: BandwidthGrid) -> Float[Tensor, "bandwidth query value"]:
    gap = queries.gaps(points)
    nearest = nearest_squared(queries, points, gap)
    slack = gap.new_tensor([negligible(h, points.blocks.points, gap.dtype) for h in grid.bandwidths])
    reached = within(gap.expand(grid.count, -1), (nearest.amax() + slack)[:, None])
    live = reached.sum(0)  # the first so many bandwidths reach a block
    order = live.argsort(descending=True)
    sums = queries.x.new_zeros(grid.count, len(queries.x), len(points.values), dtype=torch.float64)
    for tile in queries.tiles(points, order[: int((live > 0).sum())]):
        tile.squared.sub_(nearest[:, None])
        _add_gaussians(sums[: int(live[tile.blocks].max())], tile, grid)
    return sums


def _add_gaussians(sums: Float[Tensor, "bandwidth query value"], further: DistanceTile, grid: BandwidthGrid) -> None:
    """Add the points of a tile, whose squared distances are less those of the nearest point."""
    weights = torch.empty_like(further.squared)
    smallest = torch.finfo(weights.dtype).tiny ** 0.5  # whose square is still a number of full precision
    root = grid.steps // 2  # so many steps down is a bandwidth 1/√2 as wide
    for first in range(min(root, len(sums))):
        for squarings, step in enumerate(range(first, len(sums), root)):
            if squarings % (SQUARINGS + 1):
                weights.clamp_(min=smallest).square_()
            else:
                exponentials(weights.copy_(further.squared), grid.bandwidth(step))
            sums[step] += further.mixed(weights)


def _compact(
    queries: QueryBlock, points: Points, power: int, grid: BandwidthGrid
) -> Float[Tensor, "bandwidth query value"]:
    """Σ v and Σ dᵖ v of the points between one bandwidth and the next, added up from the narrowest."""
    shape = (1 + (power > 0), len(points.values), len(queries.x), 1 + grid.count)
    rings = queries.x.new_zeros(shape, dtype=torch.float64)
    reach = queries.x.new_tensor([grid.widest]).square()
    blocks = within(queries.gaps(points), reach).nonzero()[:, 0]
    for tile in queries.tiles(points, blocks, None if power else rounded_squares):
        rung = grid.reaching(tile.squared)
        rung = (rung if power else grid.exactly(tile.squared, rung)).expand(len(points.values), -1, -1)
        values = tile.values.double()[:, None].expand(rung.shape)
        rings[0].scatter_add_(2, rung, values)
        if power:
            rings[1].scatter_add_(2, rung, values * tile.squared.double().pow(power / 2))
    inside = rings[..., 1:].flip(-1).cumsum(-1).flip(-1)  # whom no bandwidth reaches is in the first, and left there
    sums = inside[0].clone()
    if power:
        sums -= inside[1] / inside.new_tensor(grid.bandwidths).pow(power)
    sums.masked_fill_(sums[-1] <= NOTHING * inside[0, -1], 0.0)
    return sums.permute(2, 1, 0)


def query_places(points: Points, rows: Int[Tensor, " row"], size: int) -> list[Int[Tensor, " block"]]:
    """The places of the given points, in blocks of neighbours."""
    return list(torch.split(points.blocks.place[rows].sort().values, size))
