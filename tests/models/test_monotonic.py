"""Monotonic attention: the expected alignment against the process it is the expectation of, and its hard form."""

import pytest
import torch

from jumok.errors import ConfigError
from jumok.models.rnn.decoder import RnnDecoderConfig
from jumok.models.rnn.monotonic import NOWHERE, expected_weights, hard_weights
from support.rnn_decoders import decoder, encoding, targets


def logs(weights):
    return weights.clamp(min=1e-300).log().clamp(min=NOWHERE)


@pytest.mark.parametrize("seed", range(3))
def test_the_expected_alignment_is_that_of_going_on_item_by_item(seed):
    torch.manual_seed(seed)
    before, stop = torch.rand(5).double().softmax(0), torch.rand(5).double()
    expected = torch.zeros(5).double()
    for start in range(5):
        reached = before[start]
        for j in range(start, 5):
            expected[j] += reached * stop[j]
            reached = reached * (1 - stop[j])
    found = expected_weights(before.log(), stop.log(), (1 - stop).log())
    torch.testing.assert_close(found.exp(), expected)


def test_the_process_drawn_many_times_stops_as_often_as_expected():
    torch.manual_seed(0)
    stop = torch.rand(3, 4).double()
    log_weights = torch.full((4,), NOWHERE).double()
    log_weights[0] = 0
    for row in stop:
        log_weights = expected_weights(log_weights, row.log(), (1 - row).log())
    counts, draws = torch.zeros(4), 20_000
    stops = (torch.rand(draws, 3, 4) < stop).tolist()
    for drawn in stops:
        place = 0
        for row in drawn:
            while place < 4 and not row[place]:
                place += 1
        counts[min(place, 3)] += place < 4
    assert (counts / draws - log_weights.exp()).abs().max() < 0.02


def test_long_sources_lose_no_weight_to_rounding():
    log_weights, stop = torch.full((2000,), NOWHERE), torch.full((2000,), 0.999)
    log_weights[0] = 0
    for _ in range(5):
        log_weights = expected_weights(log_weights, stop.log(), (1 - stop).log())
    assert abs(float(log_weights.exp().sum()) - 1) < 1e-3


def test_the_hard_form_takes_the_first_item_that_stops_and_never_goes_back():
    before = torch.tensor([NOWHERE, 0.0, NOWHERE, NOWHERE])
    stops = torch.tensor([[True, False, True, True], [True, True, False, False], [True, False, False, False]])
    found = hard_weights(before.expand(3, 4), stops).exp()
    assert found.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


def test_hard_weights_of_steps_are_those_of_the_whole_target_and_training_is_soft():
    model, source, target = decoder(attention="monotonic", hard=True), encoding(), targets()
    soft = model(source, target).attention[0]()
    model.eval()
    whole, state = model(source, target), model.start(source, capacity=5)
    weights = whole.attention[0]()
    assert weights.unique().tolist() in ([0, 1], [0], [1])
    assert not torch.allclose(weights, soft)
    for place in range(5):
        hidden, state = model.advance(state, target[:, place : place + 1])
        torch.testing.assert_close(hidden.attention[0]()[:, :, 0], weights[:, :, place])
        torch.testing.assert_close(model.logits(hidden)[:, 0], whole.logits[:, place])


def test_noise_is_for_training_alone():
    model, source, target = decoder(attention="monotonic", noise=2.0), encoding(), targets()
    assert not torch.equal(model(source, target).logits, model(source, target).logits)
    model.eval()
    assert torch.equal(model(source, target).logits, model(source, target).logits)


def test_settings_of_other_attention_are_refused():
    with pytest.raises(ConfigError, match=r"decoder.hard = true has no effect, because decoder.attention = "):
        RnnDecoderConfig(attention="dot", hard=True)
    with pytest.raises(
        ConfigError,
        match=r"decoder.reach = .* has no effect, .* or set decoder.attention = .dot",
    ):
        RnnDecoderConfig(attention="monotonic", reach="local-m")
