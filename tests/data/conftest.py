import pytest

from jumok.data import Tokenizer, TokenizerConfig, corpus_pairs

TEXTS = [text for pair in corpus_pairs("cldr", 800) for text in pair]


@pytest.fixture(scope="session")
def texts():
    return TEXTS


@pytest.fixture(scope="session")
def tokenizer_of():
    """A small tokenizer of any settings, trained once."""
    made = {}

    def get(**settings):
        key = tuple(sorted(settings.items()))
        if key not in made:
            size = 2000 if settings.get("kind") == "word" else 340 + 256 * settings.get("byte_fallback", False)
            made[key] = Tokenizer.train(TEXTS, TokenizerConfig(**({"size": size} | settings)))
        return made[key]

    return get
