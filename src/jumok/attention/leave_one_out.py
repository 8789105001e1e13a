"""Leave-one-out predictions at many bandwidths in one sweep over the points: each distance is computed once for all."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.kernel_sums import (
    Asked,
    Points,
    Tile,
    exponentials,
    nearest_squared,
    nearest_sums,
    negligible,
    weigh,
)

SQUARINGS = 3
"""A weight is squared so often before the next exponential; each time doubles its relative rounding."""


def left_out(
    asked: Asked, points: Points, kernel: str, bandwidths: Sequence[float]
) -> Float[Tensor, "bandwidth query value"]:
    """The mean of the values seen by each query, its own point hidden, weighed by the kernel of each bandwidth.

    Bandwidths descend. Of two Gaussians √2 apart the narrower is the square of the wider.
    """
    gap = asked.gaps(points)
    nearest = nearest_squared(asked, points, gap)
    reaches = gap.new_tensor([_reach(h, kernel, nearest, points) for h in bandwidths])
    live = (gap <= reaches[:, None]).sum(0)  # the first so many bandwidths reach a block
    order = live.argsort(descending=True)
    sums = asked.x.new_zeros(len(bandwidths), len(asked.x), points.values.shape[0], dtype=torch.float64)
    for tile in asked.tiles(points, order[: int((live > 0).sum())]):
        some = bandwidths[: int(live[tile.blocks].max())]
        if kernel == "gaussian":
            tile.squared.sub_(nearest[:, None])
            _add_gaussians(sums, tile, some)
        else:
            for i, h in enumerate(some):
                sums[i] += tile.mixed(weigh(tile.squared.clone(), nearest, kernel, h))
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


def _reach(bandwidth: float, kernel: str, nearest: Float[Tensor, " query"], points: Points) -> float:
    """The squared distance beyond which the points do not count, and a little more for rounding."""
    if kernel == "gaussian":
        return float(nearest.amax()) + negligible(bandwidth, points, nearest.dtype)
    return bandwidth * bandwidth * (1 + 1e-5)


def _add_gaussians(sums: Float[Tensor, "bandwidth query value"], further: Tile, bandwidths: Sequence[float]) -> None:
    """Add the points of a tile, whose squared distances are less those of the nearest point."""
    weights, squared = torch.empty_like(further.squared), SQUARINGS
    smallest = torch.finfo(weights.dtype).tiny ** 0.5  # whose square is still a number of full precision
    for i, h in enumerate(bandwidths):
        narrower = i > 0 and abs(bandwidths[i - 1] ** 2 / h**2 - 2) < 1e-9
        if narrower and squared < SQUARINGS:
            weights.clamp_(min=smallest).square_()
            squared += 1
        else:
            exponentials(weights.copy_(further.squared), h)
            squared = 0
        sums[i] += further.mixed(weights)


def rows_asked(points: Points, rows: Int[Tensor, " row"], size: int) -> list[Int[Tensor, " some"]]:
    """The places of some points, in blocks of neighbours."""
    place = torch.empty_like(points.blocks.order)
    place[points.blocks.order[: points.blocks.points]] = torch.arange(points.blocks.points, device=rows.device)
    return list(torch.split(place[rows].sort().values, size))
