"""Alternatives begin with the given text, go on with different words, and are what the model finds likely."""

import pytest
import torch

import jumok
from jumok.errors import ArgumentError
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.alternatives import next_word
from jumok.tasks.translator import TrainedTranslator, Translator

FRIDAY = "Friday, December 23, 1988"


@pytest.fixture(scope="module")
def bundled() -> Translator:
    return jumok.load(device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("text", [FRIDAY, "France, Korea, and Japan"])
def test_alternatives_begin_alike_and_go_on_with_different_words(bundled, text):
    (translation,) = bundled.translate([text])
    words = translation.text.split(" ")
    for place, word in enumerate(words):
        before = "".join(f"{each} " for each in words[:place])
        found = bundled.alternatives(text, before, count=4)
        assert all(each.text.startswith(before) for each in found)
        nexts = [next_word(each.text, before) for each in found]
        assert len(set(nexts)) == len(nexts) == 4
        assert nexts[0] == word  # the model's own choice
        assert found[0].text == translation.text
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_a_prefix_without_a_space_after_it_is_continued(bundled):
    found = bundled.alternatives(FRIDAY, "1988년 12월 2", count=3)
    assert found[0].text == "1988년 12월 23일 금요일"
    assert [each.text.split()[2][:1] for each in found] == ["2", "2", "2"]
    assert all(each.text.split()[2] != "2" for each in found)


def test_the_likeliest_tokens_begin_the_alternatives(bundled):
    """Against the probabilities of the next token that the model gives by itself."""
    found = bundled.alternatives(FRIDAY, "1988년 12월 23일 ", count=3, beam=1)
    tokenizers, model = bundled.trained.tokenizers, bundled.trained.model
    source = torch.tensor([tokenizers.source.encode(FRIDAY)[1:]])
    written = torch.tensor([tokenizers.target.encode("1988년 12월 23일")[:-1]])
    logits = model(source, torch.ones_like(source, dtype=torch.bool), written).logits[0, -1]
    best = [tokenizers.target.pieces[id] for id in logits.topk(20).indices.tolist()]
    starts = [piece.lstrip("▁") for piece in best if piece.startswith("▁") and piece != "▁"]
    for each in found:
        assert any(next_word(each.text, "1988년 12월 23일 ").startswith(start) for start in starts[:6])


@pytest.mark.parametrize("kind", ["char", "word"])
def test_vocabularies_of_letters_and_of_words_have_alternatives(kind):
    recipe = make_recipe(
        {
            "data": {"corpus": "dates", "size": 200},
            "tokenizer": {"kind": kind, "size": 200},
            "encoder": {"kind": "rnn", "width": 16, "embedding": 8},
            "decoder": {"kind": "rnn", "width": 16, "embedding": 8},
        }
    )
    pairs = [("one two three", "four five six"), ("two three one", "five six four")]
    from jumok.data import Pair, Tokenizer, TokenizerPair

    tokenizers = TokenizerPair(
        *(Tokenizer.train([Pair(*pair)[side] for pair in pairs], recipe.tokenizer) for side in range(2))
    )
    torch.manual_seed(0)
    translator = Translator(TrainedTranslator(TRANSLATION.build(recipe, tokenizers).eval(), recipe, tokenizers))
    found = translator.alternatives("one two", "five ", count=3, beam=1, max_length=8)
    nexts = [next_word(each.text, "five ") for each in found]
    assert len(set(nexts)) == len(nexts) > 1
    assert all(each.text.startswith("five ") for each in found)


@pytest.mark.parametrize(
    ("text", "prefix", "settings", "named"),
    [
        ("", "", {}, "empty"),
        (FRIDAY, "", {"count": 0}, "count = 0"),
        (FRIDAY, "漢字 ", {}, "漢字"),
        (" ".join([FRIDAY] * 30), "", {}, "parts"),
    ],
)
def test_what_has_no_alternatives_is_refused(bundled, text, prefix, settings, named):
    with pytest.raises(ArgumentError, match=named):
        bundled.alternatives(text, prefix, **settings)
