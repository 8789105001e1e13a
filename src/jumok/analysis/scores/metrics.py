"""Scores with bootstrap intervals, and paired tests between systems (Koehn 2004).

BLEU, chrF and TER are sacrebleu's. Each text is counted once, and the scores of the whole, of length ranges, of
sentences and of resampled test sets come from these counts. sacrebleu's public functions count the texts anew each
time, which makes a report twice as slow; the functions below whose names begin with `_sacrebleu` call its inner ones.
"""

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unicodedata import normalize

import numpy as np
import sacrebleu
from jaxtyping import Float, Int
from rapidfuzz.distance import Levenshtein

from jumok.analysis.scores.captions import cider_d, meteor
from jumok.errors import ArgumentError
from jumok.progress import Watch, unwatched

SCORES = ("bleu", "chrf", "ter", "exact_match", "ser", "wer", "cider", "meteor")
SACREBLEU_NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
MOST_TER_WORDS = 300
"""TER tries all ways to move words, which takes minutes for longer lines."""
RESAMPLES = 1000
SEED = 12345  # the default of sacrebleu


@dataclass(frozen=True)
class MetricScore:
    """The score of a test set with its 95% bootstrap confidence interval."""

    name: str
    value: float
    low: float
    high: float
    signature: str
    """Settings that reproduce the score."""

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


References = str | Sequence[str]
"""The reference of an output, or several alternatives."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Statistics of every sentence, from which the score of any set of sentences follows without the texts."""

    name: str
    rows: list[list[float]]
    """For each sentence sacrebleu's statistics, or matches and 1, or errors and words, or its score and 1."""
    metric: Any
    """The metric object of sacrebleu; None for exact match, SER and WER."""
    lowercase: bool

    def only(self, sentences: Sequence[int]) -> "Counts":
        """Select sentences by number."""
        return replace(self, rows=[self.rows[number] for number in sentences])


def score_outputs(
    outputs: Sequence[str],
    references: Sequence[References],
    names: Sequence[str] = ("bleu", "chrf"),
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    resamples: int = RESAMPLES,
    watch: Watch = unwatched,
) -> list[MetricScore]:
    """Compute the scores called `names`; each output has one reference or several.

    Texts are compared in Unicode's composed form: "한" as one syllable equals "한" as three letters.
    """
    counts = count_outputs(outputs, references, names, tokenize=tokenize, lowercase=lowercase, watch=watch)
    return [score_counts(counts[name], resamples, watch=watch) for name in names]


def count_outputs(
    outputs: Sequence[str],
    references: Sequence[References],
    names: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    watch: Watch = unwatched,
) -> dict[str, Counts]:
    """Count the statistics of every sentence, by the names of the scores."""
    if len(outputs) != len(references):
        raise ArgumentError(f"there are {len(outputs)} outputs but {len(references)} references; each needs its own")
    if not outputs:
        raise ArgumentError("there is nothing to score: no outputs")
    outputs = [normalize("NFC", output) for output in outputs]
    wanted = [
        [normalize("NFC", text) for text in ([reference] if isinstance(reference, str) else reference)]
        for reference in references
    ]
    if not all(wanted):
        raise ArgumentError(f"output {wanted.index([]) + 1} has no reference")
    if "ter" in names and (problem := too_long_for_ter(outputs, wanted)):
        raise ArgumentError(f"{problem}; leave ter out, or split the text into more lines")
    return {name: _counts(name, outputs, wanted, tokenize, lowercase, watch) for name in names}


def check_scores(names: Sequence[str], tokenize: str = "13a") -> None:
    """Raise an ArgumentError for an unknown score, or for a tokenizer that is unknown or cannot run here."""
    for name in names:
        if name not in SCORES:
            raise ArgumentError(f"{name!r} is not a score; choose from {', '.join(SCORES)}")
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        known = ", ".join(sacrebleu.BLEU.TOKENIZERS)
        raise ArgumentError(f"{tokenize!r} is not a tokenizer of sacrebleu; choose from {known}")
    if "bleu" in names and tokenize != "13a":  # some need a package, which should be missed before the work
        make_metric("bleu", tokenize)


def too_long_for_ter(outputs: Sequence[str], references: Sequence[References]) -> str:
    """Return which line is too long for TER, or "" if none is."""
    for number, (output, wanted) in enumerate(zip(outputs, references, strict=True), start=1):
        words = max(len(text.split()) for text in (output, *([wanted] if isinstance(wanted, str) else wanted)))
        if words > MOST_TER_WORDS:
            return f"line {number} has {words:,} words, and ter takes minutes for more than {MOST_TER_WORDS}"
    return ""


