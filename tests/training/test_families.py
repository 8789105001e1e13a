"""Every family of models trains, and resumes to the same bits."""

from dataclasses import replace

import pytest
import torch

from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig
from jumok.models.rnn.hard_attention import HardAttentionConfig, HardAttentionDecoder
from jumok.models.rnn.transducer import TransducerConfig, TransducerDecoder
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig
from jumok.training import TrainingConfig, train
from jumok.training.optimiser import trained
from support.runs import Remarks, assert_same_run, interrupt, metrics_of
from support.tiny import VOCABULARY, TinyBatches, validate

RNN = {"width": 8, "embedding": 6, "dropout": 0.2}
TRANSFORMER = {"width": 8, "heads": 2, "hidden": 16, "layers": 2, "dropout": 0.2, "attention_dropout": 0.1}
RNN_DECODERS = {
    "fixed context": {"attention": "none"},
    "fixed context, lstm": {"attention": "none", "cell": "lstm", "layers": 2},
    "fixed context, plain cell": {"attention": "none", "cell": "rnn"},
    "bahdanau": {"attention": "additive"},
    "coverage": {"attention": "additive", "coverage": True},
    "copying": {"attention": "additive", "copy": True},
    "luong dot": {"attention": "dot", "input_feeding": True},
    "luong general": {"attention": "general", "cell": "lstm", "layers": 2},
    "luong concat": {"attention": "concat"},
    "luong location": {"attention": "location"},
    "monotonic": {"attention": "monotonic"},
    "local-m": {"attention": "general", "reach": "local-m", "half_window": 2},
    "local-p": {"attention": "dot", "reach": "local-p", "half_window": 2, "input_feeding": True},
}
TRANSFORMERS = {
    "transformer": {},
    "post norm, concatenated": {"norm": "post", "positions": "concatenated", "position_width": 4},
    "rotary": {"positions": "rotary", "activation": "swiglu"},
    "learned": {"positions": "learned", "longest": 16},
}


def rnn(seed, **options):
    torch.manual_seed(seed)
    encoder = RnnEncoder(RnnEncoderConfig(cell=options.get("cell", "gru"), **RNN), vocabulary=VOCABULARY)
    return EncoderDecoder(
        encoder, RnnDecoder(RnnDecoderConfig(**RNN, **options), vocabulary=VOCABULARY, encoder_width=8)
    )


def transformer(seed, **options):
    torch.manual_seed(seed)
    tied = "none" if options.get("positions") == "concatenated" else "output"
    return EncoderDecoder(
        TransformerEncoder(TransformerEncoderConfig(**TRANSFORMER, **options), vocabulary=VOCABULARY),
        TransformerDecoder(
            TransformerDecoderConfig(tied=tied, **TRANSFORMER, **options), vocabulary=VOCABULARY, encoder_width=8
        ),
    )


def along(seed, decoder, config):
    torch.manual_seed(seed)
    encoder = RnnEncoder(RnnEncoderConfig(**RNN), vocabulary=VOCABULARY)
    return EncoderDecoder(encoder, decoder(config, vocabulary=VOCABULARY, encoder_width=8))


ALONG_THE_SOURCE = {
    "transducer": (TransducerDecoder, TransducerConfig(**RNN, context=True)),
    "hard attention": (HardAttentionDecoder, HardAttentionConfig(**RNN)),
    "hard attention anywhere": (HardAttentionDecoder, HardAttentionConfig(**RNN, order=0, copy=True)),
}
FAMILIES = {name: lambda seed, o=options: along(seed, *o) for name, options in ALONG_THE_SOURCE.items()}
FAMILIES |= {name: lambda seed, o=options: rnn(seed, **o) for name, options in RNN_DECODERS.items()} | {
    name: lambda seed, o=options: transformer(seed, **o) for name, options in TRANSFORMERS.items()
}
CONFIG = TrainingConfig(
    steps=6, accumulate=2, warmup=2, ema=0.9, validate_every=2, log_every=2, metric="loss", learning_rate=0.01
)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_n_steps_and_n_more_are_2n_in_every_bit(tmp_path, family):
    make = FAMILIES[family]

    def run(folder, config=CONFIG, *, seed=0, resume=False, report=None):
        folder = tmp_path / folder
        return train(make(seed), TinyBatches(), config, folder=folder, validate=validate, resume=resume, report=report)

    run("whole")
    run("twice", replace(CONFIG, steps=2))
    assert run("twice", report=Remarks({3: interrupt}), seed=1, resume=True).stopped == "interrupted"
    run("twice", seed=2, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "twice")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_gets_a_finite_gradient_and_moves(tmp_path, family):
    model = FAMILIES[family](0)
    before = {name: weight.clone() for name, weight in trained(model).items()}
    result = train(model, TinyBatches(), replace(CONFIG, ema=0.0, steps=4), folder=tmp_path / "run", validate=validate)
    assert result.state.sums[5] == 0  # no step was skipped
    still = [name for name, weight in trained(model).items() if torch.equal(weight, before[name])]
    assert still == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["bahdanau", "copying", "luong general", "transducer", "hard attention", "transformer"]
)
def test_half_precision_on_a_cpu_trains_like_single_precision_and_resumes_to_the_same_bits(tmp_path, family):
    half = replace(CONFIG, precision="bf16")

    def run(folder, config, *, resume=False):
        return train(
            FAMILIES[family](0), TinyBatches(), config, folder=tmp_path / folder, validate=validate, resume=resume
        )

    run("half", half)
    run("single", CONFIG)
    losses = [record["loss"] for name in ("half", "single") for record in metrics_of(tmp_path / name)[:1]]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    run("twice", replace(half, steps=2))
    run("twice", half, resume=True)
    assert_same_run(tmp_path / "half", tmp_path / "twice")
