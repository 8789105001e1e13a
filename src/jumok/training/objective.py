"""What the training loop asks of a task: its batches, how a batch becomes a loss, and how large it is."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import torch
from torch import nn

from jumok.data import Batch
from jumok.errors import TrainingError
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.training.config import TrainingConfig
from jumok.training.guided_alignment import GuidedAlignment
from jumok.training.loss import Loss, TargetBatch, TargetTokens, batch_loss

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")
TB = TypeVar("TB", bound=TargetBatch)
C = TypeVar("C", bound=TrainingConfig)


@runtime_checkable
class BatchSource(Protocol):
    """The batch at (epoch, step) as a pure function, such as `jumok.data.Batches`; the task defines what a batch is.

    On a GPU, steps on batches that are tuples of tensors are recorded as CUDA graphs; others run without them.
    """

    def steps(self, epoch: int) -> int:
        """The number of batches of an epoch."""
        ...

    def batch(self, epoch: int, step: int) -> Any:
        """The batch at a step of an epoch, from 0."""
        ...


class Objective(ABC, Generic[M, B, C]):
    """The part of a task that the training loop asks about every batch.

    Its types are those of a model, of a batch and of the recipe's section [training].
    """

    unit: str = "tok"
    """What progress counts."""

    @abstractmethod
    def items(self, batch: B) -> int:
        """The number of items of a batch, such as target tokens; the loss is a mean over them."""

    @abstractmethod
    def loss(self, model: M, batch: B, device: torch.device, config: C) -> Loss:
        """The loss summed over the items; the model is on `device`, and `config` is the [training] section."""

    def width(self, model: M) -> int:
        """The width of a model, on which the schedule "noam" depends; 1 leaves it out."""
        return 1

    def size(self, batch: B) -> str:
        """The size of a batch in words, for a message when memory runs out."""
        return f"{self.items(batch):,} {self.unit}"

    def halves(self, batch: B) -> list[B]:
        """Two batches for one that does not fit into memory, or a TrainingError that says what to change."""
        raise TrainingError(f"out of memory with a batch of {self.size(batch)}; use smaller batches or a smaller model")


AnyObjective: TypeAlias = Objective[Any, Any, Any]


class TargetObjective(Objective[EncoderDecoder, TB, C]):
    """What the objectives of encoder-decoders share, whatever the source: they count target tokens."""

    row: ClassVar[str]
    """What a row of a batch is, such as a sentence."""
    remedy: ClassVar[str]
    """What to do besides training a smaller model if a single row does not fit into memory."""

    def items(self, batch: TB) -> int:
        """Target tokens."""
        return int(batch.target_visible.sum())

    def width(self, model: EncoderDecoder) -> int:
        """That of the encoder's states."""
        return model.encoder.width

    @abstractmethod
    def cut(self, batch: TB, start: int, end: int) -> TB:
        """Some rows of a batch, without the padding only the others needed."""

    def halves(self, batch: TB) -> list[TB]:
        """Two halves, or a TrainingError that says what to change."""
        count = len(batch.target_visible)
        if count < 2:
            raise TrainingError(
                f"out of memory with a single {self.row} ({self.size(batch)}); train a smaller model, or {self.remedy}"
            )
        return [self.cut(batch, 0, count // 2), self.cut(batch, count // 2, count)]


class SequenceObjective(TargetObjective[Batch, C]):
    """Cross-entropy of the target tokens of an encoder-decoder."""

    row = "sentence"
    remedy = "leave out the longest sentences with a lower filter.max_length"

    def loss(self, model: EncoderDecoder, batch: Batch, device: torch.device, config: C) -> Loss:
        """Cross-entropy of the target tokens."""
        on_device = batch.to(device)
        return batch_loss(
            model,
            on_device,
            TargetTokens.moved(batch, on_device),
            smoothing=config.label_smoothing,
            guide=self.guide(config),
            r_drop=self.r_drop(config),
        )

    def guide(self, config: C) -> GuidedAlignment | None:
        """What guides the attention; nothing here."""
        return None

    def r_drop(self, config: C) -> float:
        """The weight of the divergence between two passes; 0 for one pass."""
        return 0.0

    def size(self, batch: Batch) -> str:
        """In sentences and tokens."""
        sentences, source = batch.source.shape
        return f"{sentences} sentences, {source} source and {batch.target_in.shape[1]} target tokens long"

    def cut(self, batch: Batch, start: int, end: int) -> Batch:
        """Some sentences of a batch, without the padding only the others needed."""
        rows = batch.each(lambda part: part[start:end])
        source, target = (max(int(mask.any(0).sum()), 1) for mask in (rows.source_visible, rows.target_visible))
        return Batch(
            rows.source[:, :source],
            rows.source_visible[:, :source],
            rows.target_in[:, :target],
            rows.target_out[:, :target],
            rows.target_visible[:, :target],
            None if rows.word_links is None else rows.word_links[:, :target, :source],
        )


SEQUENCES = SequenceObjective[TrainingConfig]()
