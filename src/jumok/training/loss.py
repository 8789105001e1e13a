"""Losses over target tokens: label-smoothed cross-entropy, perplexity, and guided alignment."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from jumok.data import Batch
from jumok.errors import ConfigError
from jumok.images.store import ImageBatch
from jumok.models.encoder_decoder import Copied, Encoding, HeadWeights, Hidden
from jumok.training.config import Context, TrainingConfig


class Loss(NamedTuple):
    """Sums over tokens; a batch's mean is total / tokens."""

    total: Float[Tensor, ""]
    """What is minimised: smoothed cross-entropy, with the model's own penalty and what guides its attention, if any."""
    surprise: Float[Tensor, ""]
    """Cross-entropy alone, in nats: what perplexity is made of. No gradient."""


def smoothed_cross_entropy(
    logits: Float[Tensor, "token vocabulary"],
    target: Int[Tensor, " token"],
    *,
    smoothing: float = 0.0,
    gaps: bool = False,
) -> Loss:
    """Sum over tokens of -(1 - smoothing) · log p(target) - smoothing · mean over v of log p(v).

    Where logits may be -inf, as the log-probabilities of a model that copies, `gaps` takes the mean over the tokens
    that are possible; it costs a second pass over the logits.
    """
    if gaps and smoothing:
        return _over_possible(logits, target, smoothing)
    total, surprise = _SmoothedCrossEntropy.apply(logits, target, smoothing)  # type: ignore[no-untyped-call]
    return Loss(total, surprise)


class _SmoothedCrossEntropy(torch.autograd.Function):
    """With Z = Σ exp(x): loss = log Z - (1 - s) · x[target] - s · mean(x), gradient = p - (1 - s) · [target] - s / V.

    The plane of probabilities is the only one that is kept; the chain of operations would keep and fill three.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        probabilities = F.softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
        top, at = logits.max(-1)
        # The largest probability is at least 1 / V, so its logarithm is exact where that of others could underflow.
        log_sum = top.to(probabilities.dtype) - probabilities.gather(1, at[:, None])[:, 0].log()
        surprise = (log_sum - logits.gather(1, target[:, None])[:, 0]).sum()
        ctx.save_for_backward(probabilities, target)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        ctx.mark_non_differentiable(surprise)
        if not smoothing:
            return surprise.clone(), surprise
        spread = (log_sum - logits.mean(-1, dtype=probabilities.dtype)).sum()
        return (1 - smoothing) * surprise + smoothing * spread, surprise

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        probabilities, target = ctx.saved_tensors
        gradient = probabilities - ctx.smoothing / probabilities.shape[-1]
        gradient[torch.arange(len(target), device=target.device), target] -= 1 - ctx.smoothing
        return gradient.mul_(upstream).to(ctx.dtype), None, None


def _over_possible(logits: Tensor, target: Tensor, smoothing: float) -> Loss:
    log_probs = F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
    surprise = -log_probs.gather(1, target[:, None]).sum()
    possible = log_probs.detach() > -torch.inf
    spread = -(log_probs.masked_fill(~possible, 0.0).sum(-1) / possible.sum(-1)).sum()
    return Loss((1 - smoothing) * surprise + smoothing * spread, surprise.detach())


SMALLEST = 1e-6  # of a weight, so that its logarithm stays finite


@dataclass(frozen=True, kw_only=True)
class Guide:
    """Which attention is taught, and how much that counts."""

    weight: float
    layer: int | None
    head: int | None
    shift: bool
    context: Context = "causal"
    null: bool = False

    @classmethod
    def of(cls, config: TrainingConfig) -> "Guide | None":
        """The recipe's guide; None where there is none."""
        if not config.guided_alignment:
            return None
        return cls(
            weight=config.guided_alignment,
            layer=config.guided_layer,
            head=config.guided_head,
            shift=config.guided_shift,
            context=config.guided_context,
            null=config.guided_null,
        )

    def taught(self, decoder: Any, encoding: Encoding, hidden: Hidden, batch: Batch) -> HeadWeights:
        """The attention of the layer that is taught, `hidden` being what the decoder made of the batch."""
        layers = len(hidden.attention)
        if not layers:
            raise ConfigError("training.guided_alignment needs a decoder with attention, but this one has none")
        layer = guided_layer(self.layer, layers)
        if self.context == "causal":
            return hidden.attention[layer]
        informed: HeadWeights = decoder.informed_attention(encoding, batch.target_in, batch.target_visible, layer=layer)
        return informed

    def links(self, batch: Batch) -> Bool[Tensor, "batch target source"]:
        """Where each target token is to look."""
        if batch.word_links is None:
            raise ConfigError("training.guided_alignment needs word links of the training pairs; set data.alignments")
        if not self.null:
            return batch.word_links
        source = batch.source_visible
        end = torch.arange(source.shape[1], device=source.device) == source.sum(1, keepdim=True) - 1
        bare = batch.target_visible & ~batch.word_links.any(-1)
        return batch.word_links | (bare[:, :, None] & end[:, None])

    def loss(self, attention: HeadWeights, links: Bool[Tensor, "batch target source"]) -> Float[Tensor, ""]:
        """Cross-entropy from links to the attention of a layer, summed over the target tokens that have links."""
        weights = self._of_heads(attention)
        if self.shift:  # the step after a token was predicted is the one that reads it
            weights, links = weights[:, 1:], links[:, :-1]
        rows = links.float()
        wanted = rows / rows.sum(-1, keepdim=True).clamp(min=1)
        found: Tensor = -self.weight * (wanted * weights.float().clamp(min=SMALLEST).log()).sum()
        return found

    def _of_heads(self, attention: HeadWeights) -> Float[Tensor, "batch target source"]:
        if self.head is None:
            return attention().mean(1)
        try:
            return attention(heads=[self.head]).squeeze(1)
        except ValueError as error:
            raise ConfigError(f"training.guided_head = {self.head}: {error}") from None


def guided_layer(layer: int | None, layers: int) -> int:
    """The layer that is taught: as given, -1 the last; else the last but one, which aligns best (Garg et al. 2019)."""
    if layer is None:
        return max(layers - 2, 0)
    if not -layers <= layer < layers:
        raise ConfigError(f"training.guided_layer = {layer}, but the decoder's layers are 0 to {layers - 1}")
    return layer % layers


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
