"""Which sentences make up the batch at (seed, epoch, step): a pure function that reads none of them.

Sentences lie sorted by length (`by_length`), and only how many there are of each length is needed here.
Every epoch draws anew which lengths are alike, lays sentences of like length in a row, group after group, shuffles
every group and cuts the row where a padded batch would exceed the budget; then it shuffles the batches. Shuffles
are functions (`shuffle`), asked for the places of one batch alone: planning an epoch of a billion sentences costs what
one of a thousand costs.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt

from jumok.data.batches import BatchConfig
from jumok.data.by_length import Cells
from jumok.data.shuffle import shuffled
from jumok.errors import ArgumentError

ORDER = 2
"""Goes up whenever the same (seed, epoch, step) comes to mean other sentences."""


class BatchPlan:
    """Which places of the row of sentences sorted by length make up each step.

    With `world` processes, each `rank` gets every world-th batch; all have the same number of steps, so the first
    batches are used again where the number does not divide.
    """

    def __init__(self, cells: Cells, config: BatchConfig, *, seed: int = 0, rank: int = 0, world: int = 1) -> None:
        if not cells.counts.sum():
            raise ArgumentError("there are no sentences to make batches of")
        if not 0 <= rank < world:
            raise ArgumentError(f"rank = {rank} must lie between 0 and world - 1 = {world - 1}")
        self.cells, self.config, self.seed, self.rank, self.world = cells, config, seed, rank, world
        self._epoch = lru_cache(maxsize=2)(self._plan)

    def steps(self, epoch: int) -> int:
        """How many batches this process has in this epoch; the same on every rank."""
        return -(-self._epoch(epoch).cuts.batches // self.world)

    def batch(self, epoch: int, step: int) -> Int[np.ndarray, " batch"]:
        """Where the sentences of this step of this epoch lie in the row sorted by length."""
        if not 0 <= step < self.steps(epoch):
            raise ArgumentError(f"step {step} of epoch {epoch} does not exist; it has {self.steps(epoch)} steps")
        plan = self._epoch(epoch)
        number = (step * self.world + self.rank) % plan.cuts.batches
        return plan.places(number, shuffle=self.config.shuffle)

    def _plan(self, epoch: int) -> "EpochPlan":
        draws = np.random.Generator(np.random.Philox(key=[self.seed % 2**64, epoch]))
        lengths = self.cells.lengths
        alike = likeness(lengths, self.config.blur, draws.random(2)) if self.config.shuffle else exact(lengths)
        row, ends = groups(alike)
        counts = self.cells.counts[row]
        sentences = np.add.reduceat(counts, np.concatenate([[0], ends[:-1]]))
        bounds = np.maximum.reduceat(lengths.max(axis=1)[row], np.concatenate([[0], ends[:-1]]))
        firsts = self.cells.counts.cumsum() - self.cells.counts
        keys = draws.integers(0, 2**64, len(ends) + 1, np.uint64)
        return EpochPlan(firsts[row], counts.cumsum(), sentences.cumsum(), keys, cuts(bounds, sentences, self.config))


class EpochPlan(NamedTuple):
    """The row of one epoch: cells in groups of like length, and where it is cut."""

    firsts: Int[np.ndarray, " cells"]
    """Where each cell of the row begins among the sentences sorted by length."""
    cell_ends: Int[np.ndarray, " cells"]
    group_ends: Int[np.ndarray, " groups"]
    keys: UInt[np.ndarray, " groups+1"]
    """Of the shuffles of the groups, and of that of the batches."""
    cuts: "Cuts"

    def places(self, number: int, *, shuffle: bool) -> Int[np.ndarray, " batch"]:
        """The sentences of a batch."""
        if shuffle:
            (number,) = shuffled(np.array([number]), np.array([self.cuts.batches]), self.keys[-1:]).tolist()
        start, end = self.cuts.batch(number)
        at = np.arange(start, end)
        if shuffle:
            group = np.searchsorted(self.group_ends, at, side="right")
            sizes = np.diff(self.group_ends, prepend=0)[group]
            begin = self.group_ends[group] - sizes
            at = begin + shuffled(at - begin, sizes, self.keys[group])
        cell = np.searchsorted(self.cell_ends, at, side="right")
        found: np.ndarray = self.firsts[cell] + at - np.concatenate([[0], self.cell_ends])[cell]
        return found


def likeness(
    lengths: Int[np.ndarray, "cells 2"], blur: float, phase: Float[np.ndarray, " 2"]
) -> Int[np.ndarray, "cells 2"]:
    """Two numbers, equal for pairs of like length: the longer side, and how much longer the source is than the target.

    Lengths within `blur` of each other are alike; where one band ends and the next begins is drawn by `phase`.
    """
    longer, lean = lengths.max(axis=1), lengths[:, 0] - lengths[:, 1]
    band = np.log(longer) / np.log1p(blur) if blur else longer
    found: np.ndarray = np.floor(np.stack([band, lean / (1 + blur * longer)], axis=1) + phase).astype(np.int64)
    return found


def exact(lengths: Int[np.ndarray, "cells 2"]) -> Int[np.ndarray, "cells 2"]:
    """The same two numbers where only equal lengths are alike."""
    return np.stack([lengths.max(axis=1), lengths[:, 0] - lengths[:, 1]], axis=1)


def groups(alike: Int[np.ndarray, "cells 2"]) -> tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " groups"]]:
    """The cells in a row, those that are alike next to each other; and where each group of them ends in it.

    Along the row the longer side grows. The lean goes upwards and downwards in turn, so that the last pairs of one
    length and the first of the next are alike on both sides.
    """
    _, length = np.unique(alike[:, 0], return_inverse=True)
    lean = np.where(length % 2, alike[:, 1], -alike[:, 1])
    row = np.lexsort((lean, length))
    change = (np.diff(length[row]) != 0) | (np.diff(lean[row]) != 0)
    return row, np.concatenate([change.nonzero()[0] + 1, [len(row)]])


class Cuts(NamedTuple):
    """Where a row is cut into batches: runs of batches of equal size."""

    starts: Int[np.ndarray, " runs"]
    sizes: Int[np.ndarray, " runs"]
    ends: Int[np.ndarray, " runs"]
    """How many batches there are up to the end of each run."""

    @property
    def batches(self) -> int:
        """How many batches there are."""
        return int(self.ends[-1])

    def batch(self, number: int) -> tuple[int, int]:
        """Where a batch starts and ends."""
        run = int(np.searchsorted(self.ends, number, side="right"))
        within = number - (int(self.ends[run - 1]) if run else 0)
        start = int(self.starts[run]) + within * int(self.sizes[run])
        return start, start + int(self.sizes[run])


def cuts(bounds: Int[np.ndarray, " groups"], counts: Int[np.ndarray, " groups"], config: BatchConfig) -> Cuts:
    """Cut a row of groups, each of so many sentences no longer than its bound, into batches as large as may be."""
    bounds, ends = np.maximum.accumulate(bounds), counts.cumsum().tolist()
    most = np.minimum(np.maximum(config.tokens // bounds, 1), config.sentences or config.tokens).tolist()
    runs: list[tuple[int, int, int]] = []
    start, group = 0, 0
    while start < ends[-1]:
        if whole := (ends[group] - start) // most[group]:
            runs.append((start, most[group], whole))
            start += whole * most[group]
        if start < ends[group]:  # what is left goes with the groups after it
            end = ends[group]
            while end == ends[group] and group + 1 < len(ends) and end - start < most[group + 1]:
                group += 1
                end = min(ends[group], start + most[group])
            runs.append((start, end - start, 1))
            start = end
        group += start == ends[group]
    starts, sizes, batches = np.array(runs, np.int64).T
    return Cuts(starts, sizes, batches.cumsum())
