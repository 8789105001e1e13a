"""Two systems on the same sentences: is one better, or was it luck? Paired bootstrap (Koehn 2004), as in sacrebleu."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unicodedata import normalize

import numpy as np
import sacrebleu
from jaxtyping import Float, Int

from jumok.errors import ArgumentError

SCORES = ("bleu", "chrf", "ter", "exact_match", "wer")
OF_SACREBLEU = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
LOWER_IS_BETTER = frozenset({"ter", "wer", "loss"})
MOST_WORDS = {"ter": 300, "wer": 5000}
"""Words of a line beyond which a score that compares all words with all others would take minutes."""
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


Right = str | Sequence[str]
"""What an output should be: one text, or several of which any will do."""


Watch = Callable[[Iterable[Any], str, int], Iterable[Any]]
"""Passes items on and shows how far it is: given the items, what is being done, and how many there are."""


def unwatched(items: Iterable[Any], _verb: str, _total: int) -> Iterable[Any]:
    """The items; nobody is shown how far it is."""
    return items


@dataclass(frozen=True, eq=False)
class Counts:
    """What every sentence adds to a score: the score of all, or of any choice of them, needs no text any more."""

    name: str
    rows: list[list[float]]
    """For each sentence matches and lengths as sacrebleu counts them, or hits and tries, or errors and words."""
    metric: Any
    """sacrebleu's own object; None for a plain share."""
    lowercase: bool

    def only(self, sentences: Sequence[int]) -> "Counts":
        """Those of some sentences, by number."""
        return replace(self, rows=[self.rows[at] for at in sentences])


def score_outputs(
    outputs: Sequence[str],
    references: Sequence[Right],
    names: Sequence[str] = ("bleu", "chrf"),
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    resamples: int = RESAMPLES,
    watch: Watch = unwatched,
) -> list[Score]:
    """The scores called `names`, of one output for every reference, or for every group of references.

    Texts are compared in Unicode's composed form: "한" is the same as a syllable and in three letters.
    """
    counts = count_outputs(outputs, references, names, tokenize=tokenize, lowercase=lowercase, watch=watch)
    return [score_counts(counts[name], resamples, watch=watch) for name in names]


def count_outputs(
    outputs: Sequence[str],
    references: Sequence[Right],
    names: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    watch: Watch = unwatched,
) -> dict[str, Counts]:
    """What `score_outputs` counts in the texts, which takes most of its time, by the names of the scores."""
    if len(outputs) != len(references):
        raise ArgumentError(f"there are {len(outputs)} outputs but {len(references)} references; each needs its own")
    if not outputs:
        raise ArgumentError("there is nothing to score: no outputs")
    check_scores(names, tokenize)
    outputs = [normalize("NFC", output) for output in outputs]
    rights = [[normalize("NFC", one) for one in ([right] if isinstance(right, str) else right)] for right in references]
    if not all(rights):
        raise ArgumentError(f"output {[bool(right) for right in rights].index(False) + 1} has no reference")
    for name in names:
        if why := too_long(name, outputs, rights):
            raise ArgumentError(f"{why}; leave {name} out, or divide the text into more lines")
    return {name: _counts(name, outputs, rights, tokenize, lowercase, watch) for name in names}


def check_scores(names: Sequence[str], tokenize: str = "13a") -> None:
    """Raise an ArgumentError for what is not a score, or not one of sacrebleu's tokenizers."""
    for name in names:
        if name not in SCORES:
            raise ArgumentError(f"{name!r} is not a score; there are {', '.join(SCORES)}")
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        known = ", ".join(sacrebleu.BLEU.TOKENIZERS)
        raise ArgumentError(f"{tokenize!r} is not a tokenizer of sacrebleu; there are {known}")


def too_long(name: str, outputs: Sequence[str], references: Sequence[str | Sequence[str]]) -> str:
    """Why a score would take too long, "" if it does not."""
    most = MOST_WORDS.get(name)
    for number, (output, right) in enumerate(zip(outputs, references, strict=True) if most else (), start=1):
        texts = [output, right] if isinstance(right, str) else [output, *right]
        words = max(len(text.split()) for text in texts)
        if most and words > most:
            return f"line {number} has {words:,} words, and {name} takes minutes for more than {most:,}"
    return ""


