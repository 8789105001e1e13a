"""Symbols in a text that no tokenizer splits: a tag of its language or domain, and the features of a word.

A symbol is a word in angle brackets: `<medical> The heart is a muscle.` or `<V> <PST> <DECL> 가다`. Only symbols that a
vocabulary knows are symbols; any other word in angle brackets is text. They are the last ids of a vocabulary, so that a
model that is trained further keeps all its ids when a symbol is added.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from jumok.data.subwords import CONTROL, piece_field

SYMBOL = re.compile(r"<[^\s<>]+>")
SYMBOL_WORD = re.compile(rf"(?<!\S){SYMBOL.pattern}(?!\S)")
FEATURE_ENDS = re.compile(r"[;,()+\s|<>]+")
"""What divides the features of a cell: "V;PST", "N;ABL(PL;PSS(2,PL))", "FORM+ELEV"."""


class TextSegment(NamedTuple):
    """A symbol of a text, or the text between two of them."""

    text: str
    start: int
    """Where it begins in the whole text."""
    id: int | None
    """The id of a symbol; None for text."""


def split_symbols(text: str, ids: Mapping[str, int], start: int = 0) -> Iterator[TextSegment]:
    """Cut a text at its symbols, from `start`; the space on either side of a symbol belongs to neither part."""
    for match in SYMBOL_WORD.finditer(text, start) if ids else ():
        if match[0] in ids:
            before = text[start : match.start()].removesuffix(" ")
            if before:
                yield TextSegment(before, start, None)
            yield TextSegment(match[0], match.start(), ids[match[0]])
            start = match.end() + text.startswith(" ", match.end())
    yield TextSegment(text[start:], start, None)


def without_symbols(text: str, symbols: Collection[str]) -> str:
    """The text alone."""
    if not symbols:
        return text
    return " ".join(part.text for part in split_symbols(text, dict.fromkeys(symbols, 0)) if part.id is None)


def feature_symbols(cell: str) -> str:
    """The features of a cell as symbols: "V;PST;FORM+ELEV" as "<V> <PST> <FORM> <ELEV>"."""
    return " ".join(f"<{feature}>" for feature in FEATURE_ENDS.split(cell) if feature)


def symbols_in(texts: Iterable[str]) -> list[str]:
    """Every different symbol of these texts, sorted."""
    return sorted({word for text in texts for word in SYMBOL_WORD.findall(text)})


def symbol_pieces(symbols: Iterable[str]) -> bytes:
    """Symbols as pieces of a sentencepiece model, to be appended to its file.

    sentencepiece never cuts a text into a control piece.
    """
    return b"".join(piece_field(symbol, 0.0, CONTROL) for symbol in symbols)
