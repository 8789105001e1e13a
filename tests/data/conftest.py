import pytest
from hypothesis import settings

from jumok.data import Tokenizer, TokenizerConfig, corpus_pairs

# The first example of a test may have to train a tokenizer, and test machines differ: no time limit per example.
settings.register_profile("data", deadline=None)
settings.load_profile("data")

TEXTS = [text for pair in corpus_pairs("cldr", 800) for text in pair]


@pytest.fixture(scope="session")
def texts():
    return TEXTS


@pytest.fixture(scope="session")
def tokenizer_of():
    """A small tokenizer of any settings, trained once."""
    made = {}

    def get(**chosen):
        key = tuple(sorted(chosen.items()))
        if key not in made:
            size = 2000 if chosen.get("kind") == "word" else 280 + 256 * chosen.get("byte_fallback", False)
            made[key] = Tokenizer.train(TEXTS, TokenizerConfig(**({"size": size} | chosen)))
        return made[key]

    return get
