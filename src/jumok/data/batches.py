"""Batches of token ids: which pairs share a batch, in which order batches come, and how they are padded.

An epoch is planned from the number of pairs of each length alone, so planning takes the same time and memory for a
thousand pairs as for a billion. `benchmarks/dataset.py` compares this with a permutation of all rows in memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from jaxtyping import Bool, Float, Int, Integer, UInt
from torch import Tensor

from jumok.data.subwords import PAD
from jumok.errors import ArgumentError
from jumok.settings import NonNegativeInt, PositiveInt, Settings

Ids = Sequence[int] | Integer[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True)
class BatchConfig(Settings):
    """The size and order of batches."""

    section: ClassVar[str] = "batch"

    tokens: PositiveInt = 4096
    """Maximum number of tokens in a batch on its longer side, including padding: sentences × longest sentence."""
    sentences: NonNegativeInt = 0
    """Maximum number of sentences in a batch; 0 sets no limit."""
    blur: Annotated[float, Ge(0), Le(1)] = 0.05
    """Largest relative difference of lengths within a batch; larger values shuffle more and pad more."""
    shuffle: bool = True
    """Reshuffle every epoch; false sorts by length, in the same order every epoch."""


class Batch(NamedTuple):
    """Padded token ids, and masks that are True on real tokens.

    `target_in` begins with BOS and `target_out` ends with EOS; both have the length of the longest target.
    """

    source: Int[Tensor, "batch source"]
    source_visible: Bool[Tensor, "batch source"]
    target_in: Int[Tensor, "batch target"]
    target_out: Int[Tensor, "batch target"]
    target_visible: Bool[Tensor, "batch target"]
    word_links: Bool[Tensor, "batch target source"] | None = None
    """True where the word of a token of `target_out` is linked to the word of a source token; None without links."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch with `change` applied to every tensor."""
        return Batch(*(None if part is None else change(part) for part in self))  # type: ignore[arg-type]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return self.each(lambda part: part.to(device, non_blocking=True))

    def rounded(self, limit: int | None = None) -> "Batch":
        """The same batch padded to one of a few shapes, because a GPU has to prepare for every new shape.

        Lengths stay within `limit` if they are. A pair that is added has one source token, as attention needs something
        to see, and no target token.
        """
        (rows, source), target = self.source.shape, self.target_in.shape[1]
        if not rows:
            return self
        more = round_size(rows, least=8) - rows
        of_source = (0, round_size(source, limit=limit) - source, 0, more)
        of_target = (0, round_size(target, limit=limit) - target, 0, more)
        source_visible = F.pad(self.source_visible, of_source)
        source_visible[rows:, 0] = True
        return Batch(
            F.pad(self.source, of_source, value=PAD),
            source_visible,
            F.pad(self.target_in, of_target, value=PAD),
            F.pad(self.target_out, of_target, value=PAD),
            F.pad(self.target_visible, of_target),
            None if self.word_links is None else F.pad(self.word_links, (*of_source[:2], *of_target)),
        )


SIZES = 8
"""Sizes between one power of two and the next that shapes on a GPU are rounded up to."""


