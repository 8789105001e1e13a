"""ŷ(x) = Σ α(x, xᵢ) yᵢ on tensors: kernel regression as attention over the training points, a few queries at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import Attended, attend, boxcar, epanechnikov, gaussian, triangular
from jumok.attention.kernel_sums import keep_memory
from jumok.attention.smoothing import distances
from jumok.models.progress import shown
from jumok.models.sorted_smoother import SortedSmoother, stretch

KERNELS = {"gaussian": gaussian, "boxcar": boxcar, "epanechnikov": epanechnikov, "triangular": triangular}
"""The kernels that have a bandwidth; "constant" is the one without, the plain mean."""

FEW = 4096
"""Up to so many points every query looks at all of them; above, points are sorted and far ones left out."""

CHUNK_BYTES = {"cpu": 4 * 2**20, "cuda": 512 * 2**20}
"""How large one chunk's plane of weights may be: what a core's cache nearly holds, what fills a GPU."""


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

    @staticmethod
    def of(kernel: str, bandwidth: Tensor, x: Float[Tensor, "point dim"], y: Float[Tensor, "point out"]) -> "Smoother":
        """A smoother of points x with outputs y."""
        return Smoother(kernel, bandwidth, x, torch.cat([y, torch.ones_like(y[:, :1])], -1))

    def __call__(
        self, query: Float[Tensor, "query dim"], visible: Bool[Tensor, "query point"] | None = None
    ) -> Float[Tensor, "query output"]:
        """Σ α y."""
        mixed = self._attend(query, visible).values
        y, reached = mixed[:, :-1], mixed[:, -1:] > 0
        return y if reached.all() else torch.where(reached, y, self._nearest(query, visible).values[:, :-1])

    def predict(
        self, query: Float[Tensor, "query dim"], order: Int[Tensor, " place"] | None = None, *, verbose: bool = False
    ) -> Float[Tensor, "query output"]:
        """Σ α y of many queries, a few at a time; of many points only those near each, found by their order."""
        if order is not None:
            points = SortedSmoother.of(self.kernel, self.bandwidth, self.x, self.y_and_one, order)
            return points(query, verbose=verbose)
        # Filled in place: small results kept between large blocks would stop the C library from reusing their memory.
        y = query.new_empty(len(query), self.y_and_one.shape[-1] - 1)
        if self.kernel == "constant":
            return y.copy_(self(query[:1]))
        parts = list(chunks(torch.arange(len(query), device=query.device), len(self.x), query.element_size()))
        for part in shown(parts, "predicting", enabled=verbose):
            y[part] = self(query[part])
        return y

    def weights(self, query: Float[Tensor, "query dim"]) -> Float[Tensor, "query point"]:
        """α, the whole matrix."""
        weights = self._attend(query, None).weights()
        reached = weights.sum(-1, keepdim=True) > 0
        return weights if reached.all() else torch.where(reached, weights, self._nearest(query, None).weights())

    def _attend(self, query: Tensor, visible: Tensor | None) -> Attended:
        if self.kernel == "constant":
            return attend(query, self.x, self.y_and_one, score=_indifferent, normalise="mean", visible=visible)
        score = KERNELS[self.kernel](1.0 if self.bandwidth.dim() else self.bandwidth / stretch(self.bandwidth))
        return attend(self._stretched(query), self._stretched(self.x), self.y_and_one, score=score, visible=visible)

    @torch.no_grad()
    def _nearest(self, query: Tensor, visible: Tensor | None) -> Attended:
        query, x = self._stretched(query), self._stretched(self.x)
        return attend(query, x, self.y_and_one, score=_closeness, normalise=_nearest, visible=visible)

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


def _nearest(scores: Float[Tensor, "query point"]) -> Float[Tensor, "query point"]:
    """All weight on the largest score, shared where several are equal."""
    largest = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
    return largest / largest.sum(-1, keepdim=True)
