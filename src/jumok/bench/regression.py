"""Kernel regression: `KernelRegressor` beside scikit-learn, statsmodels and torch.cdist, on the same random points."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.bench import JUMOK, Size
from jumok.bench.timing import Call, Prepare, Work
from jumok.regression.estimator import KernelRegressor


class Case(NamedTuple):
    """So many points and queries, uniform in a unit cube, and a kernel."""

    kernel: str
    points: int
    queries: int
    dim: int
    bandwidth: float
    dtype: str = "float32"

    def __str__(self) -> str:
        kind = "" if self.dtype == "float32" else f", {self.dtype}"
        counts = f"{short(self.points)} × {short(self.queries)}"
        return f"{self.kernel}, {counts}, {self.dim}-D, h = {self.bandwidth:g}{kind}"

    def data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points, their noisy values, and queries; the same every time."""
        random = np.random.default_rng(0)
        x, query = (random.uniform(0, 1, (size, self.dim)).astype(self.dtype) for size in (self.points, self.queries))
        y = np.sin(6 * x).sum(1) + random.normal(0, 0.3, self.points)
        return x, y.astype(self.dtype), query


def short(count: int) -> str:
    """1M, 20k or 500."""
    return f"{count / 1e6:g}M" if count >= 1e6 else f"{count / 1e3:g}k" if count >= 1000 else str(count)


CASES: dict[str, dict[Size, list[Case]]] = {
    "cpu": {
        "small": [Case("gaussian", 2_000, 500, 1, 0.02, "float64"), Case("boxcar", 2_000, 500, 3, 0.2, "float64")],
        "medium": [
            Case("gaussian", 20_000, 2_000, 1, 0.02, "float64"),
            Case("gaussian", 20_000, 2_000, 3, 0.1, "float64"),
            Case("epanechnikov", 20_000, 2_000, 1, 0.02, "float64"),
            Case("boxcar", 20_000, 2_000, 3, 0.1, "float64"),
        ],
        "large": [
            Case("gaussian", 100_000, 10_000, 1, 0.005, "float64"),
            Case("epanechnikov", 100_000, 10_000, 1, 0.005, "float64"),
            Case("boxcar", 100_000, 10_000, 3, 0.05, "float64"),
        ],
    },
    "cuda": {
        "small": [Case("gaussian", 20_000, 2_000, 1, 0.02)],
        "medium": [Case("gaussian", 100_000, 100_000, 3, 1.0), Case("epanechnikov", 100_000, 100_000, 3, 0.05)],
        "large": [Case("gaussian", 500_000, 500_000, 3, 1.0), Case("epanechnikov", 500_000, 500_000, 3, 0.03)],
    },
}
CHUNK = {"cpu": 2**21, "cuda": 2**28}
"""Pairs that plain PyTorch computes at a time."""
STATSMODELS = 1e7
"""Pairs above which statsmodels takes too long to wait for."""


def works(device: torch.device, size: Size) -> Iterator[Work]:
    """Predict all queries; fitting is not timed. Libraries that run on a CPU only are left out on a GPU."""
    for case in CASES[device.type][size]:
        systems: dict[str, Prepare] = {
            JUMOK: partial(jumok_prediction, case, device),
            "torch.cdist": partial(cdist_prediction, case, device),
        }
        if device.type == "cpu":
            systems["scikit-learn"] = partial(scikit_learn_prediction, case)
            if case.kernel == "gaussian" and case.points * case.queries <= STATSMODELS:
                systems["statsmodels"] = partial(statsmodels_prediction, case)
        yield Work(str(case), systems)


def jumok_prediction(case: Case, device: torch.device) -> Call:
    """`KernelRegressor`, from arrays to arrays."""
    x, y, query = case.data()
    model = KernelRegressor(case.kernel, case.bandwidth, device=str(device)).fit(x, y)
    return lambda: model.predict(query)


def cdist_prediction(case: Case, device: torch.device) -> Call:
    """All distances by `torch.cdist`, in chunks; on a GPU from matrix products, which round small distances away."""
    x, y, query = (torch.from_numpy(array).to(device) for array in case.data())
    mode = f"{'use' if device.type == 'cuda' else 'donot_use'}_mm_for_euclid_dist"
    return lambda: in_chunks(case, x, y, query, chunk=CHUNK[device.type], mode=mode)


def in_chunks(
    case: Case,
    x: Float[Tensor, "point dim"],
    y: Float[Tensor, " point"],
    query: Float[Tensor, "query dim"],
    *,
    chunk: int,
    mode: str = "donot_use_mm_for_euclid_dist",
) -> Float[Tensor, " query"]:
    """Plain PyTorch: distances from differences, kernel, sums, for as many queries at a time as memory allows."""
    y_and_one, predictions = torch.stack([y, torch.ones_like(y)], 1), []
    for part in query.split(max(1, chunk // len(x))):  # type: ignore[no-untyped-call]
        u = torch.cdist(part, x, compute_mode=mode) / case.bandwidth
        weights = (-0.5 * u**2).softmax(-1) if case.kernel == "gaussian" else (1 - u**2).clamp(min=0)
        if case.kernel == "boxcar":
            weights = (u <= 1).to(u.dtype)
        sums = weights @ y_and_one
        predictions.append(sums[:, 0] / sums[:, 1])
    return torch.cat(predictions)


def scikit_learn_prediction(case: Case) -> Call:
    """Neighbours within a radius for kernels with finite support, the matrix of all weights for the Gaussian."""
    from sklearn.metrics.pairwise import rbf_kernel
    from sklearn.neighbors import RadiusNeighborsRegressor

    x, y, query = case.data()
    if case.kernel == "gaussian":

        def mixed() -> np.ndarray:
            weights = rbf_kernel(query, x, gamma=0.5 / case.bandwidth**2)
            return np.asarray(weights @ y / weights.sum(1))

        return mixed

    def epanechnikov(distances: np.ndarray) -> np.ndarray:
        return np.array([np.maximum(0, 1 - (row / case.bandwidth) ** 2) for row in distances], dtype=object)

    weights = "uniform" if case.kernel == "boxcar" else epanechnikov
    model = RadiusNeighborsRegressor(radius=case.bandwidth, weights=weights).fit(x, y)
    return lambda: model.predict(query)


def statsmodels_prediction(case: Case) -> Call:
    """`KernelReg` with a given bandwidth; locally constant, as Nadaraya and Watson's estimator is."""
    from statsmodels.nonparametric.kernel_regression import KernelReg

    x, y, query = case.data()
    with warnings.catch_warnings():  # of a random generator that a given bandwidth does not use
        warnings.simplefilter("ignore", FutureWarning)
        model = KernelReg(y, x, var_type="c" * case.dim, reg_type="lc", bw=[case.bandwidth] * case.dim)
    return lambda: model.fit(query)
