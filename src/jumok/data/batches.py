"""Batches by token budget: sentences of like length together, the batch at (seed, epoch, step) a pure function.

An epoch sorts all sentences by length, blurred by a little noise so that neighbours differ every time, cuts the
sorted row where a padded batch would exceed the budget, and shuffles the batches. All draws come from a counter-based
generator keyed by (seed, epoch), so any step of any epoch can be rebuilt without having run the ones before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from jumok.data.subwords import PAD
from jumok.errors import ArgumentError, ConfigError

Ids = Sequence[int] | Integer[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """How much goes into one step."""

    tokens: int = 4096
    """Most tokens of a batch on its longer side, padding counted: sentences x longest sentence."""
    sentences: int = 0
    """Most sentences of a batch; 0 sets no limit."""
    blur: float = 0.05
    """Noise on the lengths before sorting, as a share of the length; more mixes better and pads more."""
    shuffle: bool = True
    """Draw a new order every epoch; false sorts by length, the same every epoch."""

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ConfigError(f"batch.tokens = {self.tokens} must be at least 1")
        if self.sentences < 0:
            raise ConfigError(f"batch.sentences = {self.sentences} must be 0 (no limit) or more")
        if not 0 <= self.blur <= 1:
            raise ConfigError(f"batch.blur = {self.blur} must lie between 0 and 1")


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


class BatchPlan:
    """Which sentences make up each step, from their lengths alone.

    With `world` processes, each `rank` gets every world-th batch; all have the same number of steps, so the first
    batches are used again where the number does not divide.
    """

    def __init__(
        self,
        lengths: Int[np.ndarray, "sentences sides"],
        config: BatchConfig,
        *,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if len(lengths) == 0:
            raise ArgumentError("there are no sentences to make batches of")
        if not 0 <= rank < world:
            raise ArgumentError(f"rank = {rank} must lie between 0 and world - 1 = {world - 1}")
        self.config, self.seed, self.rank, self.world = config, seed, rank, world
        self._longer = lengths.max(axis=1).astype(np.int32)
        self._difference = (lengths[:, 0] - lengths[:, -1]).astype(np.int32)
        self._epoch = lru_cache(maxsize=2)(self._plan)

    def steps(self, epoch: int) -> int:
        """How many batches this process has in this epoch; the same on every rank."""
        _, starts = self._epoch(epoch)
        return -(-len(starts) // self.world)

    def batch(self, epoch: int, step: int) -> Int[np.ndarray, " batch"]:
        """The numbers of the sentences in this step of this epoch."""
        order, cuts = self._epoch(epoch)
        if not 0 <= step < self.steps(epoch):
            raise ArgumentError(f"step {step} of epoch {epoch} does not exist; it has {self.steps(epoch)} steps")
        start, end = cuts[(step * self.world + self.rank) % len(cuts)]
        return order[start:end]

    def _plan(self, epoch: int) -> tuple[Int[np.ndarray, " sentences"], Int[np.ndarray, "batches 2"]]:
        """The sorted order of the sentences, and where each batch starts and ends in it, batches shuffled."""
        draws = np.random.Generator(np.random.Philox(key=[self.seed % 2**64, epoch]))
        noise = (
            draws.random((2, len(self._longer)), np.float32) if self.config.shuffle else np.zeros((2, 1), np.float32)
        )
        order = np.argsort(likeness(self._longer, self._difference, self.config.blur, noise), kind="stable")
        cuts = cut(self._longer[order], self.config)
        return order, draws.permutation(cuts) if self.config.shuffle else cuts


def likeness(
    longer: Int[np.ndarray, " sentences"],
    difference: Int[np.ndarray, " sentences"],
    blur: float,
    noise: Float[np.ndarray, "2 #sentences"],
) -> Float[np.ndarray, " sentences"]:
    """A number by which sorting puts pairs of like lengths next to each other.

    First by the longer side; among those, by how much longer the source is than the target, upwards and downwards in
    turn, so that the last pairs of one length and the first of the next are alike on both sides.
    """
    length = np.floor(longer * (1 + blur * noise[0]))
    lean = difference + noise[1] * (1 + blur * longer)
    lean = (lean - lean.min()) / (np.ptp(lean) + 1)
    key: np.ndarray = length + np.where(length % 2, lean, 1 - lean)
    return key


def cut(longer: Int[np.ndarray, " sentences"], config: BatchConfig) -> Int[np.ndarray, "batches 2"]:
    """Start and end of the greedy batches of a row of lengths that (nearly) ascend."""
    bound = np.maximum.accumulate(longer)
    most = config.sentences or len(longer)
    starts = [0]
    while starts[-1] < len(longer):
        start = starts[-1]
        end = min(start + most, start + max(1, config.tokens // int(bound[start])), len(longer))
        while end > start + 1 and (end - start) * int(bound[end - 1]) > config.tokens:
            end = max(start + 1, start + config.tokens // int(bound[end - 1]))
        starts.append(end)
    return np.column_stack([starts[:-1], starts[1:]]).astype(np.int64)


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
