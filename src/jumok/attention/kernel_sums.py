"""Σ K y and Σ K over the points near each query: kernel regression in tiles that fit a cache, far points never read.

A compact kernel ends at the bandwidth h, and blocks of points beyond it add nothing. The Gaussian never ends, but with
d₀ the distance to the nearest point, n points beyond √(d₀² + 2h² log(n / ε)) hold less than ε of the weight together:
with ε the rounding of the number type, the sum is the same without them. Weights are relative to that of the nearest
point, exp((d₀² − d²) / 2h²), so a far query gets the Gaussian's limit and never 0 / 0.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.point_blocks import PointBlocks, gaps, surely_within, within
from jumok.attention.smoothing import FEW_DIMENSIONS, rounded_squares

TILE = {"cpu": 2**18, "cuda": 2**26}
"""Pairs computed at once: what a core's cache nearly holds, what fills a GPU."""
QUERIES = {"cpu": 256, "cuda": 4096}
"""Queries in a block, at most."""
FEWEST_QUERIES = {"cpu": 16, "cuda": 256}
"""And at least, however far they stand apart: each block has its share of fixed work, on a GPU a large one."""
POINTS = {"cpu": 256, "cuda": 256}
"""Points in a block."""
LOG2E = math.log2(math.e)
FEW_VALUES = 3
"""Up to here a CPU mixes values one after another; its product of matrices is made for larger ones."""


@dataclass(frozen=True, eq=False)
class Points:
    """Training points in blocks, and what is summed over them."""

    blocks: PointBlocks
    x: Float[Tensor, "dim place"]
    values: Float[Tensor, "value place"]

    @staticmethod
    def of(x: Tensor, values: Tensor, order: Int[Tensor, " place"] | None = None) -> "Points":
        """Points x [point, dim] with values [point, value]."""
        size = of_device(POINTS, x)
        blocks = PointBlocks.of(x, min(size, len(x)) if x.is_cpu else size, order)  # a GPU wants whole tiles
        return Points(blocks, blocks.x.mT.contiguous(), blocks.at_places(values).mT.contiguous())


