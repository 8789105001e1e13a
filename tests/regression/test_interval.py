"""The interval of kernel regression: how often it holds the smoothed mean, and the textbook's."""

import numpy as np
import pytest

from jumok import KernelRegressor
from jumok.regression.smoother import SortedSmoother
from support.regression import noisy_sine


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


@pytest.mark.slow
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
    monkeypatch.setattr("jumok.regression.interval.FEW", len(x))
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