def _counts(
    name: str, outputs: list[str], references: list[list[str]], tokenize: str, lowercase: bool, watch: Watch
) -> Counts:
    texts = watch(zip(outputs, references, strict=True), f"scoring {name}", len(outputs))
    if name in SACREBLEU_NAMES:
        metric = make_metric(name, tokenize, lowercase)
        rows = [_sacrebleu_statistics(metric, output, wanted) for output, wanted in texts]
        several = {len(wanted) for wanted in references}
        metric.num_refs = several.pop() if len(several) == 1 else -1  # as sacrebleu does for its signature
        return Counts(name, rows, metric, lowercase)
    if name == "cider":
        return Counts(name, [[score, 1] for score in cider_d(outputs, references)], None, True)
    if name == "meteor":
        return Counts(name, [[meteor(output, wanted), 1] for output, wanted in texts], None, True)
    count = {"exact_match": _matches, "ser": _mismatches, "wer": _fewest_errors}[name]
    return Counts(name, [count(output, wanted, lowercase) for output, wanted in texts], None, lowercase)


def _matches(output: str, references: list[str], lowercase: bool) -> list[float]:
    output, *wanted = (text.strip().lower() if lowercase else text.strip() for text in (output, *references))
    return [output in wanted, 1]


def _mismatches(output: str, references: list[str], lowercase: bool) -> list[float]:
    return [1 - _matches(output, references, lowercase)[0], 1]


def _fewest_errors(output: str, references: list[str], lowercase: bool) -> list[float]:
    """Return word errors and words of the reference with the lowest error rate."""
    words, *wanted = ((text.lower() if lowercase else text).split() for text in (output, *references))
    errors: list[list[float]] = [[Levenshtein.distance(words, other), len(other)] for other in wanted]
    return min(errors, key=lambda pair: pair[0] / max(pair[1], 1))


def make_metric(name: str, tokenize: str = "13a", lowercase: bool = False) -> Any:
    """Build sacrebleu's object for bleu, chrf or ter."""
    if name != "bleu":
        return sacrebleu.CHRF(lowercase=lowercase) if name == "chrf" else sacrebleu.TER()
    try:
        # `force` suppresses a warning about texts that look tokenised, such as captions with spaces before full stops.
        return sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (RuntimeError, ImportError, OSError) as error:  # some tokenizers need a package or a download
        reason = " ".join(str(error).split())
        raise ArgumentError(f"sacrebleu's tokenizer {tokenize!r} cannot be used here: {reason}") from None


def _sacrebleu_statistics(metric: Any, output: str, references: Sequence[str]) -> list[float]:
    rows: list[list[float]] = metric._extract_corpus_statistics([output], [[text] for text in references])
    return rows[0]


def _sacrebleu_score(metric: Any, rows: Sequence[Sequence[float]]) -> float:
    return float(metric._aggregate_and_compute(rows).score)


def _sacrebleu_resampled(
    counts: Counts, draws: Int[np.ndarray, "resample sentence"], watch: Watch
) -> Float[np.ndarray, " resample"]:
    """Return the score of every resampled test set; the sums have sacrebleu's precision."""
    rows = np.array(counts.rows, dtype="float32")
    watched = watch(draws, f"resampling {counts.name}", len(draws))
    scores = (counts.metric._compute_score_from_stats(rows[chosen].sum(0)).score for chosen in watched)
    return np.fromiter(scores, float, len(draws))


def score_counts(counts: Counts, resamples: int = RESAMPLES, *, watch: Watch = unwatched) -> MetricScore:
    """Compute a score and its interval from resampled test sets."""
    if counts.metric is not None:
        return _score_and_interval(counts, resamples, watch)
    case = f"case:{'lc' if counts.lowercase else 'mixed'}|bs:{resamples}|seed:{SEED}"
    rows = np.array(counts.rows, float)
    if counts.name == "exact_match":
        return _ratio("exact match", rows, f"strip:yes|{case}", resamples)
    if counts.name == "ser":
        return _ratio("SER", rows, f"strip:yes|{case}", resamples)
    if counts.name == "cider":
        return _ratio("CIDEr-D", rows, f"n:4|sigma:6|words:letters|{case}", resamples)
    if counts.name == "meteor":
        return _ratio("METEOR", rows, f"match:exact|alpha:0.9|beta:3|gamma:0.5|words:letters|{case}", resamples)
    return _ratio("WER", rows, f"words:spaces|{case}", resamples)


