"""Flash attention as PyTorch operators, which work with autograd, torch.compile and CUDA graphs.

Compiled code calls the operators; other code calls the same functions through torch.autograd.Function, because calling
an operator takes the host as long as the kernels of a small problem. Importing this module imports Triton.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.attend import attend
from jumok.attention.call import AttentionCall
from jumok.attention.checks import is_autocast
from jumok.attention.flash import launch
from jumok.attention.flash.launch import Options
from jumok.attention.flash.ranges import Ranges, four_axes
from jumok.attention.scores import Dot
from jumok.attention.sdpa import with_positive_scale
from jumok.errors import BackendError

Three = tuple[Tensor, Tensor, Tensor]


def run(call: AttentionCall) -> Float[Tensor, "*lead query value_dim"]:
    """Σ softmax(scale · q kᵀ) v over the visible keys; no weight is stored."""
    call = with_positive_scale(call)
    assert isinstance(call.score, Dot)
    lead = call.tile.lead
    query, key, value = (four_axes(_lowered(tensor), lead) for tensor in (call.query, call.key, call.value))
    ranges = Ranges.of(call.visible, call.tile)
    seed = torch.randint(2**62, (1,), device=query.device) if call.dropout else None
    mixed = attention(
        query, key, value, ranges.key_lengths, None, None, ranges.mask, seed, ranges.low, ranges.high,
        float(call.score.scale), float(call.dropout), call.visible is not None,
    )  # fmt: skip
    return mixed if len(lead) == 2 else mixed.reshape(*lead, *mixed.shape[-2:])


def _lowered(tensor: Tensor) -> Tensor:
    """As PyTorch's own attention, in the dtype of autocast."""
    if tensor.dtype == torch.float32 and is_autocast(tensor.device):
        return tensor.to(torch.get_autocast_dtype(tensor.device.type))
    return tensor


@torch.library.custom_op("jumok::flash_attention", mutates_args=())
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    query_lengths: Tensor | None,
    segments: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    low: int | None,
    high: int | None,
    scale: float,
    dropout: float,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    """Σ softmax(scale · q kᵀ) v for [batch, head, time, dim], and the log-sum-exp to base 2."""
    return _forward(
        query, key, value, key_lengths, query_lengths, segments, mask, seed, low, high, scale, dropout, exact
    )  # fmt: skip


@flash_attention.register_fake
def _attention_shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return launch.results(query, value)


@torch.library.custom_op("jumok::flash_attention_backward", mutates_args=())
def flash_attention_backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    query_lengths: Tensor | None,
    segments: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    out: Tensor,
    lse: Tensor,
    low: int | None,
    high: int | None,
    scale: float,
    dropout: float,
    exact: bool,
) -> Three:
    """The gradients of query, key and value."""
    return _backward(
        d_out, query, key, value, key_lengths, query_lengths, segments, mask, seed, out, lse, low, high, scale,
        dropout, exact,
    )  # fmt: skip


@flash_attention_backward.register_fake
def _gradient_shapes(d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Three:
    d_query, d_key, d_value = (launch.empty_like(tensor, tensor.shape[-1]) for tensor in (query, key, value))
    return d_query, d_key, d_value


def attention(*arguments: Any) -> Tensor:
    """`flash_attention`, by the fastest way that serves."""
    if torch.compiler.is_compiling():
        mixed: Tensor = flash_attention(*arguments)[0]
    elif torch.is_grad_enabled() and any(tensor.requires_grad for tensor in arguments[:3]):
        mixed = _Attention.apply(*arguments)[0]  # type: ignore[no-untyped-call]
    else:
        mixed = _forward(*arguments)[0]
    return mixed


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        output = _forward(*arguments)
        _keep(ctx, arguments, output)
        return output

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if d_out is None:  # the output has no gradient
            return (None,) * 13
        differentiable = torch.is_grad_enabled()  # for a second gradient
        found = (_gradients_by_definition if differentiable else _backward)(d_out, *ctx.saved_tensors, *ctx.options)
        return (*found, *(None,) * 10)


def _forward(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    masks, seed, options = others[:4], others[4], Options(*others[5:])
    return launch.forward(query, key, value, masks, seed, options)


def _backward(d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Three:
    masks, seed, out, lse, options = others[:4], others[4], others[5], others[6], Options(*others[7:])
    return launch.backward(d_out, query, key, value, out, lse, masks, seed, options)


def _gradients_by_definition(d_out: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    """The gradients from the equation, so that autograd can differentiate them again."""
    query, key, value, lengths, _, _, mask, _, out, _, low, high, scale, dropout, exact = arguments
    if dropout:
        raise BackendError('fused attention with dropout has no second gradient; use backend="direct"')
    inputs = tracing.graph_inputs(query, key, value)
    visible = Ranges(low, high, lengths, mask).matrix(query.shape[-2], key.shape[-2], query.device) if exact else None
    with torch.autocast(query.device.type, enabled=False):
        wide = [tensor.float() for tensor in inputs]
        mixed = attend(*wide, score=Dot(scale), visible=visible, backend="direct").values
        return torch.autograd.grad(mixed.to(out.dtype), inputs, d_out, create_graph=True)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.options = inputs[8:]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if d_out is None:
        return (None,) * 13
    return (*flash_attention_backward(d_out, *ctx.saved_tensors, *ctx.options), *(None,) * 10)


flash_attention.register_autograd(_gradients, setup_context=_keep)
