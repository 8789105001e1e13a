"""Leave-one-out predictions at many bandwidths in one pass over the points: each distance is computed once for all.

Of two Gaussians √2 apart the narrower is the square of the wider. The other kernels are 1 − (d / h)ᵖ within h: a pair
is added to the narrowest bandwidth that reaches it, 1 and dᵖ by themselves, and running sums give every wider one, so
any number of bandwidths costs the same.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.distance_scores import rounded_squares
from jumok.regression.sums import Asked, Points, Tile, exponentials, nearest_squared, nearest_sums, negligible, within

SQUARINGS = 3
"""A weight is squared so often before the next exponential; each time doubles its relative rounding."""
POWERS = {"boxcar": 0, "triangular": 1, "epanechnikov": 2}
"""p of the kernels that end: K = 1 − (d / h)ᵖ, and 1 for p = 0."""
NOTHING = 1e-9
"""Points at the very edge of a kernel weigh no more than the rounding of 1 − (d / h)ᵖ: they do not count."""


@dataclass(frozen=True)
class Ladder:
    """Bandwidths from the widest down, an even number of steps to each half."""

    widest: float
    steps: int
    count: int

    def at(self, step: float) -> float:
        """The bandwidth so many steps down."""
        return self.widest * 2 ** (-step / self.steps)

    @property
    def bandwidths(self) -> list[float]:
        """All of them."""
        return [self.at(step) for step in range(self.count)]

    def reaching(self, squared: Float[Tensor, "query point"]) -> Int[Tensor, "query point"]:
        """How many bandwidths are at least as wide as each distance."""
        steps = squared.log2().sub_(2 * math.log2(self.widest)).mul_(-self.steps / 2)
        return steps.clamp_(-1, self.count - 1).floor_().add_(1).long()

    def exactly(
        self, squared: Float[Tensor, "query point"], reaching: Int[Tensor, "query point"]
    ) -> Int[Tensor, "query point"]:
        """The same where logarithms have rounded a distance to the other side of a bandwidth: d² ≤ h² is the rule."""
        bandwidths = squared.new_tensor(self.bandwidths)
        edges = torch.cat([squared.new_tensor([torch.inf]), bandwidths.square(), squared.new_tensor([-1.0])])
        return reaching + (squared <= edges[reaching + 1]).long() - (squared > edges[reaching]).long()


def left_out(asked: Asked, points: Points, kernel: str, ladder: Ladder) -> Float[Tensor, "bandwidth query value"]:
    """The mean of the values seen by each query, its own point hidden, weighed by the kernel of each bandwidth."""
    sums = _gaussian(asked, points, ladder) if kernel == "gaussian" else _compact(asked, points, POWERS[kernel], ladder)
    return _or_nearest(sums, asked, points)


def means(sums: Float[Tensor, "*lead value_and_one"]) -> Float[Tensor, "*lead value"]:
    """Σ K v / Σ K."""
    return sums[..., :-1] / sums[..., -1:]


def _or_nearest(sums: Tensor, asked: Asked, points: Points) -> Tensor:
    """Queries that no kernel reaches take the mean of their nearest points."""
    lost = (sums[..., -1] == 0).any(0)
    if lost.any():
        near = nearest_sums(asked.some(lost), points)
        sums[:, lost] = torch.where(sums[:, lost, -1:] == 0, near, sums[:, lost])
    return means(sums)


def _gaussian(asked: Asked, points: Points, ladder: Ladder) -> Float[Tensor, "bandwidth query value"]:
    gap = asked.gaps(points)
    nearest = nearest_squared(asked, points, gap)
    slack = gap.new_tensor([negligible(h, points, gap.dtype) for h in ladder.bandwidths])
    reached = within(gap.expand(ladder.count, -1), (nearest.amax() + slack)[:, None])
    live = reached.sum(0)  # the first so many bandwidths reach a block
    order = live.argsort(descending=True)
    sums = asked.x.new_zeros(ladder.count, len(asked.x), len(points.values), dtype=torch.float64)
    for tile in asked.tiles(points, order[: int((live > 0).sum())]):
        tile.squared.sub_(nearest[:, None])
        _add_gaussians(sums[: int(live[tile.blocks].max())], tile, ladder)
    return sums


def _add_gaussians(sums: Float[Tensor, "bandwidth query value"], further: Tile, ladder: Ladder) -> None:
    """Add the points of a tile, whose squared distances are less those of the nearest point."""
    weights = torch.empty_like(further.squared)
    smallest = torch.finfo(weights.dtype).tiny ** 0.5  # whose square is still a number of full precision
    root = ladder.steps // 2  # so many steps down is a bandwidth 1/√2 as wide
    for first in range(min(root, len(sums))):
        for squarings, step in enumerate(range(first, len(sums), root)):
            if squarings % (SQUARINGS + 1):
                weights.clamp_(min=smallest).square_()
            else:
                exponentials(weights.copy_(further.squared), ladder.at(step))
            sums[step] += further.mixed(weights)


def _compact(asked: Asked, points: Points, power: int, ladder: Ladder) -> Float[Tensor, "bandwidth query value"]:
    """Σ v and Σ dᵖ v of the points between one bandwidth and the next, added up from the narrowest."""
    shape = (1 + (power > 0), len(points.values), len(asked.x), 1 + ladder.count)
    rings = asked.x.new_zeros(shape, dtype=torch.float64)
    reach = asked.x.new_tensor([ladder.widest]).square()
    blocks = within(asked.gaps(points), reach).nonzero()[:, 0]
    for tile in asked.tiles(points, blocks, None if power else rounded_squares):
        rung = ladder.reaching(tile.squared)
        rung = (rung if power else ladder.exactly(tile.squared, rung)).expand(len(points.values), -1, -1)
        values = tile.values.double()[:, None].expand(rung.shape)
        rings[0].scatter_add_(2, rung, values)
        if power:
            rings[1].scatter_add_(2, rung, values * tile.squared.double().pow(power / 2))
    inside = rings[..., 1:].flip(-1).cumsum(-1).flip(-1)  # whom no bandwidth reaches is in the first, and left there
    found = inside[0].clone()
    if power:
        found -= inside[1] / inside.new_tensor(ladder.bandwidths).pow(power)
    found.masked_fill_(found[-1] <= NOTHING * inside[0, -1], 0.0)
    return found.permute(2, 1, 0)


def rows_asked(points: Points, rows: Int[Tensor, " row"], size: int) -> list[Int[Tensor, " some"]]:
    """The places of some points, in blocks of neighbours."""
    place = torch.empty_like(points.blocks.order)
    place[points.blocks.order[: points.blocks.points]] = torch.arange(points.blocks.points, device=rows.device)
    return list(torch.split(place[rows].sort().values, size))
