"""The bandwidth of kernel regression: its errors of one pass against loops, scikit-learn and statsmodels."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import RadiusNeighborsRegressor
from statsmodels.nonparametric.kernel_regression import KernelReg

from jumok import KernelRegressor
from jumok.attention.distance_scores import rounded_squares
from jumok.regression import bandwidth as bandwidths
from jumok.regression import sums
from jumok.regression.bandwidth import BandwidthGrid
from jumok.regression.smoother import SortedSmoother
from support.regression import COMPACT, loo_error_by_loops, noisy_sine

CHOSEN = bandwidths.Chosen(torch.tensor(1.0), 0.0)


@pytest.mark.parametrize("bandwidth", ["loo", "learned"])
def test_the_bandwidth_found_leaves_no_more_error_than_that_of_statsmodels(bandwidth):
    x, y = noisy_sine(50)
    theirs = KernelReg(y, x, var_type="c", reg_type="lc", bw="cv_ls")
    ours = KernelRegressor(bandwidth=bandwidth).fit(x, y)
    assert ours.loo_error_ <= loo_error_by_loops("gaussian", theirs.bw, x, y) * (1 + 1e-6)
    assert ours.loo_error_ == pytest.approx(loo_error_by_loops("gaussian", ours.bandwidth_, x, y))


def test_dimensions_that_do_not_matter_learn_a_wide_bandwidth():
    x, y = noisy_sine(200, dimensions=3)
    shared = KernelRegressor(bandwidth="learned").fit(x, y)
    own = KernelRegressor(bandwidth="learned", per_dimension=True).fit(x, y)
    assert own.bandwidth_[0] < 1 < own.bandwidth_[1:].min()
    assert own.loo_error_ < shared.loo_error_


def test_a_sample_of_points_left_out_finds_nearly_the_best_bandwidth():
    x, y = noisy_sine(200)
    every = KernelRegressor(loo_points=None).fit(x, y)
    some = KernelRegressor(loo_points=100).fit(x, y)
    assert some.bandwidth_ != every.bandwidth_
    assert loo_error_by_loops("gaussian", some.bandwidth_, x, y) < 1.05 * every.loo_error_
    assert KernelRegressor(loo_points=100).fit(x, y).bandwidth_ == some.bandwidth_


@pytest.mark.parametrize("bandwidth", ["loo", "learned"])
def test_equal_points_and_single_points_still_have_a_bandwidth(bandwidth):
    assert KernelRegressor(bandwidth=bandwidth).fit([[1.0]] * 3, [1, 2, 6]).predict([[5.0]]) == pytest.approx(3)
    assert KernelRegressor(bandwidth=bandwidth).fit([[1.0]], [4]).predict([[5.0]]) == pytest.approx(4)


def loo_errors(kernel, x, y, grid, dtype=torch.float64):
    """The errors of one pass, every point left out."""
    x, y = torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype)
    points = SortedSmoother.of(kernel, torch.ones((), dtype=dtype), x, torch.stack([y, torch.ones_like(y)], 1))
    return bandwidths.loo_errors(points, torch.arange(len(x)), grid)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setitem(sums.POINTS, "cpu", 16)
    monkeypatch.setitem(sums.QUERIES, "cpu", 8)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
@pytest.mark.parametrize(("dimensions", "tile"), [(1, 2**18), (3, 2**18), (2, 200)])
def test_every_bandwidth_of_one_pass_has_the_error_of_leaving_points_out_by_loops(
    kernel, dimensions, tile, monkeypatch
):
    monkeypatch.setitem(sums.TILE, "cpu", tile)  # however little is held at once
    x, y = noisy_sine(70, dimensions)
    grid = BandwidthGrid(6.0, 6, 20)
    # A point that no kernel reaches takes its nearest: bandwidths here are wide enough for all but a few in 3-D.
    alone = np.linalg.norm(x[:, None] - x, axis=-1) + np.where(np.eye(len(x)) == 1, np.inf, 0)
    for bandwidth, error in zip(grid.bandwidths, loo_errors(kernel, x, y, grid), strict=True):
        if kernel == "gaussian" or alone.min(1).max() < bandwidth:
            assert error == pytest.approx(loo_error_by_loops(kernel, bandwidth, x, y), rel=1e-9)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kernel", COMPACT)
def test_who_is_left_out_beyond_the_reach_of_all_kernels_is_predicted_by_the_nearest(kernel):
    x, y = np.array([[0.0], [1.0], [5.0], [7.0]]), np.array([1.0, 2.0, 4.0, 8.0])
    nearest = np.mean((y - y[[1, 0, 3, 2]]) ** 2)
    np.testing.assert_allclose(loo_errors(kernel, x, y, BandwidthGrid(0.9, 2, 2)), [nearest] * 2)
    # At the very edge of a kernel stands weight 0, and with it no number to divide by.
    assert loo_errors(kernel, x[:2], y[:2], BandwidthGrid(1.0, 2, 1)) == [1.0]


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_of_a_grid_at_the_edge_of_a_boxcar_are_left_out_as_they_are_predicted(dtype, dimensions):
    line = torch.arange(17, dtype=torch.float64).mul(0.1).to(dtype)
    x = torch.cartesian_prod(*[line] * dimensions).view(-1, dimensions)
    y = torch.randn(len(x), dtype=torch.float64)
    grid = BandwidthGrid(1.6, 8, 33)  # down to 0.1, all steps of the grid among them
    squared = rounded_squares(x, x).fill_diagonal_(torch.inf)
    for bandwidth, error in zip(grid.bandwidths, loo_errors("boxcar", x.numpy(), y.numpy(), grid, dtype), strict=True):
        inside = (squared <= torch.tensor(bandwidth, dtype=dtype).square()).double()
        if inside.any(1).all():
            assert error == pytest.approx(((inside @ y / inside.sum(1) - y) ** 2).mean().item(), rel=1e-6)


def test_the_errors_of_one_pass_are_those_of_scikit_learn():
    x, y = noisy_sine(40)
    grid = BandwidthGrid(0.9, 2, 2)
    theirs = [
        -cross_val_score(RadiusNeighborsRegressor(h), x, y, cv=LeaveOneOut(), scoring="neg_mean_squared_error").mean()
        for h in grid.bandwidths
    ]
    np.testing.assert_allclose(loo_errors("boxcar", x, y, grid), theirs)


@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
def test_one_pass_is_as_exact_in_single_precision(kernel):
    x, y = noisy_sine(300)
    x = x.astype(np.float32)
    grid = BandwidthGrid(4.0, 8, 64)
    single, double = (loo_errors(kernel, x, y, grid, dtype) for dtype in (torch.float32, torch.float64))
    np.testing.assert_allclose(single, double, rtol=2e-5)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
def test_a_bandwidth_is_found_in_one_pass_over_the_distances(kernel, monkeypatch):
    read = []
    tiles = sums.QueryBlock.tiles

    def counted(*given):
        for tile in tiles(*given):
            read.append(tile.squared.numel())
            yield tile

    monkeypatch.setattr(sums.QueryBlock, "tiles", counted)
    x, y = noisy_sine(320)
    KernelRegressor(kernel).fit(x, y)
    assert len(x) ** 2 <= sum(read) < 1.4 * len(x) ** 2, "some blocks twice: how near is the nearest point?"


@pytest.mark.parametrize("seed", range(4))
def test_the_gaussian_s_best_bandwidth_is_found_between_those_tried(seed):
    random = np.random.default_rng(seed)
    x = random.uniform(0, 5, (80, 1 + seed % 2))
    y = np.sin(2 * x[:, 0]) + random.normal(0, 0.4, 80)
    found = KernelRegressor().fit(x, y)
    squared = ((x[:, None] - x) ** 2).sum(-1) + np.where(np.eye(80) == 1, np.inf, 0)

    def error(log):
        weights = np.exp(-squared / 2 / np.exp(2 * log))
        return np.mean((y - weights @ y / weights.sum(1)) ** 2)

    best = minimize_scalar(error, bracket=(np.log(found.bandwidth_), np.log(found.bandwidth_) + 0.01)).x
    assert found.bandwidth_ == pytest.approx(np.exp(best), rel=2 ** (1 / 512) - 1)
    assert found.loo_error_ == pytest.approx(error(np.log(found.bandwidth_)), rel=1e-6)
    assert found.loo_error_ == pytest.approx(error(best), rel=1e-5)
    assert found.loo_error_ <= min(map(error, np.log(np.geomspace(0.05, 10, 300)))) * 1.00501


@pytest.mark.parametrize("kernel", COMPACT)
def test_the_bandwidth_found_for_a_kernel_with_an_edge_is_nearly_the_best_tried(kernel):
    x, y = noisy_sine(80)
    found = KernelRegressor(kernel).fit(x, y)
    assert found.loo_error_ == pytest.approx(loo_error_by_loops(kernel, found.bandwidth_, x, y), rel=1e-9)
    grid = BandwidthGrid(found.bandwidth_ * 4, 32, 128)
    assert found.loo_error_ <= 1.005 * min(loo_errors(kernel, x, y, grid))


@pytest.mark.parametrize(("wide", "chosen"), [(1.004, 40), (1.006, 120)])
@pytest.mark.parametrize("kernel", ["gaussian", "boxcar"])
def test_of_two_valleys_as_deep_the_wider_bandwidth_wins(kernel, wide, chosen, monkeypatch):
    def two_valleys(points, rows, grid, *, verbose):
        steps = np.arange(grid.count)
        return np.minimum(wide + ((steps - 40) / 30) ** 2, 1 + ((steps - 120) / 30) ** 2).tolist()

    monkeypatch.setattr(bandwidths, "loo_errors", two_valleys)
    monkeypatch.setattr(bandwidths, "_range", lambda smoother: (np.log(2**-30), 0.0))
    x, y = noisy_sine(20)
    assert KernelRegressor(kernel).fit(x, y).bandwidth_ == pytest.approx(2 ** (-chosen / bandwidths.STEPS[kernel]))


def test_every_point_is_left_out_where_that_takes_seconds_and_some_where_it_would_take_hours(monkeypatch):
    asked = []
    monkeypatch.setattr(
        bandwidths, "search_grid", lambda smoother, rows, *rest, **more: asked.append(len(rows)) or CHOSEN
    )
    for points in (3000, 8192, 10_000, 50_000):
        KernelRegressor().fit(np.arange(points, dtype=np.float32)[:, None], np.zeros(points))
    assert asked == [3000, 8192, 2**26 // 10_000, 2048]
