"""What the models say to arguments that cannot work."""

import subprocess
import sys

import numpy as np
import pytest

import jumok
from jumok import KernelRegressor, SoftDatabase
from jumok.errors import ArgumentError, MissingExtraError
from jumok.regression.picture import draw_bandwidths
from support.refusals import refuses

X, Y = np.arange(6.0).reshape(3, 2), np.arange(3.0)


@pytest.mark.parametrize(
    ("parameters", "facts"),
    [
        ({"bandwidth": 0.0}, "bandwidth … greater than 0"),
        ({"bandwidth": float("inf")}, "bandwidth … finite"),
        ({"bandwidth": float("nan")}, "bandwidth … finite"),
        ({"bandwidth": None}, "bandwidth … None"),
        ({"bandwidth": [1.0, -2.0]}, "bandwidth … greater than 0"),
        ({"bandwidth": [1.0, 2.0, 3.0]}, "2 input dimensions … [3]"),
        ({"bandwidth": "silverman"}, '"loo" … "learned" … \'silverman\''),
        ({"kernel": "gauss"}, "kernel … constant, gaussian, … 'gauss'"),
        ({"kernel": ["gaussian"]}, "kernel … ['gaussian']"),
        ({"kernel": "boxcar", "bandwidth": "learned"}, "boxcar"),
        ({"per_dimension": True}, 'per_dimension=True … bandwidth="learned"'),
        ({"per_dimension": True, "bandwidth": [1.0, 2.0]}, 'per_dimension=True … bandwidth="learned"'),
        ({"loo_points": 0}, 'loo_points … "auto" … 1 … None … 0'),
        ({"loo_points": "all"}, "loo_points … 'all'"),
        ({"device": "abacus"}, "device … 'abacus'"),
    ],
)
def test_a_parameter_that_cannot_work_is_named_when_fitting(parameters, facts):
    with refuses(ArgumentError, facts):
        KernelRegressor(**parameters).fit(X, Y)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bandwidth", ["loo", "learned"])
def test_numbers_whose_squares_overflow_are_named_before_a_bandwidth_is_searched(bandwidth):
    for kind, scale in ((np.float64, 1e200), (np.float32, 1e30), (np.float32, 1e200)):
        with refuses(ArgumentError, "y holds", kind.__name__, "divide y by 2e"):
            KernelRegressor(bandwidth=bandwidth).fit(X.astype(kind), Y * scale)


@pytest.mark.parametrize(
    ("pairs", "facts"),
    [
        ([], "empty"),
        ("Li", "dict … pairs … str"),
        (7, "dict … pairs … int"),
        ([("Li", "Mu"), ("Hu",)], "pair 2 … ('Hu',)"),
        (["Li"], "pair 1 … 'Li'"),
        ([("Li", 1), ((1.0, 2.0), 2)], "strings … vectors … 'Li'"),
        ([(None, 1)], "strings … vectors … None"),
        ([((1.0,), 1), ((1.0, 2.0), 2)], "widths 1, 2"),
    ],
)
def test_pairs_that_make_no_database_are_refused(pairs, facts):
    with refuses(ArgumentError, facts):
        SoftDatabase(pairs)


def test_settings_of_a_database_that_cannot_work_are_refused():
    for wrong in (0, float("inf"), "x"):
        with refuses(ArgumentError, "sharpness", "finite", "greater than 0", repr(wrong)):
            SoftDatabase({"Li": "Mu"}, sharpness=wrong)
    with refuses(ArgumentError, "strings", "n-grams"):
        SoftDatabase({"Li": "Mu"}, score="dot")


@pytest.mark.slow
def test_without_scikit_learn_everything_else_works_and_the_error_says_what_to_install():
    program = """
import sys
sys.modules["sklearn"] = None
import jumok.models
from jumok.errors import MissingExtraError
assert jumok.SoftDatabase({"Li": "Mu"})("Li").value == "Mu"
try:
    jumok.KernelRegressor
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "KernelRegressor needs scikit-learn, which is not installed; "
        "run in the folder of jumok: pip install '.[sklearn]'\n"
    )


def test_names_the_package_does_not_have_are_attribute_errors():
    for module in (jumok, jumok.models):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            module.nothing  # noqa: B018


def test_the_level_of_an_interval_lies_between_0_and_1():
    fitted = KernelRegressor(bandwidth=1.0).fit(X, Y)
    for level in (0, 1, 95, -0.5, "95%", None, True):
        with refuses(ArgumentError, "level", "0", "1", repr(level)):
            fitted.interval(X, level)


def test_a_bandwidth_that_is_not_positive_is_told_what_it_must_be():
    with pytest.raises(ArgumentError, match="bandwidth must be finite and greater than 0, but it is -1"):
        KernelRegressor(bandwidth=-1).fit(X, Y)


@pytest.mark.parametrize(
    ("pairs", "query", "facts"),
    [
        ({"Li": "Mu"}, 3, "strings … int … 3"),
        ([((1.0, 2.0), "here")], "Li", "2 numbers … str … 'Li'"),
        ([((1.0, 2.0), "here")], (1.0, 2.0, 3.0), "2 numbers … [3]"),
        ([((1.0, 2.0), "here")], (float("nan"), 0.0), "query … finite"),
    ],
)
def test_a_query_that_cannot_be_compared_with_the_keys_is_refused(pairs, query, facts):
    with refuses(ArgumentError, facts):
        SoftDatabase(pairs)(query)


def test_a_picture_that_cannot_be_drawn_is_refused(tmp_path, monkeypatch):
    with refuses(ArgumentError, "fit.doc", ".png", ".svg"):
        draw_bandwidths(tmp_path / "fit.doc", bandwidths=[0.5])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with refuses(MissingExtraError, "matplotlib", "pip install '.[plot]'"):
        draw_bandwidths(tmp_path / "fit.png", bandwidths=[0.5])
