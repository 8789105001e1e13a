"""Normalisers: from scores to a distribution over keys by softmax (the kernel sum), sparsemax, 1.5-entmax or mean.

A normaliser takes scores in which -inf means hidden and every row has a visible key; `distribution` handles the rest.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.checks import describe
from jumok.errors import ArgumentError

Normaliser = Callable[[Tensor], Tensor]


def distribution(
    scores: Float[Tensor, "*lead key"], normalise: str | Normaliser = "softmax"
) -> Float[Tensor, "*lead key"]:
    """The weights of each row of scores. Keys with score -inf get weight 0; a row of -inf only is all zeros."""
    normaliser = find_normaliser(normalise)
    if scores.shape[-1] == 0:
        return scores
    nothing = scores.detach().amax(-1, keepdim=True) == -torch.inf
    if tracing.is_readable(scores) and not torch.is_grad_enabled() and not nothing.any():
        # The usual case; the two copies below would cost more than the softmax.
        return _check_shape(scores, normaliser(scores), normalise)
    # Filled before and zeroed after, so that neither the weights nor their gradient pass through 0 / 0.
    return _check_shape(scores, normaliser(scores.masked_fill(nothing, 0)), normalise).masked_fill(nothing, 0)


def _check_shape(scores: Tensor, weights: Any, normalise: str | Normaliser) -> Tensor:
    if isinstance(weights, Tensor) and weights.shape == scores.shape:
        return weights
    name, wanted = getattr(normalise, "__name__", normalise), list(scores.shape)
    raise ArgumentError(
        f"normalise {name} returned {describe(weights)}, but there must be a weight for each of {wanted}"
    )


def softmax(scores: Float[Tensor, "*lead key"]) -> Float[Tensor, "*lead key"]:
    """exp(s) / Σ exp(s). With s = log K it is the kernel sum K / Σ K of Nadaraya and Watson (1964)."""
    return scores.softmax(-1)


def softmax_with_sums(
    scores: Float[Tensor, "*lead key"], largest: Float[Tensor, "*lead"], total: Float[Tensor, "*lead"]
) -> Float[Tensor, "*lead key"]:
    """exp(s − largest) / total: the softmax, where a kernel has already computed the largest score and the sum."""
    weights: Tensor = _SoftmaxWithSums.apply(scores, largest.masked_fill(largest == -torch.inf, 0), total)  # type: ignore[no-untyped-call]
    return weights


class _SoftmaxWithSums(torch.autograd.Function):
    """The gradient is that of the softmax, since largest and total come from the same scores."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, largest: Tensor, total: Tensor) -> Tensor:
        weights = (scores - largest[..., None]).exp_() / total[..., None]
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, d_weights: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        return weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True)), None, None


def mean(scores: Float[Tensor, "*lead key"]) -> Float[Tensor, "*lead key"]:
    """1 / n for each of the n visible keys, whatever their scores."""
    visible = scores != -torch.inf
    return visible.to(scores.dtype) / visible.sum(-1, keepdim=True)


def sparsemax(scores: Float[Tensor, "*lead key"]) -> Float[Tensor, "*lead key"]:
    """max(s − τ, 0), where τ makes it sum to 1: the distribution nearest to the scores (Martins & Astudillo 2016)."""
    above = _above_threshold(_shifted(scores), _sparsemax_threshold)
    # Values that rounding left below 0 become 0 but keep their gradient, because τ depends on them.
    return (above - above.detach().clamp(max=0)).to(scores.dtype)


def entmax15(scores: Float[Tensor, "*lead key"]) -> Float[Tensor, "*lead key"]:
    """max(s / 2 − τ, 0)², where τ makes it sum to 1: between softmax and sparsemax (Peters et al. 2019)."""
    return (_above_threshold(_shifted(scores) / 2, _entmax15_threshold) ** 2).to(scores.dtype)


def _shifted(scores: Tensor) -> Tensor:
    """Scores minus the largest, which changes no weight; in at least 32 bits, as bfloat16 is exact up to 256 only."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    return scores.to(wide) - scores.detach().amax(-1, keepdim=True).to(wide)


def _sparsemax_threshold(count: Tensor, total: Tensor, squares: Tensor) -> Tensor:
    """τ with Σ (s − τ) = 1, for `count` scores of that sum and sum of squares."""
    return (total - 1) / count


def _entmax15_threshold(count: Tensor, total: Tensor, squares: Tensor) -> Tensor:
    """The smaller τ with Σ (s − τ)² = 1, for `count` scores of that sum and sum of squares."""
    centre = total / count
    spread = squares - count * centre**2
    return centre - ((1 - spread) / count).clamp(min=0).sqrt()


def _above_threshold(scores: Tensor, solve: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """s − τ of the scores in the support, 0 for the others.

    Given the support, τ is a formula, and autograd gives the exact gradient. A score that equals τ is outside the
    support and has none; otherwise the gradients of the weights, which sum to 1, would not sum to 0.
    """
    support = _support(scores.detach(), solve)
    inside = scores.masked_fill(~support, 0)
    count, total, squares = (part.sum(-1, keepdim=True) for part in (support, inside, inside**2))
    return (inside - solve(count, total, squares)).masked_fill(~support, 0)


def _support(scores: Tensor, solve: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Bool[Tensor, "*lead key"]:
    """The scores that get weight: the longest run of largest scores that all lie above their own τ.

    The largest score is 0, so τ is at least -1, and scores below -1 need no exact sum: they are clamped to -1.
    """
    ordered = scores.clamp(min=-1).sort(-1, descending=True).values
    count = torch.arange(1, ordered.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    thresholds = solve(count, ordered.cumsum(-1), (ordered**2).cumsum(-1))
    size = (ordered > thresholds).sum(-1, keepdim=True).clamp(min=1)  # 0 only where there is a NaN
    return ~(scores <= thresholds.gather(-1, size - 1))  # a row with NaN keeps all scores, so it stays NaN


NORMALISERS: dict[str, Normaliser] = {
    "softmax": softmax,
    "sum": softmax,  # its name in kernel regression, where scores are log K
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "mean": mean,
}


def find_normaliser(normalise: str | Normaliser) -> Normaliser:
    """The function for a name; a function is returned unchanged."""
    if callable(normalise):
        return normalise
    if not isinstance(normalise, str) or normalise not in NORMALISERS:
        raise ArgumentError(
            f"normalise must be one of {', '.join(NORMALISERS)}, or a function, but it is {normalise!r}"
        )
    return NORMALISERS[normalise]