@dataclass(frozen=True, eq=False)
class Asked:
    """Some queries near each other, and their bounding box."""

    x: Float[Tensor, "query dim"]
    own: Int[Tensor, " query"] | None
    """The place of the point that each query is and must not see, if any."""

    def gaps(self, points: Points) -> Float[Tensor, " block"]:
        """The squared distance to each block of points."""
        return gaps(self.x.amin(0), self.x.amax(0), points.blocks)

    def tiles(
        self, points: Points, blocks: Int[Tensor, " block"], squares: Callable[..., Tensor] | None = None
    ) -> Iterator["Tile"]:
        """Squared distances to all points of some blocks, a few blocks at a time."""
        squares = squares or squared_distances
        at_once = max(1, of_device(TILE, self.x) // (len(self.x) * points.blocks.size))
        for part in torch.split(blocks, at_once):
            places = points.blocks.places(part)
            squared = squares(self.x, points.x[:, places].mT)
            if self.own is not None:
                squared.masked_fill_(self.own[:, None] == places, torch.inf)
            yield Tile(squared, points.values[:, places], part)

    def some(self, rows: Tensor) -> "Asked":
        """A part of them."""
        return Asked(self.x[rows], None if self.own is None else self.own[rows])


@dataclass(frozen=True, eq=False)
class Tile:
    """Squared distances from some queries to some points, and the values of these."""

    squared: Float[Tensor, "query point"]
    values: Float[Tensor, "value point"]
    blocks: Int[Tensor, " block"]

    def mixed(self, weights: Float[Tensor, "query point"]) -> Float[Tensor, "query value"]:
        """Σ w v."""
        if weights.is_cpu and len(self.values) <= FEW_VALUES:
            return torch.stack([weights.mv(value) for value in self.values], 1)
        return F.linear(weights, self.values)


def kernel_sums(
    asked: Asked, points: Points, kernel: str, bandwidth: float, *, squares: bool = False
) -> Float[Tensor, "query value_and_square"]:
    """Σ K vᵢ in float64, and with `squares` Σ K² beside it; the Gaussian's K is relative to the nearest point's."""
    gap = asked.gaps(points)
    if kernel == "gaussian":
        nearest = nearest_squared(asked, points, gap)
        reach = nearest.amax() + negligible(bandwidth, points, asked.x.dtype)
    else:
        nearest, reach = asked.x.new_zeros(len(asked.x)), asked.x.new_tensor(bandwidth).square()
    found, values = _nothing(asked, points, int(squares)), len(points.values)
    squares_of = rounded_squares if kernel == "boxcar" else squared_distances
    for tile in asked.tiles(points, within(gap, reach[None]).nonzero()[:, 0], squares_of):
        weights = weigh(tile.squared, nearest, kernel, bandwidth)
        found[:, :values] += tile.mixed(weights)
        if squares:
            found[:, values] += weights.square_().sum(1)
    return found


def nearest_sums(asked: Asked, points: Points) -> Float[Tensor, "query value"]:
    """Σ vᵢ over the nearest point of each query, or over all the nearest where several are as near."""
    gap = asked.gaps(points)
    nearest = nearest_squared(asked, points, gap)
    found = _nothing(asked, points)
    for tile in asked.tiles(points, within(gap, nearest.amax()[None]).nonzero()[:, 0]):
        found += tile.mixed((tile.squared == nearest[:, None]).to(tile.values.dtype))
    return found


def nearest_squared(asked: Asked, points: Points, gap: Float[Tensor, " block"]) -> Float[Tensor, " query"]:
    """The squared distance from each query to its nearest point."""
    nearest = asked.x.new_full((len(asked.x),), torch.inf)
    # That of a whole block: one of its points may be hidden.
    bound = surely_within(asked.x.amin(0), asked.x.amax(0), points.blocks)
    for tile in asked.tiles(points, within(gap, bound[None]).nonzero()[:, 0]):
        nearest = torch.minimum(nearest, tile.squared.amin(1))
    return nearest


def negligible(bandwidth: float, points: Points, dtype: torch.dtype) -> float:
    """So much further than the nearest point, in squared distance, all points together weigh less than rounding."""
    return 2 * bandwidth * bandwidth * math.log(max(2, points.blocks.points) / torch.finfo(dtype).eps)


def weigh(
    squared: Float[Tensor, "query point"], nearest: Float[Tensor, " query"], kernel: str, bandwidth: float
) -> Float[Tensor, "query point"]:
    """K(d / h) in place of d²; the Gaussian's is relative to the nearest point's."""
    if kernel == "gaussian":
        return exponentials(squared.sub_(nearest[:, None]), bandwidth)
    limits = torch.finfo(squared.dtype)
    square = min(max(bandwidth * bandwidth, limits.tiny), limits.max)  # empty places, infinitely far, stay outside
    if kernel == "boxcar":
        return (squared <= square).to(squared.dtype)
    u = squared.div_(square) if kernel == "epanechnikov" else squared.sqrt_().div_(bandwidth)
    return u.neg_().add_(1).clamp_(min=0)


def exponentials(further: Float[Tensor, "query point"], bandwidth: float) -> Float[Tensor, "query point"]:
    """exp(−f / 2h²) in place of f, from 10⁻³⁵ (float32) or 10⁻³⁰⁵ up.

    Beside the nearest point's 1 that is nothing, and numbers too small for their type take many times as long. Powers
    of two are quicker than those of e.
    """
    lowest = math.log2(torch.finfo(further.dtype).tiny) + 10
    return further.mul_(-rate(bandwidth, further.dtype) * LOG2E).clamp_(min=lowest).exp2_()


def rate(bandwidth: float, dtype: torch.dtype) -> float:
    """1 / 2h², neither infinite nor 0: times 0 and infinity they would be no number."""
    limits = torch.finfo(dtype)
    square = 2 * bandwidth * bandwidth
    return min(limits.max / 2, max(limits.tiny, 1 / square)) if square else limits.max / 2


def squared_distances(query: Float[Tensor, "query dim"], key: Float[Tensor, "key dim"]) -> Float[Tensor, "query key"]:
    """‖q − k‖² from the differences themselves; ‖q‖² + ‖k‖² − 2 q·k would round the small ones away."""
    if query.shape[1] > FEW_DIMENSIONS:
        return torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist").square_()
    found = (query[:, :1] - key[:, 0]).square_()
    apart = torch.empty_like(found) if query.shape[1] > 1 else found
    for d in range(1, query.shape[1]):
        torch.sub(query[:, d : d + 1], key[:, d], out=apart)
        found.addcmul_(apart, apart)
    return found


def keep_memory(device: torch.device) -> None:
    """The C library hands large freed blocks back to the system, and page faults then take half the time.

    Once it has seen a block of this size come and go, it keeps the smaller ones.
    """
    if device.type == "cpu":
        torch.empty(31 * 2**20, dtype=torch.uint8)


def _nothing(asked: Asked, points: Points, more: int = 0) -> Tensor:
    return torch.zeros(len(asked.x), len(points.values) + more, dtype=torch.float64, device=asked.x.device)


def of_device(sizes: dict[str, int], x: Tensor) -> int:
    """The size for the device on which a tensor lies."""
    return sizes.get(x.device.type, sizes["cuda"])
