"""PyTorch's fused scaled_dot_product_attention, for every score that is a dot product."""

from dataclasses import replace
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.call import AttentionCall
from jumok.attention.masks import Causal
from jumok.attention.modified_dot import ModifiedDot
from jumok.attention.scores import Dot
from jumok.errors import BackendError

Gradients = tuple[Tensor | None, ...]

FEW_KEYS = 16
"""With fewer keys than a CPU vector register holds numbers (16 at most), the unmasked kernel gives 0 for NaN scores."""

TINY = torch.finfo(torch.float32).tiny


def run(call: AttentionCall, *, nan_for_nothing: bool = False) -> Tensor:
    """Σ softmax(scale · q kᵀ) v in one kernel, which does not store the weights.

    With `nan_for_nothing`, a query that sees nothing may get NaN instead of zeros, which saves a look at the mask.
    """
    call = with_positive_scale(call)
    is_causal = False
    if call.visible is not None:
        is_causal = isinstance(call.visible, Causal) and call.visible.offset == 0
        if not is_causal:
            return _fused(call, attn_mask=call.visible.tile(call.tile)) if nan_for_nothing else _masked(call)
    keys = call.key.shape[-2]
    may_lose_nan = call.query.is_cpu and (tracing.is_symbolic(keys) or keys < FEW_KEYS) and not call.dropout
    if may_lose_nan and (torch.compiler.is_compiling() or tracing.in_transform()):
        return _masked(call)  # slower, but no result needs to be read
    values = _fused(call, is_causal=is_causal)
    return _masked(call) if may_lose_nan and _holds_zeros(values) else values


def with_positive_scale(call: AttentionCall) -> AttentionCall:
    """The same scores with a positive scale: the causal kernel masks before it scales, and −∞ · scale must stay −∞."""
    assert isinstance(call.score, Dot | ModifiedDot)
    assert call.score.scale is not None
    query, scale = call.query, call.score.scale
    if scale < 0:
        query, scale = -query, -scale
    if scale < TINY:  # it could round to 0 in the kernel's single precision
        query, scale = query * scale, 1.0
    return call if query is call.query else replace(call, query=query, score=replace(call.score, scale=scale))


def _holds_zeros(values: Tensor) -> bool:
    """Whether a row may consist of zeros."""
    first = values.select(-1, 0) if values.shape[-1] else values
    return int(first.count_nonzero()) < first.numel()


def _masked(call: AttentionCall) -> Tensor:
    if call.visible is None:
        return _fused(call, attn_mask=call.query.new_ones(1, call.key.shape[-2], dtype=torch.bool))
    visible = call.visible.tile(call.tile)
    if call.visible.shows_first_key:
        return _fused(call, attn_mask=visible)
    something = visible.any(-1, keepdim=True)
    if tracing.is_readable(something) and bool(something.all()):
        return _fused(call, attn_mask=visible)
    # A query that sees nothing would give 0 / 0 in some kernels: it attends everywhere, and its output is set to 0.
    nothing = ~something
    return _fused(call, attn_mask=visible | nothing).masked_fill(nothing, 0)


def _fused(call: AttentionCall, *, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    assert isinstance(call.score, Dot)
    lead, query, key, value = call.query.shape[:-2], call.query, call.key, call.value
    # PyTorch makes numbers of a mask, so a matrix that all heads share is not expanded to them.
    if attn_mask is not None and attn_mask.dim() > 2 and (attn_mask.dim() != 4 or len(lead) != 2):
        attn_mask = attn_mask.expand(*lead, *attn_mask.shape[-2:])
    if len(lead) != 2:  # the fast kernels take exactly [batch, head, time, dim]
        four = (prod(lead[:-1]), lead[-1]) if lead else (1, 1)
        query, key, value = (tensor.reshape(*four, *tensor.shape[-2:]) for tensor in (query, key, value))
        if attn_mask is not None and attn_mask.dim() > 2:
            attn_mask = attn_mask.reshape(*four, *attn_mask.shape[-2:])
    values = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attn_mask,
        dropout_p=call.dropout,
        is_causal=is_causal,
        scale=call.score.scale,
    )
    refuse_second_gradient(values)
    return values if len(lead) == 2 else values.reshape(*lead, *values.shape[-2:])


def refuse_second_gradient(values: Tensor) -> None:
    """PyTorch's kernels have none, and its error names an internal operator."""
    if values.requires_grad and not torch.compiler.is_compiling() and not tracing.in_transform():
        node = values.grad_fn
        assert node is not None
        if node.name().startswith("ScaledDotProduct"):
            node.register_hook(_mark_if_differentiable)


def _mark_if_differentiable(d_inputs: Gradients, _: Gradients) -> Gradients | None:
    return mark_gradients(d_inputs) if torch.is_grad_enabled() else None


def mark_gradients(d_inputs: Gradients) -> Gradients:
    """The gradients, whose own gradient is refused."""
    return tuple(None if d_input is None else _NoSecondGradient.apply(d_input) for d_input in d_inputs)  # type: ignore[no-untyped-call]


class _NoSecondGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> None:
        raise BackendError('backend "sdpa" has no second gradient; use backend="direct"')
