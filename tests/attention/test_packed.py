"""Packed sequences give what each sequence gives alone."""

import pytest
import torch

from jumok.attention import attend, causal, from_lengths, packed, whole
from support.attention import assert_all_close, random_inputs, values_and_gradients


@pytest.mark.parametrize("visible", [None, causal()])
def test_packed_sequences_equal_each_alone(visible):
    inputs, lengths = random_inputs((3,), 12, 12), [4, 1, 0, 5]

    def together(query, key, value):
        mask = packed(lengths) if visible is None else packed(torch.tensor(lengths)) & visible
        return attend(query, key, value, visible=mask).values

    def alone(query, key, value):
        parts = [
            attend(*(tensor.split([*lengths, 2], -2)[number] for tensor in (query, key, value)), visible=visible).values
            for number in range(len(lengths))
        ]
        return torch.cat([*parts, torch.zeros_like(value[:, :2])], -2)

    assert_all_close(values_and_gradients(together, inputs), values_and_gradients(alone, inputs))


def test_two_packed_sequences_meet_pair_by_pair():
    found = whole(packed([2, 1], [1, 3]), queries=4, keys=5)
    assert found.int().tolist() == [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]]


def test_queries_beyond_their_length_are_padding():
    found = whole(from_lengths([2, 3], query_lengths=[1, 2]), lead=(2,), queries=2, keys=3)
    assert found.int().tolist() == [[[1, 1, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]]]
    values = attend(*random_inputs((2,), 2, 3), visible=from_lengths([2, 3], query_lengths=[1, 2])).values
    assert (values[0, 1] == 0).all()
    assert (values[1] != 0).all()
