"""The smoother of many points: ŷ(x) = Σ α(x, xᵢ) yᵢ from the blocks of points that are near enough to count."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.kernel_sums import (
    FEWEST_QUERIES,
    QUERIES,
    TILE,
    Asked,
    Points,
    keep_memory,
    kernel_sums,
    nearest_sums,
    of_device,
)
from jumok.attention.kernels import smoothing_fused
from jumok.attention.leave_one_out import Ladder, left_out, means, rows_asked
from jumok.attention.point_blocks import PointBlocks
from jumok.attention.smoothing import unit_of
from jumok.models.progress import shown


def stretch(bandwidth: Float[Tensor, "*#dim"]) -> Float[Tensor, "*#dim"]:
    """What points are divided by: each dimension's bandwidth, which leaves one of 1, or what keeps squares in range."""
    if bandwidth.dim():
        return bandwidth
    unit = unit_of(bandwidth, bandwidth.dtype)
    assert isinstance(unit, Tensor)
    return unit


@dataclass(frozen=True, eq=False)
class SortedSmoother:
    """Points in order, divided by their stretch, a kernel and its bandwidth, divided likewise."""

    kernel: str
    bandwidth: float
    points: Points
    """Their values are the outputs and a 1, whose sum is Σ K."""
    stretch: Float[Tensor, "*#dim"]

    @staticmethod
    def of(
        kernel: str,
        bandwidth: Float[Tensor, "*#dim"],
        x: Float[Tensor, "point dim"],
        y_and_one: Float[Tensor, "point output_and_one"],
        order: Int[Tensor, " place"] | None = None,
    ) -> "SortedSmoother":
        """Points x with outputs y."""
        by = stretch(bandwidth)
        single = 1.0 if bandwidth.dim() else float(bandwidth / by)
        return SortedSmoother(kernel, single, Points.of(x / by, y_and_one, order), by)

    def with_values(self, y_and_one: Float[Tensor, "point output_and_one"]) -> "SortedSmoother":
        """The same points with other outputs."""
        values = self.points.blocks.at_places(y_and_one).mT.contiguous()
        return replace(self, points=replace(self.points, values=values))

    def __call__(self, query: Float[Tensor, "query dim"], *, verbose: bool = False) -> Float[Tensor, "query output"]:
        """Σ α y."""
        return means(self.sums(query, verbose=verbose)).to(query.dtype)

    def sums(
        self,
        query: Float[Tensor, "query dim"],
        *,
        squares: bool = False,
        what: str = "predicting",
        verbose: bool = False,
    ) -> Float[Tensor, "query sum"]:
        """Σ K y, Σ K, and with `squares` Σ K²; over the nearest points, each with weight 1, where no kernel reaches.

        The Gaussian's K is relative to that of the nearest point, so at a point of its own every kernel has K = 1.
        `what` is what the bar of `verbose` says.
        """
        query = query / self.stretch
        if smoothing_fused.why_not(query, len(self.points.values) - 1, self.points.blocks.size) is None:
            return self._fused(query, squares)

        def compute(asked: Asked) -> Tensor:
            return kernel_sums(asked, self.points, self.kernel, self.bandwidth, squares=squares)

        found = self._in_blocks(query, compute, int(squares), what=what, verbose=verbose)
        return self._or_nearest(found, query, squares)

    def loo_errors(self, rows: Int[Tensor, " row"], ladder: Ladder, *, verbose: bool = False) -> list[float]:
        """Mean of ‖yᵢ − ŷ₋ᵢ(xᵢ)‖² over `rows`, for each of the bandwidths, in one pass over the points."""
        keep_memory(rows.device)
        total = torch.zeros(ladder.count, dtype=torch.float64, device=rows.device)
        # The sums of all bandwidths, a number for each query and value, are to take no more than a tile.
        held = of_device(TILE, rows) // (ladder.count * len(self.points.values))
        size = max(1, min(self._at_once(len(rows)), held))
        for places in shown(rows_asked(self.points, rows, size), "leaving points out", enabled=verbose):
            asked = Asked(self.points.blocks.x[places], places)
            found = left_out(asked, self.points, self.kernel, ladder)
            total += (found - self.points.values[:-1, places].mT).square().sum((1, 2))
        return (total / len(rows)).tolist()

    def _fused(self, query: Float[Tensor, "query dim"], squares: bool) -> Float[Tensor, "query sum"]:
        """The same by the Triton kernels."""
        found = smoothing_fused.kernel_sums(
            query, self.points.blocks, self.points.values[:-1], self.kernel, self.bandwidth, squares=squares
        ).double()
        one = len(self.points.values)
        return self._or_nearest(torch.cat([found[:, 1:one], found[:, :1], found[:, one:]], 1), query, squares)

    def _or_nearest(self, sums: Tensor, query: Tensor, squares: bool) -> Tensor:
        """Queries that no kernel reaches take their nearest points instead.

        So do those so far away that their squared distances are no numbers: for them all points are as near.
        """
        lost = (~(sums[:, len(self.points.values) - 1] > 0)).nonzero()[:, 0]
        if len(lost):
            near = self._in_blocks(query[lost], lambda asked: nearest_sums(asked, self.points))
            sums[lost] = torch.cat([near, near[:, -1:]], 1) if squares else near
        return sums

    def _in_blocks(
        self,
        query: Float[Tensor, "query dim"],
        compute: Callable[[Asked], Tensor],
        more: int = 0,
        *,
        what: str = "predicting",
        verbose: bool = False,
    ) -> Float[Tensor, "query sum"]:
        """What is computed of each block of neighbouring queries, put together."""
        keep_memory(query.device)
        asked = PointBlocks.of(query, self._at_once(len(query)))
        found = query.new_empty(len(asked.x), len(self.points.values) + more, dtype=torch.float64)
        for start in shown(range(0, asked.points, asked.size), what, enabled=verbose):
            rows = slice(start, min(start + asked.size, asked.points))
            found[rows] = compute(Asked(asked.x[rows], None))
        return asked.of_points(found)

    def _at_once(self, queries: int) -> int:
        """How many queries make a block: fewer of them where they stand far apart among the points."""
        most = of_device(QUERIES, self.points.x)
        return max(
            of_device(FEWEST_QUERIES, self.points.x),
            min(most, 4 * queries * self.points.blocks.size // self.points.blocks.points),
        )
