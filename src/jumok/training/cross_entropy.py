"""Cross-entropy with label smoothing, the probabilities computed once for the loss and its gradient."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable


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
