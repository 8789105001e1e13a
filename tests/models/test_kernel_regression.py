"""Kernel regression against a loop, statsmodels, its own limits and scikit-learn's rules."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_score
from sklearn.neighbors import RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from statsmodels.nonparametric.kernel_regression import KernelReg

from jumok.attention import kernel_sums
from jumok.attention.leave_one_out import Ladder
from jumok.models import KernelRegressor, smoother
from jumok.models import bandwidth as bandwidths
from jumok.models.sorted_smoother import SortedSmoother

KERNELS = {
    "constant": lambda u: 1.0,
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "boxcar": lambda u: float(u <= 1),
    "epanechnikov": lambda u: max(0.0, 1 - u**2),
    "triangular": lambda u: max(0.0, 1 - u),
}
COMPACT = ["boxcar", "epanechnikov", "triangular"]


def noisy_sine(points=60, dimensions=1, outputs=None):
    random = np.random.default_rng(0)
    x = random.uniform(0, 5, (points, dimensions))
    y = 2 * np.sin(x[:, 0]) + x[:, 0] + random.normal(0, 0.5, points)
    return x, y if outputs is None else np.stack([y + i * x.sum(1) for i in range(outputs)], 1)


def by_loops(kernel, bandwidth, x, y, queries):
    """Nadaraya and Watson, as they wrote it."""
    answers = []
    for query in queries:
        weights = [KERNELS[kernel](np.linalg.norm((query - point) / bandwidth)) for point in x]
        answers.append(sum(w * output for w, output in zip(weights, y, strict=True)) / sum(weights))
    return np.array(answers)


def loo_error_by_loops(kernel, bandwidth, x, y):
    without = [(np.delete(x, i, 0), np.delete(y, i, 0), x[i : i + 1]) for i in range(len(x))]
    return np.mean((y - np.array([by_loops(kernel, bandwidth, *rest)[0] for rest in without])) ** 2)


@parametrize_with_checks(
    [
        KernelRegressor(),
        KernelRegressor("boxcar", 1.0),
        KernelRegressor("constant"),
        KernelRegressor("triangular", "learned"),
        KernelRegressor(bandwidth="learned", per_dimension=True),
    ]
)
def test_it_keeps_every_rule_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("dimensions", "outputs"), [(1, None), (3, None), (2, 3)])
def test_predictions_are_the_weighted_mean_written_as_a_loop(kernel, dimensions, outputs):
    x, y = noisy_sine(dimensions=dimensions, outputs=outputs)
    queries = x[:20] + 0.01
    found = KernelRegressor(kernel, 0.9).fit(x, y).predict(queries)
    np.testing.assert_allclose(found, by_loops(kernel, 0.9, x, y, queries), rtol=1e-12)


def test_each_dimension_can_have_its_bandwidth():
    x, y = noisy_sine(dimensions=2)
    found = KernelRegressor("gaussian", np.array([0.3, 2.0])).fit(x, y).predict(x)
    np.testing.assert_allclose(found, by_loops("gaussian", np.array([0.3, 2.0]), x, y, x), rtol=1e-12)


@pytest.mark.parametrize("bandwidth", [[0.3], [0.5, 1.5]])
def test_it_agrees_with_statsmodels(bandwidth):
    x, y = noisy_sine(dimensions=len(bandwidth))
    theirs = KernelReg(y, x, var_type="c" * len(bandwidth), reg_type="lc", bw=bandwidth)
    ours = KernelRegressor(bandwidth=bandwidth).fit(x, y)
    np.testing.assert_allclose(ours.predict(x + 0.1), theirs.fit(x + 0.1)[0], rtol=0, atol=1e-8)


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


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_wide_bandwidth_gives_the_plain_mean(kernel):
    x, y = noisy_sine()
    found = KernelRegressor(kernel, 1e9).fit(x, y).predict([[-3.0], [0.0], [8.0]])
    np.testing.assert_allclose(found, [y.mean()] * 3)


@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
@pytest.mark.parametrize(
    ("bandwidth", "dtype"), [(1e-4, "float32"), (1e-30, "float32"), (1e-4, "float64"), (1e-200, "float64")]
)
def test_a_narrow_bandwidth_gives_the_nearest_neighbour(kernel, bandwidth, dtype):
    x, queries = np.array([[0], [1], [3], [7]], dtype), np.array([[-9], [0.4], [2.1], [90]], dtype)
    found = KernelRegressor(kernel, bandwidth).fit(x, [5, 6, 7, 8]).predict(queries)
    np.testing.assert_array_equal(found, [5, 5, 7, 8])


@pytest.mark.parametrize("kernel", COMPACT)
def test_a_query_beyond_the_reach_of_all_kernels_takes_its_nearest_points(kernel):
    regressor = KernelRegressor(kernel, 0.5).fit([[0.0], [1.0], [4.0]], [[1, 10], [3, 30], [7, 70]])
    queries = [[-100.0], [2.5], [9.0], [0.1]]
    np.testing.assert_allclose(regressor.predict(queries), [[1, 10], [5, 50], [7, 70], [1, 10]])
    np.testing.assert_allclose(regressor.weights(queries), [[1, 0, 0], [0, 0.5, 0.5], [0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_weights_mix_the_outputs_to_the_prediction(kernel):
    x, y = noisy_sine(outputs=2)
    regressor = KernelRegressor(kernel, 0.2).fit(x, y)
    queries = np.linspace(-2, 7, 40)[:, None]
    weights = regressor.weights(queries)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights @ y, regressor.predict(queries), atol=1e-12)


def test_queries_in_chunks_get_the_same_answers(monkeypatch):
    x, y = noisy_sine()
    whole = KernelRegressor("triangular", "learned").fit(x, y)
    monkeypatch.setitem(smoother.CHUNK_BYTES, "cpu", 7 * len(x) * 8)
    parts = KernelRegressor("triangular", "learned").fit(x, y)
    assert parts.bandwidth_ == pytest.approx(whole.bandwidth_)
    np.testing.assert_allclose(parts.predict(x), whole.predict(x), rtol=1e-6)


def test_float32_stays_float32_and_everything_else_is_float64():
    x, y = noisy_sine()
    assert KernelRegressor().fit(x.astype(np.float32), y).predict(x).dtype == np.float32
    assert KernelRegressor().fit((9 * x).astype(int), y).predict(x).dtype == np.float64


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


def test_it_is_cloned_pickled_searched_and_put_into_pipelines():
    x, y = noisy_sine()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), KernelRegressor()),
        {"kernelregressor__kernel": ["constant", "gaussian"], "kernelregressor__bandwidth": [0.2, "loo"]},
    ).fit(x, y)
    assert search.best_params_["kernelregressor__kernel"] == "gaussian"
    best = search.best_estimator_[-1]
    again = pickle.loads(pickle.dumps(best))
    scaled = search.best_estimator_[0].transform(x)
    np.testing.assert_array_equal(again.predict(scaled), best.predict(scaled))
    assert clone(best).get_params() == best.get_params()


def test_what_takes_long_shows_a_bar_on_standard_error(monkeypatch, capsys):
    monkeypatch.setattr("jumok.models.progress.PATIENCE", -1.0)
    x, y = noisy_sine()
    KernelRegressor(bandwidth=1.0).fit(x, y).predict(x)
    assert capsys.readouterr() == ("", "")
    KernelRegressor(bandwidth=1.0, verbose=True).fit(x, y).predict(x)
    out, err = capsys.readouterr()
    assert out == ""
    assert "predicting" in err
    KernelRegressor(bandwidth=1.0, verbose=True).fit(x, y).interval(x)
    assert "finding the noise" in capsys.readouterr().err
    KernelRegressor(verbose=True).fit(x, y)
    assert "leaving points out" in capsys.readouterr().err
    KernelRegressor(bandwidth="learned", verbose=True).fit(x, y)
    assert "learning the bandwidth" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_million_points_fit_in_memory():
    # All weights of these queries would be 40 GB.
    program = """
