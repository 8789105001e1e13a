"""Terms that a translation must contain: a list of source terms, each with its target term.

A term is found as whole words in scripts with spaces between words, and anywhere in Korean, Chinese, Japanese and other
scripts without them or with endings on words: "file" is not in "profile", but "파일" is in "파일을".
"""

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from jumok.errors import ArgumentError, DataError
from jumok.files import display_name, quoted, read_lines

UNSPACED = (
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uffa0-\uffdc"  # Hangul
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
)
WORD_LETTER = f"[^\\W{UNSPACED}]"
"""A letter or digit of a script that has spaces around words."""

LetterKind = Literal["word", "joining", "other"]


def letter_kind(letter: str) -> LetterKind:
    """Whether a letter is part of a spaced word, joins the one before it (accents, parts of syllables), or neither."""
    if unicodedata.combining(letter) or "\u1160" <= letter <= "\u11ff":
        return "joining"
    return "word" if re.match(WORD_LETTER, letter) else "other"


class Terms:
    """Source terms and the target terms that a translation must have for them.

    `places` says where target terms come from: "terms.tsv, line 3".
    """

    def __init__(self, pairs: Mapping[str, str], places: Mapping[str, str] | None = None) -> None:
        self._places = places or {}
        self._targets: dict[str, str] = {}
        for source, target in _checked(pairs):
            key = _key(source)
            if self._targets.setdefault(key, target) != target:
                raise ArgumentError(
                    f"terms has {quoted(source)} twice, for {quoted(self._targets[key])} and {quoted(target)}; keep one"
                )
        longest_first = sorted(self._targets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_found_as, longest_first))) if longest_first else None

    def __bool__(self) -> bool:
        return bool(self._targets)

    def shown(self, target: str) -> str:
        """A target term as messages name it: '파일' (terms.tsv, line 3)."""
        return f"{quoted(target)} ({self._places[target]})" if target in self._places else quoted(target)

    def required(self, source: str) -> tuple[str, ...]:
        """The target terms for a source text; of source terms that overlap in it, the longer counts."""
        if self._pattern is None:
            return ()
        matches = self._pattern.finditer(_key(source))
        return tuple(dict.fromkeys(self._targets[_key(match[0])] for match in matches))


def as_terms(terms: Mapping[str, str] | Terms | None) -> Terms:
    """The terms of a dict of source and target terms; none for None."""
    return terms if isinstance(terms, Terms) else Terms({} if terms is None else terms)


def occurs(term: str, text: str, *, lowercase: bool = False) -> bool:
    """Whether a text contains a term."""
    term, text = (unicodedata.normalize("NFC", each) for each in (term, text))
    if lowercase:
        term, text = term.lower(), text.lower()
    return re.search(_found_as(term), text) is not None


def read_terms(path: str | Path) -> Terms:
    """Terms from a file with lines of a source term, a tab and a target term; empty lines are skipped."""
    pairs: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        where, columns = f"{display_name(path)}, line {number}", [column.strip() for column in line.split("\t")]
        if len(columns) != 2:
            raise DataError(
                f"{where} has {len(columns)} column{'s' * (len(columns) > 1)} instead of 2: {quoted(line)}; write a "
                "source term, a tab and a target term"
            )
        if not all(columns):
            side = "source" if not columns[0] else "target"
            raise DataError(f"{where}: the {side} term is empty; to keep a term as it is, write it twice")
        source, target = columns
        before = pairs.setdefault(_key(source), (target, number))
        if before[0] != target:
            raise DataError(
                f"{where}: {quoted(source)} is {quoted(target)}, but {quoted(before[0])} in line {before[1]}; keep one"
            )
    if not pairs:
        raise DataError(f"{display_name(path)} has no terms; write a source term, a tab and a target term in each line")
    places = {_value(target): f"{display_name(path)}, line {number}" for target, number in reversed(pairs.values())}
    return Terms({source: target for source, (target, _) in pairs.items()}, places)


def _checked(pairs: Any) -> list[tuple[str, str]]:
    if not isinstance(pairs, Mapping):
        raise ArgumentError(
            f'terms must be a dict of source and target terms, such as {{"file": "파일"}}: {quoted(pairs)}'
        )
    for pair in pairs.items():
        for term in pair:
            if not isinstance(term, str) or not term.strip():
                raise ArgumentError(f"terms has {quoted(pair)}; both must be texts that are not empty")
    return [(source, _value(target)) for source, target in pairs.items()]


def _value(target: str) -> str:
    """The form in which target terms are written: one space between words."""
    return " ".join(target.split())


def _key(text: str) -> str:
    """The form in which source terms are compared: any case, one space between words."""
    return " ".join(unicodedata.normalize("NFC", text).lower().split())


def _found_as(term: str) -> str:
    """The regular expression that finds a term."""
    before = f"(?<!{WORD_LETTER})" if letter_kind(term[0]) == "word" else ""
    after = f"(?!{WORD_LETTER})" if letter_kind(term[-1]) == "word" else ""
    return before + re.escape(term) + after
