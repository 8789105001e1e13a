"""Scores by source length, as in figure 2 of Bahdanau et al. (2015)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from jumok.analysis.scores.metrics import RESAMPLES, Counts, MetricScore, count_outputs, score_counts
from jumok.errors import ArgumentError
from jumok.progress import Watch, unwatched

EDGES = (5, 10, 15, 20, 25, 30, 40, 50)
"""Maximum number of words of each range; a last range holds all longer sources."""


@dataclass(frozen=True)
class Band:
    """The sentences in a range of source lengths, scored as a test set of their own."""

    words: str
    """The range: "0", "6-10", "over 50"."""
    sentences: int
    score: MetricScore


def score_bands(
    name: str,
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    *,
    edges: Sequence[int] = EDGES,
    tokenize: str = "13a",
    lowercase: bool = False,
    resamples: int = RESAMPLES,
    watch: Watch = unwatched,
) -> list[Band]:
    """Compute the score called `name` for every range of source lengths that is not empty; spaces separate words."""
    if not sources:
        return []
    counts = count_outputs(outputs, references, [name], tokenize=tokenize, lowercase=lowercase, watch=watch)
    return bands_of(counts[name], sources, edges=edges, resamples=resamples, watch=watch)


def bands_of(
    counts: Counts,
    sources: Sequence[str],
    *,
    edges: Sequence[int] = EDGES,
    resamples: int = RESAMPLES,
    watch: Watch = unwatched,
) -> list[Band]:
    """Compute the ranges of `score_bands` from counted sentences."""
    return [
        Band(words, len(inside), score_counts(counts.only(inside), resamples, watch=watch))
        for words, inside in members(sources, edges)
    ]


def members(sources: Sequence[str], edges: Sequence[int] = EDGES) -> list[tuple[str, list[int]]]:
    """Return the name of each range that is not empty, and the numbers of its sentences."""
    if not edges or list(edges) != sorted(set(edges)) or edges[0] < 1:
        raise ArgumentError(f"the limits of length ranges must be ascending numbers from 1, but they are {list(edges)}")
    lengths = [len(source.split()) for source in sources]
    limits = [("0", -1, 0.0), *((f"{low + 1}-{high}", low, float(high)) for low, high in pairwise((0, *edges)))]
    limits.append((f"over {edges[-1]}", edges[-1], math.inf))
    ranges = [
        (name, [number for number, length in enumerate(lengths) if low < length <= high]) for name, low, high in limits
    ]
    return [(name, inside) for name, inside in ranges if inside]


def join_texts(texts: Sequence[str], together: Sequence[int]) -> list[str]:
    """Join texts into longer ones: for each number n, every n consecutive texts become one; the rest is left out."""
    if not together or min(together) < 1:
        raise ArgumentError(f"sentences are joined in groups of 1 or more, but the sizes are {list(together)}")
    return [
        " ".join(text.strip() for text in texts[start : start + size])
        for size in together
        for start in range(0, len(texts) - size + 1, size)
    ]