import numpy as np, torch
from pathlib import Path
from jumok.models import KernelRegressor
torch.set_num_threads(1)
x = np.random.default_rng(0).uniform(0, 5, (1_000_000, 1))
asked = x[::200]
inside = (asked[:, 0] > 1) & (asked[:, 0] < 4)
for kernel, bandwidth in (("gaussian", 0.002), ("epanechnikov", 0.01)):
    found = KernelRegressor(kernel, bandwidth).fit(x, np.sin(x[:, 0])).predict(asked)
    assert np.abs(found - np.sin(asked[:, 0]))[inside].max() < 0.001
# Not getrusage's: that one begins with the memory of the program which started this one.
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=400)
    assert float(done.stdout) / 1024 < 1024, "MiB at the peak, PyTorch and scikit-learn included"


@pytest.fixture
def sorted_points(monkeypatch):
    """Few points are sorted into small blocks too, as a million would be."""
    monkeypatch.setattr("jumok.models.kernel_regression.FEW", 10)
    monkeypatch.setitem(kernel_sums.POINTS, "cpu", 16)
    monkeypatch.setitem(kernel_sums.TILE, "cpu", 500)


@pytest.mark.usefixtures("sorted_points")
@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
@pytest.mark.parametrize("dimensions", [1, 2, 5, 20])
@pytest.mark.parametrize("bandwidth", [0.02, 0.7, 30.0])
def test_sorted_points_give_the_answers_of_all_points(kernel, dimensions, bandwidth):
    x, y = noisy_sine(333, dimensions, outputs=2)
    queries = np.concatenate([x[:50], x[50:80] + 0.3, x[:5] + 100, -x[:5]])
    regressor = KernelRegressor(kernel, bandwidth).fit(x, y)
    assert regressor.order_ is not None
    np.testing.assert_allclose(regressor.predict(queries), regressor.weights(queries) @ y, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("sorted_points")
def test_sorted_points_can_have_a_bandwidth_for_each_dimension_and_stand_in_one_place():
    x, y = noisy_sine(200, 2)
    regressor = KernelRegressor("epanechnikov", [0.3, 2.0]).fit(x, y)
    np.testing.assert_allclose(regressor.predict(x), regressor.weights(x) @ y, atol=1e-12)
    np.testing.assert_allclose(KernelRegressor("boxcar", 0.5).fit(x * 0, y).predict(x[:3]), [y.mean()] * 3)


@pytest.mark.usefixtures("sorted_points")
@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
def test_a_query_whose_distances_are_too_large_for_their_type_gets_a_number(kernel):
    x, y = noisy_sine(100)
    found = KernelRegressor(kernel, 0.5).fit(x.astype(np.float32), y).predict(np.array([[1e30], [2.5]], np.float32))
    assert np.isfinite(found).all()
    assert y.min() <= found[0] <= y.max()


@pytest.mark.usefixtures("sorted_points")
def test_only_points_near_enough_to_count_are_read(monkeypatch):
    monkeypatch.setitem(kernel_sums.TILE, "cpu", 2**16)
    monkeypatch.setitem(kernel_sums.QUERIES, "cpu", 32)
    read = []
    tiles = kernel_sums.Asked.tiles

    def counted(asked, points, blocks):
        for tile in tiles(asked, points, blocks):
            read.append(tile.squared.numel())
            yield tile

    monkeypatch.setattr(kernel_sums.Asked, "tiles", counted)
    x = np.sort(np.random.default_rng(0).uniform(0, 1, 1500))[:, None]
    for kernel, bandwidth, most in (("epanechnikov", 0.02, 0.2), ("gaussian", 0.004, 0.3), ("gaussian", 10.0, 2.1)):
        read.clear()
        KernelRegressor(kernel, bandwidth).fit(x, x[:, 0]).predict(x)
        assert most / 4 < sum(read) / len(x) ** 2 < most


def loo_errors(kernel, x, y, ladder, dtype=torch.float64):
    """The errors of one pass, every point left out."""
    x, y = torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype)
    points = SortedSmoother.of(kernel, torch.ones((), dtype=dtype), x, torch.stack([y, torch.ones_like(y)], 1))
    return points.loo_errors(torch.arange(len(x)), ladder)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setitem(kernel_sums.POINTS, "cpu", 16)
    monkeypatch.setitem(kernel_sums.QUERIES, "cpu", 8)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
