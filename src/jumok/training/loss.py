"""Losses over target tokens: label-smoothed cross-entropy, perplexity, and the loss of an encoder-decoder."""

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from jumok.attention.backends import runs_on_kernels
from jumok.data import Batch
from jumok.models.encoder_decoder import Decoder, EncoderDecoder, Hidden, LinearOutput
from jumok.training.guided_alignment import GuidedAlignment
from jumok.training.r_drop import symmetric_divergence


class Loss(NamedTuple):
    """Sums over tokens; a batch's mean is total / tokens."""

    total: Float[Tensor, ""]
    """What is minimised: smoothed cross-entropy, the decoder's penalty if any, and the guided-alignment loss if any."""
    cross_entropy: Float[Tensor, ""]
    """Cross-entropy alone, in nats, from which perplexity is computed. It has no gradient."""


def smoothed_cross_entropy(
    logits: Float[Tensor, "token vocabulary"],
    target: Int[Tensor, " token"],
    *,
    smoothing: float = 0.0,
    gaps: bool = False,
    counted: Bool[Tensor, " token"] | None = None,
) -> Loss:
    """Sum over tokens of -(1 - smoothing) · log p(target) - smoothing · mean over v of log p(v).

    With `gaps`, logits may be -inf, as the log-probabilities of a model that copies are: the mean is then over the
    possible tokens only, at the cost of a second pass over the logits. Only tokens that are `counted` count; by default
    all do.
    """
    if gaps and smoothing:
        return _over_possible(logits, target, smoothing, counted)
    total, cross_entropy = _SmoothedCrossEntropy.apply(logits, target, smoothing, counted)  # type: ignore[no-untyped-call]
    return Loss(total, cross_entropy)


