"""Step times: every length is measured, and measuring leaves a model as it was."""

import pytest
import torch

from jumok.analysis.curves.step_times import speed_curves, step_times
from jumok.errors import ArgumentError
from jumok.models.build import build_model
from jumok.models.rnn.decoder import RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoderConfig
from jumok.models.transformer.decoder import TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoderConfig

RNN = {"width": 8, "embedding": 8}
TRANSFORMER = {"width": 8, "heads": 2, "hidden": 8, "layers": 1, "positions": "learned", "longest": 6}


def model_of(encoder, decoder):
    return build_model(encoder, decoder, source_vocabulary=9, target_vocabulary=7)


def test_every_length_is_timed_and_the_model_is_left_as_it_was():
    model = model_of(RnnEncoderConfig(**RNN), RnnDecoderConfig(**RNN)).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = list(step_times(model, [2, 5], tokens=10, repeats=2))
    assert [one.length for one in found] == [2, 5]
    assert all(one.training > 0 and one.decoding > 0 for one in found)
    assert not model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert speed_curves({"a": found}, tokens=10, where="CPU")[1].curves[0].name == "a"


def test_lengths_a_model_has_no_positions_for_are_left_out():
    model = model_of(TransformerEncoderConfig(**TRANSFORMER), TransformerDecoderConfig(**TRANSFORMER))
    assert [one.length for one in step_times(model, [4, 6, 7], tokens=8, repeats=1)] == [4, 6]


@pytest.mark.parametrize(("lengths", "options"), [([], {}), ([0, 4], {}), ([4], {"tokens": 0}), ([4], {"repeats": 0})])
def test_what_cannot_be_measured_is_refused(lengths, options):
    with pytest.raises(ArgumentError, match="at least 1"):
        list(step_times(model_of(RnnEncoderConfig(**RNN), RnnDecoderConfig(**RNN)), lengths, **options))