@pytest.mark.parametrize(("dimensions", "tile"), [(1, 2**18), (3, 2**18), (2, 200)])
def test_every_bandwidth_of_one_pass_has_the_error_of_leaving_points_out_by_loops(
    kernel, dimensions, tile, monkeypatch
):
    monkeypatch.setitem(kernel_sums.TILE, "cpu", tile)  # however little is held at once
    x, y = noisy_sine(70, dimensions)
    ladder = Ladder(6.0, 6, 20)
    # A point that no kernel reaches takes its nearest: bandwidths here are wide enough for all but a few in 3-D.
    alone = np.linalg.norm(x[:, None] - x, axis=-1) + np.where(np.eye(len(x)) == 1, np.inf, 0)
    for bandwidth, error in zip(ladder.bandwidths, loo_errors(kernel, x, y, ladder), strict=True):
        if kernel == "gaussian" or alone.min(1).max() < bandwidth:
            assert error == pytest.approx(loo_error_by_loops(kernel, bandwidth, x, y), rel=1e-9)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kernel", COMPACT)
def test_who_is_left_out_beyond_the_reach_of_all_kernels_is_predicted_by_the_nearest(kernel):
    x, y = np.array([[0.0], [1.0], [5.0], [7.0]]), np.array([1.0, 2.0, 4.0, 8.0])
    nearest = np.mean((y - y[[1, 0, 3, 2]]) ** 2)
    np.testing.assert_allclose(loo_errors(kernel, x, y, Ladder(0.9, 2, 2)), [nearest] * 2)
    # At the very edge of a kernel stands weight 0, and with it no number to divide by.
    assert loo_errors(kernel, x[:2], y[:2], Ladder(1.0, 2, 1)) == [1.0]


