"""Which words of a text a vocabulary does not know: those with an unknown piece, and those it spells letter by letter.

A vocabulary of pieces that never met a word still has its letters, so hardly anything is unknown to it. But words of
its own text have pieces of several letters; a word cut into almost as many pieces as letters is not one of them.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from jumok.data.tokenizer import Piece, Tokenizer

WORD = re.compile(r"[^\W\d_]+")
SHORTEST = 3
"""Letters of a word that tells something: shorter ones are spelt by any vocabulary."""
SPELT = 0.6
"""Pieces to a letter from which on a word counts as spelt."""
LOOKED_AT = 2000
"""Characters of a text that are looked at, which tell enough."""
MANY = 0.5
"""The share of unknown words above which a text is foreign to a vocabulary."""
ALPHABETS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC")
"""Scripts in which a single letter is not a word's usual piece, as a syllable of Hangul is."""


class Coverage(NamedTuple):
    """The words of a text that tell something, and those of them that the vocabulary does not know."""

    words: list[str]
    unknown: list[str]

    @property
    def is_foreign(self) -> bool:
        """Whether the vocabulary was learnt from other text."""
        return len(self.unknown) > MANY * len(self.words)


def coverage(text: str, tokenizer: Tokenizer) -> Coverage:
    """What a vocabulary knows of the words at the beginning of a text."""
    text = text[:LOOKED_AT]
    pieces = tokenizer.pieces_with_offsets(text)
    starts, ends = [piece.start for piece in pieces], [piece.end for piece in pieces]
    words, unknown = [], []
    for word in WORD.finditer(text):
        cut = pieces[bisect_right(ends, word.start()) : bisect_left(starts, word.end())]
        is_unknown = not all(tokenizer.knows(piece.piece) for piece in cut) or _is_spelt(word[0], cut, tokenizer)
        if is_unknown:
            unknown.append(word[0])
        if is_unknown or len(word[0]) >= SHORTEST:
            words.append(word[0])
    return Coverage(words, unknown)


def _is_spelt(word: str, cut: list[Piece], tokenizer: Tokenizer) -> bool:
    if tokenizer.kind not in ("unigram", "bpe") or len(word) < SHORTEST:
        return False
    return len(cut) >= SPELT * len(word) and unicodedata.name(word[0], "").startswith(ALPHABETS)
