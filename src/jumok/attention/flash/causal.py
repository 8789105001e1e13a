"""Causal attention by PyTorch's cuDNN kernel, the fastest there is, made exact for numbers that are not finite.

The kernel lets them spread: a hidden value of weight 0 gives 0 · NaN = NaN. Two small kernels look for that afterwards
and repair it (see causal_kernels.py); no pass over queries, keys or values is needed.
"""

from typing import Any

import torch
from torch import Tensor

from jumok.attention.flash.causal_kernels import causal_gradient_repair_kernel, causal_repair_kernel
from jumok.attention.flash.launch import strides, with_unit_step

Three = tuple[Tensor, Tensor, Tensor]
ROWS = 64


def attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """softmax(scale · q kᵀ) v over the keys up to each query's own position, for [batch, head, time, dim]."""
    query, key, value = (with_unit_step(tensor) for tensor in (query, key, value))
    if torch.compiler.is_compiling():
        mixed: Tensor = causal_attention(query, key, value, scale)[0]
    elif torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value)):
        mixed = _Attention.apply(query, key, value, scale)[0]  # type: ignore[no-untyped-call]
    else:
        mixed = _forward(query, key, value, scale)[0]
    return mixed


@torch.library.custom_op("jumok::causal_attention", mutates_args=())
def causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The values and the log-sum-exp."""
    return _forward(query, key, value, scale)


@causal_attention.register_fake
def _attention_shapes(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query), query.new_empty(*query.shape[:-1], 1, dtype=torch.float32)


@torch.library.custom_op("jumok::causal_attention_backward", mutates_args=())
def causal_attention_backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, scale: float
) -> Three:
    """The gradients of query, key and value."""
    return _backward(d_out, query, key, value, out, lse, scale)


@causal_attention_backward.register_fake
def _gradient_shapes(d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Three:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        output = _forward(*arguments)
        _keep(ctx, arguments, output)
        return output

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if d_out is None:
            return (None,) * 4
        query, key, value, out, lse = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second gradient
            from jumok.attention.flash.operators import causal_gradients_by_definition

            return (*causal_gradients_by_definition(d_out, query, key, value, out, ctx.scale), None)
        return (*_backward(d_out, query, key, value, out, lse, ctx.scale), None)


def forward_kernel(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """PyTorch's kernel: the values and the log-sum-exp, in which NaN may have spread."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(
        query, key, value, None, True, 0.0, True, False, scale=scale
    )
    return found[0], found[1]


def backward_kernel(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, scale: float
) -> Three:
    """PyTorch's kernel for the gradients, in which NaN may have spread."""
    time, missing = query.shape[2], [None] * 5  # no dropout, no bias, no packed sequences
    found: Three = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        d_out, query, key, value, out, lse, *missing, time, time, 0.0, True, scale=scale
    )
    return found


def _forward(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    out, lse = forward_kernel(query, key, value, scale)
    batch, heads, time, _ = query.shape
    causal_repair_kernel(
        (batch * heads,), query, key, value, out, *strides(query, key, value, out), heads, time,
        **_constants(query, scale), warps=4, stages=2,
    )  # fmt: skip
    return out, lse


def _backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, scale: float
) -> Three:
    d_out = with_unit_step(d_out)
    batch, heads, time, _ = query.shape
    found = backward_kernel(d_out, query, key, value, out, lse, scale)
    room = torch.empty(2, batch, heads, time, dtype=torch.float32, device=query.device)
    causal_gradient_repair_kernel(
        (batch * heads,), query, key, value, out, d_out, *found, room[0], room[1],
        *strides(query, key, value, out, d_out, *found), heads, time, **_constants(query, scale), warps=4, stages=1,
    )  # fmt: skip
    return found


def _constants(query: Tensor, scale: float) -> dict[str, Any]:
    dim = query.shape[-1]
    return {
        "SCALE": scale,
        "DIM": dim,
        "BLOCK_DIM": max(16, 1 << (dim - 1).bit_length()),
        "ROWS": ROWS,
        "PRECISION": "ieee" if query.dtype == torch.float32 else "tf32",
    }


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if d_out is None:
        return (None,) * 4
    return (*causal_attention_backward(d_out, *ctx.saved_tensors, ctx.scale), None)


causal_attention.register_autograd(_gradients, setup_context=_keep)