def test_the_errors_of_one_pass_are_those_of_scikit_learn():
    x, y = noisy_sine(40)
    ladder = Ladder(0.9, 2, 2)
    theirs = [
        -cross_val_score(RadiusNeighborsRegressor(h), x, y, cv=LeaveOneOut(), scoring="neg_mean_squared_error").mean()
        for h in ladder.bandwidths
    ]
    np.testing.assert_allclose(loo_errors("boxcar", x, y, ladder), theirs)


@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
def test_one_pass_is_as_exact_in_single_precision(kernel):
    x, y = noisy_sine(300)
    x = x.astype(np.float32)
    ladder = Ladder(4.0, 8, 64)
    single, double = (loo_errors(kernel, x, y, ladder, dtype) for dtype in (torch.float32, torch.float64))
    np.testing.assert_allclose(single, double, rtol=2e-5)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
def test_a_bandwidth_is_found_in_one_pass_over_the_distances(kernel, monkeypatch):
    read = []
    compute = kernel_sums.squared_distances
    monkeypatch.setattr(kernel_sums, "squared_distances", lambda q, k: read.append(compute(q, k)) or read[-1])
    x, y = noisy_sine(320)
    KernelRegressor(kernel).fit(x, y)
    pairs = sum(distances.numel() for distances in read)
    assert len(x) ** 2 <= pairs < 1.4 * len(x) ** 2, "some blocks twice: how near is the nearest point?"


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
    ladder = Ladder(found.bandwidth_ * 4, 32, 128)
    assert found.loo_error_ <= 1.005 * min(loo_errors(kernel, x, y, ladder))


@pytest.mark.parametrize(("wide", "chosen"), [(1.004, 40), (1.006, 120)])
@pytest.mark.parametrize("kernel", ["gaussian", "boxcar"])
def test_of_two_valleys_as_deep_the_wider_bandwidth_wins(kernel, wide, chosen, monkeypatch):
    def two_valleys(points, rows, ladder, *, verbose):
        steps = np.arange(ladder.count)
        return np.minimum(wide + ((steps - 40) / 30) ** 2, 1 + ((steps - 120) / 30) ** 2).tolist()

    monkeypatch.setattr(SortedSmoother, "loo_errors", two_valleys)
    monkeypatch.setattr(bandwidths, "_range", lambda smoother: (np.log(2**-30), 0.0))
    x, y = noisy_sine(20)
    assert KernelRegressor(kernel).fit(x, y).bandwidth_ == pytest.approx(2 ** (-chosen / bandwidths.STEPS[kernel]))


