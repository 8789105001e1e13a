"""The check of signatures while tests run refuses what jaxtyping refuses."""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Bool, Float, TypeCheckError, jaxtyped
from torch import Tensor

from jumok.attention import attend
from support import CHECKS, begin_test, checked, is_of_shape
from support import whole as jaxtyped_alone

signature = jaxtyped(typechecker=checked)


@signature
def product(left: Float[Tensor, "row inner"], right: Float[Tensor, "inner column"]) -> Float[Tensor, "row column"]:
    return (left @ right).squeeze()


@signature
def ones(count: int) -> Float[Tensor, " {count}"]:
    return torch.ones(min(count, 3))


@signature
def named(value: "OnlyATypeCheckerKnowsIt", scale: float = 1) -> str:  # type: ignore[name-defined]
    return str(value * scale)


@signature
def rows(matrix: Float[Tensor, "row column"]) -> Iterator[Float[Tensor, " column"]]:
    yield from matrix


@signature
@dataclass
class Weighted:
    values: Float[Tensor, " row"]
    weights: Float[Tensor, " row"]


def test_generators_that_run_at_the_same_time_have_sizes_of_their_own():
    assert len(list(zip(rows(torch.ones(3, 2)), rows(torch.ones(3, 4)), strict=True))) == 3
    with pytest.raises(TypeCheckError, match="matrix"):
        rows(torch.ones(3))


def test_axes_of_one_name_have_one_size_within_a_call():
    assert product(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
    assert product(torch.ones(5, 6), torch.ones(6, 7)).shape == (5, 7)
    with pytest.raises(TypeCheckError, match="right"):
        product(torch.ones(2, 3), torch.ones(4, 3))


def test_what_is_returned_is_checked():
    with pytest.raises(TypeCheckError, match="return"):
        product(torch.ones(1, 3), torch.ones(3, 4))


def test_an_axis_may_have_the_size_of_an_argument():
    assert ones(3).shape == (3,)
    with pytest.raises(TypeCheckError, match="return"):
        ones(4)


def test_other_types_are_checked_and_unknown_names_are_not():
    assert named("a", 2) == "aa"
    with pytest.raises(TypeCheckError, match="scale"):
        named("a", "b")


def test_the_fields_of_dataclasses_are_checked():
    Weighted(torch.ones(3), torch.ones(3))
    with pytest.raises(TypeCheckError, match="weights"):
        Weighted(torch.ones(3), torch.ones(4))


def test_a_function_is_checked_in_its_first_calls_of_every_test():
    def fails():
        with contextlib.suppress(TypeCheckError):
            ones(4)
            return False
        return True

    assert [fails() for _ in range(CHECKS + 2)] == [True] * CHECKS + [False] * 2
    begin_test()
    assert fails()


SHAPES = ["", "a", "a b", "a a", "_ b", "3 a", "... a", "*s a", "a *s", "a *s b", "#a b", "*#s a", "a a+1"]
VALUES = [*(torch.ones(size) for size in [(), (2,), (3, 2), (2, 2), (3, 1), (3, 2, 2), (2, 3, 2)]), None, 1.0]


@pytest.mark.parametrize("first", SHAPES)
def test_two_values_fit_two_shapes_whenever_jaxtyping_says_so(first):
    def fit(values, check):
        with jaxtyped_alone("context"):
            return [check(shape, value) for shape, value in zip(shapes, values, strict=True)]

    for kind, second, *values in itertools.product([Float, Bool], SHAPES, VALUES, VALUES):
        shapes = kind[Tensor, first], Float[Tensor, second]
        assert fit(values, is_of_shape) == fit(values, lambda shape, value: shape.__instancecheck_str__(value) == "")


def test_the_option_of_make_test_has_jumok_checked(request):
    is_checked = request.config.getoption("jaxtyping_packages") is not None
    assert hasattr(attend, "__wrapped__") == is_checked
