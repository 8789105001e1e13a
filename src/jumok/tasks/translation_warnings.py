"""Warnings about a translation: unknown words, a tag that is read as text, very long sentences, and left out terms."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from jumok.data.subwords import UNKNOWN
from jumok.data.tokenizer import Piece, Tokenizer, known_tags
from jumok.tasks.recipes import TranslationRecipe

WORD = re.compile(r"[^\W\d_]+|[\u2600-\u27bf\ufe0f\u200d\U0001f000-\U0001faff]+")
"""Letters, or emoji and other pictures."""
SHORTEST = 3
"""Fewest letters of a word that counts: any vocabulary can spell shorter ones."""
SPELT = 0.6
"""Pieces per letter from which on a word counts as spelt out."""
FEWEST = 200
"""Pieces of several letters below which a vocabulary spells out words of its own text as well."""
MOST_CHARACTERS = 2000
"""Characters at the beginning of a text that are checked."""
MANY = 1 / 3
"""The share of words without pieces from which on a text is foreign to a vocabulary."""
MOST = 0.5
"""The share of unknown words above which it is so even if they are spelt; also that of ⁇ in an output."""
ALPHABETS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC")
"""Scripts in which a single letter is not a word's usual piece, as a syllable of Hangul is."""


class VocabularyCoverage(NamedTuple):
    """The words of a text that tell whether a vocabulary fits, and those of them that it does not know."""

    words: list[str]
    unknown: list[str]
    total: int
    """The number of all words, short ones included."""
    lacking: int
    """The number of unknown words with letters that the vocabulary lacks; it spells the others."""

    @property
    def is_foreign(self) -> bool:
        """Whether the vocabulary was learned from text of another kind."""
        lacking = self.lacking > 0 and self.lacking >= MANY * len(self.words)
        return lacking or len(self.unknown) > MOST * len(self.words)


def vocabulary_coverage(text: str, tokenizer: Tokenizer, ids: Sequence[int]) -> VocabularyCoverage:
    """Which words at the beginning of a text a vocabulary knows; `ids` are the tokens of the text.

    Tags and features are no words.
    """
    text, pieces = _cut(text[:MOST_CHARACTERS], tokenizer, ids[:MOST_CHARACTERS])
    starts, ends = [piece.start for piece in pieces], [piece.end for piece in pieces]
    symbols, words, unknown, total, lacking = {*tokenizer.symbols.all, *tokenizer.tags}, [], [], 0, 0
    for word in WORD.finditer(text):
        cut = pieces[bisect_right(ends, word.start()) : bisect_left(starts, word.end())]
        if any(piece.piece in symbols for piece in cut):
            continue
        total += 1
        is_lacking = not all(tokenizer.knows(piece.piece) for piece in cut)
        is_unknown = is_lacking or _is_spelt(word[0], len(cut), tokenizer)
        lacking += is_lacking
        if is_unknown:
            unknown.append(word[0])
        if is_unknown or len(word[0]) >= SHORTEST:
            words.append(word[0])
    return VocabularyCoverage(words, unknown, total, lacking)


def _cut(text: str, tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[Piece]]:
    """A text and its pieces. Joined, the pieces are the text as the model reads it, unless some are unknown."""
    if not tokenizer.are_pieces(ids):
        return text, tokenizer.pieces_with_offsets(text)
    ids = [id for id in ids if id not in tokenizer.language_ids]
    names = [tokenizer.pieces[id] for id in ids]
    places = pairwise([0, *accumulate(map(len, names))])
    return "".join(names), [Piece(name, *place, id) for name, place, id in zip(names, places, ids, strict=True)]


def _is_spelt(word: str, pieces: int, tokenizer: Tokenizer) -> bool:
    """Whether a word has about as many pieces as letters, in a vocabulary that has pieces for words."""
    if pieces < SPELT * len(word) or tokenizer.kind not in ("unigram", "bpe") or len(word) < SHORTEST:
        return False
    return unicodedata.name(word[0], "").startswith(ALPHABETS) and _has_words(tokenizer)


@lru_cache(maxsize=16)
def _has_words(tokenizer: Tokenizer) -> bool:
    return sum(len(piece.strip("▁")) >= SHORTEST for piece in tokenizer.pieces) >= FEWEST


