"""Everything an evaluation report says, as plain values: scores, curves, habits, attention, sentences to look at."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.attention_stats import Looks, looks
from jumok.analysis.scores.length_bands import Band, bands_of
from jumok.analysis.scores.metrics import (
    Counts,
    Paired,
    Score,
    Watch,
    count_outputs,
    paired_bootstrap,
    score_counts,
    sentence_scores,
    unwatched,
)
from jumok.errors import ArgumentError

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


SHOWN = 5
"""Sentences of each kind on the page."""
MAPPED = 1000
"""The most sentences whose attention is measured."""


@dataclass(frozen=True, eq=False)
class System:
    """What is judged: outputs, and where it is a model with attention, its map of any sentence."""

    name: str
    outputs: Sequence[str]
    attention: Callable[[int], AttentionMap | None] | None = None
    """The map of sentence n, None for an empty one or one translated in parts; None for a system without attention."""
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """What every sentence adds to a score, by the names of the scores, where that was counted before."""


@dataclass(frozen=True, eq=False)
class Task:
    """What the systems were given, and how they are scored."""

    sources: Sequence[str]
    references: Sequence[str]
    metrics: Sequence[str] = ("bleu", "chrf", "ter")
    tokenize: str = "13a"
    lowercase: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    """What else the page should say: names of files, settings."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One system with its numbers."""

    system: System
    scores: list[Score]
    bands: list[list[Band]]
    """By source length, for the first two scores."""
    sentences: list[float]
    """chrF of each sentence."""
    habits: Habits
    looks: Looks | None


@dataclass(frozen=True)
class Difference:
    """A sentence that two systems translate differently well."""

    at: int
    first: float
    other: float


@dataclass(frozen=True, eq=False)
class Report:
    """All that the page shows; the first system is the one it is about."""

    task: Task
    systems: list[Measured]
    paired: list[Paired]
    worst: list[int]
    """Numbers of the sentences the first system did worst on, the worst first."""
    best: list[int]
    differences: dict[str, tuple[list[Difference], list[Difference]]]
    """For every other system by its name: where it does better than the first, and where worse; the most so first."""


def make_report(task: Task, systems: Sequence[System], *, watch: Watch = unwatched) -> Report:
    """Measure every system; the first is compared with each of the others."""
    check_systems(task, systems)
    counts = [_counted(task, system, watch) for system in systems]
    measured = [_measure(task, system, count, watch) for system, count in zip(systems, counts, strict=True)]
    named = [
        (system.name, {name: count[name] for name in task.metrics})
        for system, count in zip(systems, counts, strict=True)
    ]
    paired = paired_bootstrap(named, watch=watch)
    ranked = sorted(range(len(task.sources)), key=lambda at: measured[0].sentences[at])
    few = min(SHOWN, (len(ranked) + 1) // 2)
    return Report(
        task,
        measured,
        paired,
        worst=ranked[:few],
        best=[at for at in reversed(ranked[-few:]) if at not in ranked[:few]],
        differences={
            one.system.name: differences(measured[0].sentences, one.sentences, few=SHOWN) for one in measured[1:]
        },
    )


def differences(
    first: Sequence[float], other: Sequence[float], *, few: int
) -> tuple[list[Difference], list[Difference]]:
    """The sentences where `other` scores most above `first`, and those where it scores most below."""
    found = [Difference(at, one, two) for at, (one, two) in enumerate(zip(first, other, strict=True)) if one != two]
    better = sorted((one for one in found if one.other > one.first), key=lambda one: one.first - one.other)
    worse = sorted((one for one in found if one.other < one.first), key=lambda one: one.other - one.first)
    return better[:few], worse[:few]


def _counted(task: Task, system: System, watch: Watch) -> dict[str, Counts]:
    """By the names of the task's scores, and chrF, which tells good sentences from bad ones."""
    missing = [name for name in dict.fromkeys([*task.metrics, "chrf"]) if name not in system.counts]
    texts = system.outputs, task.references
    found = count_outputs(*texts, missing, tokenize=task.tokenize, lowercase=task.lowercase, watch=watch)
    return {**system.counts, **found}


def _measure(task: Task, system: System, counts: dict[str, Counts], watch: Watch) -> Measured:
    return Measured(
        system,
        [score_counts(counts[name], watch=watch) for name in task.metrics],
        [bands_of(counts[name], task.sources, watch=watch) for name in task.metrics[:2]],
        sentence_scores(counts["chrf"]),
        habits(task.sources, system.outputs, task.references),
        _looks(system, len(task.sources), watch),
    )


def _looks(system: System, sentences: int, watch: Watch) -> Looks | None:
    if system.attention is None:
        return None
    chosen = range(0, sentences, -(-sentences // MAPPED))  # evenly spread, where there are too many
    maps = map(system.attention, watch(chosen, f"looking at the attention of {system.name}", len(chosen)))
    return looks(shown for shown in maps if shown is not None)


def check_names(names: Sequence[str]) -> None:
    """Refuse two systems of one name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ArgumentError(f"two systems are called {twice!r}; give one another name: --compare NAME=PATH")


def check_systems(task: Task, systems: Sequence[System]) -> None:
    """Refuse what no report can be made of."""
    if not task.sources:
        raise ArgumentError("there is nothing to report on: no sentences")
    check_names([system.name for system in systems])
    for system in systems:
        if len(system.outputs) != len(task.sources):
            raise ArgumentError(
                f"{system.name} has {len(system.outputs)} outputs, but there are {len(task.sources)} source sentences"
            )
