"""Causal attention by PyTorch's cuDNN kernel, the fastest there is, made exact for numbers that are not finite.

The kernel lets them spread: a hidden value of weight 0 gives 0 · NaN = NaN. Two small kernels look for that afterwards
and repair it (see causal_kernels.py); no pass over queries, keys or values is needed.
"""

import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from jumok.attention.flash import launch
from jumok.attention.flash.causal_kernels import causal_gradient_repair_kernel, causal_repair_kernel
from jumok.attention.flash.launch import NOTHING, FlashOptions, store_launch, strides, with_unit_step
from jumok.attention.sdpa import mark_gradients
from jumok.attention.triton_launch import Bound, Kernel

Three = tuple[Tensor, Tensor, Tensor]
ROWS = 64


def attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor | None:
    """softmax(scale · q kᵀ) v over the keys up to each query's own position, for [batch, head, time, dim].

    None if PyTorch would not run one of its fused kernels.
    """
    query, key, value = with_unit_step(query), with_unit_step(key), with_unit_step(value)
    if torch.compiler.is_compiling():
        mixed: Tensor = causal_attention(query, key, value, scale)[0]
        return mixed
    values = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
    if values.requires_grad:
        node = values.grad_fn
        assert node is not None
        if not node.name().startswith("ScaledDotProduct"):
            return None
        node.register_hook(GradientRepair(query, key, value, scale))
    repair(query, key, value, values, scale)
    return values


class GradientRepair:
    """Repairs what PyTorch's kernel gives as gradients, right after it has run, and refuses a second gradient.

    It holds on to the inputs until then, as the kernel's own node does. If the graph is kept for another pass, that
    node still holds them. Its kernels write to addresses, unseen by autograd, so no tensor is detached: in the thread
    of the backward pass, ten such calls take as long as a kernel of a small problem.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        self.inputs: tuple[Tensor, ...] | None = (query, key, value)
        self.later = tuple(weakref.ref(tensor) for tensor in self.inputs)
        self.scale = scale

    def __call__(
        self, d_inputs: tuple[Tensor | None, ...], d_outputs: tuple[Tensor | None, ...]
    ) -> tuple[Tensor | None, ...] | None:
        """Change the gradients in place where they must be."""
        inputs = [reference() for reference in self.later] if self.inputs is None else self.inputs
        self.inputs = None
        query, key, value = inputs
        d_out, (d_query, d_key, d_value) = d_outputs[0], d_inputs[:3]
        if d_out is None or query is None or key is None or value is None:
            return None
        d_out = with_unit_step(d_out)
        if d_query is not None and d_key is not None and d_value is not None:
            repair_gradients(query, key, value, d_out, d_query, d_key, d_value, self.scale)
            return mark_gradients(d_inputs) if torch.is_grad_enabled() else None
        # Without all three it does not show whether something is not finite: our own kernels are always exact.
        options = FlashOptions(None, 1, 0, self.scale, 0.0, 0.0, True)
        with torch.no_grad():
            exact = launch.backward(
                d_out, query, key, value, NOTHING, *launch.forward(query, key, value, NOTHING, options), options
            )
        repaired = tuple(
            gradient if gradient is None or number > 2 else exact[number] for number, gradient in enumerate(d_inputs)
        )
        return mark_gradients(repaired) if torch.is_grad_enabled() else repaired


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


def forward_kernel(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """PyTorch's kernel: the values and the log-sum-exp, in which NaN may have spread."""
    outputs = torch.ops.aten._scaled_dot_product_cudnn_attention(
        query, key, value, None, True, 0.0, True, False, scale=scale
    )
    return outputs[0], outputs[1]


def backward_kernel(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, scale: float
) -> Three:
    """PyTorch's kernel for the gradients, in which NaN may have spread."""
    time, missing = query.shape[2], [None] * 5  # no dropout, no bias, no packed sequences
    gradients: Three = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        d_out, query, key, value, out, lse, *missing, time, time, 0.0, True, scale=scale
    )
    return gradients


def _forward(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    out, lse = forward_kernel(query, key, value, scale)
    repair(query, key, value, out, scale)
    return out, lse


def _backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, scale: float
) -> Three:
    d_out = with_unit_step(d_out)
    gradients = backward_kernel(d_out, query, key, value, out, lse, scale)
    repair_gradients(query, key, value, d_out, *gradients, scale)
    return gradients


_repairs: dict[Any, Bound] = {}


def repair(query: Tensor, key: Tensor, value: Tensor, out: Tensor, scale: float) -> None:
    """Compute the heads of `out` again in which something is not finite."""
    _launch(causal_repair_kernel, scale, query, key, value, out)


def repair_gradients(
    query: Tensor, key: Tensor, value: Tensor, d_out: Tensor, d_query: Tensor, d_key: Tensor, d_value: Tensor,
    scale: float,
) -> None:  # fmt: skip
    """Compute the gradients of heads again in which something is not finite."""
    batch, heads, time, _ = query.shape
    room = torch.empty(2, batch, heads, time, dtype=torch.float32, device=query.device)
    _launch(causal_gradient_repair_kernel, scale, query, key, value, d_out, d_query, d_key, d_value, room=room)


def _launch(kernel: Kernel, scale: float, *tensors: Tensor, room: Tensor | None = None) -> None:
    query = tensors[0]
    steps = tuple(tensor.stride() for tensor in tensors)
    signature = (kernel, scale, query.shape, query.dtype, query.get_device(), steps)
    bound = _repairs.get(signature)
    if bound is None:
        batch, heads, time, dim = query.shape
        constants = {
            "SCALE": scale,
            "DIM": dim,
            "BLOCK_DIM": max(16, 1 << (dim - 1).bit_length()),
            "ROWS": ROWS,
            "PRECISION": "ieee" if query.dtype == torch.float32 else "tf32",
        }
        bound = Bound(kernel, (batch * heads,), [*strides(*tensors), heads, time], {**constants, "stages": 1})
        store_launch(_repairs, signature, bound)
    bound(*tensors) if room is None else bound(*tensors, room)


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
