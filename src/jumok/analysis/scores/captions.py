"""Scores of captions with several references: CIDEr-D (Vedantam et al. 2015) and METEOR of exact matches.

Texts are compared as lower-case words without punctuation.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

LONGEST = 4
"""n-grams of CIDEr-D have 1 to 4 words."""
SIGMA = 6.0
"""Of CIDEr-D's penalty on lengths that differ from the reference."""
ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5
"""METEOR's weight of recall, and its penalty γ (chunks / matches)^β (Banerjee and Lavie 2005)."""

Words = tuple[str, ...]
NgramVector = list[dict[Words, float]]
"""For each length of n-grams, their term frequency times inverse document frequency."""


def caption_words(text: str) -> Words:
    """The words of a caption, in lower case and without punctuation."""
    return tuple(re.findall(r"\w+(?:['’]\w+)*", text.lower()))


def cider_d(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """CIDEr-D of every caption; the mean over a test set is its score, about 0 to 10.

    10 · mean over n and references of Σ min(gₙ(c), gₙ(r)) gₙ(r) / (‖gₙ(c)‖ ‖gₙ(r)‖) · exp(−(|c| − |r|)² / 2σ²), with
    g the n-gram counts of candidate c and reference r times the logarithm of the inverse share of images whose
    references have the n-gram.
    """
    wanted = [[caption_words(text) for text in texts] for texts in references]
    images = Counter(ngram for texts in wanted for ngram in {gram for words in texts for gram in _ngrams(words)})

    def vector(words: Words) -> NgramVector:
        weighted: NgramVector = [{} for _ in range(LONGEST)]
        for ngram, count in Counter(_ngrams(words)).items():
            weighted[len(ngram) - 1][ngram] = count * (math.log(len(wanted)) - math.log(max(1, images[ngram])))
        return weighted

    scores = []
    for output, texts in zip(outputs, wanted, strict=True):
        words = caption_words(output)
        mine = vector(words)
        similarities = [_similarity(mine, vector(text)) * _length_penalty(words, text) for text in texts]
        scores.append(10 * sum(similarities) / len(similarities))
    return scores


def _ngrams(words: Words) -> Iterator[Words]:
    for length in range(1, LONGEST + 1):
        for start in range(len(words) - length + 1):
            yield words[start : start + length]


def _similarity(mine: NgramVector, theirs: NgramVector) -> float:
    """The mean over n of the clipped cosine."""
    total = 0.0
    for ours, wanted in zip(mine, theirs, strict=True):
        norm = math.sqrt(sum(x * x for x in ours.values()) * sum(x * x for x in wanted.values()))
        shared = sum(min(value, wanted[ngram]) * wanted[ngram] for ngram, value in ours.items() if ngram in wanted)
        total += shared / norm if norm else 0.0
    return total / LONGEST


def _length_penalty(words: Words, reference: Words) -> float:
    """The reference implementation takes the number of bigrams for the length; so do we."""
    difference = max(len(words) - 1, 0) - max(len(reference) - 1, 0)
    return math.exp(-(difference**2) / (2 * SIGMA**2))


def meteor(output: str, references: Sequence[str]) -> float:
    """METEOR with exact matches of words, for the best of the references, 0 to 1."""
    words = caption_words(output)
    return max(_meteor(words, caption_words(text)) for text in references)


def _meteor(words: Words, reference: Words) -> float:
    pairs = sorted(_matches(words, reference))
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(words), len(pairs) / len(reference)
    chunks = 1 + sum((ours + 1, theirs + 1) != after for (ours, theirs), after in pairwise(pairs))
    harmonic = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    return harmonic * (1 - GAMMA * float((chunks / len(pairs)) ** BETA))


def _matches(words: Words, reference: Words) -> list[tuple[int, int]]:
    """Pairs of places of equal words: as many as there are, in few chunks, the longest common phrase first."""
    ours, theirs = list[object](words), list[object](reference)
    pairs: list[tuple[int, int]] = []
    while True:
        our_start, their_start, length = SequenceMatcher(None, ours, theirs, autojunk=False).find_longest_match()
        if not length:
            return pairs
        for step in range(length):
            pairs.append((our_start + step, their_start + step))
            ours[our_start + step], theirs[their_start + step] = (
                (0, our_start + step),
                (1, their_start + step),
            )  # matches nothing any more
