"""Which words a vocabulary knows: all of its own text, and next to none of another."""

import pytest

from jumok.data import Tokenizer, TokenizerConfig, TokenizerPair, corpus_pairs
from jumok.data.tokenizer import NO_SYMBOLS, Symbols
from jumok.model_folder import BUNDLED
from jumok.tasks import make_recipe
from jumok.tasks.translation_warnings import VocabularyCoverage, translation_warnings
from jumok.tasks.translation_warnings import vocabulary_coverage as coverage_of_tokens

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


def coverage(text: str, tokenizer: Tokenizer) -> VocabularyCoverage:
    return coverage_of_tokens(text, tokenizer, tokenizer.encode(text)[1:-1])


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


def test_emoji_and_words_of_other_scripts_are_counted():
    tokenizer = Tokenizer.train(["the cat sees the dog."], TokenizerConfig(kind="word", size=20))
    found = coverage("zebra 日本 😀.", tokenizer)
    assert (found.unknown, found.total) == (["zebra", "日本", "😀"], 3)


@pytest.mark.parametrize(
    ("text", "foreign"), [("the 😀 sees 日本.", True), ("the zebra sees.", True), ("the cat sees the zebra.", False)]
)
def test_a_text_is_foreign_from_a_third_of_unknown_words_on(text, foreign):
    tokenizer = Tokenizer.train(["the cat sees the dog."], TokenizerConfig(kind="word", size=20))
    assert coverage(text, tokenizer).is_foreign == foreign


def test_a_text_without_end_takes_no_longer(bundled):
    assert len(coverage("word " * 100_000, bundled).words) < 2000


@pytest.mark.parametrize(("kind", "size"), [("unigram", 33), ("bpe", 50)])
def test_a_vocabulary_of_little_more_than_letters_does_not_call_its_own_words_unknown(kind, size):
    lines = ["a dog runs in the park", "two men are talking", "she reads a long book about history"]
    tokenizer = Tokenizer.train(lines * 20, TokenizerConfig(kind=kind, size=size))
    assert len(tokenizer.encode("long book about history")) > 10
    assert [line for line in lines if coverage(line, tokenizer).is_foreign] == []
    assert coverage("Привет, как дела?", tokenizer).is_foreign


FEATURES, TAGS = Symbols(features=("<PST>", "<V>")), Symbols(tags=("<legal>",))
RECIPE = make_recipe({"data": {"source": "train.en", "target": "train.ko"}})


def warnings(tokenizer: Tokenizer, text: str, output: str = "걷다") -> dict[str, str]:
    return translation_warnings(RECIPE, tokenizer, [(text, tokenizer.encode(text)[1:-1])], output, longest=100)


@pytest.mark.parametrize("text", ["zzzz", "<V> <PST> zzzz", "<V> <PST> привет"])
def test_features_are_not_counted_as_words(bundled, text):
    found = coverage(text, bundled.with_symbols(FEATURES))
    assert (found.words, found.unknown, found.total) == ([text.split()[-1]], [text.split()[-1]], 1)
    assert found.is_foreign
    assert not coverage("<V> <PST> Friday", bundled.with_symbols(FEATURES)).is_foreign


@pytest.mark.parametrize(
    ("symbols", "text", "warning"),
    [
        (FEATURES, "<V> <PSTX> walk", "no feature <PSTX>, so it was translated as text; its features are <PST>, <V>"),
        (TAGS, "<medical> the man", "no tag <medical>, so it was translated as text; its tags are <legal>"),
        (TAGS, ">>kor<< the man", "no tag >>kor<<, so it was translated as text; its tags are <legal>"),
        (NO_SYMBOLS, ">>kor<< the man", "no tags, so >>kor<< was translated as text"),
    ],
)
def test_a_tag_or_feature_that_the_model_does_not_have_is_a_warning(bundled, symbols, text, warning):
    assert warnings(bundled.with_symbols(symbols), text)["tag"] == f"the model has {warning}"


@pytest.mark.parametrize(
    ("symbols", "text"),
    [
        (FEATURES, "<V> <PST> walk"),
        (TAGS, "<legal> the man"),
        (TAGS, "the <b> man"),
        (TAGS, "<<b> man"),
        (NO_SYMBOLS, "<b> man"),
    ],
)
def test_known_symbols_and_angle_brackets_in_a_text_are_no_unknown_tags(bundled, symbols, text):
    assert "tag" not in warnings(bundled.with_symbols(symbols), text)


@pytest.mark.parametrize(("output", "is_unknown"), [("⁇⁇⁇", True), ("⁇ 일 ⁇", True), ("⁇일", False), ("", False)])
def test_an_output_of_mostly_unknown_tokens_is_a_warning(bundled, output, is_unknown):
    assert ("output" in warnings(bundled, "Friday", output)) == is_unknown
