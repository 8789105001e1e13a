"""A text that is too long for a model, cut where it hurts least: after a sentence, else at a space, else anywhere."""

import re
from collections.abc import Callable
from itertools import pairwise

SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])")
SPACE = re.compile(r"\s+")


def split_text(text: str, limit: int, count: Callable[[str], int]) -> list[str]:
    """Pieces of at most `limit` tokens each, by `count`; the text itself where it is short enough."""
    if count(text) <= limit:
        return [text]
    for boundary in (SENTENCE_END, SPACE):
        pieces = _cut_at(text, boundary)
        if len(pieces) > 1:
            return [part for piece in _packed(pieces, limit, count) for part in split_text(piece, limit, count)]
    if len(text) < 2:
        return [text]
    middle = len(text) // 2
    return split_text(text[:middle], limit, count) + split_text(text[middle:], limit, count)


def _cut_at(text: str, boundary: re.Pattern[str]) -> list[str]:
    """The parts between boundaries, each with the boundary that follows it."""
    cuts = [0, *(match.end() for match in boundary.finditer(text) if 0 < match.end() < len(text)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def _packed(pieces: list[str], limit: int, count: Callable[[str], int]) -> list[str]:
    """Neighbours joined again as long as they fit, so that there are few pieces."""
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
