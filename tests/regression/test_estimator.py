"""Kernel regression against a loop, statsmodels, its own limits and scikit-learn's rules."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from statsmodels.nonparametric.kernel_regression import KernelReg

from jumok import KernelRegressor
from jumok.regression import smoother, sums
from support.regression import COMPACT, KERNELS, by_loops, noisy_sine

WEIGHTED = {
    "check_sample_weight_equivalence_on_dense_data": "leave-one-out leaves a point out with all its weight, and one of "
    "several equal points alone"
}


@pytest.mark.slow
@parametrize_with_checks(
    [
        KernelRegressor(),
        KernelRegressor("boxcar", 1.0),
        KernelRegressor("triangular", "learned", per_dimension=True),
    ],
    expected_failed_checks=lambda estimator: WEIGHTED if isinstance(estimator.bandwidth, str) else {},
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


@pytest.mark.slow
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
    monkeypatch.setattr("jumok.progress.DELAY", -1.0)
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


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.long
def test_a_million_points_fit_in_memory():
    # All weights of these queries would be 40 GB.
    program = """
import numpy as np, torch
from pathlib import Path
from jumok import KernelRegressor
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


def grid(side, dtype):
    """Points of the unit square, and outputs that tell which of them were mixed."""
    line = np.linspace(0, 1, side)
    x = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2).astype(dtype)
    return x, np.random.default_rng(0).normal(size=len(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("steps", [1, 3, 5])
def test_points_of_a_grid_at_the_very_edge_of_a_boxcar_are_inside_for_all_or_for_none(steps, dtype):
    x, y = grid(70, dtype)
    regressor = KernelRegressor("boxcar", steps / 69).fit(x, y)
    assert regressor.order_ is not None
    queries = x[::7]
    mixed = regressor.weights(queries) @ regressor.y_
    np.testing.assert_allclose(mixed, regressor.predict(queries), rtol=0, atol=1e-5)
    np.testing.assert_allclose(mixed, KernelRegressor("boxcar", steps / 69).fit(x, y).interval(queries).fit, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighbours_at_whole_steps_are_inside(dtype):
    x = np.stack(np.meshgrid(np.arange(9), np.arange(9)), -1).reshape(-1, 2).astype(dtype)
    weights = KernelRegressor("boxcar", 5).fit(x, x[:, 0]).weights(np.array([[4, 4], [0, 0]], dtype))
    reached = np.square(x[None] - np.array([[[4, 4]], [[0, 0]]])).sum(-1) <= 25
    np.testing.assert_array_equal(weights > 0, reached)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
@given(exponent=st.floats(-20, 20))
@example(exponent=-20)
@example(exponent=20)
@settings(max_examples=5)
def test_the_unit_of_x_and_bandwidth_does_not_matter(kernel, many, exponent):
    x, y = noisy_sine(60, 2)
    queries, unit = x[:20] + 0.1, 10.0**exponent
    exact = KernelRegressor(kernel, 0.9).fit(x, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jumok.regression.estimator.FEW", 10 if many else 4096)
        scaled = KernelRegressor(kernel, 0.9 * unit).fit((x * unit).astype(np.float32), y)
    near, moved = exact.predict(queries), (queries * unit).astype(np.float32)
    np.testing.assert_allclose(scaled.predict(moved), near, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(scaled.weights(moved) @ y, near, rtol=1e-3, atol=1e-4)
    for end, wanted in zip(scaled.interval(moved), exact.interval(queries), strict=True):
        np.testing.assert_allclose(end, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("unit", [1e-25, 1e-12, 1e12, 1e25])
@pytest.mark.parametrize("bandwidth", ["loo", "learned"])
def test_a_bandwidth_is_found_in_any_unit(unit, bandwidth):
    x, y = noisy_sine(60, 2)
    plain = KernelRegressor(bandwidth=bandwidth).fit(x, y)
    scaled = KernelRegressor(bandwidth=bandwidth).fit((x * unit).astype(np.float32), y)
    assert scaled.bandwidth_ == pytest.approx(plain.bandwidth_ * unit, rel=1e-3)
    assert scaled.loo_error_ == pytest.approx(plain.loo_error_, rel=1e-3)


@pytest.mark.parametrize(("bandwidth", "answer"), [(1e-60, [5, 7]), (1e60, [6, 6])])
def test_a_bandwidth_beyond_single_precision_is_as_narrow_or_wide_as_can_be(bandwidth, answer):
    regressor = KernelRegressor("gaussian", bandwidth).fit(np.array([[0], [1]], np.float32), [5, 7])
    np.testing.assert_allclose(regressor.predict(np.array([[0.1], [0.9]], np.float32)), answer)


@pytest.fixture
def sorted_points(monkeypatch):
    """Few points are sorted into small blocks too, as a million would be."""
    monkeypatch.setattr("jumok.regression.estimator.FEW", 10)
    monkeypatch.setitem(sums.POINTS, "cpu", 16)
    monkeypatch.setitem(sums.TILE, "cpu", 500)


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
    monkeypatch.setitem(sums.TILE, "cpu", 2**16)
    monkeypatch.setitem(sums.QUERIES, "cpu", 32)
    read = []
    tiles = sums.QueryBlock.tiles

    def counted(*given):
        for tile in tiles(*given):
            read.append(tile.squared.numel())
            yield tile

    monkeypatch.setattr(sums.QueryBlock, "tiles", counted)
    x = np.sort(np.random.default_rng(0).uniform(0, 1, 1500))[:, None]
    for kernel, bandwidth, most in (("epanechnikov", 0.02, 0.2), ("gaussian", 0.004, 0.3), ("gaussian", 10.0, 2.1)):
        read.clear()
        KernelRegressor(kernel, bandwidth).fit(x, x[:, 0]).predict(x)
        assert most / 4 < sum(read) / len(x) ** 2 < most
