"""Calls with the same signature skip checks; what the checks would find is still found."""

import pytest
import torch

from jumok.attention import attend, causal, from_lengths, packed, whole, window
from jumok.attention.masks import Tile
from jumok.errors import ArgumentError
from support.attention import random_inputs, values_and_gradients


def attended(visible, inputs):
    return attend(*inputs, visible=visible).values


@pytest.mark.parametrize("build", [from_lengths, packed, lambda lengths: causal() & from_lengths(lengths)])
def test_lengths_are_checked_in_every_call(build):
    inputs = random_inputs((2,), 7, 7)
    for _ in range(2):
        attended(build([3, 4]), inputs)
    with pytest.raises(ArgumentError, match=r"there are (only )?7"):
        attended(build([3, 8]), inputs)


def test_a_tensor_of_another_shape_or_dtype_is_checked():
    inputs = random_inputs((2,), 7, 7)
    for _ in range(2):
        attended(torch.ones(7, 7, dtype=torch.bool), inputs)
    with pytest.raises(ArgumentError, match="does not broadcast"):
        attended(torch.ones(7, 6, dtype=torch.bool), inputs)
    with pytest.raises(ArgumentError, match="must be boolean"):
        attended(torch.ones(7, 7), inputs)


MASKS = [
    causal(),
    causal(1),
    window(1),
    window(1, 2),
    window(1, offset=1),
    causal() & window(1),
    causal() | window(1),
    ~causal(),
    ~window(1),
    window(1, centre=torch.arange(7.0)),
    window(1, centre=torch.arange(7.0) + 1),
]


def test_masks_of_one_size_are_told_apart():
    inputs = random_inputs((2,), 7, 7)
    for mask in MASKS * 2:
        wanted = attend(*inputs, visible=mask, backend="direct").values
        torch.testing.assert_close(attended(mask, inputs), wanted)


def test_the_matrix_that_whole_gives_belongs_to_the_caller():
    inputs, mask = random_inputs((2,), 7, 7), causal(2)
    wanted = [attended(mask, inputs) for _ in range(2)][1]
    whole(mask, queries=7, keys=7).fill_(True)
    torch.testing.assert_close(attended(mask, inputs), wanted, rtol=0, atol=0)


def test_matrices_kept_from_inference_serve_training():
    inputs, mask = random_inputs((2,), 9, 9), causal(1) & from_lengths([5, 9])
    with torch.inference_mode():
        for _ in range(2):
            attended(mask, [tensor.clone() for tensor in inputs])
    wanted = values_and_gradients(lambda *given: attend(*given, visible=mask, backend="direct").values, inputs)
    found = values_and_gradients(lambda *given: attended(mask, given), inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_only_small_matrices_are_kept():
    device = torch.device("cpu")
    small, large = (Tile((), size, size, device, read_only=True) for size in (256, 257))
    assert causal().tile(small) is causal().tile(small)
    assert causal().tile(large) is not causal().tile(large)
    assert small.positions is small.positions
    assert Tile((), 1, 2000, device, read_only=True).positions.tolist() == list(range(2000))
