"""ŷ(x) = Σ α(x, xᵢ) yᵢ on tensors: kernel regression as attention over the training points, a few queries at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import Attended, attend, boxcar, epanechnikov, gaussian, triangular
from jumok.attention.distance_scores import distances, unit_of
from jumok.progress import progress
from jumok.regression import gpu
from jumok.regression.sums import (
    FEWEST_QUERIES,
    QUERIES,
    PointBlocks,
    Points,
    QueryBlock,
    keep_memory,
    kernel_sums,
    means,
    nearest_sums,
    of_device,
)


def stretch(bandwidth: Float[Tensor, "*#dim"]) -> Float[Tensor, "*#dim"]:
    """The divisor of the points: each dimension's bandwidth, or for a single one a unit that keeps squares finite."""
    if bandwidth.dim():
        return bandwidth
    unit = unit_of(bandwidth, bandwidth.dtype)
    assert isinstance(unit, Tensor)
    return unit


@dataclass(frozen=True, eq=False)
class SortedSmoother:
    """Kernel regression that reads only points near each query: sorted points and a bandwidth, both over `stretch`."""

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
        `what` is the label of the progress bar of `verbose`.
        """
        query = query / self.stretch
        if gpu.why_not(query, len(self.points.values) - 1, self.points.blocks.size) is None:
            return self._fused(query, squares)

        def compute(queries: QueryBlock) -> Tensor:
            return kernel_sums(queries, self.points, self.kernel, self.bandwidth, squares=squares)

        sums = self._in_blocks(query, compute, int(squares), what=what, verbose=verbose)
        return self._or_nearest(sums, query, squares)

    def _fused(self, query: Float[Tensor, "query dim"], squares: bool) -> Float[Tensor, "query sum"]:
        """The same by the Triton kernels."""
        sums = gpu.kernel_sums(
            query, self.points.blocks, self.points.values[:-1], self.kernel, self.bandwidth, squares=squares
        ).double()
        end = len(self.points.values)
        return self._or_nearest(torch.cat([sums[:, 1:end], sums[:, :1], sums[:, end:]], 1), query, squares)

    def _or_nearest(self, sums: Tensor, query: Tensor, squares: bool) -> Tensor:
        """Queries that no kernel reaches take their nearest points instead.

        So do those so far away that their squared distances are no numbers: for them all points are as near.
        """
        lost = (~(sums[:, len(self.points.values) - 1] > 0)).nonzero()[:, 0]
        if len(lost):
            near = self._in_blocks(query[lost], lambda queries: nearest_sums(queries, self.points))
            sums[lost] = torch.cat([near, near[:, -1:]], 1) if squares else near
        return sums

    def _in_blocks(
        self,
        query: Float[Tensor, "query dim"],
        compute: Callable[[QueryBlock], Tensor],
        more: int = 0,
        *,
        what: str = "predicting",
        verbose: bool = False,
    ) -> Float[Tensor, "query sum"]:
        """`compute` for each block of neighbouring queries, in the order of the queries."""
        keep_memory(query.device)
        queries = PointBlocks.of(query, self.block_size(len(query)))
        sums = query.new_empty(len(queries.x), len(self.points.values) + more, dtype=torch.float64)
        blocks = range(0, queries.points, queries.size)
        for start in progress(blocks, what, len(blocks), show=verbose):
            rows = slice(start, min(start + queries.size, queries.points))
            sums[rows] = compute(QueryBlock(queries.x[rows], None))
        return queries.of_points(sums)

    def block_size(self, queries: int) -> int:
        """Queries per block: fewer where they lie far apart among the points."""
        most = of_device(QUERIES, self.points.x)
        return max(
            of_device(FEWEST_QUERIES, self.points.x),
            min(most, 4 * queries * self.points.blocks.size // self.points.blocks.points),
        )


KERNELS = {"gaussian": gaussian, "boxcar": boxcar, "epanechnikov": epanechnikov, "triangular": triangular}
"""The kernels with a bandwidth; "constant", the plain mean, has none."""

FEW = 4096
"""Up to this number of points every query reads all of them; above it points are sorted and far ones skipped."""

CHUNK_BYTES = {"cpu": 4 * 2**20, "cuda": 512 * 2**20}
"""Largest matrix of weights computed at once: nearly the cache of a core, or enough to fill a GPU."""


@dataclass(frozen=True, eq=False)
class Smoother:
    """Training points to attend to: x are the keys, y the values, K(‖x − xᵢ‖ / bandwidth) the weight.

    A query that no kernel reaches takes the mean of its nearest training points, the Gaussian's limit at bandwidth 0.
    """

    kernel: str
    bandwidth: Float[Tensor, "*#dim"]
    """One number, or one for each input dimension."""
    x: Float[Tensor, "point dim"]
    y_and_one: Float[Tensor, "point output_and_one"]
    """The outputs and a column of ones, whose mixture Σ α tells a query that sees nothing (0) from the others (1)."""
    degree: int = 0
    """0 for the local mean, 1 for a line fitted at each query (jumok/attention/local_linear.py)."""
    weight: Float[Tensor, " point"] | None = None
    """How much each point counts, positive; None if all count the same."""

    @staticmethod
    def of(
        kernel: str,
        bandwidth: Tensor,
        x: Float[Tensor, "point dim"],
        y: Float[Tensor, "point out"],
        degree: int = 0,
        weight: Float[Tensor, " point"] | None = None,
    ) -> "Smoother":
        """A smoother of points x with outputs y."""
        return Smoother(kernel, bandwidth, x, torch.cat([y, torch.ones_like(y[:, :1])], -1), degree, weight)

    @property
    def is_plain(self) -> bool:
        """Whether it is a local mean of points that count the same: what the sums over sorted points compute."""
        return self.degree == 0 and self.weight is None

    def __call__(
        self, query: Float[Tensor, "query dim"], visible: Bool[Tensor, "query point"] | None = None
    ) -> Float[Tensor, "query output"]:
        """Σ α y."""
        y, reached = self.local(query, visible)
        return y if reached.all() else torch.where(reached[:, None], y, self._nearest(query, visible).values[:, :-1])

    def local(
        self, query: Float[Tensor, "query dim"], visible: Bool[Tensor, "query point"] | None = None
    ) -> tuple[Float[Tensor, "query output"], Bool[Tensor, " query"]]:
        """Σ α y, and whether the kernel of any point reaches the query; if not, it is no number to use."""
        mixed = self._attend(query, visible).values
        return mixed[:, :-1], mixed[:, -1] > 0

    def among(self, points: Int[Tensor, " some"]) -> "Smoother":
        """The same with only some of the points."""
        weight = None if self.weight is None else self.weight[points]
        return replace(self, x=self.x[points], y_and_one=self.y_and_one[points], weight=weight)

    def predict(
        self, query: Float[Tensor, "query dim"], order: Int[Tensor, " place"] | None = None, *, verbose: bool = False
    ) -> Float[Tensor, "query output"]:
        """Σ α y of many queries, a few at a time; of many points only those near each, found by their order."""
        if order is not None and self.is_plain:
            points = SortedSmoother.of(self.kernel, self.bandwidth, self.x, self.y_and_one, order)
            return points(query, verbose=verbose)
        # Filled in place: small results kept between large blocks would stop the C library from reusing their memory.
        y = query.new_empty(len(query), self.y_and_one.shape[-1] - 1)
        if self.kernel == "constant" and self.is_plain:
            return y.copy_(self(query[:1]))
        parts = self.chunks(torch.arange(len(query), device=query.device))
        for part in progress(parts, "predicting", len(parts), show=verbose):
            y[part] = self(query[part])
        return y

    def weights(self, query: Float[Tensor, "query dim"]) -> Float[Tensor, "query point"]:
        """α, the whole matrix."""
        weights = self._attend(query, None).weights()
        reached = weights.sum(-1, keepdim=True) > 0.5  # 0 or 1; those of a line can be negative
        return weights if reached.all() else torch.where(reached, weights, self._nearest(query, None).weights())

    def chunks(self, rows: Int[Tensor, " row"]) -> list[Int[Tensor, " chunk"]]:
        """The rows in parts whose weights on all points, or differences to them, stay within CHUNK_BYTES."""
        numbers = 1 if self.degree == 0 else 2 * self.x.shape[1]
        return list(chunks(rows, len(self.x) * numbers, self.x.element_size()))

    def _attend(self, query: Tensor, visible: Tensor | None) -> Attended:
        if not self.is_plain:
            return self._attend_by_degree(query, visible)
        if self.kernel == "constant":
            return attend(query, self.x, self.y_and_one, score=_indifferent, normalise="mean", visible=visible)
        score = KERNELS[self.kernel](1.0 if self.bandwidth.dim() else self.bandwidth / stretch(self.bandwidth))
        return attend(self._stretched(query), self._stretched(self.x), self.y_and_one, score=score, visible=visible)

    def _attend_by_degree(self, query: Tensor, visible: Tensor | None) -> Attended:
        """The same for points that count differently, or with a line at each query."""
        kernel: Callable[[Tensor, Tensor], Tensor] = _indifferent
        x = self.x
        if self.kernel != "constant":
            kernel = KERNELS[self.kernel](1.0 if self.bandwidth.dim() else self.bandwidth / stretch(self.bandwidth))
            query, x = self._stretched(query), self._stretched(x)
        log_weight = 0.0 if self.weight is None else self.weight.log()

        def score(query: Tensor, key: Tensor) -> Tensor:
            return kernel(query, key) + log_weight

        return attend(query, x, self.y_and_one, score=score, visible=visible, degree=self.degree)

    @torch.no_grad()
    def _nearest(self, query: Tensor, visible: Tensor | None) -> Attended:
        query, x = self._stretched(query), self._stretched(self.x)
        normalise = partial(_nearest, weight=self.weight)
        return attend(query, x, self.y_and_one, score=_closeness, normalise=normalise, visible=visible)

    def _stretched(self, points: Float[Tensor, "some dim"]) -> Float[Tensor, "some dim"]:
        return points / stretch(self.bandwidth)


def chunks(rows: Int[Tensor, " row"], points: int, element_size: int) -> Iterator[Int[Tensor, " chunk"]]:
    """The rows in parts whose weights on all points stay within CHUNK_BYTES; at least one row each."""
    at_once = CHUNK_BYTES.get(rows.device.type, CHUNK_BYTES["cuda"])
    keep_memory(rows.device)
    size = max(1, at_once // max(1, points * element_size))
    yield from (rows[start : start + size] for start in range(0, len(rows), size))


def _indifferent(query: Tensor, key: Tensor) -> Tensor:
    return query.new_zeros(query.shape[-2], key.shape[-2])


def _closeness(query: Tensor, key: Tensor) -> Tensor:
    return -distances(query, key)


def _nearest(
    scores: Float[Tensor, "query point"], weight: Float[Tensor, " point"] | None = None
) -> Float[Tensor, "query point"]:
    """All weight on the largest score, shared by how much they count where several are equal."""
    largest = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype) * (1 if weight is None else weight)
    return largest / largest.sum(-1, keepdim=True)
