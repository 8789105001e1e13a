"""Two systems on the same sentences: is one better, or was it luck? Paired bootstrap (Koehn 2004), by sacrebleu."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sacrebleu
from sacrebleu.significance import PairedTest

from jumok.analysis.scores import OF_SACREBLEU, make_metric


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
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[str],
    names: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    resamples: int = 1000,
) -> list[Paired]:
    """Compare the first of the (name, outputs) with each of the others; scores without a paired test are left out."""
    metrics = {name: make_metric(name, tokenize, lowercase) for name in names if name in OF_SACREBLEU}
    if len(systems) < 2 or not metrics:
        return []
    named: list[tuple[str, Sequence[str]]] = [(name, list(outputs)) for name, outputs in systems]
    test: Any = PairedTest(named, metrics, [list(references)], "bs", resamples)
    _, results = test()
    found = []
    for name, (ours, *others) in zip(metrics, list(results.values())[1:], strict=True):  # the systems' names are first
        for (other, _), theirs in zip(systems[1:], others, strict=True):
            values = float(ours.score), float(theirs.score), float(theirs.p_value)
            found.append(Paired(OF_SACREBLEU[name], other, *values))
    return found


def sentence_scores(outputs: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> list[float]:
    """chrF of every sentence alone: what good and bad ones are told apart by."""
    metric = sacrebleu.CHRF(lowercase=lowercase)
    return [
        float(metric.sentence_score(output, [reference]).score)
        for output, reference in zip(outputs, references, strict=True)
    ]
