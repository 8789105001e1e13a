"""Strings as counts of their character n-grams, kept so that a query touches only the n-grams it has."""

import unicodedata
from collections import Counter, defaultdict
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

LONGEST = 3
"""The longest n-gram counted."""
SYLLABLE = "HANGUL SYLLABLE "
START, END = "\u0002", "\u0003"  # control characters that no key is typed with


def ngrams(text: str) -> Counter[str]:
    """Counts of the 1- to LONGEST-grams of a string between boundary marks.

    Case is folded, and letters are taken apart (NFD), so that é resembles e, and Hangul syllables compare by their
    jamo. What is written in Hangul counts in Latin letters as well: 리, "ri", has something of Li.
    """
    spellings = {text, "".join(map(_in_latin_letters, unicodedata.normalize("NFC", text)))}
    counts: Counter[str] = Counter()
    for spelling in sorted(spellings):
        letters = START + unicodedata.normalize("NFD", spelling.casefold()) + END
        counts.update(letters[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(letters) - n + 1))
    del counts[START], counts[END]  # every string has them
    return counts


class NgramIndex:
    """For each n-gram, the keys that contain it and their share of it, counts divided by the length of all counts."""

    def __init__(self, keys: list[str]) -> None:
        self.size = len(keys)
        self.shares: dict[str, dict[int, float]] = defaultdict(dict)
        for row, key in enumerate(keys):
            for gram, share in _unit(ngrams(key)).items():
                self.shares[gram][row] = share

    def compared(self, query: str) -> tuple[Float[Tensor, " gram"], Float[Tensor, "key gram"]]:
        """The query and every key as vectors whose dot product is their cosine; other n-grams would multiply by 0."""
        asked = _unit(ngrams(query))
        keys = torch.zeros(self.size, len(asked), dtype=torch.float64)
        for column, gram in enumerate(asked):
            shares = self.shares.get(gram, {})
            keys[list(shares), column] = torch.tensor(list(shares.values()), dtype=torch.float64)
        return torch.tensor(list(asked.values()), dtype=torch.float64), keys


def _unit(counts: Counter[str]) -> dict[str, float]:
    length = sqrt(sum(count**2 for count in counts.values()))
    return {gram: count / length for gram, count in counts.items()}


def _in_latin_letters(character: str) -> str:
    """A Hangul syllable as Unicode's name for it spells it; every other character stays."""
    name = unicodedata.name(character, "")
    return name.removeprefix(SYLLABLE) if name.startswith(SYLLABLE) else character
