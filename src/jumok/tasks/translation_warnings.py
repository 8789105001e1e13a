"""What makes a translation doubtful: words that the vocabulary does not know, and very long sentences."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

from jumok.data.tokenizer import Piece, Tokenizer
from jumok.tasks.recipes import TranslationRecipe

WORD = re.compile(r"[^\W\d_]+")
SHORTEST = 3
"""Fewest letters of a word that counts: any vocabulary can spell shorter ones."""
SPELT = 0.6
"""Pieces to a letter from which on a word counts as spelt."""
LOOKED_AT = 2000
"""Characters at the beginning of a text that are checked."""
MANY = 0.5
"""The share of unknown words above which a text is foreign to a vocabulary."""
ALPHABETS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC")
"""Scripts in which a single letter is not a word's usual piece, as a syllable of Hangul is."""


class Coverage(NamedTuple):
    """The words of a text that tell whether a vocabulary fits, and those of them that it does not know."""

    words: list[str]
    unknown: list[str]
    total: int
    """The number of all words, short ones included."""

    @property
    def is_foreign(self) -> bool:
        """Whether the vocabulary was learnt from other text."""
        return len(self.unknown) > MANY * len(self.words)


def coverage(text: str, tokenizer: Tokenizer) -> Coverage:
    """Which words at the beginning of a text a vocabulary knows."""
    text = text[:LOOKED_AT]
    pieces = tokenizer.pieces_with_offsets(text)
    starts, ends = [piece.start for piece in pieces], [piece.end for piece in pieces]
    found, words, unknown = list(WORD.finditer(text)), [], []
    for word in found:
        cut = pieces[bisect_right(ends, word.start()) : bisect_left(starts, word.end())]
        is_unknown = not all(tokenizer.knows(piece.piece) for piece in cut) or _is_spelt(word[0], cut, tokenizer)
        if is_unknown:
            unknown.append(word[0])
        if is_unknown or len(word[0]) >= SHORTEST:
            words.append(word[0])
    return Coverage(words, unknown, len(found))


def _is_spelt(word: str, cut: list[Piece], tokenizer: Tokenizer) -> bool:
    if tokenizer.kind not in ("unigram", "bpe") or len(word) < SHORTEST:
        return False
    return len(cut) >= SPELT * len(word) and unicodedata.name(word[0], "").startswith(ALPHABETS)


WarningKind = Literal["length", "words"]
SUBJECTS = {
    "cldr": "dates, times, durations, measures, amounts and names of countries and languages",
    "phrases": "dates, times, durations, measures, amounts and names of countries and languages",
    "dates": "dates",
    "reverse": "digits",
}
"""The contents of the built-in corpora."""


def translation_warnings(
    recipe: TranslationRecipe, source: Tokenizer, parts: Sequence[str], longest: int
) -> dict[WarningKind, str]:
    """Warnings, by kind, about a text translated in these parts by a model trained on at most `longest` tokens."""
    known = coverage(" ".join(parts), source)
    if known.is_foreign:  # which also makes it long: unknown words are spelt
        corpus = recipe.data.corpus
        learnt = f"the model learnt nothing but {SUBJECTS[corpus]}" if corpus else "expect a guess"
        unknown = f"{len(known.unknown)} of {known.total} words are unknown to the model"
        return {"words": f"{unknown}, such as {known.unknown[0][:30]!r}; {learnt}"}
    tokens = max(len(source.encode(part)) - 2 for part in parts)
    if tokens <= longest:
        return {}
    return {
        "length": f"a sentence of {tokens} tokens was translated whole, but the model was trained on at most {longest}"
        f"; --max-source {longest}, in Python max_source={longest}, has it translated in parts"
    }