def _score_and_interval(counts: Counts, resamples: int, watch: Watch) -> MetricScore:
    """Compute what `metric.corpus_score(..., n_bootstrap=resamples)` of sacrebleu does."""
    name, metric = SACREBLEU_NAMES[counts.name], counts.metric
    most = 100.0 if name in ("BLEU", "chrF") else math.inf  # there can be more errors than words
    value = middle = min(_sacrebleu_score(metric, counts.rows), most)  # rounding can exceed 100
    spread = 0.0
    metric.n_bootstrap = metric.seed = None
    if len(counts.rows) > 1 and resamples > 1:  # a single sentence cannot be resampled
        metric.n_bootstrap, metric.seed = resamples, _seed()
        drawn = sorted(_sacrebleu_resampled(counts, resample(len(counts.rows), resamples), watch).tolist())
        tail = resamples // 40
        middle, spread = statistics.mean(drawn), 0.5 * (drawn[-1 - tail] - drawn[tail])
    # The interval is symmetric and could exceed the range of the score.
    low, high = (min(max(end, 0.0), most) for end in (middle - spread, middle + spread))
    return MetricScore(name, value, low, high, metric.get_signature().format())


def _seed() -> str:
    return os.environ.get("SACREBLEU_SEED", str(SEED)).lower()


def resample(sentences: int, resamples: int) -> Int[np.ndarray, "resample sentence"]:
    """Draw the sentence numbers of every resampled test set, as sacrebleu does."""
    generator = np.random.default_rng(None if _seed() == "none" else int(_seed()))
    return generator.choice(sentences, size=(resamples, sentences), replace=True)


def _ratio(name: str, counts: Float[np.ndarray, "sentence 2"], signature: str, resamples: int) -> MetricScore:
    """Compute 100 · Σ counts[:, 0] / Σ counts[:, 1] and its interval."""
    draws = np.random.default_rng(SEED).integers(len(counts), size=(resamples, len(counts)))
    totals = counts[draws].sum(1)
    low, high = np.percentile(_percent(totals[:, 0], totals[:, 1]), [2.5, 97.5])
    value = _percent(counts[:, 0].sum(), counts[:, 1].sum())
    return MetricScore(name, float(value), float(low), float(high), signature)


def _percent(part: Any, whole: Any) -> Any:
    return 100 * part / np.maximum(whole, 1)


def by_length(lengths: Sequence[int], values: Sequence[float], edges: Sequence[int]) -> list[tuple[str, int, float]]:
    """Return name, size and mean value of every range of lengths that is not empty."""
    bands = []
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        pairs = zip(lengths, values, strict=True)
        inside = [value for length, value in pairs if low < length and (high is None or length <= high)]
        if inside:
            name = f"{low + 1}-{high}" if high is not None else f"over {low}"
            bands.append((name, len(inside), sum(inside) / len(inside)))
    return bands


@dataclass(frozen=True)
class Paired:
    """A score of the first system and of another."""

    score: str
    other: str
    first_value: float
    other_value: float
    p: float
    """Probability of a difference at least this large if the two are equally good."""


def paired_bootstrap(
    systems: Sequence[tuple[str, Mapping[str, Counts]]], *, resamples: int = RESAMPLES, watch: Watch = unwatched
) -> list[Paired]:
    """Compare the first of the (name, counts) with each of the others, for BLEU, chrF and TER."""
    (_, ours), *others = systems
    tested = [name for name in ours if name in SACREBLEU_NAMES]
    if not others or not tested:
        return []
    draws = resample(len(ours[tested[0]].rows), resamples)
    results = []
    for name in tested:
        value, sampled = _scored(ours[name], draws, watch)
        for other, theirs in others:
            other_value, other_sampled = _scored(theirs[name], draws, watch)
            p = _p_value(np.abs(other_sampled - sampled), abs(value - other_value))
            results.append(Paired(SACREBLEU_NAMES[name], other, float(value), float(other_value), p))
    return results


def _scored(counts: Counts, draws: Int[np.ndarray, "resample sentence"], watch: Watch) -> tuple[float, np.ndarray]:
    """Return the score, and that of every resampled test set."""
    return _sacrebleu_score(counts.metric, counts.rows), _sacrebleu_resampled(counts, draws, watch)


def _p_value(differences: np.ndarray, observed: float) -> float:
    """Return the share of test sets whose difference exceeds the mean difference by more than the observed one.

    This is sacrebleu's p-value, except for two equal scores: sacrebleu returns the smallest p, and this returns 1.
    """
    if observed == 0:
        return 1.0
    larger = int(np.sum(differences - differences.mean() > observed))
    return (larger + 1) / (len(differences) + 1)


def sentence_scores(chrf: Counts) -> list[float]:
    """Return the chrF of every sentence."""
    return [_sacrebleu_score(chrf.metric, [row]) for row in chrf.rows]