def round_size(size: int, *, least: int = 2, limit: int | None = None) -> int:
    """A size rounded up to a multiple of `least`, or of an eighth of the power of two below it; at most to `limit`.

    >>> [round_size(size) for size in (3, 17, 33, 70, 300)]
    [4, 18, 36, 72, 320]
    """
    step = max(least, (1 << max(size - 1, 1).bit_length() - 1) // SIZES)
    rounded = -(-size // step) * step
    return rounded if limit is None else max(min(rounded, limit), size)


class Sentences(NamedTuple):
    """The ids of sentences one after another, and the length of each."""

    ids: Integer[np.ndarray, " tokens"]
    lengths: Int[np.ndarray, " sentences"]

    @classmethod
    def of(cls, rows: Sequence[Ids]) -> "Sentences":
        """Rows of ids joined."""
        ids = np.concatenate(rows) if len(rows) else np.zeros(0, np.int64)
        return cls(ids, np.array([len(row) for row in rows], np.int64))

    def padded(self) -> tuple[Int[np.ndarray, "batch longest"], Bool[np.ndarray, "batch longest"]]:
        """A row for each sentence, padded with PAD to one length, and a mask that is True on the given ids."""
        visible = np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]
        ids = np.full(visible.shape, PAD, np.int64)
        ids[visible] = self.ids
        return ids, visible


def ranges(starts: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " places"]:
    """The places of ranges, one range after another.

    >>> ranges(np.array([5, 0]), np.array([3, 2])).tolist()
    [5, 6, 7, 0, 1]
    """
    places: np.ndarray = np.arange(lengths.sum()) + np.repeat(starts - (lengths.cumsum() - lengths), lengths)
    return places


def collate(rows: Sequence[tuple[Ids, Ids]]) -> Batch:
    """Pad encoded pairs ([BOS, ..., EOS] each) to one batch; the source loses its BOS."""
    return collate_sides(*(Sentences.of([row[side] for row in rows]) for side in range(2)))


def collate_sides(source: Sentences, target: Sentences) -> Batch:
    """Pad encoded sentences ([BOS, ..., EOS] each) to one batch; the source loses its BOS."""
    sources, source_visible = source.padded()
    targets, _ = target.padded()
    longest = max(int(target.lengths.max(initial=1)) - 1, 0)
    target_visible = np.arange(longest) < (target.lengths - 1)[:, None]
    target_in, target_out = (np.where(target_visible, part, PAD) for part in (targets[:, :-1], targets[:, 1:]))
    parts = (sources[:, 1:].copy(), source_visible[:, 1:].copy(), target_in, target_out, target_visible)
    return Batch(*(torch.from_numpy(part) for part in parts))


def pad(rows: Sequence[Ids]) -> tuple[Int[Tensor, "batch longest"], Bool[Tensor, "batch longest"]]:
    """Rows of ids padded with PAD to one length, and a mask that is True on the given ids."""
    ids, visible = Sentences.of(rows).padded()
    return torch.from_numpy(ids), torch.from_numpy(visible)


class LengthCounts(NamedTuple):
    """How many pairs there are of each combination of source and target length, in ascending order of lengths."""

    lengths: Int[np.ndarray, "kinds 2"]
    """Tokens of source and target, rounded up to lengths that count as equal."""
    counts: Int[np.ndarray, " kinds"]

    def shorter(self, by: int) -> "LengthCounts":
        """The same pairs with every sentence `by` tokens shorter, but at least one token long."""
        return LengthCounts(np.maximum(self.lengths - by, 1), self.counts)

    def without_empty(self) -> "LengthCounts":
        """The combinations that some pair has."""
        return LengthCounts(self.lengths[self.counts > 0], self.counts[self.counts > 0])

    def reached(self, pairs: int) -> int:
        """The longest source length that at least `pairs` pairs reach, or all of them if there are fewer."""
        order = np.argsort(-self.lengths[:, 0], kind="stable")
        reached = np.searchsorted(self.counts[order].cumsum(), min(pairs, int(self.counts.sum())))
        return int(self.lengths[order[reached], 0])


EXACT_BITS = 6
"""Lengths below 2^6 are exact; of longer ones only the leading 6 bits count."""


def rounded_up(lengths: Integer[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """The largest length that counts as equal to each of `lengths`."""
    _, bits = np.frexp(lengths)
    spare = np.maximum(bits - EXACT_BITS, 0)
    largest: np.ndarray = (((lengths >> spare) + 1) << spare) - 1
    return largest.astype(np.int64)


def sort_by_length(lengths: Int[np.ndarray, "rows 2"]) -> tuple[LengthCounts, Int[np.ndarray, " rows"]]:
    """Count the rows of each length, and give the row numbers in ascending order of length."""
    rounded = rounded_up(lengths)
    keys = (rounded[:, 0] << 32) | rounded[:, 1]
    order = np.argsort(keys, kind="stable")
    firsts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    return LengthCounts(rounded[order[firsts]], np.diff(firsts, append=len(keys))), order


ORDER = 2
"""Version of the batch order; increased whenever the same (seed, epoch, step) comes to mean other pairs."""


BLOCK = 64
"""Steps whose batches are permuted together."""


class BatchPlan:
    """Which rows, as positions in the order of `sort_by_length`, make up each batch of an epoch.

    Several processes plan the same batches, and each reads those that are its own (`training.read_ahead.read_step`).
    """

    def __init__(self, lengths: LengthCounts, config: BatchConfig, *, seed: int = 0) -> None:
        self.lengths, self.config, self.seed = lengths, config, seed
        self._epoch = lru_cache(maxsize=2)(self._plan_epoch)
        self._block = lru_cache(maxsize=8)(self._permuted_block)

    def lengths_of(self, epoch: int) -> LengthCounts:
        """The lengths of the pairs of an epoch, which has all of them."""
        return self.lengths

    def steps(self, epoch: int) -> int:
        """The number of batches of this epoch."""
        return self._epoch(epoch).boundaries.batches

    def batch(self, epoch: int, step: int) -> Int[np.ndarray, " batch"]:
        """The positions of one batch."""
        if not 0 <= step < self.steps(epoch):
            raise ArgumentError(f"epoch {epoch} has no step {step}; it has {self.steps(epoch)} steps")
        number = self._block(epoch, step // BLOCK)[step % BLOCK] if self.config.shuffle else step
        return self._epoch(epoch).positions(number, shuffle=self.config.shuffle)

    def _permuted_block(self, epoch: int, block: int) -> list[int]:
        """The numbers of the batches of some steps; together they take hardly longer to permute than one."""
        plan = self._epoch(epoch)
        steps = np.arange(block * BLOCK, min((block + 1) * BLOCK, plan.boundaries.batches))
        sizes, keys = np.full(len(steps), plan.boundaries.batches), np.repeat(plan.keys[-1:], len(steps))
        numbers: list[int] = permute(steps, sizes, keys).tolist()
        return numbers

    def _plan_epoch(self, epoch: int) -> "EpochPlan":
        draws = np.random.Generator(np.random.Philox(key=[self.seed % 2**64, epoch]))
        lengths, counts = self.lengths_of(epoch)
        bands = length_bands(lengths, self.config.blur, draws.random(2)) if self.config.shuffle else exact(lengths)
        order, ends = group_by_band(bands)
        starts = np.concatenate([[0], ends[:-1]])
        group_sizes = np.add.reduceat(counts[order], starts)
        longest = np.maximum.reduceat(lengths.max(axis=1)[order], starts)
        return EpochPlan(
            kind_starts=(counts.cumsum() - counts)[order],
            kind_ends=counts[order].cumsum(),
            group_ends=group_sizes.cumsum(),
            keys=draws.integers(0, 2**64, len(ends) + 1, np.uint64),
            boundaries=batch_boundaries(longest, group_sizes, self.config),
        )


class EpochPlan(NamedTuple):
    """One epoch: pairs grouped by similar length, shuffled within each group, and cut into batches."""

    kind_starts: Int[np.ndarray, " kinds"]
    """Where the pairs of each length begin among all pairs sorted by length."""
    kind_ends: Int[np.ndarray, " kinds"]
    group_ends: Int[np.ndarray, " groups"]
    keys: UInt[np.ndarray, " groups+1"]
    """Keys of the permutations of each group, and of the batches."""
    boundaries: "BatchBoundaries"

    def positions(self, number: int, *, shuffle: bool) -> Int[np.ndarray, " batch"]:
        """The pairs of a batch."""
        places = np.arange(*self.boundaries.batch(number))
        if shuffle:
            group = np.searchsorted(self.group_ends, places, side="right")
            sizes = np.diff(self.group_ends, prepend=0)[group]
            begin = self.group_ends[group] - sizes
            places = begin + permute(places - begin, sizes, self.keys[group])
        kind = np.searchsorted(self.kind_ends, places, side="right")
        positions: np.ndarray = self.kind_starts[kind] + places - np.concatenate([[0], self.kind_ends])[kind]
        return positions


def length_bands(
    lengths: Int[np.ndarray, "kinds 2"], blur: float, phase: Float[np.ndarray, " 2"]
) -> Int[np.ndarray, "kinds 2"]:
    """Two numbers, equal for pairs of similar length: the longer side, and the source's length less the target's.

    Lengths within `blur` of each other are similar; `phase` draws where one band ends and the next begins.
    """
    longer, difference = lengths.max(axis=1), lengths[:, 0] - lengths[:, 1]
    band = np.log(longer) / np.log1p(blur) if blur else longer
    bands: np.ndarray = np.floor(np.stack([band, difference / (1 + blur * longer)], axis=1) + phase).astype(np.int64)
    return bands


def exact(lengths: Int[np.ndarray, "kinds 2"]) -> Int[np.ndarray, "kinds 2"]:
    """The bands of `length_bands` if only equal lengths are similar."""
    return np.stack([lengths.max(axis=1), lengths[:, 0] - lengths[:, 1]], axis=1)


def group_by_band(bands: Int[np.ndarray, "kinds 2"]) -> tuple[Int[np.ndarray, " kinds"], Int[np.ndarray, " groups"]]:
    """An order of the lengths in which equal bands are neighbours, and where each group of them ends.

    The longer side grows. The difference rises and falls in turn, so that the last pairs of one length and the first
    of the next are similar on both sides.
    """
    _, longer = np.unique(bands[:, 0], return_inverse=True)
    difference = np.where(longer % 2, bands[:, 1], -bands[:, 1])
    order = np.lexsort((difference, longer))
    change = (np.diff(longer[order]) != 0) | (np.diff(difference[order]) != 0)
    return order, np.concatenate([change.nonzero()[0] + 1, [len(order)]])


class BatchBoundaries(NamedTuple):
    """Where a sequence of pairs is cut into batches, as runs of batches of equal size."""

    starts: Int[np.ndarray, " runs"]
    sizes: Int[np.ndarray, " runs"]
    ends: Int[np.ndarray, " runs"]
    """The number of batches up to the end of each run."""

    @property
    def batches(self) -> int:
        """The number of batches."""
        return int(self.ends[-1])

    def batch(self, number: int) -> tuple[int, int]:
        """Where a batch starts and ends."""
        run = int(np.searchsorted(self.ends, number, side="right"))
        within = number - (int(self.ends[run - 1]) if run else 0)
        start = int(self.starts[run]) + within * int(self.sizes[run])
        return start, start + int(self.sizes[run])


def batch_boundaries(
    longest: Int[np.ndarray, " groups"], sizes: Int[np.ndarray, " groups"], config: BatchConfig
) -> BatchBoundaries:
    """Cut groups of pairs, given the longest sentence and the size of each, into batches as large as allowed."""
    longest, ends = np.maximum.accumulate(longest), sizes.cumsum().tolist()
    most = np.minimum(np.maximum(config.tokens // longest, 1), config.sentences or config.tokens).tolist()
    runs: list[tuple[int, int, int]] = []
    start, group = 0, 0
    while start < ends[-1]:
        if whole := (ends[group] - start) // most[group]:
            runs.append((start, most[group], whole))
            start += whole * most[group]
        if start < ends[group]:  # the rest of a group shares a batch with the groups after it
            end = ends[group]
            while end == ends[group] and group + 1 < len(ends) and end - start < most[group + 1]:
                group += 1
                end = min(ends[group], start + most[group])
            runs.append((start, end - start, 1))
            start = end
        group += start == ends[group]
    starts, batch_sizes, batches = np.array(runs, np.int64).T
    return BatchBoundaries(starts, batch_sizes, batches.cumsum())


ROUNDS = 12
"""Rounds of the Feistel network; with fewer, permutations of a handful of items are visibly not uniform."""


def permute(
    positions: Int[np.ndarray, " n"], sizes: Int[np.ndarray, " n"], keys: UInt[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Where each position goes in a pseudo-random permutation of `sizes` items, chosen by its key.

    Each position is computed alone, so no permutation is ever held in memory. The items fill a rectangle, over whose
    sides runs a Feistel network: in turn, rows rotate by a number that depends on the row, and columns by one that
    depends on the column. That is a bijection of the rectangle, which is hardly larger than `sizes`; a position that
    lands beyond the last item is permuted again until it is inside (cycle walking).
    """
    places = positions.astype(np.uint64)
    sizes = sizes.astype(np.uint64)
    width = np.ceil(np.sqrt(sizes)).astype(np.uint64)
    height = (sizes + width - np.uint64(1)) // width
    outside = np.arange(len(places))
    while outside.size:
        places[outside] = _feistel(places[outside], width[outside], height[outside], keys[outside])
        outside = outside[places[outside] >= sizes[outside]]
    return places.astype(np.int64)


def _feistel(
    places: UInt[np.ndarray, " n"],
    width: UInt[np.ndarray, " n"],
    height: UInt[np.ndarray, " n"],
    keys: UInt[np.ndarray, " n"],
) -> UInt[np.ndarray, " n"]:
    row, column = places // width, places % width
    for number in range(ROUNDS):
        keys = splitmix64(keys)
        if number % 2:
            row = (row + splitmix64(keys ^ column) % height) % height
        else:
            column = (column + splitmix64(keys ^ row) % width) % width
    moved: np.ndarray = row * width + column
    return moved


def splitmix64(numbers: UInt[np.ndarray, "*shape"]) -> UInt[np.ndarray, "*shape"]:
    """A pseudo-random 64-bit number for each number (Steele et al. 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return hashed