def _counts(
    name: str, outputs: list[str], references: list[list[str]], tokenize: str, lowercase: bool, watch: Watch
) -> Counts:
    metric = make_metric(name, tokenize, lowercase) if name in OF_SACREBLEU else None
    texts = watch(zip(outputs, references, strict=True), f"scoring {name}", len(outputs))
    if metric is not None:
        rows = [metric._extract_corpus_statistics([output], [[text] for text in right])[0] for output, right in texts]
        several = {len(right) for right in references}
        metric.num_refs = several.pop() if len(several) == 1 else -1  # as sacrebleu notes it, for its signature
        return Counts(name, rows, metric, lowercase)
    count = _hits if name == "exact_match" else _fewest_errors
    return Counts(name, [count(output, right, lowercase) for output, right in texts], None, lowercase)


def _hits(output: str, right: list[str], lowercase: bool) -> list[float]:
    output, *wanted = (text.strip().lower() if lowercase else text.strip() for text in (output, *right))
    return [output in wanted, 1]


def _fewest_errors(output: str, right: list[str], lowercase: bool) -> list[float]:
    output, *wanted = (text.lower() if lowercase else text for text in (output, *right))
    errors, words = min((_word_errors(output, text) for text in wanted), key=lambda found: found[0] / max(found[1], 1))
    return [errors, words]


def score_counts(counts: Counts, resamples: int = RESAMPLES, *, watch: Watch = unwatched) -> Score:
    """The score, and its interval from as many test sets drawn from this one."""
    if counts.metric is not None:
        return _sacrebleu(counts, resamples, watch)
    case = f"case:{'lc' if counts.lowercase else 'mixed'}|bs:{resamples}|seed:{SEED}"
    rows = np.array(counts.rows, float)
    if counts.name == "exact_match":
        return _ratio("exact match", rows, f"strip:yes|{case}", resamples)
    return _ratio("WER", rows, f"words:spaces|{case}", resamples)


def make_metric(name: str, tokenize: str = "13a", lowercase: bool = False) -> Any:
    """sacrebleu's own object for bleu, chrf or ter."""
    if name == "bleu":
        return _bleu(tokenize, lowercase)
    return sacrebleu.CHRF(lowercase=lowercase) if name == "chrf" else sacrebleu.TER()


def _bleu(tokenize: str, lowercase: bool) -> Any:
    try:
        # `force` only keeps it from remarking that captions, for one, come with spaces before their full stops.
        return sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (RuntimeError, ImportError, OSError) as error:  # some tokenizers need a package, some a download
        reason = " ".join(str(error).split())
        raise ArgumentError(f"sacrebleu's tokenizer {tokenize!r} cannot be used here: {reason}") from None


def _sacrebleu(counts: Counts, resamples: int, watch: Watch) -> Score:
    """What `metric.corpus_score(..., n_bootstrap=resamples)` gives, also where resampled scores are of mixed types.

    There sacrebleu 2.6 stops with a TypeError: chrF is a float32, but the float 0.0 where nothing matches.
    """
    name, metric = OF_SACREBLEU[counts.name], counts.metric
    found = metric._aggregate_and_compute(counts.rows)
    most = 100.0 if name in ("BLEU", "chrF") else math.inf  # there can be more errors than words
    value = middle = min(float(found.score), most)  # sacrebleu rounds up to a little more
    spread = 0.0
    metric.n_bootstrap = metric.seed = None
    if len(counts.rows) > 1 and resamples > 1:  # a single sentence cannot be resampled
        metric.n_bootstrap, metric.seed = resamples, _seed()
        drawn = resampled(counts, draw(len(counts.rows), resamples), watch)
        for one in drawn:
            one.score = float(one.score)
        found.estimate_ci(drawn)
        middle, spread = found._mean, found._ci
    # The interval is symmetric, and would reach beyond what a score can be.
    low, high = (min(max(end, 0.0), most) for end in (middle - spread, middle + spread))
    return Score(name, value, low, high, metric.get_signature().format())


def _seed() -> str:
    return os.environ.get("SACREBLEU_SEED", str(SEED)).lower()


def draw(sentences: int, resamples: int) -> Int[np.ndarray, "resample sentence"]:
    """The numbers of the sentences in every test set drawn, as sacrebleu draws them."""
    generator = np.random.default_rng(None if _seed() == "none" else int(_seed()))
    return generator.choice(sentences, size=(resamples, sentences), replace=True)


def resampled(counts: Counts, draws: Int[np.ndarray, "resample sentence"], watch: Watch = unwatched) -> list[Any]:
    """sacrebleu's own object for the score of every test set drawn; their sums are of its precision, too."""
    rows = np.array(counts.rows, dtype="float32")
    watched = watch(draws, f"drawing test sets for {counts.name}", len(draws))
    return [counts.metric._compute_score_from_stats(rows[chosen].sum(0)) for chosen in watched]


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
