"""Splitting a text that is too long for a model: after a sentence, else at a space, else anywhere."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])")
SPACE = re.compile(r"\s+")


class PartLimits(NamedTuple):
    """The most tokens of a part of a text."""

    part: int
    """The limit for a part of several sentences."""
    sentence: int
    """The limit for a part that is a single sentence, which is not split up to here."""


def split_text(text: str, limits: PartLimits, count: Callable[[str], int]) -> list[str]:
    """Parts within the limits, by the tokens that `count` counts; the whole text if it is short enough."""
    tokens = count(text)
    if tokens <= limits.part:
        return [text]
    sentences = _cut_at(text, SENTENCE_END)
    if len(sentences) == 1 and tokens <= limits.sentence:
        return [text]
    for pieces in (sentences, _cut_at(text, SPACE)):
        if len(pieces) > 1:
            return [part for piece in _packed(pieces, limits.part, count) for part in split_text(piece, limits, count)]
    if len(text) < 2:
        return [text]
    middle = len(text) // 2
    return split_text(text[:middle], limits, count) + split_text(text[middle:], limits, count)


def _cut_at(text: str, boundary: re.Pattern[str]) -> list[str]:
    """The parts between boundaries, each with the boundary that follows it."""
    cuts = [0, *(match.end() for match in boundary.finditer(text) if 0 < match.end() < len(text)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def _packed(pieces: list[str], limit: int, count: Callable[[str], int]) -> list[str]:
    """Neighbouring pieces joined as long as they fit, so that there are few."""
    packed, sizes = [pieces[0]], [count(pieces[0])]
    for piece in pieces[1:]:
        size = count(piece)
        if sizes[-1] + size <= limit:
            packed[-1] += piece
            sizes[-1] += size
        else:
            packed.append(piece)
            sizes.append(size)
    return packed if len(packed) > 1 else pieces
