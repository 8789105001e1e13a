"""Maps of self-attention: weights of the layers, words of one text on both axes, a kind that JSON keeps."""

import pytest
import torch

import jumok
from jumok import AttentionMap
from jumok.analysis import draw
from jumok.analysis.maps.model_map import map_of_translation
from jumok.data import BOS, Pair, TokenizerPair
from jumok.data.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.images.scenes import scene
from jumok.tasks import CAPTIONING, TRANSLATION, make_recipe
from jumok.tasks.captioner import Captioner, TrainedCaptioner

HALF = {"kind": "transformer", "width": 16, "heads": 2, "hidden": 16, "layers": 3, "dropout": 0.0}
RNN = {"kind": "rnn", "width": 8, "embedding": 6, "dropout": 0.0}
TEXT = "27 1828"


@pytest.fixture(scope="module")
def tokenizers():
    recipe = make_recipe({"data": {"corpus": "reverse"}, "tokenizer": {"kind": "char"}})
    return TokenizerPair.train([Pair(f"{n} {n * 7}", str(n * 13)) for n in range(99)], recipe.tokenizer)


def model_of(encoder, decoder, tokenizers):
    recipe = make_recipe({"data": {"corpus": "reverse"}, "encoder": encoder, "decoder": decoder})
    return TRANSLATION.new_model(recipe, tokenizers).eval()


def test_each_kind_holds_the_weights_of_its_layers_between_its_own_tokens(tokenizers):
    model = model_of(HALF, HALF, tokenizers)
    target = tokenizers.target.encode("91 7")[1:-1]
    source = torch.tensor([tokenizers.source.encode(TEXT)[1:]])
    visible = torch.ones_like(source, dtype=torch.bool)
    with torch.no_grad():
        encoded = model.encoder.encode(source, visible)
        hidden = model.decoder.hidden(encoded.encoding, torch.tensor([[BOS, *target]]))
    wanted = {"encoder": encoded.self_attention, "decoder": hidden.self_attention, "cross": hidden.attention}
    maps = {kind: map_of_translation(model, tokenizers, TEXT, target, words=False, kind=kind) for kind in wanted}
    for kind, layers in wanted.items():
        torch.testing.assert_close(maps[kind].weights, torch.stack([layer()[0] for layer in layers]))
        assert maps[kind].kind == kind
    assert maps["encoder"].source == maps["encoder"].target == maps["cross"].source
    assert maps["decoder"].target == maps["cross"].target
    assert maps["decoder"].source == ("<s>", *maps["cross"].target[:-1])


def test_words_of_self_attention_are_those_of_one_text_and_rows_still_sum_to_one():
    (translation,) = jumok.load().translate(["Friday, December 23, 1988"])
    encoder, decoder = (translation.attention(kind=kind) for kind in ("encoder", "decoder"))
    assert encoder.source == encoder.target == ("Friday,", "December", "23,", "1988", "</s>")
    assert decoder.source == ("<s>", "1988년", "12월", "23일", "금요일")
    assert decoder.target == ("1988년", "12월", "23일", "금요일", "</s>")
    for shown in (encoder, decoder, encoder.tokens, decoder.tokens):
        torch.testing.assert_close(shown.weights.sum(-1), torch.ones(shown.weights.shape[:3]))
    assert torch.all(decoder.tokens.weights.triu(1) == 0)  # a word that is written sees those before it


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_map_of_self_attention_goes_through_every_format(kind):
    shown = jumok.load().attention("3 hours", "3시간", kind=kind).select(layer=0, head=[0, 2])
    again = AttentionMap.from_json(shown.to_json())
    assert (again.kind, again.source, again.target) == (kind, shown.source, shown.target)
    assert f"self-attention of the {kind}" in draw.formats.to_bytes(shown, "html").decode()
    for word in shown.source:
        assert word.replace("<", "&lt;").replace(">", "&gt;") in draw.to_svg(shown, grid=True)
    assert draw.to_terminal(shown, plain=True).plain


def test_a_recurrent_half_has_no_self_attention_and_says_so(tokenizers):
    target = tokenizers.target.encode("91")[1:-1]
    mixed = model_of(RNN, HALF, tokenizers)
    with pytest.raises(ArgumentError, match=r"the encoder of this model has no self-attention, .* use --kind cross"):
        map_of_translation(mixed, tokenizers, TEXT, target, kind="encoder")
    assert map_of_translation(mixed, tokenizers, TEXT, target, kind="decoder").kind == "decoder"
    recurrent = model_of(RNN, RNN, tokenizers)
    with pytest.raises(ArgumentError, match="the decoder of this model has no self-attention"):
        map_of_translation(recurrent, tokenizers, TEXT, target, kind="decoder")


def test_the_kinds_of_a_translator_are_those_of_its_model():
    assert jumok.load().map_kinds() == ("cross", "encoder", "decoder")


@pytest.mark.parametrize(("decoder", "kinds"), [(HALF, ("cross", "decoder")), (RNN, ("cross",))])
def test_a_captioner_also_shows_the_self_attention_of_its_decoder(decoder, kinds):
    image = {"kind": "patches", "patch": 8, "width": 16, "heads": 2, "hidden": 16, "layers": 1, "dropout": 0.0}
    recipe = make_recipe(
        {"images": {"scenes": "en", "size": 32}, "tokenizer": {"kind": "char"}, "encoder": image, "decoder": decoder}
    )
    tokenizer = Tokenizer.train(["a red circle"], recipe.tokenizer, side="target")
    captioner = Captioner(TrainedCaptioner(CAPTIONING.new_model(recipe, tokenizer).eval(), recipe, tokenizer))
    assert captioner.map_kinds() == kinds
    picture = scene(0).picture(32)
    with pytest.raises(ArgumentError, match="self-attention of an image encoder; use --kind cross"):
        captioner.attention(picture, "a red circle", kind="encoder")
    if "decoder" in kinds:
        shown = captioner.attention(picture, "a red circle", kind="decoder")
        assert (shown.source[0], shown.target[-1], shown.layout.kind) == ("<s>", "</s>", "line")
