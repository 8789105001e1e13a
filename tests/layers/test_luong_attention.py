"""Luong's layer against the equations of the paper, for every score and reach."""

import pytest
import torch

from jumok.attention import from_lengths
from jumok.layers import LuongAttention

WIDTH = 6


@pytest.fixture
def states():
    torch.manual_seed(0)
    return torch.randn(2, 5, WIDTH, dtype=torch.double), torch.randn(2, 9, WIDTH, dtype=torch.double)


def score_in_the_paper(layer: LuongAttention, s, h, i: int):
    if layer.score == "dot":
        return s @ h
    if layer.score == "general":
        return s @ layer.to_key.weight @ h
    if layer.score == "concat":
        w = torch.cat([layer.to_query.weight, layer.to_key.weight], 1)
        return layer.v @ torch.tanh(w @ torch.cat([s, h]))
    return (layer.positions @ s)[i]


@pytest.mark.parametrize("score", ["dot", "general", "concat", "location"])
def test_every_score_is_the_one_of_the_paper(states, score):
    s, h = states
    layer = LuongAttention(query_width=WIDTH, key_width=WIDTH, score=score).double()
    weights = layer(s, layer.memory(h, from_lengths([9, 6]))).weights()
    for batch, length in ((0, 9), (1, 6)):
        for step in range(5):
            e = torch.stack([score_in_the_paper(layer, s[batch, step], h[batch, i], i) for i in range(length)])
            torch.testing.assert_close(weights[batch, step, :length], e.softmax(0))
            assert weights[batch, step, length:].eq(0).all()


def test_the_monotonic_window_moves_on_with_the_target_position(states):
    s, h = states
    layer = LuongAttention(query_width=WIDTH, key_width=WIDTH, reach="local-m", half_window=1).double()
    seen = layer(s, layer.memory(h)).weights()[0] > 0
    assert [row.nonzero().flatten().tolist() for row in seen] == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]


def test_one_step_at_a_time_equals_all_steps_at_once(states):
    s, h = states
    for reach in ("global", "local-m", "local-p"):
        layer = LuongAttention(query_width=WIDTH, key_width=WIDTH, reach=reach, half_window=2).double()
        memory = layer.memory(h, from_lengths([9, 6]))
        steps = [layer(s[:, step : step + 1], memory, start=step).values for step in range(5)]
        torch.testing.assert_close(torch.cat(steps, 1), layer(s, memory).values)


def test_the_predicted_window_is_equations_9_and_10(states):
    s, h = states
    layer = LuongAttention(query_width=WIDTH, key_width=WIDTH, reach="local-p", half_window=2).double()
    weights = layer(s, layer.memory(h, from_lengths([9, 6]))).weights()
    w, v = layer.to_centre[0].weight, layer.to_centre[2].weight[0]
    for batch, length in ((0, 9), (1, 6)):
        for step in range(5):
            p = length * torch.sigmoid(v @ torch.tanh(w @ s[batch, step]))
            inside = [i for i in range(length) if abs(i - p) <= 2]
            e = torch.stack([score_in_the_paper(layer, s[batch, step], h[batch, i], i) for i in inside])
            gaussian = torch.stack([torch.exp(-((i - p) ** 2) / (2 * 1.0**2)) for i in inside])
            torch.testing.assert_close(weights[batch, step, inside], e.softmax(0) * gaussian)


def test_the_position_predictor_learns_through_the_gaussian(states):
    s, h = states
    layer = LuongAttention(query_width=WIDTH, key_width=WIDTH, reach="local-p", half_window=2).double()
    layer(s, layer.memory(h)).values.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.to_centre.parameters())


def test_the_attentional_state_is_equation_5(states):
    s, h = states
    layer = LuongAttention(query_width=WIDTH, key_width=WIDTH).double()
    context = layer(s, layer.memory(h)).values
    expected = torch.tanh(torch.cat([context, s], -1) @ layer.to_state.weight.T)
    torch.testing.assert_close(layer.attentional_state(context, s), expected)


@pytest.mark.parametrize("reach", ["local-m", "local-p"])
def test_windows_are_whole_in_half_precision_far_into_a_long_source(reach):
    layer = LuongAttention(query_width=4, key_width=4, reach=reach, half_window=2).bfloat16()
    source = torch.randn(1, 600, 4, dtype=torch.bfloat16)
    seen = layer(source[:, :1], layer.memory(source), start=451, together=True).weights()[0, 0].nonzero().flatten()
    if reach == "local-m":
        assert seen.tolist() == [449, 450, 451, 452, 453]
    assert 4 <= len(seen) <= 5
    assert (seen.diff() == 1).all()
