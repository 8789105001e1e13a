"""Numbers about many attention maps: how sharply each word looked, and how much every source word was looked at."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.model_map import END

LITTLE, MUCH = 0.2, 2.0
"""A source word with less attention than this may be missing in the output, one with more be said twice."""


@dataclass(frozen=True)
class WordCover:
    """One word of the source, wherever it came, and the attention it got each time on average."""

    word: str
    times: int
    coverage: float


@dataclass(frozen=True)
class Looks:
    """What the attention of a model is like over a test set."""

    maps: int
    entropy: float
    """In nats, of a target word's weights averaged over layers and heads; the mean over target words."""
    heads: tuple[tuple[float, ...], ...]
    """The same for every [layer][head] alone."""
    little: float
    """Share of source words with coverage below LITTLE."""
    much: float
    """Share of source words with coverage above MUCH."""
    histogram: tuple[tuple[str, int], ...]
    """How many source words have how much coverage."""
    least: tuple[WordCover, ...]
    """The words looked at least, of those that came several times."""
    most: tuple[WordCover, ...]


def coverage(shown: AttentionMap) -> Float[Tensor, " source"]:
    """Σ over target words of the weight on each source word: 1 is the attention of one whole target word."""
    return shown.mean().sum(0)


def source_words(shown: AttentionMap) -> list[tuple[str, float]]:
    """The words of the source with their coverage; its end is not a word."""
    found = zip(shown.source, coverage(shown).tolist(), strict=True)
    return [(word, value) for word, value in found if word != END]


def looks(maps: Iterable[AttentionMap], *, listed: int = 8) -> Looks | None:
    """The numbers of some maps of one model; None where there are none."""
    sharp, by_head, covered, counts = 0.0, torch.zeros(()), [], []
    for shown in maps:
        sharp += float(shown.select(layer="mean", head="mean").entropy().sum())
        by_head = by_head + shown.entropy().sum(-1)
        counts.append(len(shown.target))
        covered += source_words(shown)
    if not counts:
        return None
    rows = max(sum(counts), 1)
    values, words = [value for _, value in covered], max(len(covered), 1)
    least, most = _ranked(covered, listed)
    return Looks(
        maps=len(counts),
        entropy=sharp / rows,
        heads=tuple(tuple(layer) for layer in (by_head / rows).tolist()),
        little=sum(value < LITTLE for value in values) / words,
        much=sum(value > MUCH for value in values) / words,
        histogram=_histogram(values),
        least=least,
        most=most,
    )


def _histogram(values: Sequence[float], step: float = 0.25, last: float = 2.5) -> tuple[tuple[str, int], ...]:
    bins = round(last / step)
    counts = [0] * (bins + 1)
    for value in values:
        counts[min(int(value / step), bins)] += 1
    names = [f"{number * step:g}" for number in range(bins)] + [f"{last:g}+"]
    return tuple(zip(names, counts, strict=True))


def _ranked(covered: Sequence[tuple[str, float]], listed: int) -> tuple[tuple[WordCover, ...], tuple[WordCover, ...]]:
    """The words with the least and the most coverage, of those that came often enough to say so."""
    by_word: dict[str, list[float]] = defaultdict(list)
    for word, value in covered:
        by_word[word].append(value)
    often = max(1, min(5, len(covered) // 100))
    known = [
        WordCover(word, len(values), sum(values) / len(values))
        for word, values in by_word.items()
        if len(values) >= often
    ]
    ranked = sorted(known, key=lambda one: (one.coverage, one.word))
    half = min(listed, len(ranked) // 2)
    return tuple(ranked[:half]), tuple(reversed(ranked[len(ranked) - half :]))
