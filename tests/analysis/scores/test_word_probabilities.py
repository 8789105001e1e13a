"""The probabilities of the words of an output multiply to the score of beam search, whatever the tokenizer."""

import math

import pytest
import torch

import jumok
from jumok.data import BOS, EOS, Pair, TokenizerPair
from jumok.data.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.images.scenes import scene
from jumok.tasks import CAPTIONING, TRANSLATION, make_recipe
from jumok.tasks.captioner import Caption, Captioner, TrainedCaptioner
from jumok.tasks.translator import TrainedTranslator, Translator

FRIDAY = "Friday, December 23, 1988"
SMALL = {"kind": "transformer", "width": 8, "heads": 2, "hidden": 8, "layers": 1}
PAIRS = [Pair("see you in Seoul", "서울에서 만나요"), Pair("the weather is fine", "날씨가 참 좋네요")]


@pytest.fixture(scope="module")
def bundled() -> Translator:
    return jumok.load(device="cpu")


def untrained(tokenizer: dict, **decoder) -> Translator:
    """A model that has learned nothing, without a length penalty, which scores by the sum of log-probabilities."""
    recipe = make_recipe(
        {
            "data": {"corpus": "reverse"},
            "tokenizer": tokenizer,
            "encoder": SMALL,
            "decoder": decoder or SMALL,
            "decoding": {"length_penalty": 0.0, "max_length": 8, "beam": 2},
        }
    )
    tokenizers = TokenizerPair.train(PAIRS, recipe.tokenizer)
    return Translator(TrainedTranslator(TRANSLATION.new_model(recipe, tokenizers).eval(), recipe, tokenizers))


def test_words_and_tokens_are_those_of_the_attention_map(bundled):
    (translation,) = bundled.translate([FRIDAY])
    for words in (True, False, None):
        of = translation.probabilities(words=words)
        assert tuple(word for word, _ in of) == translation.attention(words=words).target
        assert all(0 < probability <= 1 for _, probability in of)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "unigram", "size": 40},
        {"kind": "char", "size": 100},
        {"kind": "word", "size": 100},
        {"kind": "char", "size": 330, "byte_fallback": True},
    ],
    ids=str,
)
def test_they_multiply_to_the_probability_of_the_output(settings):
    for translation in untrained(settings).translate([pair.source for pair in PAIRS], n_best=2):
        for output in translation.n_best:
            if len(output.pieces[0].ids) == 8:
                continue  # cut off at its maximum length, so beam search did not score its end
            for words in (True, False):
                product = sum(math.log(probability) for _, probability in output.probabilities(words=words))
                assert product == pytest.approx(output.score, abs=1e-4)


def test_each_token_has_the_probability_that_the_model_gives_it(bundled):
    """Step by step, as beam search asks the model."""
    (translation,) = bundled.translate([FRIDAY])
    tokenizers, model = bundled.trained.tokenizers, bundled.trained.model
    source = torch.tensor([tokenizers.source.encode(FRIDAY)[1:]])
    ids = translation.pieces[0].ids
    state = model.decoder.start(model.encoder(source, torch.ones_like(source, dtype=torch.bool)), capacity=len(ids) + 1)
    for before, after, found in zip([BOS, *ids], [*ids, EOS], translation.probabilities(words=False), strict=True):
        log_probs, state = model.decoder.step(state, torch.tensor([[before]]))
        assert found.probability == pytest.approx(log_probs[0, 0, after].exp().item(), rel=1e-4)


def test_edits_that_write_nothing_count_with_the_letter_after_them():
    model = untrained(
        {"source_kind": "char", "target_kind": "char", "shared": False, "edits": True},
        kind="transducer",
        width=8,
        embedding=8,
    )
    for translation in model.translate([pair.source for pair in PAIRS]):
        tokens = translation.probabilities(words=False)
        assert [token for token, _ in tokens] == list(translation.attention(words=False).target)
        ids = translation.pieces[0].ids
        log_probs = model.trained.model.decoder.logits  # of the whole output, every edit counted
        encoding = model._encoding(model.trained.tokenizers.source.encode(translation.source)[1:])
        with torch.no_grad():
            logits = log_probs(model.trained.model.decoder.hidden(encoding, torch.tensor([[BOS, *ids]])))[0]
        whole = logits.log_softmax(-1).gather(1, torch.tensor([*ids, EOS])[:, None]).sum().item()
        assert sum(math.log(probability) for _, probability in tokens) == pytest.approx(whole, abs=1e-4)


def test_every_part_of_a_long_text_has_its_words_and_its_end(bundled):
    (translation,) = bundled.translate([f"{FRIDAY}. {FRIDAY}."], max_source=12)
    assert len(translation.pieces) > 1
    assert [word for word, _ in translation.probabilities()].count("</s>") == len(translation.pieces)


def test_an_empty_text_has_none(bundled):
    assert bundled.translate([""])[0].probabilities() == []


def test_captions_have_them_too():
    recipe = make_recipe(
        {
            "images": {"scenes": "en", "count": 20, "size": 32},
            "tokenizer": {"kind": "word", "size": 60},
            "encoder": {"blocks": [1], "channels": 8, "width": 8},
            "decoder": SMALL,
            "decoding": {"min_length": 3, "max_length": 6},
        }
    )
    tokenizer = Tokenizer.train(["a small red circle"], recipe.tokenizer, side="target")
    torch.manual_seed(1)
    captioner = Captioner(TrainedCaptioner(CAPTIONING.new_model(recipe, tokenizer).eval(), recipe, tokenizer))
    (caption,) = captioner.caption([scene(3).picture(32)])
    words = caption.probabilities()
    assert [word for word, _ in words] == [*caption.attention().target, "</s>"]
    with pytest.raises(ArgumentError, match="without its image"):
        Caption("", "a circle", 0.0).probabilities()
