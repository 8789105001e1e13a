"""Which words a vocabulary knows: all of its own text, and next to none of another."""

import pytest

from jumok.data import TokenizerConfig, TokenizerPair, corpus_pairs
from jumok.model_folder import BUNDLED
from jumok.tasks.translation_warnings import coverage

EVERYDAY = [
    "Hello, how are you?",
    "Thank you very much.",
    "Where is the train station?",
    "The weather is nice today.",
    "computer",
    "Bonjour tout le monde",
    "안녕하세요",
    "Привет, как дела?",
]


@pytest.fixture(scope="module")
def bundled():
    return TokenizerPair.load(BUNDLED).source


@pytest.mark.parametrize("text", EVERYDAY)
def test_everyday_text_is_foreign_to_the_bundled_model(bundled, text):
    assert coverage(text, bundled).is_foreign


@pytest.mark.slow
def test_nothing_of_its_own_corpus_is_foreign_to_the_bundled_model(bundled):
    texts = [pair.source for pair in corpus_pairs("phrases", 1000, split="test")]
    assert [text for text in texts if coverage(text, bundled).is_foreign] == []
    assert not coverage("12:30", bundled).is_foreign
    assert not coverage("", bundled).is_foreign


@pytest.mark.parametrize("kind", ["char", "word"])
def test_vocabularies_of_letters_and_words_know_what_they_have_pieces_for(kind):
    pairs = [pair for pair in corpus_pairs("cldr", 300) if pair.source.isascii()]
    source = TokenizerPair.train(pairs, TokenizerConfig(kind=kind, shared=False, size=2000)).source
    assert not coverage(pairs[0].source, source).is_foreign
    assert coverage("Привет, как дела?", source).is_foreign
    assert coverage("hippopotamus of quicksilver", source).is_foreign == (kind == "word")


def test_words_too_short_to_tell_are_counted_in_what_is_said(bundled):
    found = coverage("Where is the station in Seoul?", bundled)
    assert found.total == 6
    assert len(found.words) < 6


def test_a_text_without_end_takes_no_longer(bundled):
    assert len(coverage("word " * 1_000_000, bundled).words) == 400
