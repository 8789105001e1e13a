"""How surprised a model is by the targets: cross-entropy over the tokens that are there."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn

from jumok.data import Batch
from jumok.data.image_store import ImageBatch
from jumok.models.seq2seq import Copied, Encoding, Hidden
from jumok.training.cross_entropy import Loss, smoothed_cross_entropy
from jumok.training.guided import Guide


@runtime_checkable
class BatchSource(Protocol):
    """The batch at (epoch, step) as a pure function; as `jumok.data.Batches`. What a batch is, a `Task` knows."""

    def steps(self, epoch: int) -> int: ...

    def batch(self, epoch: int, step: int) -> Any: ...


class Places(NamedTuple):
    """The target tokens of a batch that are there, by their place among all, padding counted."""

    at: Int[Tensor, " token"]
    target: Int[Tensor, " token"]

    @classmethod
    def of(cls, batch: Batch | ImageBatch) -> "Places":
        """Find them; on the CPU, so that no GPU has to wait for it."""
        at = batch.target_visible.flatten().nonzero().flatten()
        return cls(at, batch.target_out.flatten()[at])

    def to(self, device: torch.device | str) -> "Places":
        """The same on another device."""
        return Places(*(part.to(device, non_blocking=True) for part in self))


def batch_loss(
    model: nn.Module, batch: Batch, places: Places, *, smoothing: float = 0.0, guide: Guide | None = None
) -> Loss:
    """The loss of an encoder-decoder on one batch; the output layer runs only where there are tokens."""
    encoder: Any = model.encoder
    decoder: Any = model.decoder
    encoding: Encoding = encoder(batch.source, batch.source_visible)
    hidden: Hidden = decoder.hidden(encoding, batch.target_in)
    loss = hidden_loss(decoder, hidden, places, smoothing=smoothing)
    if guide is not None:
        taught = guide.taught(decoder, encoding, hidden, batch)
        loss = loss._replace(total=loss.total + guide.loss(taught, guide.links(batch)))
    return loss


def hidden_loss(decoder: Any, hidden: Hidden, places: Places, *, smoothing: float = 0.0) -> Loss:
    """The loss of what a decoder knows of every place of its targets, its own penalty included."""
    states = hidden.states.flatten(0, 1)[places.at]
    if hidden.copied is None:
        logits = decoder.logits(states)
    else:
        logits = decoder.logits(states, Copied(*(part.flatten(0, 1)[places.at] for part in hidden.copied)))
    loss = smoothed_cross_entropy(logits, places.target, smoothing=smoothing, gaps=hidden.copied is not None)
    if hidden.penalty is not None:
        loss = loss._replace(total=loss.total + hidden.penalty.flatten()[places.at].sum())
    return loss


@torch.no_grad()
def held_out_loss(
    model: nn.Module, batches: BatchSource, loss_of: Callable[..., Loss] = batch_loss
) -> dict[str, float]:
    """Loss per token and perplexity over one pass of `batches`: part of what a validator gives back."""
    device = next(model.parameters()).device
    surprise, tokens = 0.0, 0
    for step in range(batches.steps(0)):
        batch = batches.batch(0, step)
        places = Places.of(batch)
        surprise += float(loss_of(model, batch.to(device), places.to(device)).surprise)
        tokens += len(places.at)
    loss = surprise / max(tokens, 1)
    return {"loss": loss, "perplexity": perplexity(loss)}


def perplexity(loss: float) -> float:
    """How many equally likely tokens would surprise as much: e to the loss per token."""
    return math.inf if loss > 700 else math.exp(loss)
