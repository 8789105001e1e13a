"""Σ K y and Σ K over the points near each query, in tiles that fit a cache; far points are never read.

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
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention.distance_scores import FEW_DIMENSIONS, rounded_squares


@dataclass(frozen=True, eq=False)
class PointBlocks:
    """Points sorted into blocks of neighbours; the last places may be empty, and an empty block lies at infinity."""

    points: int
    size: int
    order: Int[Tensor, " place"]
    """The point at each place; the number of points where the place is empty."""
    x: Float[Tensor, "place dim"]
    """inf where the place is empty."""
    low: Float[Tensor, "block dim"]
    high: Float[Tensor, "block dim"]

    @staticmethod
    def of(points: Float[Tensor, "point dim"], size: int, order: Int[Tensor, " place"] | None = None) -> "PointBlocks":
        """Blocks of `size` points; a known `order` saves the sorting."""
        order = near_order(points, size) if order is None else order
        order = _filled(order[order < len(points)], -len(points) % size, len(points))
        x = torch.cat([points, points.new_full((1, points.shape[1]), torch.inf)])[order]
        blocks = x.view(-1, size, points.shape[1])
        low, high = blocks.amin(1), blocks.masked_fill(blocks.isinf(), -torch.inf).amax(1)
        return PointBlocks(len(points), size, order, x, low, high)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.low)

    @property
    def place(self) -> Int[Tensor, " point"]:
        """The place of each point."""
        places = torch.empty_like(self.order)
        places[self.order[: self.points]] = torch.arange(self.points, device=self.order.device)
        return places[: self.points]

    def at_places(self, values: Float[Tensor, "point value"]) -> Float[Tensor, "place value"]:
        """Values of the points in the order of the places; 0 where a place is empty."""
        return torch.cat([values, values.new_zeros(1, values.shape[1])])[self.order]

    def of_points(self, values: Float[Tensor, "place value"]) -> Float[Tensor, "point value"]:
        """Values of the places in the order of the points."""
        by_point = values.new_empty(self.points, values.shape[1])
        by_point[self.order[: self.points]] = values[: self.points]
        return by_point

    def places(self, blocks: Int[Tensor, " block"]) -> Int[Tensor, " place"]:
        """All places of the given blocks."""
        within = torch.arange(self.size, device=blocks.device)
        return (blocks[:, None] * self.size + within).view(-1)


def near_order(points: Float[Tensor, "point dim"], size: int) -> Int[Tensor, " place"]:
    """An order of the points in which neighbours stand together; filler places hold the number of points."""
    count, dim = points.shape
    if dim == 1:
        return points[:, 0].argsort()
    levels = max(0, (-(-count // size) - 1).bit_length())
    order = _filled(torch.arange(count, device=points.device), (size << levels) - count, count)[None]
    padded = torch.cat([points, points.new_full((1, dim), torch.inf)])
    for _ in range(levels):
        blocks = padded[order]
        spread = blocks.masked_fill(blocks.isinf(), -torch.inf).amax(1) - blocks.amin(1)
        widest = spread.nan_to_num(nan=0).argmax(-1)
        along = blocks.gather(-1, widest[:, None, None].expand(-1, blocks.shape[1], 1)).squeeze(-1)
        order = order.gather(1, along.argsort(1)).view(-1, blocks.shape[1] // 2)
    return order.view(-1)


def gaps(
    low: Float[Tensor, "*box dim"], high: Float[Tensor, "*box dim"], blocks: PointBlocks
) -> Float[Tensor, "*box block"]:
    """The squared distance from each box to that of each block: no point of the block is nearer."""
    squared = low.new_zeros(*low.shape[:-1], blocks.count)
    for d in range(low.shape[-1]):  # one after another, for there may be millions of pairs of boxes
        apart = torch.maximum(blocks.low[:, d] - high[..., d, None], low[..., d, None] - blocks.high[:, d])
        squared += apart.clamp_(min=0).square_()
    return squared


def surely_within(
    low: Float[Tensor, "*box dim"], high: Float[Tensor, "*box dim"], blocks: PointBlocks
) -> Float[Tensor, " *box"]:
    """A squared distance within which every place of the box has a whole block of points."""
    whole = max(1, blocks.points // blocks.size)  # the last block may be all but empty
    farthest = low.new_zeros(*low.shape[:-1], whole)
    for d in range(low.shape[-1]):
        low_d, high_d = blocks.low[:whole, d], blocks.high[:whole, d]
        farthest += torch.maximum(high_d - low[..., d, None], high[..., d, None] - low_d).square_()
    return farthest.amin(-1)


def within(gap: Float[Tensor, "*lead block"], reach: Float[Tensor, "*#lead 1"]) -> Bool[Tensor, "*lead block"]:
    """Blocks within a squared distance, with a margin for rounding."""
    return gap <= reach * (1 + 32 * torch.finfo(gap.dtype).eps)


def _filled(order: Tensor, places: int, filler: int) -> Tensor:
    return torch.cat([order, order.new_full((places,), filler)])


TILE = {"cpu": 2**18, "cuda": 2**26}
"""Pairs computed at once: nearly the cache of a core, or enough to fill a GPU."""
QUERIES = {"cpu": 256, "cuda": 4096}
"""Largest number of queries in a block."""
FEWEST_QUERIES = {"cpu": 16, "cuda": 256}
"""Smallest number, however far apart they lie: each block costs fixed work, much of it on a GPU."""
POINTS = {"cpu": 256, "cuda": 256}
"""Points in a block."""
LOG2E = math.log2(math.e)
FEW_VALUES = 3
"""Up to this number of values, one matrix-vector product each is faster on a CPU than a matrix product."""


@dataclass(frozen=True, eq=False)
class Points:
    """Training points in blocks, and the values to sum."""

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
class QueryBlock:
    """Queries that lie near each other."""

    x: Float[Tensor, "query dim"]
    own: Int[Tensor, " query"] | None
    """The place of each query's own point, which it must not see; None if queries are no training points."""

    def gaps(self, points: Points) -> Float[Tensor, " block"]:
        """The squared distance to each block of points."""
        return gaps(self.x.amin(0), self.x.amax(0), points.blocks)

    def tiles(
        self, points: Points, blocks: Int[Tensor, " block"], squares: Callable[..., Tensor] | None = None
    ) -> Iterator["DistanceTile"]:
        """Squared distances to all points of the given blocks, a few blocks at a time."""
        squares = squares or squared_distances
        at_once = max(1, of_device(TILE, self.x) // (len(self.x) * points.blocks.size))
        for part in torch.split(blocks, at_once):
            places = points.blocks.places(part)
            squared = squares(self.x, points.x[:, places].mT)
            if self.own is not None:
                squared.masked_fill_(self.own[:, None] == places, torch.inf)
            yield DistanceTile(squared, points.values[:, places], part)

    def select(self, rows: Tensor) -> "QueryBlock":
        """The queries of the given rows."""
        return QueryBlock(self.x[rows], None if self.own is None else self.own[rows])


@dataclass(frozen=True, eq=False)
class DistanceTile:
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
    queries: QueryBlock, points: Points, kernel: str, bandwidth: float, *, squares: bool = False
) -> Float[Tensor, "query value_and_square"]:
    """Σ K vᵢ in float64, and with `squares` Σ K² beside it; the Gaussian's K is relative to the nearest point's."""
    gap = queries.gaps(points)
    if kernel == "gaussian":
        nearest = nearest_squared(queries, points, gap)
        reach = nearest.amax() + negligible(bandwidth, points.blocks.points, queries.x.dtype)
    else:
        nearest, reach = queries.x.new_zeros(len(queries.x)), queries.x.new_tensor(bandwidth).square()
    sums, values = _nothing(queries, points, int(squares)), len(points.values)
    squares_of = rounded_squares if kernel == "boxcar" else squared_distances
    for tile in queries.tiles(points, within(gap, reach[None]).nonzero()[:, 0], squares_of):
        weights = weigh(tile.squared, nearest, kernel, bandwidth)
        sums[:, :values] += tile.mixed(weights)
        if squares:
            sums[:, values] += weights.square_().sum(1)
    return sums


