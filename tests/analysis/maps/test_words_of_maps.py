"""Maps in words: whatever the tokenizer, the words of a map are the words of the text."""

import pytest
import torch

from jumok.analysis.maps.attention_map import word_numbers
from jumok.analysis.maps.model_map import map_of_translation
from jumok.data import Pair, TokenizerPair
from jumok.tasks import TRANSLATION, make_recipe

KOREAN = [
    "금요일에 서울에서 만나요",
    "오늘은 날씨가 참 좋네요",
    "내일 아침 일찍 출발합니다",
    "그 책을 어제 다 읽었습니다",
]
ENGLISH = ["see you in Seoul on Friday", "the weather is fine today", "we leave early tomorrow", "I read the book"]
TOKENIZERS = [
    {"kind": "unigram", "size": 71},
    {"kind": "bpe", "size": 110},
    {"kind": "char", "size": 400},
    {"kind": "word", "size": 400},
    {"kind": "unigram", "size": 320, "byte_fallback": True, "coverage": 0.98},
    {"kind": "bpe", "size": 330, "byte_fallback": True, "coverage": 0.98},
    {"kind": "char", "size": 330, "byte_fallback": True},
    {"kind": "unigram", "size": 80, "source_form": "jamo", "target_form": "jamo"},
]


def mapped(settings: dict, source: str, target: str, *, words: bool = True):
    half = {"kind": "transformer", "width": 8, "heads": 2, "hidden": 8, "layers": 2}
    recipe = make_recipe({"data": {"corpus": "reverse"}, "tokenizer": settings, "encoder": half, "decoder": half})
    pairs = [Pair(one, other) for one, other in zip(KOREAN, ENGLISH, strict=True)]
    tokenizers = TokenizerPair.train(pairs, recipe.tokenizer)
    ids = tokenizers.target.encode(target)[1:-1]
    return map_of_translation(TRANSLATION.new_model(recipe, tokenizers).eval(), tokenizers, source, ids, words=words)


@pytest.mark.parametrize("settings", TOKENIZERS, ids=str)
def test_words_are_what_spaces_divide(settings):
    source, target = "금요일에 서울에서 책을 읽었습니다", "we read in Seoul"
    shown = mapped(settings, source, target)
    assert shown.source == (*source.split(), "</s>")
    if settings["kind"] != "word":
        assert shown.target == (*target.split(), "</s>")
    assert len(shown.target) == len(target.split()) + 1
    torch.testing.assert_close(shown.weights.sum(-1), torch.ones(shown.weights.shape[:-1]))


@pytest.mark.parametrize("settings", [one for one in TOKENIZERS if one.get("byte_fallback")], ids=str)
def test_letters_written_in_bytes_stay_whole(settings):
    text = "뷁쉙 😀 서울x"
    shown = mapped(settings, text, text)
    assert shown.source == shown.target == ("뷁쉙", "😀", "서울x", "</s>")


def test_a_script_without_spaces_keeps_its_tokens_and_the_bytes_of_a_letter_together():
    text = "今日は晴れ、行こう abc"
    shown = mapped({"kind": "char", "size": 330, "byte_fallback": True}, text, text)
    assert shown.source == shown.target == (*"今日は晴れ、行こう", "abc", "</s>")


def test_a_piece_of_latin_among_han_is_its_own_word():
    assert word_numbers("在Seoul見", [(0, 1), (1, 4), (4, 6), (6, 7)]) == [0, 1, 1, 2]


def test_spaces_at_the_ends_and_in_rows_make_no_words():
    text = "  금요일에   만나요 "
    shown = mapped({"kind": "bpe", "size": 110}, text, "read")
    assert shown.source == ("금요일에", "만나요", "</s>")


def test_unknown_words_stay_words_of_their_own():
    shown = mapped({"kind": "word", "size": 400}, "오늘은 뷁이 좋네요", "zebras read quite often")
    assert shown.source == ("오늘은", "뷁이", "좋네요", "</s>")
    assert shown.target == ("⁇", "read", "⁇", "⁇", "</s>")
    torch.testing.assert_close(shown.weights.sum(-1), torch.ones(shown.weights.shape[:-1]))
