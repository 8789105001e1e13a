"""What the training loop asks of a task: its batches, how a batch becomes a loss, and how large it is."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import nn

from jumok.data import Batch
from jumok.errors import TrainingError
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.training.config import TrainingConfig
from jumok.training.guided_alignment import GuidedAlignment
from jumok.training.loss import Loss, TargetTokens, batch_loss

B = TypeVar("B", bound=Any)


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


@runtime_checkable
class Objective(Protocol[B]):
    """The part of `jumok.tasks.Task` that the loop calls for every batch."""

    unit: str

    def items(self, batch: B) -> int:
        """The number of tokens, or whatever `unit` names, in a batch."""
        ...

    def loss(self, model: nn.Module, batch: B, device: torch.device, config: Any) -> Loss:
        """The loss of a batch, summed over its items."""
        ...

    def width(self, model: nn.Module) -> int:
        """The width of a model, on which the schedule "noam" depends."""
        ...

    def size(self, batch: B) -> str:
        """The size of a batch in words, for a message when memory runs out."""
        ...

    def halves(self, batch: B) -> list[B]:
        """The batch in two parts, to retry when memory runs out."""
        ...


class TargetObjective(ABC, Generic[B]):
    """What the objectives of encoder-decoders share, whatever the source: they count target tokens."""

    unit = "tok"
    row: ClassVar[str]
    """What a row of a batch is, such as a sentence."""
    remedy: ClassVar[str]
    """What to do besides training a smaller model if a single row does not fit into memory."""

    def items(self, batch: B) -> int:
        """Target tokens."""
        return int(batch.target_visible.sum())

    def width(self, model: nn.Module) -> int:
        """That of the encoder's states."""
        return cast(EncoderDecoder, model).encoder.width

    @abstractmethod
    def size(self, batch: B) -> str:
        """The size of a batch in words."""

    @abstractmethod
    def cut(self, batch: B, start: int, end: int) -> B:
        """Some rows of a batch, without the padding only the others needed."""

    def halves(self, batch: B) -> list[B]:
        """Two halves, or a TrainingError that says what to change."""
        count = len(batch.target_in)
        if count < 2:
            raise TrainingError(
                f"out of memory with a single {self.row} ({self.size(batch)}); train a smaller model, or {self.remedy}"
            )
        return [self.cut(batch, 0, count // 2), self.cut(batch, count // 2, count)]


class SequenceObjective(TargetObjective[Batch]):
    """Cross-entropy of the target tokens of an encoder-decoder."""

    row = "sentence"
    remedy = "leave out the longest sentences with a lower filter.max_length"

    def loss(self, model: nn.Module, batch: Batch, device: torch.device, config: TrainingConfig) -> Loss:
        """Cross-entropy of the target tokens."""
        on_device, model = batch.to(device), cast(EncoderDecoder, model)
        return batch_loss(
            model,
            on_device,
            TargetTokens.moved(batch, on_device),
            smoothing=config.label_smoothing,
            guide=self.guide(config),
            r_drop=self.r_drop(config),
        )

    def guide(self, config: Any) -> GuidedAlignment | None:
        """What guides the attention; nothing here."""
        return None

    def r_drop(self, config: Any) -> float:
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


SEQUENCES = SequenceObjective()
