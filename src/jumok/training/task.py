"""What is learnt: how a batch becomes a loss. The loop, its checkpoints and its resumes know no more of a task."""

from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import nn

from jumok.data import Batch
from jumok.errors import TrainingError
from jumok.training.config import TrainingConfig
from jumok.training.loss import Guide, Loss, Places, batch_loss

B = TypeVar("B", bound=Any)


@runtime_checkable
class Task(Protocol[B]):
    """How the batches of a `BatchSource` are learnt from; the loss is a mean over items, such as target tokens."""

    unit: str
    """What progress counts: "tok"."""

    def items(self, batch: B) -> int:
        """How many items a batch has."""
        ...

    def loss(self, model: nn.Module, batch: B, device: torch.device, config: TrainingConfig) -> Loss:
        """The loss summed over the items, the model being on `device`."""
        ...

    def size(self, batch: B) -> str:
        """How large a batch is, for messages."""
        ...

    def halves(self, batch: B) -> list[B]:
        """Two batches for one that does not fit in memory, or a TrainingError that says what to change."""
        ...


class SequenceTask:
    """An encoder-decoder that says the target, token by token."""

    unit = "tok"

    def items(self, batch: Batch) -> int:
        """Target tokens."""
        return int(batch.target_visible.sum())

    def loss(self, model: nn.Module, batch: Batch, device: torch.device, config: TrainingConfig) -> Loss:
        """Cross-entropy of the target tokens, which are found before the batch leaves the CPU."""
        places = Places.of(batch)
        guide = Guide.of(config)
        return batch_loss(model, batch.to(device), places.to(device), smoothing=config.label_smoothing, guide=guide)

    def size(self, batch: Batch) -> str:
        """In sentences and tokens."""
        sentences, source = batch.source.shape
        return f"{sentences} sentences, {source} source and {batch.target_in.shape[1]} target tokens long"

    def halves(self, batch: Batch) -> list[Batch]:
        """Each half without the padding only the other needed."""
        count = len(batch.source)
        if count < 2:
            raise TrainingError(
                f"out of memory with a single sentence ({self.size(batch)}); train a smaller model, or leave out the "
                "longest sentences with a lower data.filter.max_length"
            )
        return [cut(batch, 0, count // 2), cut(batch, count // 2, count)]


def cut(batch: Batch, start: int, end: int) -> Batch:
    """Some sentences of a batch, without the padding only the others needed."""
    rows = batch.each(lambda part: part[start:end])
    source, target = (int(visible.any(0).sum()) for visible in (rows.source_visible, rows.target_visible))
    return Batch(
        rows.source[:, :source],
        rows.source_visible[:, :source],
        rows.target_in[:, :target],
        rows.target_out[:, :target],
        rows.target_visible[:, :target],
        None if rows.word_links is None else rows.word_links[:, :target, :source],
    )


SEQUENCES = SequenceTask()