def test_every_point_is_left_out_where_that_takes_seconds_and_some_where_it_would_take_hours(monkeypatch):
    asked = []
    monkeypatch.setattr(bandwidths, "search", lambda smoother, rows, *rest, **more: asked.append(len(rows)) or CHOSEN)
    for points in (3000, 8192, 10_000, 50_000):
        KernelRegressor().fit(np.arange(points, dtype=np.float32)[:, None], np.zeros(points))
    assert asked == [3000, 8192, 2**26 // 10_000, 2048]


CHOSEN = bandwidths.Chosen(torch.tensor(1.0), 0.0)


@pytest.mark.parametrize(
    ("kernel", "bandwidth", "points"),
    [("gaussian", 0.25, 200), ("epanechnikov", 0.6, 200), ("boxcar", 0.5, 200), ("gaussian", 0.25, 5000)],
)
def test_the_interval_holds_the_smoothed_mean_as_often_as_it_says(kernel, bandwidth, points):
    random = np.random.default_rng(0)
    x, queries = np.sort(random.uniform(0, 5, points))[:, None], np.linspace(0.2, 4.8, 30)[:, None]
    truth, noise = 2 * np.sin(x[:, 0]) + x[:, 0], 0.2 + 0.2 * x[:, 0]  # the noise grows along x
    drawn = truth[:, None] + random.normal(size=(points, 500)) * noise[:, None]  # 500 samples, as outputs of one fit
    regressor = KernelRegressor(kernel, bandwidth).fit(x, drawn)
    smoothed = regressor.weights(queries) @ truth[:, None]
    for level in (0.5, 0.95):
        fit, low, high = regressor.interval(queries, level)
        np.testing.assert_allclose(low + high, 2 * fit, atol=1e-9)
        assert np.mean((low <= smoothed) & (smoothed <= high)) == pytest.approx(level, abs=0.02)


@pytest.mark.parametrize(("kernel", "bandwidth"), [("gaussian", 0.1), ("boxcar", 0.3)])
def test_of_many_points_a_few_near_the_queries_tell_of_the_noise(kernel, bandwidth, monkeypatch):
    random, asked = np.random.default_rng(0), []
    x, sums = random.normal(size=(20_000, 1)), SortedSmoother.sums
    y = np.sin(x[:, 0]) + random.normal(size=20_000) * (0.2 + 0.2 * np.abs(x[:, 0]))
    queries = np.append(np.linspace(-2, 2, 20), 9.0)[:, None]  # the last is alone
    counted = lambda self, query, **options: asked.append(len(query)) or sums(self, query, **options)  # noqa: E731
    monkeypatch.setattr(SortedSmoother, "sums", counted)
    regressor = KernelRegressor(kernel, bandwidth).fit(x, y)
    some = regressor.interval(queries)
    monkeypatch.setattr("jumok.models.regression_interval.FEW", len(x))
    every = regressor.interval(queries)
    assert asked[1] < len(x) / 5
    assert asked[4] == len(x)
    np.testing.assert_array_equal(some.fit, every.fit)
    np.testing.assert_allclose(some.high - some.low, every.high - every.low, rtol=0.2)


@pytest.mark.parametrize("points", [60, 300])
def test_the_interval_of_the_plain_mean_is_that_of_the_textbook(points):
    x, y = noisy_sine(points)
    fit, low, high = KernelRegressor("constant").fit(x, y).interval([[0.0]])
    half = 1.959964 * y.std(ddof=1) / np.sqrt(len(y))
    np.testing.assert_allclose([fit[0], low[0], high[0]], [y.mean(), y.mean() - half, y.mean() + half], rtol=1e-6)


def test_the_interval_has_the_shape_of_the_outputs_and_a_point_alone_has_the_noise_of_the_others():
    x, y = noisy_sine(outputs=2)
    regressor = KernelRegressor("boxcar", 0.5).fit(np.concatenate([x, [[50.0]]]), np.concatenate([y, [[1.0, 2.0]]]))
    fit, low, high = regressor.interval([[1.0], [50.0]])
    assert fit.shape == low.shape == high.shape == (2, 2)
    np.testing.assert_allclose(fit[1], [1, 2])
    assert np.isfinite(high).all()
    assert ((high - low)[1] > (high - low)[0]).all()


def test_the_interval_of_the_plain_mean_asks_no_point_for_every_other():
    """A million points: looking from each at all would take hours and never end here."""
    y = np.random.default_rng(0).normal(size=1_000_000)
    fit, low, high = KernelRegressor("constant").fit(y[:, None], y).interval([[0.0], [9.0]])
    np.testing.assert_allclose(high - low, 2 * 1.959964 * y.std(ddof=1) / 1000, rtol=1e-6)
    np.testing.assert_allclose(fit, y.mean(), atol=1e-12)


def test_an_interval_is_nan_where_nothing_tells_of_the_noise():
    fit, low, high = KernelRegressor("gaussian", 1e-3).fit([[0.0], [1.0]], [2.0, 4.0]).interval([[0.0]])
    assert fit == 2
    assert np.isnan([low, high]).all()
    assert np.isnan(KernelRegressor("constant").fit([[0.0]], [2.0]).interval([[0.0]]).high)
