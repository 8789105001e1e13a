"""Two systems on the same sentences: is one better, or was it luck? Paired bootstrap (Koehn 2004), as in sacrebleu."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from jumok.analysis.scores import OF_SACREBLEU, RESAMPLES, Counts, Watch, draw, resampled, unwatched


@dataclass(frozen=True)
class Paired:
    """One score of the first system and of another."""

    score: str
    other: str
    first_value: float
    other_value: float
    p: float
    """How likely a difference at least as large is if the two are equally good."""


def paired_bootstrap(
    systems: Sequence[tuple[str, Mapping[str, Counts]]], *, resamples: int = RESAMPLES, watch: Watch = unwatched
) -> list[Paired]:
    """Compare the first of the (name, counts) with each of the others; scores without a paired test are left out."""
    (_, ours), *others = systems
    tested = [name for name in ours if name in OF_SACREBLEU]
    if not others or not tested:
        return []
    draws = draw(len(ours[tested[0]].rows), resamples)
    found = []
    for name in tested:
        value, sampled = _scored(ours[name], draws, watch)
        for other, theirs in others:
            other_value, other_sampled = _scored(theirs[name], draws, watch)
            p = _p_value(np.abs(other_sampled - sampled), abs(value - other_value))
            found.append(Paired(OF_SACREBLEU[name], other, float(value), float(other_value), p))
    return found


def _scored(counts: Counts, draws: Int[np.ndarray, "resample sentence"], watch: Watch) -> tuple[float, np.ndarray]:
    """The score, and that of every test set drawn."""
    whole = counts.metric._aggregate_and_compute(counts.rows).score
    return whole, np.array([one.score for one in resampled(counts, draws, watch)])


def _p_value(differences: np.ndarray, seen: float) -> float:
    """The share of test sets whose difference is farther above the mean difference than the one seen is above 0.

    As sacrebleu counts, but for two systems without any difference: it gives them the smallest p, here it is 1.
    """
    if seen == 0:
        return 1.0
    larger = int(np.sum(differences - differences.mean() > seen))
    return (larger + 1) / (len(differences) + 1)


def sentence_scores(chrf: Counts) -> list[float]:
    """chrF of every sentence alone: what good and bad ones are told apart by."""
    return [float(chrf.metric._aggregate_and_compute([row]).score) for row in chrf.rows]
