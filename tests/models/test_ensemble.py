"""An ensemble predicts the mean of its members, whatever they are, in training mode and step by step."""

import pytest
import torch

from jumok.decoding import DecodingConfig, Specials, beam_search
from jumok.models import (
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)
from jumok.models.ensemble import ensemble

SPECIALS = Specials(pad=0, bos=1, eos=2)
SMALL = {"width": 16, "heads": 2, "hidden": 32, "layers": 2}


def model(seed: int, kind: str = "transformer", **options):
    torch.manual_seed(seed)
    if kind == "transformer":
        own = options.pop("decoder", {})
        sizes = SMALL | options
        configs = [TransformerEncoderConfig(**sizes), TransformerDecoderConfig(**sizes | own)]
    else:
        configs = [RnnEncoderConfig(width=12), RnnDecoderConfig(width=12, **options)]
    return build_model(*configs, source_vocabulary=13, target_vocabulary=13, shared_vocabulary=True).double().eval()


MEMBERS = {
    "alike": lambda: [model(1), model(2)],
    "different": lambda: [model(1), model(2, width=8, layers=1), model(3, "rnn")],
    "copying": lambda: [model(1, "rnn", copy=True), model(2, "rnn"), model(3, decoder={"copy": True})],
}


@pytest.fixture
def source():
    ids = torch.tensor([[4, 5, 6, 2], [7, 8, 2, 0]])
    return ids, ids != 0


@pytest.mark.parametrize("members", MEMBERS)
def test_the_prediction_is_the_mean_of_the_probabilities(members, source):
    models, target = MEMBERS[members](), torch.tensor([[1, 5, 6], [1, 9, 3]])
    found = ensemble(models)(*source, target).logits
    want = torch.stack([each(*source, target).logits.softmax(-1) for each in models]).mean(0)
    torch.testing.assert_close(found.exp(), want)


@pytest.mark.parametrize("members", MEMBERS)
def test_steps_predict_what_the_whole_target_does(members, source):
    joint, target = ensemble(MEMBERS[members]()), torch.tensor([[1, 5, 6], [1, 9, 3]])
    whole = joint(*source, target).logits
    state = joint.decoder.start(joint.encoder(*source), capacity=4)
    for at in range(3):
        log_probs, state = joint.decoder.step(state, target[:, at : at + 1])
        torch.testing.assert_close(log_probs[:, 0], whole[:, at])
        state = state.reorder(torch.zeros(2, 1, dtype=torch.long))


@pytest.mark.parametrize("members", MEMBERS)
def test_rows_of_the_mean_attention_sum_to_one(members, source):
    joint, target = ensemble(MEMBERS[members]()), torch.tensor([[1, 5, 6], [1, 9, 3]])
    layers = joint.decoder.source_attention(joint.encoder(*source), target)
    assert len(layers) == (2 if members == "alike" else 1)
    for layer in layers:
        assert layer().shape[1] == (2 if members == "alike" else 1)
        torch.testing.assert_close(layer().sum(-1), torch.ones(*layer().shape[:3], dtype=torch.double))
        assert (layer()[1, :, :, 3] == 0).all()
        torch.testing.assert_close(layer(heads=[0], rows=slice(1, 2)), layer()[:, :1, 1:2])


def test_a_model_twice_finds_what_it_finds_alone(source):
    alone = model(1)
    outputs = [
        beam_search(each.decoder, each.encoder(*source), SPECIALS, DecodingConfig(beam=3, max_length=6))
        for each in (alone, ensemble([alone, alone]))
    ]
    for one, two in zip(*outputs, strict=True):
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in two]
        assert [hypothesis.score for hypothesis in one] == pytest.approx([hypothesis.score for hypothesis in two])
