"""KernelRegressor(degree=1), sample weights and bandwidths per output: against statsmodels, scikit-learn and loops."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from statsmodels.nonparametric.kernel_regression import KernelReg

from jumok import KernelRegressor
from jumok.errors import ArgumentError
from jumok.regression import estimator, sums
from support.regression import COMPACT, KERNELS, by_loops, noisy_sine

WEIGHTED = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "leave-one-out leaves a point out with all its weight, and one of several equal points alone",
)


@pytest.mark.long
@parametrize_with_checks(
    [KernelRegressor(degree=1), KernelRegressor("triangular", 1.0, degree=1), KernelRegressor(per_output=True)],
    expected_failed_checks=lambda estimator: WEIGHTED if estimator.bandwidth == "loo" else {},
)
def test_it_keeps_every_rule_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("bandwidth", [[0.3], [0.5, 1.5], [1.0, 0.7, 2.0]])
def test_it_agrees_with_statsmodels_by_default(bandwidth):
    x, y = noisy_sine(dimensions=len(bandwidth))
    theirs = KernelReg(y, x, var_type="c" * len(bandwidth), bw=bandwidth)  # reg_type="ll" is its default
    ours = KernelRegressor(bandwidth=bandwidth, degree=1).fit(x, y)
    np.testing.assert_allclose(ours.predict(x + 0.1), theirs.fit(x + 0.1)[0], rtol=0, atol=1e-7)


def test_leave_one_out_chooses_the_bandwidth_of_statsmodels_cross_validation():
    x, y = noisy_sine(points=80)
    theirs = KernelReg(y, x, var_type="c", bw="cv_ls")
    ours = KernelRegressor(degree=1).fit(x, y)
    assert ours.bandwidth_ == pytest.approx(theirs.bw[0], rel=0.03)
    wanted = [
        y[i]
        - KernelRegressor(bandwidth=ours.bandwidth_, degree=1)
        .fit(np.delete(x, i, 0), np.delete(y, i))
        .predict(x[[i]])[0]
        for i in range(len(x))
    ]
    assert ours.loo_error_ == pytest.approx(np.mean(np.square(wanted)), rel=1e-3)


def test_a_line_is_learned_exactly_and_continued_beyond_its_ends():
    x = np.random.default_rng(0).uniform(0, 1, (40, 2))
    model = KernelRegressor(bandwidth=0.3, degree=1).fit(x, x @ [2.0, -3.0] + 1)
    queries = np.array([[0.0, 0.0], [1.0, 1.0], [1.5, -0.5]])
    np.testing.assert_allclose(model.predict(queries), queries @ [2.0, -3.0] + 1, atol=1e-9)
    assert abs(KernelRegressor(bandwidth=0.3).fit(x, x @ [2.0, -3.0] + 1).predict([[0.0, 1.0]])[0] + 2) > 0.5


def test_the_constant_kernel_of_degree_one_is_linear_regression():
    x, y = noisy_sine(dimensions=3, outputs=2)
    model = KernelRegressor("constant", degree=1).fit(x, y)
    np.testing.assert_allclose(model.predict(x + 1), LinearRegression().fit(x, y).predict(x + 1), atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("degree", [0, 1])
def test_weights_give_the_predictions_and_sum_to_one_also_beyond_the_reach_of_a_kernel(kernel, degree):
    x, y = noisy_sine(dimensions=2)
    model = KernelRegressor(kernel, 0.8, degree=degree).fit(x, y, np.linspace(0.5, 2, len(x)))
    queries = np.concatenate([x[:9] + 0.05, [[40.0, 40.0]]])
    weights = model.weights(queries)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights @ y, model.predict(queries), rtol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_weight_counts_as_so_many_points(kernel, degree):
    x, y = noisy_sine(dimensions=2)
    weight = np.random.default_rng(1).integers(0, 4, len(x))
    model = KernelRegressor(kernel, 1.2, degree=degree).fit(x, y, weight)
    wanted = KernelRegressor(kernel, 1.2, degree=degree).fit(np.repeat(x, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(model.predict(x), wanted.predict(x), rtol=1e-9, atol=1e-9)
    if degree == 0:
        repeated = np.repeat(x, weight, 0), np.repeat(y, weight)
        np.testing.assert_allclose(model.predict(x[:5]), by_loops(kernel, 1.2, *repeated, x[:5]), rtol=1e-9)


def test_equal_weights_change_nothing_and_no_weights_are_refused():
    x, y = noisy_sine()
    plain = KernelRegressor().fit(x, y)
    same = KernelRegressor().fit(x, y, np.full(len(x), 7.0))
    assert plain.bandwidth_ == same.bandwidth_
    with pytest.raises(ValueError, match=r"[Ss]ample"):
        KernelRegressor().fit(x, y, np.zeros(len(x)))


def test_bandwidths_are_learned_through_the_lines():
    x, y = noisy_sine(dimensions=2)
    model = KernelRegressor(bandwidth="learned", per_dimension=True, degree=1).fit(x, y)
    assert model.bandwidth_.shape == (2,)
    assert model.loo_error_ < KernelRegressor(degree=1).fit(x, y).loo_error_


def test_every_output_can_have_its_bandwidth():
    x, y = noisy_sine()
    both = np.stack([y, np.random.default_rng(2).normal(size=len(y))], 1)
    model = KernelRegressor(per_output=True).fit(x, both)
    alone = [KernelRegressor().fit(x, both[:, output]) for output in range(2)]
    np.testing.assert_allclose(model.bandwidth_, [one.bandwidth_ for one in alone])
    np.testing.assert_allclose(model.predict(x), np.stack([one.predict(x) for one in alone], 1))
    assert model.interval(x).low.shape == both.shape
    given = KernelRegressor(bandwidth=[0.3, 2.0], per_output=True, degree=1).fit(x, both)
    np.testing.assert_allclose(
        given.predict(x)[:, 1], KernelRegressor(bandwidth=2.0, degree=1).fit(x, both[:, 1]).predict(x)
    )
    with pytest.raises(ArgumentError, match="weights of its own"):
        model.weights(x)
    with pytest.raises(ArgumentError, match="bandwidth has 3 rows, but y has 2 outputs"):
        KernelRegressor(bandwidth=[1.0, 2.0, 3.0], per_output=True).fit(x, both)


def test_the_interval_of_a_line_holds_the_truth_as_often_as_it_says():
    random = np.random.default_rng(0)
    queries, inside = np.linspace(0, 1, 11)[:, None], []
    for _ in range(60):
        x = random.uniform(0, 1, (80, 1))
        y = 3 * x[:, 0] - 1 + random.normal(0, 0.4, 80)
        _, low, high = KernelRegressor(bandwidth=0.2, degree=1).fit(x, y).interval(queries, 0.9)
        inside.append((low <= 3 * queries[:, 0] - 1) & (3 * queries[:, 0] - 1 <= high))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize("degree", [2, -1, True, "1"])
def test_other_degrees_are_refused(degree):
    with pytest.raises(ArgumentError, match="degree must be 0"):
        KernelRegressor(degree=degree).fit([[0.0], [1.0]], [0.0, 1.0])


def with_and_without_order(model, x, y, queries):
    """Predictions that read near points alone, and those that read every point."""
    model.fit(x, y)
    assert model.order_ is not None
    near = model.predict(queries)
    model.order_ = None
    return near, model.predict(queries)


@pytest.fixture
def sorted_points(monkeypatch):
    """Sort few points too, into small blocks."""
    monkeypatch.setattr(estimator, "FEW", 100)
    monkeypatch.setitem(sums.POINTS, "cpu", 16)


@pytest.mark.usefixtures("sorted_points")
@pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])
@pytest.mark.parametrize(("dimensions", "bandwidth"), [(1, 0.4), (1, 0.003), (2, [0.4, 0.8]), (2, 0.03)])
def test_lines_through_near_points_are_those_through_all_points(kernel, dimensions, bandwidth):
    x, y = noisy_sine(points=1500, dimensions=dimensions, outputs=2)
    queries = np.concatenate([x[:200] + 0.01, np.linspace(-3, 12, 50)[:, None] * np.ones(dimensions)])
    near, whole = with_and_without_order(KernelRegressor(kernel, bandwidth, degree=1), x, y, queries)
    # Far outside the points a line depends on a few distant ones, which magnifies how its sums are rounded.
    np.testing.assert_allclose(near, whole, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("sorted_points")
@pytest.mark.parametrize("copies", [14, 25, 60])
def test_between_distant_places_with_many_points_each_the_line_joins_the_nearest_two(copies):
    x = np.repeat(np.arange(8.0), copies)[:, None]
    queries = np.array([[2.3], [2.6], [5.0], [6.9]])
    near, whole = with_and_without_order(KernelRegressor(bandwidth=0.05, degree=1), x, x[:, 0] ** 2, queries)
    np.testing.assert_allclose(near, whole, atol=1e-9)
    np.testing.assert_allclose(near, [5.5, 7.0, 25.0, 47.7], atol=1e-9)


@pytest.mark.parametrize("kernel", ["gaussian", "boxcar"])
def test_leave_one_out_of_lines_finds_the_same_bandwidth_from_near_points(kernel, request):
    x, y = noisy_sine(points=300)
    whole = KernelRegressor(kernel, degree=1).fit(x, y)
    request.getfixturevalue("sorted_points")
    near = KernelRegressor(kernel, degree=1).fit(x, y)
    assert whole.order_ is None
    assert near.order_ is not None
    assert (near.bandwidth_, near.loo_error_) == pytest.approx((whole.bandwidth_, whole.loo_error_), rel=1e-6)