class _SmoothedCrossEntropy(torch.autograd.Function):
    """With Z = Σ exp(x): loss = log Z - (1 - s) · x[target] - s · mean(x), gradient = p - (1 - s) · [target] - s / V.

    Only the probabilities are kept for the backward pass; autograd would keep three tensors of that size.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, smoothing: float, counted: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        probabilities = F.softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
        top, argmax = logits.max(-1)
        # The largest probability is at least 1 / V, so its logarithm is exact where that of others could underflow.
        log_sum = top.to(probabilities.dtype) - probabilities.gather(1, argmax[:, None])[:, 0].log()
        cross_entropy = _sum_of(log_sum - logits.gather(1, target[:, None])[:, 0], counted)
        ctx.save_for_backward(probabilities, target, counted)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        ctx.mark_non_differentiable(cross_entropy)
        if not smoothing:
            return cross_entropy.clone(), cross_entropy
        spread = _sum_of(log_sum - logits.mean(-1, dtype=probabilities.dtype), counted)
        return (1 - smoothing) * cross_entropy + smoothing * spread, cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        probabilities, target, counted = ctx.saved_tensors
        gradient = probabilities - ctx.smoothing / probabilities.shape[-1]
        gradient[torch.arange(len(target), device=target.device), target] -= 1 - ctx.smoothing
        if counted is not None:
            gradient.masked_fill_(~counted[:, None], 0.0)
        return gradient.mul_(upstream).to(ctx.dtype), None, None, None


def _over_possible(logits: Tensor, target: Tensor, smoothing: float, counted: Tensor | None) -> Loss:
    log_probs = F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
    cross_entropy = -_sum_of(log_probs.gather(1, target[:, None])[:, 0], counted)
    possible = log_probs.detach() > -torch.inf
    spread = -_sum_of(log_probs.masked_fill(~possible, 0.0).sum(-1) / possible.sum(-1), counted)
    return Loss((1 - smoothing) * cross_entropy + smoothing * spread, cross_entropy.detach())


def _sum_of(values: Float[Tensor, " token"], counted: Bool[Tensor, " token"] | None) -> Float[Tensor, ""]:
    return (values if counted is None else values.masked_fill(~counted, 0.0)).sum()


@runtime_checkable
class TargetBatch(Protocol):
    """The target side of a batch, whatever its source is."""

    @property
    def target_out(self) -> Int[Tensor, "batch target"]:
        """The tokens to predict."""
        ...

    @property
    def target_visible(self) -> Bool[Tensor, "batch target"]:
        """Where they are tokens and not padding."""
        ...


class TargetTokens(NamedTuple):
    """The target tokens of a batch, either without padding or with a mask of those that count."""

    positions: Int[Tensor, " token"] | None
    """Where each stands in the flattened [batch, target]; None if these are all positions."""
    ids: Int[Tensor, " token"]
    counted: Bool[Tensor, " token"] | None = None
    """False at padding; None if there is none."""

    @classmethod
    def of(cls, batch: TargetBatch) -> "TargetTokens":
        """The tokens of a batch without padding; call it on the CPU, so that no GPU has to wait for it."""
        positions = batch.target_visible.flatten().nonzero().flatten()
        return cls(positions, batch.target_out.flatten()[positions])

    @classmethod
    def padded(cls, batch: TargetBatch) -> "TargetTokens":
        """All positions of a batch: their number depends on its shape alone, as a CUDA graph needs it."""
        return cls(None, batch.target_out.flatten(), batch.target_visible.flatten())

    @classmethod
    def moved(cls, batch: TargetBatch, on_device: TargetBatch) -> "TargetTokens":
        """The form that suits the device that a batch was moved to; `batch` itself may still be on the CPU."""
        device = on_device.target_out.device
        return cls.padded(on_device) if device.type == "cuda" else cls.of(batch).to(device)

    def twice(self, positions: int) -> "TargetTokens":
        """The tokens of a batch of this many positions, and those of the same batch after it."""
        places = None if self.positions is None else torch.cat([self.positions, self.positions + positions])
        counted = None if self.counted is None else torch.cat([self.counted, self.counted])
        return TargetTokens(places, torch.cat([self.ids, self.ids]), counted)

    def to(self, device: torch.device | str) -> "TargetTokens":
        """The same on another device."""
        return TargetTokens(*(None if part is None else part.to(device, non_blocking=True) for part in self))  # type: ignore[arg-type]


def batch_loss(
    model: EncoderDecoder,
    batch: Batch,
    tokens: TargetTokens,
    *,
    smoothing: float = 0.0,
    guide: GuidedAlignment | None = None,
    r_drop: float = 0.0,
) -> Loss:
    """The loss of an encoder-decoder on one batch; the output layer runs only where there are tokens.

    With `r_drop` above 0, two passes are drawn to agree (see `r_drop.py`).
    """
    if r_drop:
        batch, tokens = batch.each(lambda part: torch.cat([part, part])), tokens.twice(batch.target_out.numel())
    encoding = model.encoder(batch.source, batch.source_visible)
    decode = model.decoder.hidden_in_training if guide is None else model.decoder.hidden
    hidden = decode(encoding, batch.target_in)
    loss = hidden_loss(model.decoder, hidden, tokens, smoothing=smoothing, r_drop=r_drop)
    if guide is not None:
        attention = guide.attention(model.decoder, encoding, hidden, batch)
        guided = guide.loss(attention, guide.links(batch))
        loss = loss._replace(total=loss.total + (0.5 * guided if r_drop else guided))
    return loss


def hidden_loss(
    decoder: Decoder, hidden: Hidden, tokens: TargetTokens, *, smoothing: float = 0.0, r_drop: float = 0.0
) -> Loss:
    """The loss of a decoder from its states at every position of its targets, its penalty included.

    With `r_drop` above 0, the second half of the tokens is another pass over the first.
    """
    selected = hidden.select(tokens.positions)
    output = decoder.linear_output(selected)
    if output is not None and runs_on_kernels(output.states):
        loss = output_loss(output, tokens, smoothing=smoothing, r_drop=r_drop)
    else:
        logits, gaps = decoder.logits(selected), selected.copied is not None
        loss = smoothed_cross_entropy(logits, tokens.ids, smoothing=smoothing, gaps=gaps, counted=tokens.counted)
        if r_drop:
            loss = _agreeing(loss, logits, tokens, r_drop)
    if selected.penalty is not None:
        penalty = _sum_of(selected.penalty, tokens.counted)
        loss = loss._replace(total=loss.total + (0.5 * penalty if r_drop else penalty))
    return loss


def _agreeing(loss: Loss, logits: Float[Tensor, "token vocabulary"], tokens: TargetTokens, r_drop: float) -> Loss:
    """The mean loss of two passes, and how far apart their predictions are."""
    first, second = logits.chunk(2)
    counted = None if tokens.counted is None else tokens.counted[: len(first)]
    divergence = symmetric_divergence(first, second, counted)
    return Loss(0.5 * (loss.total + r_drop * divergence), 0.5 * loss.cross_entropy)


def output_loss(output: LinearOutput, tokens: TargetTokens, *, smoothing: float = 0.0, r_drop: float = 0.0) -> Loss:
    """The loss of `hidden_loss` from the states of an output layer, on a GPU and without storing all logits."""
    from jumok.training.loss_gpu import smoothed_cross_entropy_of_states  # imports Triton

    target = tokens.ids if tokens.counted is None else tokens.ids.masked_fill(~tokens.counted, -1)
    total, cross_entropy = smoothed_cross_entropy_of_states(*output, target, smoothing=smoothing, r_drop=r_drop)
    return Loss(total, cross_entropy.detach())


def perplexity(loss: float) -> float:
    """exp(loss per token): the number of equally likely tokens with the same cross-entropy."""
    return math.inf if loss > 700 else math.exp(loss)