def means(sums: Float[Tensor, "*lead value_and_one"]) -> Float[Tensor, "*lead value"]:
    """Σ K v / Σ K."""
    return sums[..., :-1] / sums[..., -1:]


def nearest_sums(queries: QueryBlock, points: Points) -> Float[Tensor, "query value"]:
    """Σ vᵢ over the nearest point of each query, or over all the nearest where several are as near."""
    gap = queries.gaps(points)
    nearest = nearest_squared(queries, points, gap)
    sums = _nothing(queries, points)
    for tile in queries.tiles(points, within(gap, nearest.amax()[None]).nonzero()[:, 0]):
        sums += tile.mixed((tile.squared == nearest[:, None]).to(tile.values.dtype))
    return sums


def nearest_squared(queries: QueryBlock, points: Points, gap: Float[Tensor, " block"]) -> Float[Tensor, " query"]:
    """The squared distance from each query to its nearest point."""
    nearest = queries.x.new_full((len(queries.x),), torch.inf)
    # That of a whole block: one of its points may be hidden.
    bound = surely_within(queries.x.amin(0), queries.x.amax(0), points.blocks)
    for tile in queries.tiles(points, within(gap, bound[None]).nonzero()[:, 0]):
        nearest = torch.minimum(nearest, tile.squared.amin(1))
    return nearest


def negligible(bandwidth: float, points: int, dtype: torch.dtype) -> float:
    """Squared distance beyond the nearest point's at which all points together weigh less than rounding."""
    return 2 * bandwidth * bandwidth * math.log(max(2, points) / torch.finfo(dtype).eps)


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
    squared = (query[:, :1] - key[:, 0]).square_()
    apart = torch.empty_like(squared) if query.shape[1] > 1 else squared
    for d in range(1, query.shape[1]):
        torch.sub(query[:, d : d + 1], key[:, d], out=apart)
        squared.addcmul_(apart, apart)
    return squared


def keep_memory(device: torch.device) -> None:
    """The C library hands large freed blocks back to the system, and page faults then take half the time.

    Once it has seen a block of this size come and go, it keeps the smaller ones.
    """
    if device.type == "cpu":
        torch.empty(31 * 2**20, dtype=torch.uint8)


def _nothing(queries: QueryBlock, points: Points, more: int = 0) -> Tensor:
    return torch.zeros(len(queries.x), len(points.values) + more, dtype=torch.float64, device=queries.x.device)


def of_device(sizes: dict[str, int], x: Tensor) -> int:
    """The size for the device on which a tensor lies."""
    return sizes.get(x.device.type, sizes["cuda"])
