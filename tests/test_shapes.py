"""The check of signatures while tests run refuses what jaxtyping refuses."""

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import Float, TypeCheckError, jaxtyped
from torch import Tensor

from jumok.attention import attend
from support import checked

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


def test_the_option_of_make_test_has_jumok_checked(request):
    is_checked = request.config.getoption("jaxtyping_packages") is not None
    assert hasattr(attend, "__wrapped__") == is_checked
