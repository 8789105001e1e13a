"""Packed sequences give what each sequence gives alone."""

import pytest
import torch

from jumok.attention import additive, attend, causal, from_lengths, packed, scaled_dot, sequences, whole, window
from support.attention import assert_all_close, random_inputs, values_and_gradients

MASKS = {
    "sequences": packed([4, 1, 0, 5]),
    "causal": packed([4, 1, 0, 5]) & causal(),
    "two": packed([4, 1, 0, 5], [2, 0, 3, 6]),
    "two, causal in a window": causal(1) & (packed([4, 1, 0, 5], [2, 0, 3, 6]) & window(2, 1)),
    "some see nothing": packed([4, 1, 0, 5], [2, 0, 3, 6]) & causal(-2),
    "none": packed([]),
}
WHOLE = {
    "lengths": packed([4, 1, 0, 5]) & from_lengths([9]),
    "a centre for each query": packed([4, 6]) & window(2, centre=torch.arange(12.0) / 2),
    "packed twice": packed([4, 1, 5]) & packed([2, 7]),
    "a union": packed([4, 1, 5]) | causal(),
}


@pytest.fixture
def calls(monkeypatch):
    """How many calls each call was computed in, when one sequence at a time is always preferred."""
    counts = []

    def counted(compute, call, in_sequences=sequences.in_sequences):
        count = []
        values = in_sequences(lambda part: count.append(part) or compute(part), call)
        counts.append(len(count))
        return values

    monkeypatch.setattr("jumok.attention.sequences.PAIRS", -(2**40))
    monkeypatch.setattr("jumok.attention.backends.in_sequences", counted)
    return counts


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


@pytest.mark.parametrize("score", ["dot", "additive"])
@pytest.mark.parametrize("lead", [(), (3,), (1, 2), (1, 2, 1)], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_one_sequence_at_a_time_gives_values_and_gradients_of_all_at_once(calls, mask, lead, score):
    inputs = [torch.randn(*lead, 12, 3, dtype=torch.float64) for _ in range(3)]
    score, backend = (additive(torch.randn(3).double()), "blocked") if score == "additive" else (score, "sdpa")

    def values(backend):
        return lambda *given: attend(*given, score=score, visible=MASKS[mask], backend=backend).values

    wanted = values_and_gradients(values("direct"), inputs)
    assert not calls
    assert_all_close(values_and_gradients(values(backend), inputs), wanted)
    for _ in range(2):  # the second time without checks
        torch.testing.assert_close(values(backend)(*inputs), wanted[0])
    assert len(set(calls)) == 1
    assert calls[0] <= 4


def test_sequences_without_queries_or_keys_need_no_call(calls):
    attend(*random_inputs((3,), 12, 12), visible=MASKS["two"], backend="sdpa")
    assert calls == [2]


@pytest.mark.parametrize("mask", WHOLE)
def test_masks_that_depend_on_positions_are_computed_at_once(calls, mask):
    inputs = random_inputs((1,), 12, 12)
    wanted = attend(*inputs, visible=WHOLE[mask], backend="direct").values
    torch.testing.assert_close(attend(*inputs, visible=WHOLE[mask], backend="sdpa").values, wanted)
    assert calls == [1]


def test_scores_that_depend_on_positions_are_computed_at_once(calls):
    inputs, bias = random_inputs((2,), 12, 12), torch.randn(12, 12).double()
    options = {"score": scaled_dot(bias=bias), "visible": MASKS["causal"]}
    wanted = attend(*inputs, **options, backend="direct").values
    torch.testing.assert_close(attend(*inputs, **options, backend="blocked").values, wanted)
    assert calls == [1]


@pytest.mark.parametrize("where", ["query", "key", "value"])
@pytest.mark.parametrize("mask", ["sequences", "causal"])
def test_a_nan_stays_in_its_sequence(calls, mask, where):
    inputs = random_inputs((2,), 12, 12)
    inputs[["query", "key", "value"].index(where)][0, 2, 1] = torch.nan

    def values(backend):
        return lambda *given: attend(*given, visible=MASKS[mask], backend=backend).values

    upstream = torch.randn(2, 12, 2, dtype=torch.float64)
    found, wanted = (values_and_gradients(values(backend), inputs, upstream) for backend in ("sdpa", "direct"))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    assert found[0][:, 4:].isfinite().all()
    assert all(gradient.isfinite().all() for gradient in found[1:])
