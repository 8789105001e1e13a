"""help(attend) names all that can be passed: what is added later must be added there."""

import inspect
import re

import pytest

import jumok.attention
from jumok.attention import Visible, attend, backends, explain
from jumok.attention.attend import SCORES, WITH_PARAMETERS
from jumok.attention.normalise import NORMALISERS

MASK_MAKERS = [
    name
    for name in jumok.attention.__all__
    if inspect.isfunction(made := getattr(jumok.attention, name)) and made.__annotations__.get("return") is Visible
]


def test_there_are_makers_of_masks_to_be_named():
    assert {"from_lengths", "causal", "window", "gaussian_window"} <= set(MASK_MAKERS)


@pytest.mark.parametrize(
    "name",
    [*SCORES, *WITH_PARAMETERS, *NORMALISERS, *MASK_MAKERS, "auto", *backends.NAMES],
)
def test_help_names_every_score_normaliser_mask_and_backend(name):
    assert re.search(rf"\b{name}\b", attend.__doc__)


def test_help_names_every_argument():
    arguments = set(inspect.signature(attend).parameters)
    assert all(re.search(rf"\b{name}\b", attend.__doc__) for name in arguments)


def test_explain_takes_the_same_arguments_and_refers_to_attend():
    assert inspect.signature(explain).parameters == inspect.signature(attend).parameters
    assert "help(attend)" in explain.__doc__
