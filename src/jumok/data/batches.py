"""Batches of token ids: which pairs go together, in which order, and how they are padded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Le
from jaxtyping import Bool, Float, Int, Integer, UInt
from torch import Tensor

from jumok.data.subwords import PAD
from jumok.errors import ArgumentError
from jumok.settings import NonNegativeInt, PositiveInt, Settings

Ids = Sequence[int] | Integer[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True)
class BatchConfig(Settings):
    """How much goes into one step."""

    section: ClassVar[str] = "batch"

    tokens: PositiveInt = 4096
    """Largest number of tokens in a batch on its longer side, including padding: sentences × longest sentence."""
    sentences: NonNegativeInt = 0
    """Largest number of sentences in a batch; 0 sets no limit."""
    blur: Annotated[float, Ge(0), Le(1)] = 0.05
    """Relative difference of lengths that may share a batch; larger values shuffle more and pad more."""
    shuffle: bool = True
    """Reshuffle every epoch; false sorts by length, in the same order every epoch."""


class Batch(NamedTuple):
    """Padded token ids, and masks that are True on real tokens.

    target_in begins with BOS, target_out ends with EOS; both have the length of the longest target.
    """

    source: Int[Tensor, "batch source"]
    source_visible: Bool[Tensor, "batch source"]
    target_in: Int[Tensor, "batch target"]
    target_out: Int[Tensor, "batch target"]
    target_visible: Bool[Tensor, "batch target"]
    links: Bool[Tensor, "batch target source"] | None = None
    """Where the word of a token of target_out is linked to that of a source token, if the corpus has word links."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch with every tensor changed."""
        return Batch(*(None if part is None else change(part) for part in self))  # type: ignore[arg-type]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return self.each(lambda part: part.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in memory that a GPU can read while it computes."""
        return self.each(lambda part: part.pin_memory())


def collate(rows: Sequence[tuple[Ids, Ids]]) -> Batch:
    """Pad encoded pairs ([BOS, ..., EOS] each) to one batch; the source goes without its BOS."""
    source, source_visible = pad([source[1:] for source, _ in rows])
    target_in, target_visible = pad([target[:-1] for _, target in rows])
    target_out, _ = pad([target[1:] for _, target in rows])
    return Batch(source, source_visible, target_in, target_out, target_visible)


def pad(rows: Sequence[Ids]) -> tuple[Int[Tensor, "batch longest"], Bool[Tensor, "batch longest"]]:
    """Rows of ids side by side, filled up with PAD, and where they are real."""
    lengths = np.array([len(row) for row in rows])
    visible = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.full(visible.shape, PAD, np.int64)
    ids[visible] = np.concatenate(rows) if len(rows) else []
    return torch.from_numpy(ids), torch.from_numpy(visible)


ROUNDS = 12  # fewer show where there are only a handful of things


def mixed(numbers: UInt[np.ndarray, "*shape"]) -> UInt[np.ndarray, "*shape"]:
    """Numbers that look random, each from its own alone (splitmix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        last: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return last


def shuffled(
    places: Int[np.ndarray, " n"], sizes: Int[np.ndarray, " n"], keys: UInt[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Where each of `places` goes when `sizes` things are shuffled; equal keys (and sizes) are one shuffle.

    The things are laid out in a rectangle, a Feistel network over its sides: in turn, rows are rotated by a number that
    depends on the row, and columns by one that depends on the column. That is a bijection of the rectangle, which is
    hardly larger than `sizes`; who lands outside walks on until it is back inside, so it is one of the things too.
    """
    found = places.astype(np.uint64)
    sizes = sizes.astype(np.uint64)
    wide = np.ceil(np.sqrt(sizes)).astype(np.uint64)
    high = (sizes + wide - np.uint64(1)) // wide
    outside = np.arange(len(places))
    while outside.size:
        found[outside] = _rotated(found[outside], wide[outside], high[outside], keys[outside])
        outside = outside[found[outside] >= sizes[outside]]
    return found.astype(np.int64)


def _rotated(
    places: UInt[np.ndarray, " n"],
    wide: UInt[np.ndarray, " n"],
    high: UInt[np.ndarray, " n"],
    keys: UInt[np.ndarray, " n"],
) -> UInt[np.ndarray, " n"]:
    row, column = places // wide, places % wide
    for number in range(ROUNDS):
        keys = mixed(keys)
        if number % 2:
            row = (row + mixed(keys ^ column) % high) % high
        else:
            column = (column + mixed(keys ^ row) % wide) % wide
    found: np.ndarray = row * wide + column
    return found


EXACT = 6  # bits of a length that are kept

Lengths = Int[np.ndarray, "sentences 2"]
"""Of source and target."""


class Cells(NamedTuple):
    """How many pairs there are of each two lengths, sorted by them."""

    lengths: Int[np.ndarray, "cells 2"]
    """Most tokens of source and target."""
    counts: Int[np.ndarray, " cells"]

    def shorter(self, by: int) -> "Cells":
        """The same pairs, every sentence `by` tokens shorter; none is shorter than one."""
        return Cells(np.maximum(self.lengths - by, 1), self.counts)

    def reached(self, pairs: int) -> int:
        """The longest source that so many pairs reach, if there are so many: one outlier teaches no length."""
        order = np.argsort(-self.lengths[:, 0], kind="stable")
        reached = np.searchsorted(self.counts[order].cumsum(), min(pairs, int(self.counts.sum())))
        return int(self.lengths[order[reached], 0])


def rounded(lengths: Integer[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """The longest length that counts as alike."""
    _, bits = np.frexp(lengths)
    spare = np.maximum(bits - EXACT, 0)
    found: np.ndarray = (((lengths >> spare) + 1) << spare) - 1
    return found.astype(np.int64)


def cells_of(chunks: Iterable[Lengths]) -> Cells:
    """Count the pairs of each cell."""
    counts: dict[int, int] = {}
    for chunk in chunks:
        for key, count in zip(*np.unique(_keys(chunk), return_counts=True), strict=True):
            counts[int(key)] = counts.get(int(key), 0) + int(count)
    keys = np.array(sorted(counts), np.int64)
    return Cells(np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1), np.array([counts[int(key)] for key in keys], int))


def rows_by_cell(chunks: Iterable[Lengths], cells: Cells) -> Iterator[tuple[int, Int[np.ndarray, "_"]]]:
    """Numbers of pairs and the place they go to: cell after cell, in a cell by their number."""
    keys, next_place = _keys(cells.lengths), cells.counts.cumsum() - cells.counts
    first = 0
    for chunk in chunks:
        cell = np.searchsorted(keys, _keys(chunk))
        order = np.argsort(cell, kind="stable")
        present, starts = np.unique(cell[order], return_index=True)
        for number, rows in zip(present.tolist(), np.split(order + first, starts[1:]), strict=True):
            yield int(next_place[number]), rows
            next_place[number] += len(rows)
        first += len(chunk)


def sort_by_length(lengths: Lengths) -> tuple[Cells, Int[np.ndarray, " sentences"]]:
    """The cells of sentences in memory, and the numbers of the sentences cell by cell."""
    cells = cells_of([lengths])
    order = np.zeros(len(lengths), np.int64)
    for place, rows in rows_by_cell([lengths], cells):
        order[place : place + len(rows)] = rows
    return cells, order


def _keys(lengths: Lengths) -> Int[np.ndarray, " sentences"]:
    alike = rounded(lengths)
    found: np.ndarray = (alike[:, 0] << 32) | alike[:, 1]
    return found


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
