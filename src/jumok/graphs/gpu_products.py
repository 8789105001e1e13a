"""Products of the features of many nodes with weights, in single precision on the tensor cores of a GPU.

Tensor cores read 11 of the 24 bits of a number (TF32). A number is therefore split into two, x = x₁ + x₂, and three
products, x₂w₁ + x₁w₂ + x₁w₁, lose no more than single precision does (Ootomo and Yokota, "Recovering single precision
accuracy from Tensor Cores", 2022). They take less time than one product on the other cores. Importing this module
imports Triton.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from jumok.attention.additive.gpu.forward_kernels import high_bits
from jumok.attention.triton_launch import kernel

FEWEST = 8192
"""Nodes from which it pays."""
ROWS, COLS, INNER, WARPS, STAGES = 64, 128, 32, 4, 3
"""A tile of the product, and how many terms of each sum it takes at a time."""


@kernel
def product_kernel(
    x, high, low, bias, out, rows_count, cols_count, inner,
    BIAS: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """A tile of x · (high + low)ᵀ, plus a bias; with ADD, added to what is there.

    Tensor cores truncate sums instead of rounding them, so sums of INNER terms are added outside.
    """
    rows, cols = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLS + tl.arange(0, COLS)
    rows_in, cols_in = rows < rows_count, cols < cols_count
    acc = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, inner, INNER):
        terms = start + tl.arange(0, INNER)
        inside = terms < inner
        pointers = x + rows[:, None].to(tl.int64) * inner + terms[None, :]
        left = tl.load(pointers, mask=rows_in[:, None] & inside[None, :], other=0.0)
        offsets = terms[:, None] + cols[None, :] * inner
        right = tl.load(high + offsets, mask=inside[:, None] & cols_in[None, :], other=0.0)
        right_low = tl.load(low + offsets, mask=inside[:, None] & cols_in[None, :], other=0.0)
        left_high = high_bits(left)
        correction = tl.dot(left - left_high, right, input_precision="tf32")
        correction = tl.dot(left_high, right_low, correction, input_precision="tf32")
        acc += tl.dot(left_high, right, correction, input_precision="tf32")
    place = out + rows[:, None].to(tl.int64) * cols_count + cols[None, :]
    inside = rows_in[:, None] & cols_in[None, :]
    if BIAS:
        acc += tl.load(bias + cols, mask=cols_in, other=0.0)[None, :]
    if ADD:
        acc += tl.load(place, mask=inside, other=0.0)
    tl.store(place, acc, mask=inside)


def product(
    x: Float[Tensor, "row inner"], weight: Float[Tensor, "col inner"], bias: Tensor | None = None,
    *, onto: Float[Tensor, "row col"] | None = None,
) -> Float[Tensor, "row col"]:  # fmt: skip
    """x Wᵀ + b, or that added `onto` a tensor in place."""
    high = ((weight.view(torch.int32) + 4096) & -8192).view(torch.float32)
    out = torch.empty(len(x), len(weight), device=x.device) if onto is None else onto
    product_kernel(
        (triton.cdiv(len(weight), COLS), triton.cdiv(len(x), ROWS)),
        x, high, weight - high, weight if bias is None else bias, out, len(x), *weight.shape,
        BIAS=bias is not None, ADD=onto is not None, ROWS=ROWS, COLS=COLS, INNER=INNER, warps=WARPS, stages=STAGES,
    )  # fmt: skip
    return out


class Linears(Function):
    """x Wᵀ + b for one or several pairs of weight and bias, given one after another."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *pairs: Tensor | None) -> tuple[Tensor, ...]:
        weights, biases = pairs[::2], pairs[1::2]
        ctx.save_for_backward(x, *weights)
        ctx.biased = [bias is not None for bias in biases]
        together = x.contiguous()
        return tuple(product(together, w.contiguous(), b) for w, b in zip(weights, biases, strict=True))  # type: ignore[union-attr]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        d_x, gradients = None, []
        ones = x.new_ones(len(x))
        for grad, weight, biased in zip(grads, weights, ctx.biased, strict=True):
            grad = grad.contiguous()
            if ctx.needs_input_grad[0]:
                d_x = product(grad, weight.mT.contiguous(), onto=d_x)
            # A sum over all nodes: one long product is as fast on the other cores.
            gradients += [grad.mT @ x, grad.mT.mv(ones) if biased else None]
        return d_x, *gradients


def suits(x: Tensor, *weights: Tensor) -> bool:
    """Whether the tensors are such that it pays, and the user has not chosen another precision."""
    single = all(part.dtype == torch.float32 for part in (x, *weights))
    wide = all(32 <= size <= 4096 for weight in weights for size in weight.shape)
    exact = torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled("cuda")
    return x.is_cuda and len(x) >= FEWEST and single and wide and exact and _has_fast_cores(x.device)


def _has_fast_cores(device: torch.device) -> bool:
    return torch.cuda.get_device_properties(device).major >= 9
