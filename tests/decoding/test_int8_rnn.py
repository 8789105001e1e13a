"""Recurrent decoders in 8 bits, over a shortlist."""

from typing import Any

import pytest
import torch

import jumok
from jumok.data import BOS, EOS, PAD, UNK, pad
from jumok.decoding import DecodingConfig, Specials, beam_search
from jumok.decoding.int8_rnn import Int8Product, can_quantise, quantised, with_vocabulary, works_here
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.translator import TrainedTranslator, Translator

pytestmark = pytest.mark.skipif(not torch.backends.quantized.supported_engines, reason="PyTorch has no 8-bit products")


def model(**decoder: Any) -> TrainedTranslator:
    tokenizers = jumok.load(device="cpu").trained.tokenizers
    side = {"kind": "rnn", "width": 48, "embedding": 32}
    recipe = make_recipe({"data": {"corpus": "cldr"}, "encoder": side, "decoder": side | decoder})
    torch.manual_seed(0)
    return TrainedTranslator(TRANSLATION.build(recipe, tokenizers).eval(), recipe, tokenizers)


@pytest.mark.parametrize("rows", [1, 5, 65])
def test_a_product_in_8_bits_is_near_that_of_float32(rows: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, rows, 63), torch.randn(129, 63), torch.randn(129)
    exact = torch.nn.functional.linear(x, weight, bias)
    product = Int8Product.of(weight, bias)
    assert (product(x) - exact).abs().max() < 0.05 * exact.abs().max()
    kept = torch.tensor([0, 7, 128])
    assert torch.equal(product.only(kept)(x), product(x)[..., kept])


DECODERS: list[dict[str, Any]] = [
    {"attention": "additive"},
    {"attention": "additive", "coverage": True, "cell": "lstm", "layers": 2},
    {"attention": "general", "input_feeding": True},
    {"attention": "dot", "tied": "output", "embedding": 48},
    {"attention": "none", "cell": "rnn"},
]


@pytest.mark.parametrize("settings", DECODERS, ids=lambda settings: " ".join(map(str, settings.values())))
def test_every_recurrent_decoder_steps_nearly_as_in_float32(settings: dict[str, Any]) -> None:
    trained = model(**settings)
    source, visible = pad([[5, 6, 7, EOS], [8, 9, EOS]])
    decoder: Any = trained.model.decoder
    kept = torch.tensor([PAD, BOS, EOS, UNK, *range(10, 60)])
    with torch.no_grad():
        encoding = trained.model.encoder(source, visible)
        small = quantised(decoder)
        states = [each.start(encoding, capacity=4) for each in (decoder, small, with_vocabulary(small, kept))]
        for token in (BOS, 12, 20):
            tokens = torch.full((2, 1), token)
            short = torch.full((2, 1), int((kept == token).nonzero()))
            exact, states[0] = decoder.step(states[0], tokens)
            rounded, states[1] = small.step(states[1], tokens)
            listed, states[2] = with_vocabulary(small, kept).step(states[2], short)
            assert (rounded - exact).abs().max() < 0.2
            assert torch.allclose(listed, rounded[..., kept].log_softmax(-1), atol=1e-5)


def test_the_original_decoder_stays_as_it_was() -> None:
    trained = model(attention="additive")
    before = {name: weight.clone() for name, weight in trained.model.state_dict().items()}
    decoder: Any = trained.model.decoder
    with_vocabulary(quantised(decoder), torch.arange(20))
    assert all(torch.equal(before[name], weight) for name, weight in trained.model.state_dict().items())
    assert type(decoder.output) is torch.nn.Linear


def test_a_search_over_a_shortlist_writes_tokens_of_the_shortlist() -> None:
    trained = model(attention="additive")
    decoder: Any = trained.model.decoder
    kept = torch.tensor([PAD, BOS, EOS, UNK, 30, 40, 50])
    source, visible = pad([[5, 6, 7, EOS]])
    with torch.no_grad():
        encoding = trained.model.encoder(source, visible)
        config = DecodingConfig(beam=3, min_length=4, max_length=6)
        ((best, *_),) = beam_search(
            with_vocabulary(quantised(decoder), kept), encoding, Specials(PAD, BOS, EOS), config
        )
    assert set(best.ids) <= {3, 4, 5, 6}


def test_a_decoder_that_copies_is_left_in_float32() -> None:
    assert not can_quantise(model(attention="additive", copy=True).model)
    assert not can_quantise(jumok.load(device="cpu").trained.model)


@pytest.mark.slow
def test_a_translator_in_int8_writes_nearly_the_same() -> None:
    assert works_here()
    trained = model(attention="additive")
    translator = Translator(trained)
    texts = ["three days ago", "12 kg", "Monday, March 3"] * 3
    settings: dict[str, Any] = {"beam": 1, "min_length": 8, "max_length": 8}
    exact = translator.translate(texts, **settings)
    rounded = translator.translate(texts, **settings, precision="int8")
    assert [one.score for one in rounded] != [one.score for one in exact]
    assert [one.score for one in rounded] == pytest.approx([one.score for one in exact], abs=0.1)
