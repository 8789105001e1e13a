"""Several corpora mixed by weight: which rows of each an epoch has, as a function of (seed, epoch) alone.

An epoch has as many pairs as all corpora together, divided among them by their weights: of a corpus with n pairs and a
fair share of m, every pair comes m/n times an epoch. So a small corpus comes several times, and a large one in part.

This is decided for each combination of lengths: the k pairs of a corpus that have the same lengths are shuffled and
dealt out k·m/n to an epoch; when they are used up, they are shuffled anew. All pairs of a corpus are thus seen equally
often, the lengths of its texts stay as they are, and nothing needs to be in memory but the counts of lengths.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt

from jumok.data.batches import BatchConfig, BatchPlan, LengthCounts, Sentences, permute, splitmix64
from jumok.data.dataset import Dataset


class Mixture:
    """The rows of several datasets, numbered one dataset after another."""

    def __init__(self, datasets: Sequence[Dataset], weights: Sequence[float], *, seed: int = 0) -> None:
        self.datasets, self.weights, self.seed = list(datasets), list(weights), seed
        self.sides = self.datasets[0].sides
        self._firsts = np.cumsum([0, *(len(dataset) for dataset in self.datasets)])
        counts = [dataset.length_counts for dataset in self.datasets]
        self._cells = _Cells.of([each.counts for each in counts], repeats(list(map(len, self.datasets)), weights), seed)
        self.length_counts = LengthCounts(np.concatenate([each.lengths for each in counts]), self._cells.counts)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def contents(self) -> str:
        """Equal for mixtures of the same contents."""
        parts = (f"{weight} of {dataset.contents}" for weight, dataset in zip(self.weights, self.datasets, strict=True))
        return "; ".join(parts)

    def epoch_counts(self, epoch: int) -> LengthCounts:
        """The number of pairs of each combination of lengths in this epoch; first those of the first corpus."""
        return LengthCounts(self.length_counts.lengths, self._cells.dealt(epoch + 1) - self._cells.dealt(epoch))

    def rows_of(self, epoch: int, positions: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The row numbers at these positions of the pairs of an epoch, sorted by corpus and length."""
        begun, ends = self._cells.dealt(epoch), self.epoch_counts(epoch).counts.cumsum()
        cell = np.searchsorted(ends, positions, side="right")
        number = begun[cell] + positions - np.concatenate([[0], ends])[cell]  # in the endless sequence of this cell
        count = self._cells.counts[cell]
        keys = splitmix64(self._cells.keys[cell] + (number // count).astype(np.uint64))
        places = self._cells.starts[cell] + permute(number % count, count, keys)
        owner = np.searchsorted(self._firsts, places, side="right") - 1
        rows: np.ndarray = np.empty_like(places)
        for corpus in np.unique(owner).tolist():
            mine, first = owner == corpus, self._firsts[corpus]
            rows[mine] = self.datasets[corpus].sorted_rows(places[mine] - first) + first
        return rows

    def __getitem__(self, row: int) -> tuple[UInt[np.ndarray, "_"], ...]:
        """The sentences of one row."""
        number = int(np.searchsorted(self._firsts, row, side="right")) - 1
        return self.datasets[number][row - int(self._firsts[number])]

    def sentences(self, rows: Int[np.ndarray, " n"], side: int) -> Sentences:
        """One side of many rows at once."""
        owner = np.searchsorted(self._firsts, rows, side="right") - 1
        lengths, by_corpus = np.zeros(len(rows), np.int64), {}
        for corpus in np.unique(owner).tolist():
            by_corpus[corpus] = self.datasets[corpus].sentences((rows - self._firsts[corpus])[owner == corpus], side)
            lengths[owner == corpus] = by_corpus[corpus].lengths
        of_token = np.repeat(owner, lengths)
        ids = np.empty(len(of_token), np.int64)
        for corpus, sentences in by_corpus.items():
            ids[of_token == corpus] = sentences.ids
        return Sentences(ids, lengths)


class MixedPlan(BatchPlan):
    """The batches of each epoch of a mixture."""

    def __init__(self, mixture: Mixture, config: BatchConfig, *, seed: int = 0) -> None:
        super().__init__(mixture.length_counts.shorter(1), config, seed=seed)
        self.mixture = mixture

    def lengths_of(self, epoch: int) -> LengthCounts:
        """The lengths of the pairs of an epoch."""
        return self.mixture.epoch_counts(epoch).shorter(1).without_empty()


class _Cells(NamedTuple):
    """The pairs of one corpus that have the same lengths, for all corpora and lengths."""

    counts: Int[np.ndarray, " cells"]
    starts: Int[np.ndarray, " cells"]
    """Where they begin among the rows of all corpora, each sorted by length."""
    shares: Float[np.ndarray, " cells"]
    """How many of them an epoch has; not a whole number."""
    phases: Float[np.ndarray, " cells"]
    """Offsets added before rounding down, so that the cells do not all round up in the same epoch."""
    keys: UInt[np.ndarray, " cells"]

    @classmethod
    def of(cls, counts: Sequence[Int[np.ndarray, "_"]], times: Sequence[float], seed: int) -> "_Cells":
        all_counts = np.concatenate(list(counts))
        shares = np.concatenate([each * float(often) for each, often in zip(counts, times, strict=True)])
        draws = np.random.Generator(np.random.Philox(key=[seed % 2**64, MIXTURES]))
        phases, keys = draws.random(len(all_counts)), draws.integers(0, 2**64, len(all_counts), np.uint64)
        return cls(all_counts, all_counts.cumsum() - all_counts, shares, phases, keys)

    def dealt(self, epochs: int) -> Int[np.ndarray, " cells"]:
        """How many pairs the first `epochs` epochs have had."""
        whole: np.ndarray = np.floor(self.shares * epochs + self.phases).astype(np.int64)
        return whole


MIXTURES = 2**62
"""A stream of random numbers that no epoch draws from."""


def repeats(sizes: Sequence[int], weights: Sequence[float]) -> list[float]:
    """How many times an epoch has every pair of each corpus.

    >>> repeats([900, 100], [1, 1])
    [0.5555555555555556, 5.0]
    """
    total = sum(sizes)
    return [total * weight / sum(weights) / size for size, weight in zip(sizes, weights, strict=True)]
