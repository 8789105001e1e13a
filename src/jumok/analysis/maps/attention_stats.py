"""Statistics of many attention maps: entropy, and how much attention every source word receives."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.analysis.maps.attention_map import END, MAP_KINDS, AttentionMap, MapKind

LITTLE, MUCH = 0.2, 2.0
"""Source words with less attention than LITTLE may be missing in the output; those with more than MUCH, repeated."""


@dataclass(frozen=True)
class WordCoverage:
    """A source word, how often it occurs, and its average coverage."""

    word: str
    times: int
    coverage: float


Words = tuple[WordCoverage, ...]


@dataclass(frozen=True)
class AttentionStats:
    """Statistics of a model's attention over a test set."""

    maps: int
    entropy: float
    """Mean entropy of a target word's weights, averaged over layers and heads, in nats."""
    heads: tuple[tuple[float, ...], ...]
    """Mean entropy of every [layer][head]."""
    little: float
    """Share of source words with coverage below LITTLE."""
    much: float
    """Share of source words with coverage above MUCH."""
    histogram: tuple[tuple[str, int], ...]
    """Number of source words by coverage."""
    least: Words
    """Frequent source words with the least coverage."""
    most: Words
    """Frequent source words with the most coverage."""
    kind: MapKind = "cross"


def coverage(shown: AttentionMap) -> Float[Tensor, " source"]:
    """Sum the weights on each source word over the target words: 1 is the whole attention of one target word."""
    return shown.mean().sum(0)


def source_words(shown: AttentionMap) -> list[tuple[str, float]]:
    """Return the source words with their coverage, without the end of the sentence."""
    pairs = zip(shown.source, coverage(shown).tolist(), strict=True)
    return [(word, value) for word, value in pairs if word != END]


def attention_stats(maps: Iterable[AttentionMap], *, listed: int = 8) -> AttentionStats | None:
    """Measure the maps of one model; None if there are no maps."""
    entropy, by_head, covered, counts, kind = 0.0, torch.zeros(()), [], [], MAP_KINDS[0]
    for shown in maps:
        entropy += float(shown.select(layer="mean", head="mean").entropy().sum())
        by_head = by_head + shown.entropy().sum(-1)
        counts.append(len(shown.target))
        covered += source_words(shown)
        kind = shown.kind
    if not counts:
        return None
    rows = max(sum(counts), 1)
    values, words = [value for _, value in covered], max(len(covered), 1)
    least, most = _ranked(covered, listed)
    return AttentionStats(
        maps=len(counts),
        entropy=entropy / rows,
        heads=tuple(tuple(layer) for layer in (by_head / rows).tolist()),
        little=sum(value < LITTLE for value in values) / words,
        much=sum(value > MUCH for value in values) / words,
        histogram=_histogram(values),
        least=least,
        most=most,
        kind=kind,
    )


def _histogram(values: Sequence[float], step: float = 0.25, last: float = 2.5) -> tuple[tuple[str, int], ...]:
    bins = round(last / step)
    counts = [0] * (bins + 1)
    for value in values:
        counts[min(int(value / step), bins)] += 1
    names = [f"{number * step:g}" for number in range(bins)] + [f"{last:g}+"]
    return tuple(zip(names, counts, strict=True))


def _ranked(covered: Sequence[tuple[str, float]], listed: int) -> tuple[Words, Words]:
    """Return the words with the least and the most coverage among the frequent ones."""
    by_word: dict[str, list[float]] = defaultdict(list)
    for word, value in covered:
        by_word[word].append(value)
    often = max(1, min(5, len(covered) // 100))
    known = [
        WordCoverage(word, len(values), sum(values) / len(values))
        for word, values in by_word.items()
        if len(values) >= often
    ]
    ranked = sorted(known, key=lambda word: (word.coverage, word.word))
    half = min(listed, len(ranked) // 2)
    return tuple(ranked[:half]), tuple(reversed(ranked[len(ranked) - half :]))
