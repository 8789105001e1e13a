"""What can be seen in outputs without a score: repetition, and lengths that are off."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

PHRASE = 3
"""Words of a phrase that should not come twice."""
SHORT, LONG = 0.75, 1.33
"""Outputs below or above this many times their reference's words are too short or too long."""


@dataclass(frozen=True)
class Habits:
    """Shares are of all outputs, from 0 to 1."""

    length_ratio: float
    """Words of all outputs over words of all references."""
    short: float
    long: float
    empty: float
    phrases: float
    """Outputs that say a phrase of three words more often than source and reference repeat any."""
    doubled: float
    """Outputs with a word twice in a row where the reference has none."""
    repeating: tuple[int, ...]
    """The numbers of the outputs that repeat a phrase or a word."""


def habits(sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> Habits:
    """Look through all outputs; words are what spaces divide."""
    count = max(len(outputs), 1)
    triples = list(zip(sources, outputs, references, strict=True))
    phrases = [at for at, texts in enumerate(triples) if repeats_phrase(*texts)]
    doubled = [at for at, (_, output, reference) in enumerate(triples) if doubles_word(output, reference)]
    ratios = [_ratio(output, reference) for _, output, reference in triples]
    words = sum(len(reference.split()) for reference in references)
    return Habits(
        length_ratio=sum(len(output.split()) for output in outputs) / max(words, 1),
        short=sum(ratio < SHORT for ratio in ratios) / count,
        long=sum(ratio > LONG for ratio in ratios) / count,
        empty=sum(not output.strip() for output in outputs) / count,
        phrases=len(phrases) / count,
        doubled=len(doubled) / count,
        repeating=tuple(sorted({*phrases, *doubled})),
    )


def repeats_phrase(source: str, output: str, reference: str, size: int = PHRASE) -> bool:
    """Whether the output says a phrase of `size` words more often than any phrase comes in source or reference."""
    return _most_often(output, size) > max(1, _most_often(source, size), _most_often(reference, size))


def doubles_word(output: str, reference: str) -> bool:
    """Whether a word comes twice in a row, and none does in the reference."""
    return _doubled(output) and not _doubled(reference)


def _most_often(text: str, size: int) -> int:
    words = text.split()
    phrases = Counter(tuple(words[at : at + size]) for at in range(len(words) - size + 1))
    return max(phrases.values(), default=0)


def _doubled(text: str) -> bool:
    return any(one == other for one, other in pairwise(text.split()))


def _ratio(output: str, reference: str) -> float:
    return len(output.split()) / max(len(reference.split()), 1)
