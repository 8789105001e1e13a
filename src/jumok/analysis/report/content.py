"""The content of an evaluation report as plain values: scores, output and attention statistics, example sentences."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.attention_stats import AttentionStats, attention_stats
from jumok.analysis.scores.length_bands import Band, bands_of
from jumok.analysis.scores.metrics import (
    Counts,
    MetricScore,
    Paired,
    count_outputs,
    paired_bootstrap,
    score_counts,
    sentence_scores,
)
from jumok.progress import Watch, unwatched

PHRASE = 3
"""Words of a phrase that should not be repeated."""
SHORT, LONG = 0.75, 1.33
"""Outputs below or above this ratio of words to the reference are too short or too long."""


@dataclass(frozen=True)
class OutputStats:
    """Lengths and repetitions in the outputs; shares are of all outputs, from 0 to 1."""

    length_ratio: float
    """Words in all outputs divided by words in all references."""
    short: float
    long: float
    empty: float
    phrases: float
    """Outputs that repeat a phrase of three words more often than source and reference repeat any."""
    doubled: float
    """Outputs with a word twice in a row if the reference has no such repetition."""
    repeating: tuple[int, ...]
    """Numbers of the outputs that repeat a phrase or a word."""


def output_stats(sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> OutputStats:
    """Measure all outputs; words are separated by spaces."""
    count = max(len(outputs), 1)
    triples = list(zip(sources, outputs, references, strict=True))
    phrases = [number for number, texts in enumerate(triples) if repeats_phrase(*texts)]
    doubled = [number for number, (_, *texts) in enumerate(triples) if doubles_word(*texts)]
    ratios = [_ratio(output, reference) for _, output, reference in triples]
    words = sum(len(reference.split()) for reference in references)
    return OutputStats(
        length_ratio=sum(len(output.split()) for output in outputs) / max(words, 1),
        short=sum(ratio < SHORT for ratio in ratios) / count,
        long=sum(ratio > LONG for ratio in ratios) / count,
        empty=sum(not output.strip() for output in outputs) / count,
        phrases=len(phrases) / count,
        doubled=len(doubled) / count,
        repeating=tuple(sorted({*phrases, *doubled})),
    )


def repeats_phrase(source: str, output: str, reference: str, size: int = PHRASE) -> bool:
    """Whether a phrase of `size` words occurs more often in the output than any phrase in source or reference."""
    return _most_often(output, size) > max(1, _most_often(source, size), _most_often(reference, size))


def doubles_word(output: str, reference: str) -> bool:
    """Whether a word occurs twice in a row in the output, but none in the reference."""
    return _doubled(output) and not _doubled(reference)


def _most_often(text: str, size: int) -> int:
    words = text.split()
    phrases = Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))
    return max(phrases.values(), default=0)


def _doubled(text: str) -> bool:
    return any(first == second for first, second in pairwise(text.split()))


def _ratio(output: str, reference: str) -> float:
    return len(output.split()) / max(len(reference.split()), 1)


PERFECT = 100 - 1e-6
"""chrF of an output that equals its reference, but for rounding."""
SHOWN = 5
"""Example sentences of each kind."""
MAPPED = 1000
"""Maximum number of sentences whose attention is measured."""


@dataclass(frozen=True, eq=False)
class System:
    """A system to evaluate: its outputs and, for a model with attention, the map of any sentence."""

    name: str
    outputs: Sequence[str]
    attention: Callable[[int], AttentionMap | None] | None = None
    """Returns the map of sentence n, or None if it is empty or was translated in parts; None without attention."""
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """Statistics of every sentence by the names of the scores, if they have been counted before."""


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """A test set and how to score it."""

    sources: Sequence[str]
    references: Sequence[str]
    metrics: Sequence[str] = ("bleu", "chrf", "ter")
    tokenize: str = "13a"
    lowercase: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    """Further facts to show: file names, settings."""


@dataclass(frozen=True, eq=False)
class SystemResult:
    """One system with its numbers."""

    system: System
    scores: list[MetricScore]
    bands: list[list[Band]]
    """Scores by source length, for the first two scores."""
    sentences: list[float]
    """chrF of each sentence."""
    outputs: OutputStats
    attention: AttentionStats | None


@dataclass(frozen=True)
class Difference:
    """A sentence that two systems translate differently well, with the chrF of both."""

    sentence: int
    first: float
    other: float


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """All numbers of a report; the first system is compared with the others."""

    test: EvaluationSet
    systems: list[SystemResult]
    paired: list[Paired]
    worst: list[int]
    """Numbers of the sentences with the lowest chrF of the first system, worst first; none is perfect."""
    best: list[int]
    differences: dict[str, tuple[list[Difference], list[Difference]]]
    """By the name of every other system: sentences it translates better than the first, and worse."""


def make_report(test: EvaluationSet, systems: Sequence[System], *, watch: Watch = unwatched) -> EvaluationReport:
    """Measure every system and compare the first with each of the others."""
    counts = [_counted(test, system, watch) for system in systems]
    measured = [_measure(test, system, count, watch) for system, count in zip(systems, counts, strict=True)]
    named = [
        (system.name, {name: count[name] for name in test.metrics})
        for system, count in zip(systems, counts, strict=True)
    ]
    paired = paired_bootstrap(named, watch=watch)
    ranked = sorted(range(len(test.sources)), key=lambda number: measured[0].sentences[number])
    few = min(SHOWN, (len(ranked) + 1) // 2)
    return EvaluationReport(
        test,
        measured,
        paired,
        worst=[number for number in ranked[:few] if measured[0].sentences[number] < PERFECT],
        best=[number for number in reversed(ranked[-few:]) if number not in ranked[:few]],
        differences={
            other.system.name: differences(measured[0].sentences, other.sentences, few=SHOWN) for other in measured[1:]
        },
    )


def differences(
    first: Sequence[float], other: Sequence[float], *, few: int
) -> tuple[list[Difference], list[Difference]]:
    """Return the sentences where `other` scores most above `first`, and those where it scores most below."""
    pairs = enumerate(zip(first, other, strict=True))
    unequal = [Difference(number, *scores) for number, scores in pairs if scores[0] != scores[1]]
    unequal.sort(key=lambda difference: -abs(difference.other - difference.first))
    better = [difference for difference in unequal if difference.other > difference.first]
    worse = [difference for difference in unequal if difference.other < difference.first]
    return better[:few], worse[:few]


def _counted(test: EvaluationSet, system: System, watch: Watch) -> dict[str, Counts]:
    """Count the scores of the test, and chrF, which ranks the sentences."""
    missing = [name for name in dict.fromkeys([*test.metrics, "chrf"]) if name not in system.counts]
    texts = system.outputs, test.references
    counted = count_outputs(*texts, missing, tokenize=test.tokenize, lowercase=test.lowercase, watch=watch)
    return {**system.counts, **counted}


def _measure(test: EvaluationSet, system: System, counts: dict[str, Counts], watch: Watch) -> SystemResult:
    return SystemResult(
        system,
        [score_counts(counts[name], watch=watch) for name in test.metrics],
        [bands_of(counts[name], test.sources, watch=watch) for name in test.metrics[:2]],
        sentence_scores(counts["chrf"]),
        output_stats(test.sources, system.outputs, test.references),
        _attention_stats(system, len(test.sources), watch),
    )


def _attention_stats(system: System, sentences: int, watch: Watch) -> AttentionStats | None:
    if system.attention is None:
        return None
    chosen = range(0, sentences, -(-sentences // MAPPED))  # evenly spread if there are too many
    maps = map(system.attention, watch(chosen, f"measuring the attention of {system.name}", len(chosen)))
    return attention_stats(shown for shown in maps if shown is not None)
