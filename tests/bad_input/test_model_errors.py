"""What the models say to arguments that cannot work."""

import subprocess
import sys

import numpy as np
import pytest

import jumok
from jumok import KernelRegressor, SoftDatabase
from jumok.errors import ArgumentError, MissingExtraError
from jumok.regression.picture import draw_bandwidths

X, Y = np.arange(6.0).reshape(3, 2), np.arange(3.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bandwidth": -1}, "bandwidth must be finite and greater than 0, but it is -1"),
        ({"bandwidth": 0.0}, "greater than 0"),
        ({"bandwidth": float("inf")}, "finite"),
        ({"bandwidth": float("nan")}, "finite"),
        ({"bandwidth": None}, "but it is None"),
        ({"bandwidth": [1.0, -2.0]}, "greater than 0"),
        ({"bandwidth": [1.0, 2.0, 3.0]}, r"each of the 2 input dimensions, but its shape is \[3\]"),
        ({"bandwidth": "silverman"}, '"loo" or "learned", but it is \'silverman\''),
        ({"kernel": "gauss"}, "kernel must be one of constant, gaussian, .* but it is 'gauss'"),
        ({"kernel": ["gaussian"]}, "kernel must be one of"),
        ({"kernel": "boxcar", "bandwidth": "learned"}, "the boxcar kernel has none"),
        ({"per_dimension": True}, 'per_dimension=True needs bandwidth="learned"'),
        ({"per_dimension": True, "bandwidth": [1.0, 2.0]}, 'per_dimension=True needs bandwidth="learned"'),
        ({"loo_points": 0}, 'loo_points must be "auto", a number of at least 1, or None, but it is 0'),
        ({"loo_points": "all"}, "or None, but it is 'all'"),
        ({"device": "abacus"}, "device 'abacus' cannot be used"),
    ],
)
def test_a_parameter_that_cannot_work_is_named_when_fitting(parameters, message):
    with pytest.raises(ArgumentError, match=message):
        KernelRegressor(**parameters).fit(X, Y)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bandwidth", ["loo", "learned"])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y * 1e200, r"y holds numbers as large as 2e\+200, .* too large for float64; divide y by 2e\+200"),
        (X.astype(np.float32), Y * 1e30, r"y holds .* too large for float32"),
        (X.astype(np.float32), Y * 1e200, r"y holds .* too large for float32"),
    ],
)
def test_numbers_whose_squares_overflow_are_named_before_a_bandwidth_is_searched(x, y, message, bandwidth):
    with pytest.raises(ArgumentError, match=message):
        KernelRegressor(bandwidth=bandwidth).fit(x, y)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "the database is empty"),
        ({}, "the database is empty"),
        ("Li", "dict or pairs of key and value, but it is str"),
        (7, "dict or pairs of key and value, but it is int"),
        ([("Li", "Mu"), ("Hu",)], r"pair 2 must be a key and a value, but it is \('Hu',\)"),
        (["Li"], "pair 1 must be a key and a value, but it is 'Li'"),
        ([("Li", 1), ((1.0, 2.0), 2)], "all strings or all vectors of numbers, but one is 'Li'"),
        ([(None, 1)], "all strings or all vectors of numbers, but one is None"),
        ([((1.0,), 1), ((1.0, 2.0), 2)], "equally wide, but there are widths 1, 2"),
    ],
)
def test_pairs_that_make_no_database_are_refused(pairs, message):
    with pytest.raises(ArgumentError, match=message):
        SoftDatabase(pairs)


def test_a_query_of_another_kind_than_the_keys_is_refused():
    with pytest.raises(ArgumentError, match="the keys are strings, but the query is int: 3"):
        SoftDatabase({"Li": "Mu"})(3)
    vectors = SoftDatabase([((1.0, 2.0), "here")])
    with pytest.raises(ArgumentError, match="vectors of 2 numbers, but the query is str: 'Li'"):
        vectors("Li")
    with pytest.raises(ArgumentError, match=r"vectors of 2 numbers, but the query is of shape \[3\]"):
        vectors((1.0, 2.0, 3.0))


def test_settings_of_a_database_that_cannot_work_are_refused():
    with pytest.raises(ArgumentError, match="sharpness must be a finite number greater than 0, but it is 0"):
        SoftDatabase({"Li": "Mu"}, sharpness=0)
    with pytest.raises(ArgumentError, match="strings are compared by their n-grams"):
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
        "KernelRegressor needs scikit-learn, which is not installed; run: pip install 'jumok[sklearn]'\n"
    )


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"fit\.doc should end in one of .*\.png.*\.svg"):
        draw_bandwidths(tmp_path / "fit.doc", bandwidths=[0.5])


def test_drawing_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"drawing needs matplotlib.*pip install 'jumok\[plot\]'"):
        draw_bandwidths(tmp_path / "fit.png", bandwidths=[0.5])


def test_names_the_package_does_not_have_are_attribute_errors():
    for module in (jumok, jumok.models):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            module.nothing  # noqa: B018


def test_a_database_refuses_numbers_that_lead_nowhere():
    with pytest.raises(ArgumentError, match="sharpness must be a finite number greater than 0, but it is inf"):
        SoftDatabase({"Li": "Mu"}, sharpness=float("inf"))
    with pytest.raises(ArgumentError, match="sharpness must be a finite number greater than 0, but it is 'x'"):
        SoftDatabase({"Li": "Mu"}, sharpness="x")
    with pytest.raises(ArgumentError, match="the query must be finite numbers"):
        SoftDatabase([((0.0, 0.0), 1.0)])((float("nan"), 0.0))


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, "95%", None, True])
def test_the_level_of_an_interval_lies_between_0_and_1(level):
    with pytest.raises(ArgumentError, match=r"level must be between 0 and 1, for example 0\.95, but it is"):
        KernelRegressor(bandwidth=1.0).fit(X, Y).interval(X, level)
