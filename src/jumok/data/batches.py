"""Batches: how much goes into one, and sentences padded to its tensors. Which go together, `plan` says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from jumok.data.subwords import PAD
from jumok.errors import ConfigError

Ids = Sequence[int] | Integer[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """How much goes into one step."""

    tokens: int = 4096
    """Most tokens of a batch on its longer side, padding counted: sentences x longest sentence."""
    sentences: int = 0
    """Most sentences of a batch; 0 sets no limit."""
    blur: float = 0.05
    """Relative difference of lengths that may share a batch; larger values shuffle more and pad more."""
    shuffle: bool = True
    """Shuffle anew every epoch; false sorts by length, in the same order every epoch."""

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
