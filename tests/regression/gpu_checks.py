"""The Triton kernels of kernel regression held to their reference, on a GPU or in Triton's interpreter.

test_kernel_sums.py runs this file in a process of its own: the interpreter is chosen when Triton is imported, and its
kernels cannot be wrapped by the checks of signatures.
"""

import pytest
import torch

from jumok.attention import attend, boxcar, epanechnikov, gaussian, triangular
from jumok.regression import gpu
from jumok.regression.gpu import Tiling
from jumok.regression.smoother import Smoother, SortedSmoother
from jumok.regression.sums import Points

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SCORES = {"gaussian": gaussian, "boxcar": boxcar, "epanechnikov": epanechnikov, "triangular": triangular}
SMALL = Tiling(16, 16, 1)


@pytest.fixture(autouse=True)
def _poisoned():
    """Fresh memory holds NaN, so that reading what was never written shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("jumok.regression.sums.POINTS", {"cpu": 64, "cuda": 64})


def draw(points, queries, dim, values=1, dtype=torch.float32, spread=1.0, away=0.0):
    x, query = torch.rand(points, dim) * spread + away, torch.rand(queries, dim) * spread + away
    return [tensor.to(DEVICE, dtype) for tensor in (x, torch.randn(points, values), query)]


def fused(kernel, bandwidth, x, y, query):
    points = Points.of(x, y)
    sums = gpu.kernel_sums(query, points.blocks, points.values, kernel, bandwidth, tiling=SMALL)
    return sums[:, 1:] / sums[:, :1]


def plain(kernel, bandwidth, x, y, query):
    return attend(query, x, y, score=SCORES[kernel](bandwidth)).values


def assert_as_accurate_as_plain_torch(kernel, bandwidth, inputs, floor=1e-6):
    exact = plain(kernel, bandwidth, *[tensor.double() for tensor in inputs])
    reached = torch.isfinite(fused(kernel, bandwidth, *inputs)).all(1)
    ours, theirs = ((compute(kernel, bandwidth, *inputs) - exact)[reached].abs().max() for compute in (fused, plain))
    assert ours <= 2 * theirs + floor, f"off by {ours:.2e}; plain torch by {theirs:.2e}"
    assert not exact[~reached].any(), "who sees nothing gets 0 / 0, and only who sees nothing"


@pytest.mark.parametrize("kernel", SCORES)
@pytest.mark.parametrize(("points", "queries", "dim", "values"), [(200, 1, 1, 1), (129, 17, 2, 3), (65, 33, 3, 2)])
def test_sums_are_as_accurate_as_plain_torch(kernel, points, queries, dim, values):
    assert_as_accurate_as_plain_torch(kernel, 0.4, draw(points, queries, dim, values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [1, 3, 5])
def test_points_of_a_grid_at_the_edge_of_a_boxcar_are_inside_here_as_there(steps, dtype):
    line = torch.linspace(0, 1, 12, dtype=dtype, device=DEVICE)
    x, bandwidth = torch.cartesian_prod(line, line), torch.tensor(steps / 11, dtype=dtype, device=DEVICE)
    y = torch.randn(len(x), 1, dtype=dtype, device=DEVICE)
    wanted = plain("boxcar", bandwidth, x, y, x)
    torch.testing.assert_close(fused("boxcar", float(bandwidth), x, y, x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("points", [1, 20, 64, 100])
@pytest.mark.parametrize(("kernel", "bandwidth"), [("gaussian", 0.2), ("gaussian", 2.0), ("boxcar", 0.2)])
def test_a_smoother_of_few_points_sees_them_all(kernel, bandwidth, points):
    x, y, query = draw(points, 9, 1)
    bandwidth = torch.tensor(bandwidth, device=DEVICE)
    dense = Smoother.of(kernel, bandwidth, x, y)
    torch.testing.assert_close(SortedSmoother.of(kernel, bandwidth, x, dense.y_and_one)(query), dense(query))


@pytest.mark.parametrize(("bandwidth", "queries"), [(0.3, 33), (0.38, 33), (0.38, 32), (5.0, 1)])
@pytest.mark.parametrize("away", [0.0, 1000.0])
def test_a_bandwidth_so_wide_that_all_look_at_everything(bandwidth, queries, away):
    assert_as_accurate_as_plain_torch("gaussian", bandwidth, draw(150, queries, 2, 3, away=away))


@pytest.mark.parametrize("dim", range(1, 9))
def test_exponents_as_products_in_every_number_of_dimensions(dim):
    x, y, query = draw(70, 16, dim, dtype=torch.float64)
    points, exact = Points.of(x, y), torch.cdist(query, x).square().div(-2 * dim).exp()
    sums = gpu.kernel_sums(query, points.blocks, points.values, "gaussian", dim**0.5, squares=True, tiling=SMALL)
    wanted = torch.stack([exact.sum(1), (exact @ y)[:, 0], exact.square().sum(1)], 1)
    torch.testing.assert_close(sums, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dim", [5, 8])
def test_up_to_eight_dimensions(dim):
    assert_as_accurate_as_plain_torch("gaussian", 0.5, draw(130, 17, dim))


@pytest.mark.parametrize(
    ("bandwidth", "spread", "away"), [(1e-3, 1.0, 0.0), (1e-30, 1.0, 0.0), (1e30, 1.0, 0.0), (0.1, 1.0, 1000.0)]
)
def test_any_bandwidth_and_any_place(bandwidth, spread, away):
    inputs = draw(130, 17, 2, spread=spread, away=away)
    found = fused("gaussian", bandwidth, *inputs)
    wanted = plain("gaussian", max(bandwidth, 1e-9), *[tensor.double() for tensor in inputs])
    torch.testing.assert_close(found.double(), wanted, atol=1e-4, rtol=1e-4)


def test_double_precision_is_computed_in_double():
    inputs = draw(130, 17, 3, dtype=torch.float64)
    torch.testing.assert_close(fused("gaussian", 0.2, *inputs), plain("gaussian", 0.2, *inputs), rtol=1e-12, atol=1e-12)


def test_where_the_work_is_cut_does_not_matter(monkeypatch):
    inputs = draw(300, 50, 2, 3)
    wanted = fused("epanechnikov", 0.3, *inputs)
    monkeypatch.setattr(gpu, "VISITS", 5)
    assert torch.equal(fused("epanechnikov", 0.3, *inputs), wanted)


@pytest.mark.parametrize("values", [1, 2, 3])
def test_squares_are_summed_too(values):
    x, y, query = draw(130, 17, 2, values)
    points = Points.of(x, y)
    sums = gpu.kernel_sums(query, points.blocks, points.values, "triangular", 0.5, squares=True, tiling=SMALL).double()
    weights = (1 - torch.cdist(query.double(), x.double()) / 0.5).clamp(min=0)
    wanted = torch.cat([weights.sum(1, keepdim=True), weights @ y.double(), (weights**2).sum(1, keepdim=True)], 1)
    torch.testing.assert_close(sums, wanted, rtol=1e-5, atol=1e-5)
