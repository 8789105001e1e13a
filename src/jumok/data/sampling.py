"""Subword regularisation: the same sentence cut differently each time, as a pure function of the random draws.

sentencepiece samples from a hidden generator that cannot be reset, so the two schemes are written out here. Pieces
never cross a space, so a sentence is cut word by word.

- unigram (Kudo 2018): P(cut) ∝ Π p(piece)^(1/temperature), drawn exactly by a forward sum and a walk backwards.
- BPE-dropout (Provilkov et al. 2020): each merge is left out with probability p, at every step anew.
"""

import math
import re
from bisect import bisect
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random

SPACE = "▁"
WORDS = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
UNKNOWN_SCORE = -100.0  # of a letter that has no piece

Arcs = tuple[list[int], list[float]]  # where the pieces ending here begin, and their cumulative weights


class UnigramSampler:
    """Draws cuts of words under a unigram model with these piece scores (log probabilities)."""

    def __init__(self, scores: Mapping[str, float], *, temperature: float) -> None:
        self.scores, self.temperature = scores, temperature
        self._longest = max(map(len, scores), default=1)
        self._lattice = lru_cache(maxsize=50_000)(self._forward)

    def sample(self, text: str, draws: Random) -> list[str]:
        """The pieces of one random cut of `text`, whose spaces are written ▁."""
        return [piece for word in WORDS.findall(text) for piece in self._backward(word, draws)]

    def _forward(self, word: str) -> list[Arcs]:
        """sum[j] = Σᵢ sum[i] · p(word[i:j])^(1/temperature), in logarithms; the terms are the weights of the arcs."""
        total, arcs = [0.0], []
        for end in range(1, len(word) + 1):
            starts, terms = [], []
            for start in range(max(0, end - self._longest), end):
                score = self.scores.get(word[start:end], UNKNOWN_SCORE if end - start == 1 else None)
                if score is not None:
                    starts.append(start)
                    terms.append(total[start] + score / self.temperature)
            top = max(terms)
            weights = list(accumulate(math.exp(term - top) for term in terms))
            total.append(top + math.log(weights[-1]))
            arcs.append((starts, weights))
        return arcs

    def _backward(self, word: str, draws: Random) -> list[str]:
        arcs, pieces, end = self._lattice(word), [], len(word)
        while end:
            starts, weights = arcs[end - 1]
            start = starts[min(bisect(weights, draws.random() * weights[-1]), len(starts) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]


class BpeSampler:
    """Merges pieces in the order of a BPE model, leaving out each merge with probability `dropout`."""

    def __init__(self, scores: Mapping[str, float], *, dropout: float) -> None:
        self.scores, self.dropout = scores, dropout

    def sample(self, text: str, draws: Random) -> list[str]:
        """The pieces of one random cut of `text`, whose spaces are written ▁."""
        return [piece for word in WORDS.findall(text) for piece in self._merge(list(word), draws)]

    def _merge(self, pieces: list[str], draws: Random) -> list[str]:
        while True:
            merges = [
                (-self.scores[left + right], at)
                for at, (left, right) in enumerate(pairwise(pieces))
                if left + right in self.scores and draws.random() >= self.dropout
            ]
            if not merges:
                return pieces
            _, at = min(merges)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
