"""How good outputs are: BLEU, chrF and TER by sacrebleu, exact match and word error rate, each with an interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sacrebleu
from jaxtyping import Float

from jumok.errors import ArgumentError

RESAMPLES = 1000
SEED = 12345  # sacrebleu's own, so that every interval is drawn alike


@dataclass(frozen=True)
class Score:
    """One number for a whole test set, and the interval that 95% of resampled test sets fall into."""

    name: str
    value: float
    low: float
    high: float
    signature: str
    """Everything needed to compute the same number again."""

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def score_outputs(
    outputs: Sequence[str],
    references: Sequence[str],
    names: Sequence[str] = ("bleu", "chrf"),
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    resamples: int = RESAMPLES,
) -> list[Score]:
    """The scores called `names`, of one output for every reference."""
    if len(outputs) != len(references):
        raise ArgumentError(f"there are {len(outputs)} outputs but {len(references)} references; each needs its own")
    if not outputs:
        raise ArgumentError("there is nothing to score: no outputs")
    return [_score(name, list(outputs), list(references), tokenize, lowercase, resamples) for name in names]


def _score(
    name: str, outputs: list[str], references: list[str], tokenize: str, lowercase: bool, resamples: int
) -> Score:
    if name == "bleu":
        return _sacrebleu(
            "BLEU", sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase), outputs, references, resamples
        )
    if name == "chrf":
        return _sacrebleu("chrF", sacrebleu.CHRF(lowercase=lowercase), outputs, references, resamples)
    if name == "ter":
        return _sacrebleu("TER", sacrebleu.TER(), outputs, references, resamples)
    if name == "exact_match":
        hits = [[output.strip() == reference.strip(), 1] for output, reference in zip(outputs, references, strict=True)]
        return _ratio("exact match", np.array(hits, float), f"strip:yes|bs:{resamples}|seed:{SEED}", resamples)
    if name == "wer":
        counts = [_word_errors(output, reference) for output, reference in zip(outputs, references, strict=True)]
        return _ratio("WER", np.array(counts, float), f"words:spaces|bs:{resamples}|seed:{SEED}", resamples)
    raise ArgumentError(f"{name!r} is not a score; there are {', '.join(SCORES)}")


SCORES = ("bleu", "chrf", "ter", "exact_match", "wer")
BETTER_IS_LOWER = frozenset({"ter", "wer", "loss"})


def _sacrebleu(name: str, metric: Any, outputs: list[str], references: list[str], resamples: int) -> Score:
    # A single sentence cannot be resampled.
    found = metric.corpus_score(outputs, [references], n_bootstrap=resamples if len(outputs) > 1 else 1)
    middle, spread = (float(found._mean), float(found._ci)) if len(outputs) > 1 else (found.score, 0.0)
    return Score(name, found.score, middle - spread, middle + spread, metric.get_signature().format())


def _ratio(name: str, counts: Float[np.ndarray, "sentence 2"], signature: str, resamples: int) -> Score:
    """100 · Σ counts[:, 0] / Σ counts[:, 1], resampled over sentences."""
    draws = np.random.default_rng(SEED).integers(len(counts), size=(resamples, len(counts)))
    totals = counts[draws].sum(1)
    low, high = np.percentile(_percent(totals[:, 0], totals[:, 1]), [2.5, 97.5])
    value = _percent(counts[:, 0].sum(), counts[:, 1].sum())
    return Score(name, float(value), float(low), float(high), signature)


def _percent(part: Any, whole: Any) -> Any:
    return 100 * part / np.maximum(whole, 1)


def _word_errors(output: str, reference: str) -> tuple[int, int]:
    wanted = reference.split()
    return edit_distance(output.split(), wanted), len(wanted)


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions between two sequences (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for i, item in enumerate(one, start=1):
        above, row[0] = row[0], i
        for j, wanted in enumerate(other, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (item != wanted))
    return row[-1]


def by_length(lengths: Sequence[int], values: Sequence[float], edges: Sequence[int]) -> list[tuple[str, int, float]]:
    """The mean of `values` in each band of lengths: its name, how many are in it, the mean; no empty bands."""
    bands = []
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        here = [low < length and (high is None or length <= high) for length in lengths]
        inside = [value for value, is_here in zip(values, here, strict=True) if is_here]
        if inside:
            name = f"{low + 1}-{high}" if high is not None else f"over {low}"
            bands.append((name, len(inside), sum(inside) / len(inside)))
    return bands
