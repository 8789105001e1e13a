"""R-Drop: two passes over a batch with different dropout, drawn to agree (Liang et al. 2021).

With the distributions p and q of the two passes, half of the paper's loss, so that it stays a loss per token, is

    ½ · (CE(p) + CE(q)) + ½ · α · ½ · (KL(p ‖ q) + KL(q ‖ p))

Both passes run as one over the batch twice. This is the reference, which keeps the logits of all tokens in memory; on a
GPU, `loss_gpu.py` finds the same loss some tokens at a time where the decoder's output is a single matrix product.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

LOWEST = -100.0
"""Log-probabilities are raised to this much: those of a model that copies may be -inf."""


def symmetric_divergence(
    first: Float[Tensor, "token vocabulary"],
    second: Float[Tensor, "token vocabulary"],
    counted: Bool[Tensor, " token"] | None = None,
) -> Float[Tensor, ""]:
    """Sum over tokens of ½ · (KL(p ‖ q) + KL(q ‖ p)), with p and q the softmax of the logits.

    Only tokens that are `counted` count; by default all do.
    """
    divergence: Tensor = _SymmetricDivergence.apply(first, second, counted)  # type: ignore[no-untyped-call]
    return divergence


class _SymmetricDivergence(torch.autograd.Function):
    """With d = log p - log q: ½ Σ (p - q) · d, whose gradients are found in the forward pass.

    That of the logits of p is ½ · (p · (d - Σ p · d) + p - q); that of q's swaps the two. Only both gradients are kept;
    autograd would keep five tensors of that size.
    """

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, counted: Tensor | None) -> Tensor:
        dtype = torch.promote_types(first.dtype, torch.float32)
        log_p, log_q = (F.log_softmax(logits, -1, dtype=dtype).clamp_(min=LOWEST) for logits in (first, second))
        difference = log_p - log_q
        p, q = log_p.exp_(), log_q.exp_()
        if counted is not None:
            p, q = p * counted[:, None], q * counted[:, None]
        p_to_q, q_to_p = (p * difference).sum(-1, keepdim=True), -(q * difference).sum(-1, keepdim=True)
        ctx.save_for_backward(
            (0.5 * (p * (difference - p_to_q) + p - q)).to(first.dtype),
            (0.5 * (q * (-difference - q_to_p) + q - p)).to(second.dtype),
        )
        return 0.5 * (p_to_q + q_to_p).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        first, second = ctx.saved_tensors
        return first * upstream.to(first.dtype), second * upstream.to(second.dtype), None
