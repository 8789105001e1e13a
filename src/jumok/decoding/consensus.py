"""Choosing among several outputs the one on which they agree most.

Minimum Bayes risk (Kumar & Byrne 2004): the outputs stand for the model's distribution, and the expected chrF of each
is its mean chrF against all, each taken as a reference in turn (Eikema & Aziz 2020).

Models that write the same texts in different tokens vote: an output counts as much as it ranks high.

    v(y) = 1/n · Σᵢ 1 / rankᵢ(y)        rankᵢ: the place of y in the n-best list of model i; 1/∞ = 0 if it is not there

The mean reciprocal rank compares outputs alone, whatever their tokens and however sure of itself each model is.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from jumok.decoding.hypotheses import Hypothesis

ORDERS = 6
"""Lengths of the character n-grams that chrF counts."""
BETA = 2
"""How many times as much recall weighs in chrF as precision."""


def total(hypothesis: Hypothesis, length_penalty: float) -> float:
    """The log-probability of an output, from its score."""
    return hypothesis.score * float((len(hypothesis.ids) + 1) ** length_penalty)


def by_expected_chrf(texts: Sequence[str], logits: Sequence[float]) -> list[tuple[int, float]]:
    """The numbers of the texts and their expected chrF, highest first; texts are as likely as softmax(`logits`) says.

    Of equal texts the first comes first, and of equally good ones the likeliest.
    """
    shifted = np.exp(np.asarray(logits, np.float64) - max(logits))
    expected: list[float] = (chrf_matrix(texts) @ (shifted / shifted.sum())).tolist()
    return sorted(enumerate(expected), key=lambda entry: (-round(entry[1], 9), -logits[entry[0]]))


def chrf_matrix(texts: Sequence[str]) -> Float[np.ndarray, "texts texts"]:
    """chrF (0 to 100) of every text against every other as its reference; that of sacrebleu."""
    precision, recall, orders = np.zeros((3, len(texts), len(texts)))
    bare = ["".join(text.split()) for text in texts]
    for size in range(1, ORDERS + 1):
        counts = _ngram_counts(bare, size)
        sums = counts.sum(1)
        matches = np.stack([np.minimum(row, counts).sum(1) for row in counts])
        counted = (sums[:, None] > 0) & (sums[None] > 0)
        orders += counted
        precision += np.where(counted, matches / np.maximum(sums[:, None], 1), 0)
        recall += np.where(counted, matches / np.maximum(sums[None], 1), 0)
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    weighted = BETA**2 * precision + recall
    scores: np.ndarray = 100 * (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1)
    return scores


def _ngram_counts(texts: Sequence[str], size: int) -> Int[np.ndarray, "texts ngrams"]:
    """How often each n-gram of this size occurs in each text."""
    ngrams = [Counter(text[start : start + size] for start in range(len(text) - size + 1)) for text in texts]
    columns = {ngram: column for column, ngram in enumerate(dict.fromkeys(ngram for each in ngrams for ngram in each))}
    counts = np.zeros((len(texts), len(columns)), np.int64)
    for row, each in enumerate(ngrams):
        counts[row, [columns[ngram] for ngram in each]] = list(each.values())
    return counts


def by_mean_reciprocal_rank(ballots: Sequence[Sequence[str]]) -> list[tuple[str, float]]:
    """The outputs and their votes, most votes first; of equally good ones, that of the earlier model.

    >>> by_mean_reciprocal_rank([["a", "b"], ["b", "a"], ["b", "c"]])
    [('b', 0.8333333333333333), ('a', 0.5), ('c', 0.16666666666666666)]
    """
    votes: defaultdict[str, float] = defaultdict(float)
    for ballot in ballots:
        for rank, text in enumerate(dict.fromkeys(ballot), start=1):
            votes[text] += 1 / rank / len(ballots)
    return sorted(votes.items(), key=lambda vote: -round(vote[1], 9))