WarningKind = Literal["length", "words", "tag", "language", "output", "terms"]
PROBLEMS: dict[WarningKind, str] = {
    "length": "are longer than the model was trained on",
    "words": "have many words unknown to the model",
    "tag": "begin with a tag that was translated as text",
    "language": "name no target language",
    "output": "were translated into mostly unknown tokens",
    "terms": "need terms that the model cannot write",
}
"""What lines with a kind of warning have in common."""
SUBJECTS = {
    "cldr": "dates, times, durations, measures, amounts and names of countries and languages",
    "phrases": "dates, times, durations, measures, amounts and names of countries and languages",
    "dates": "dates",
    "reverse": "digits",
}
"""The contents of the built-in corpora."""


def translation_warnings(
    recipe: TranslationRecipe,
    source: Tokenizer,
    parts: Sequence[tuple[str, Sequence[int]]],
    output: str,
    longest: int,
    left_out: Sequence[str] = (),
) -> dict[WarningKind, str]:
    """Warnings, by kind, about a text by a model trained on at most `longest` tokens; `parts` have their tokens.

    `left_out` are the terms that the model cannot write.
    """
    doubts: dict[WarningKind, str] = {}
    if left_out:
        doubts["terms"] = (
            f"the model's vocabulary cannot spell the term{'s' * (len(left_out) > 1)} {', '.join(left_out)}, so the "
            "translation was made without; give a term in other characters, or delete it"
        )
    if tag := source.unknown_tag(parts[0][0]):
        doubts["tag"] = _unknown_tag(tag, source)
    elif source.needs_language(parts[0][0]):
        to = source.languages[0]
        doubts["language"] = (
            f"the text names none of the model's target languages; choose one, as with --to {to}, or begin the text "
            f"with its tag, such as >>{to}<<"
        )
    if output.count(UNKNOWN) > MOST * len(output.replace(" ", "")):
        doubts["output"] = f"the model wrote mostly unknown tokens ({UNKNOWN}), which its vocabulary cannot spell"
    known = vocabulary_coverage(" ".join(text for text, _ in parts), source, [id for _, ids in parts for id in ids])
    if known.is_foreign:  # which also makes it long: unknown words are spelt
        corpus = recipe.data.corpus
        learned = f"the model learned nothing but {SUBJECTS[corpus]}" if corpus else "expect a guess"
        unknown = f"{len(known.unknown)} of {known.total} words are unknown to the model"
        return doubts | {"words": f"{unknown}, such as {known.unknown[0][:30]!r}; {learned}"}
    tokens = max(len(ids) for _, ids in parts)
    if tokens <= longest:
        return doubts
    return doubts | {
        "length": f"a sentence of {tokens} tokens was translated whole, but the model was trained on at most {longest}"
        f"; use --max-source {longest} (in Python max_source={longest}) to translate it in parts"
    }


class WarningSummary:
    """Reports warnings about many lines: the first of each kind in full, and the number of all at the end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.lines = say, Counter[WarningKind]()

    def add(self, number: int, warnings: Mapping[WarningKind, str]) -> None:
        """Count the warnings of a line."""
        for kind, message in warnings.items():
            if not self.lines[kind]:
                self.say(f"line {number}: {message}")
            self.lines[kind] += 1

    def summarise(self) -> None:
        """Report how many lines had each kind of warning, if there were several."""
        for kind, lines in self.lines.items():
            if lines > 1:
                self.say(f"in all, {lines:,} lines {PROBLEMS[kind]}")


def _unknown_tag(tag: str, source: Tokenizer) -> str:
    if tag in source.tags:
        return f"white space comes before the tag {tag}, so it was translated as text; begin the text with the tag"
    tags = source.symbols.tags if source.language else source.tags
    if source.language and tag.startswith(">>"):
        noun, known = "language", source.languages
    elif not tags and not source.symbols.features:
        return f"the model has no tags, so {tag} was translated as text"
    else:
        noun, known = ("tag", list(tags)) if tags else ("feature", list(source.symbols.features))
    return f"the model has no {noun} {tag}, so it was translated as text{known_tags(known, noun)}"
