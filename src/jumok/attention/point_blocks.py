"""Points in an order in which neighbours stand together, cut into blocks: which blocks can matter to which queries.

On a line the order is that of the coordinate. In more dimensions the points are halved along the side on which they
spread most, and the halves again, down to blocks (Bentley's k-d tree, 1975). A block is known by its bounding box.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PointBlocks:
    """Points, block after block; the last places may stay empty, and an empty block lies infinitely far away."""

    points: int
    size: int
    order: Int[Tensor, " place"]
    """Which point stands at each place; one more than the last point where the place is empty."""
    x: Float[Tensor, "place dim"]
    """inf where the place is empty."""
    low: Float[Tensor, "block dim"]
    high: Float[Tensor, "block dim"]

    @staticmethod
    def of(points: Float[Tensor, "point dim"], size: int, order: Int[Tensor, " place"] | None = None) -> "PointBlocks":
        """Blocks of so many points; `order`, where it is known from before, spares the sorting."""
        order = near_order(points, size) if order is None else order
        order = _filled(order[order < len(points)], -len(points) % size, len(points))
        x = torch.cat([points, points.new_full((1, points.shape[1]), torch.inf)])[order]
        blocks = x.view(-1, size, points.shape[1])
        low, high = blocks.amin(1), blocks.masked_fill(blocks.isinf(), -torch.inf).amax(1)
        return PointBlocks(len(points), size, order, x, low, high)

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return len(self.low)

    def at_places(self, values: Float[Tensor, "point value"]) -> Float[Tensor, "place value"]:
        """What belongs to the points, in their new order; 0 where a place is empty."""
        return torch.cat([values, values.new_zeros(1, values.shape[1])])[self.order]

    def of_points(self, values: Float[Tensor, "place value"]) -> Float[Tensor, "point value"]:
        """And back."""
        found = values.new_empty(self.points, values.shape[1])
        found[self.order[: self.points]] = values[: self.points]
        return found

    def places(self, blocks: Int[Tensor, " block"]) -> Int[Tensor, " place"]:
        """All places of some blocks."""
        within = torch.arange(self.size, device=blocks.device)
        return (blocks[:, None] * self.size + within).view(-1)


def near_order(points: Float[Tensor, "point dim"], size: int) -> Int[Tensor, " place"]:
    """The order of the points; some places after them hold the number of points."""
    count, dim = points.shape
    if dim == 1:
        return points[:, 0].argsort()
    levels = max(0, (-(-count // size) - 1).bit_length())
    order = _filled(torch.arange(count, device=points.device), (size << levels) - count, count)[None]
    padded = torch.cat([points, points.new_full((1, dim), torch.inf)])
    for _ in range(levels):
        here = padded[order]
        spread = here.masked_fill(here.isinf(), -torch.inf).amax(1) - here.amin(1)
        widest = spread.nan_to_num(nan=0).argmax(-1)
        along = here.gather(-1, widest[:, None, None].expand(-1, here.shape[1], 1)).squeeze(-1)
        order = order.gather(1, along.argsort(1)).view(-1, here.shape[1] // 2)
    return order.view(-1)


def gaps(
    low: Float[Tensor, "*box dim"], high: Float[Tensor, "*box dim"], blocks: PointBlocks
) -> Float[Tensor, "*box block"]:
    """The squared distance from each box to that of each block: no point of the block is nearer."""
    found = low.new_zeros(*low.shape[:-1], blocks.count)
    for d in range(low.shape[-1]):  # one after another, for there may be millions of pairs of boxes
        apart = torch.maximum(blocks.low[:, d] - high[..., d, None], low[..., d, None] - blocks.high[:, d])
        found += apart.clamp_(min=0).square_()
    return found


def surely_within(
    low: Float[Tensor, "*box dim"], high: Float[Tensor, "*box dim"], blocks: PointBlocks
) -> Float[Tensor, " *box"]:
    """A squared distance within which every place of the box has a whole block of points."""
    whole = max(1, blocks.points // blocks.size)  # the last block may be all but empty
    found = low.new_zeros(*low.shape[:-1], whole)
    for d in range(low.shape[-1]):
        low_d, high_d = blocks.low[:whole, d], blocks.high[:whole, d]
        found += torch.maximum(high_d - low[..., d, None], high[..., d, None] - low_d).square_()
    return found.amin(-1)


def within(gap: Float[Tensor, "*lead block"], reach: Float[Tensor, "*#lead 1"]) -> Bool[Tensor, "*lead block"]:
    """Which blocks come within a squared reach; a little further than that, for what rounding may have moved."""
    return gap <= reach * (1 + 32 * torch.finfo(gap.dtype).eps)


def _filled(order: Tensor, places: int, filler: int) -> Tensor:
    return torch.cat([order, order.new_full((places,), filler)])
