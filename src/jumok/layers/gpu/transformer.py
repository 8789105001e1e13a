"""What stands between the matrix products of a Transformer layer, as PyTorch operators on a GPU.

`add_norm` is a residual connection with dropout and the layer norm that follows it; `linear_activation` is a linear map
and an activation function, in one product if that is the ReLU. Importing this module imports Triton.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton
from jaxtyping import Float
from torch import Tensor, nn

from jumok.layers.gpu.transformer_kernels import (
    activation_backward_kernel,
    add_norm_backward_kernel,
    add_norm_kernel,
    column_sums_kernel,
)

WIDEST = 4096
"""Widest row that one program of `add_norm` holds in registers."""
PROGRAMS = 1056
"""Programs of the backward pass of `add_norm`, 8 for each multiprocessor of an H200."""
ROWS, COLUMNS = 64, 128
"""Tile of the backward pass of an activation function."""
SUM_ROWS, GROUPS = 32, 128
"""Rows of a tile of column sums, and groups of rows with a sum each."""
PART_ROWS, PART_COLUMNS = 128, 32
"""Tile of the sums over these groups."""


def add_norm(
    x: Float[Tensor, "batch time width"],
    change: Float[Tensor, "batch time width"] | None,
    norm: nn.LayerNorm,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    post: bool = False,
) -> tuple[Float[Tensor, "batch time width"], Float[Tensor, "batch time width"]]:
    """y = x + dropout(change), and norm(y) in the precision of matrix products; y = x without a change.

    With `post`, y is norm(x + dropout(change)) in the precision of x, and the second result is y for matrix products.
    """
    dtype = _product_dtype(x)
    y, normed, *_ = add_norm_forward(
        x.contiguous(), change if change is None else change.contiguous(), norm.weight, norm.bias, seed, dropout,
        norm.eps, dtype, post,
    )  # fmt: skip
    return x if change is None else y, normed


@torch.library.custom_op("jumok::add_norm", mutates_args=())
def add_norm_forward(
    x: Tensor,
    change: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    dropout: float,
    eps: float,
    dtype: torch.dtype,
    post: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """y (empty without a change), its norm, and the mean and scale of every row."""
    width = x.shape[-1]
    y, normed, stats = _results(x, change, dtype)
    rows = x.numel() // width
    add_norm_kernel(
        (rows,), x, x if change is None else change, weight, bias, stats if seed is None else seed, y, normed,
        *stats, width, EPS=eps, DROPOUT=0.0 if seed is None else dropout, CHANGE=change is not None, POST=post,
        BLOCK=triton.next_power_of_2(width), warps=_warps(width),
    )  # fmt: skip
    return y, normed, stats


@add_norm_forward.register_fake
def _shapes(
    x: Tensor, change: Tensor | None, weight: Tensor, bias: Tensor, seed: Any, dropout: float, eps: float,
    dtype: torch.dtype, post: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _results(x, change, dtype)


def _results(x: Tensor, change: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    y = x.new_empty(0) if change is None else torch.empty_like(x)
    stats = x.new_empty(2, x.numel() // x.shape[-1], dtype=torch.float32)
    return y, torch.empty_like(x, dtype=dtype), stats


@torch.library.custom_op("jumok::add_norm_backward", mutates_args=())
def add_norm_backward(
    d_y: Tensor | None,
    d_normed: Tensor,
    y: Tensor,
    added: Tensor | None,
    stats: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    dropout: float,
    change: torch.dtype | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of the change (empty without one), and of weight and bias together.

    `y` is the sum that was normed; for a post-norm layer, it is x and `added` is the change.
    """
    width = y.shape[-1]
    rows = y.numel() // width
    d_x, d_change = _gradients(y, change)
    programs = min(PROGRAMS, rows)
    parts = y.new_empty(2, programs, width, dtype=torch.float32)
    add_norm_backward_kernel(
        (programs,), torch.zeros_like(y) if d_y is None else d_y.contiguous(), d_normed.contiguous(), y,
        y if added is None else added, weight, stats if seed is None else seed, *stats, d_x, d_change, *parts, rows,
        width, DROPOUT=0.0 if seed is None else dropout, CHANGE=change is not None, POST=added is not None,
        BLOCK=triton.next_power_of_2(width), warps=_warps(width),
    )  # fmt: skip
    return d_x, d_change, sum_of_parts(parts, weight.dtype)


@add_norm_backward.register_fake
def _gradient_shapes(
    d_y: Any, d_normed: Tensor, y: Tensor, added: Any, stats: Tensor, weight: Tensor, seed: Any, dropout: float,
    change: torch.dtype | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return *_gradients(y, change), weight.new_empty(2, len(weight))


def _gradients(y: Tensor, change: torch.dtype | None) -> tuple[Tensor, Tensor]:
    return torch.empty_like(y), y.new_empty(0) if change is None else torch.empty_like(y, dtype=change)


def _warps(width: int) -> int:
    """Four numbers a thread, as measured on an H200."""
    return max(1, min(8, 1 << (width - 1).bit_length() >> 7))


def _keep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, change, weight, _, seed, dropout, *_, post = inputs
    y, _, stats = output
    ctx.save_for_backward(x if change is None or post else y, change if post else None, stats, weight, seed)
    ctx.dropout, ctx.change = dropout, None if change is None else change.dtype


def _norm_backward(ctx: Any, d_y: Tensor | None, d_normed: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    y, added, stats, weight, seed = ctx.saved_tensors
    d_y = None if ctx.change is None else d_y
    d_x, d_change, (d_weight, d_bias) = add_norm_backward(
        d_y, d_normed, y, added, stats, weight, seed, ctx.dropout, ctx.change
    )  # fmt: skip
    return d_x, None if ctx.change is None else d_change, d_weight, d_bias, None, None, None, None, None


add_norm_forward.register_autograd(_norm_backward, setup_context=_keep_norm)


def _product_dtype(x: Tensor) -> torch.dtype:
    """The precision that autocast multiplies matrices in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def linear(
    x: Float[Tensor, "*lead width"], weight: Float[Tensor, "out width"], bias: Float[Tensor, " out"]
) -> Float[Tensor, "*lead out"]:
    """x Wᵀ + b; PyTorch sums the gradient of b over the rows four times as slowly."""
    dtype = _product_dtype(x)
    out: Tensor = linear_forward(x.flatten(0, -2).to(dtype), weight.to(dtype), bias.to(dtype))
    return out.view(*x.shape[:-1], -1)


@torch.library.custom_op("jumok::linear", mutates_args=())
def linear_forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b for [row, width], all of one dtype."""
    return torch.addmm(bias, x, weight.t())


@torch.library.custom_op("jumok::column_sums", mutates_args=())
def column_sums(x: Tensor) -> Tensor:
    """The sum over the rows of a contiguous [row, width], always in the same order."""
    rows, width = x.shape
    groups = max(1, min(GROUPS, triton.cdiv(rows, SUM_ROWS)))
    sums = x.new_empty(groups, width, dtype=torch.float32)
    column_sums_kernel(
        (triton.cdiv(width, COLUMNS), groups), x, sums, rows, width, ROWS=SUM_ROWS, COLUMNS=COLUMNS
    )  # fmt: skip
    return sum_of_parts(sums[None], x.dtype)[0]


def sum_of_parts(parts: Float[Tensor, "matrix part width"], dtype: torch.dtype) -> Float[Tensor, "matrix width"]:
    """The sum over the parts, in one kernel where PyTorch takes one for the sum and another for the cast."""
    matrices, count, width = parts.shape
    sums = parts.new_empty(matrices, width, dtype=dtype)
    column_sums_kernel(
        (triton.cdiv(width, PART_COLUMNS), 1, matrices), parts, sums, count, width, ROWS=PART_ROWS,
        COLUMNS=PART_COLUMNS,
    )  # fmt: skip
    return sums


@linear_forward.register_fake
def _product_shape(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


@column_sums.register_fake
def _sums_shape(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1])


def _keep_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _product_backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    d_out = d_out.contiguous()
    d_bias = d_out.sum(0) if torch.is_grad_enabled() else column_sums(d_out)  # the first for a second gradient
    return d_out @ weight, d_out.t() @ x, d_bias


linear_forward.register_autograd(_product_backward, setup_context=_keep_product)


def linear_activation(
    x: Float[Tensor, "*lead width"], layer: nn.Linear, activation: str
) -> Float[Tensor, "*lead hidden"]:
    """activation(x Wᵀ + b) for "relu", "gelu" and "silu"."""
    dtype = _product_dtype(x)
    rows = x.flatten(0, -2).to(dtype)
    out: Tensor = linear_activation_forward(rows, layer.weight.to(dtype), layer.bias.to(dtype), activation)[0]
    return out.view(*x.shape[:-1], -1)


@torch.library.custom_op("jumok::linear_activation", mutates_args=())
def linear_activation_forward(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """activation(x Wᵀ + b) for [row, width], all of one dtype, and x Wᵀ + b (empty for "relu")."""
    if activation == "relu":
        out: Tensor = torch.ops.aten._addmm_activation(bias, x, weight.t())
        return out, x.new_empty(0)
    hidden = torch.addmm(bias, x, weight.t())
    return F.gelu(hidden) if activation == "gelu" else F.silu(hidden), hidden


@linear_activation_forward.register_fake
def _linear_shapes(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    out = x.new_empty(x.shape[0], weight.shape[0])
    return out, x.new_empty(0) if activation == "relu" else torch.empty_like(out)


@torch.library.custom_op("jumok::activation_backward", mutates_args=())
def activation_backward(d_out: Tensor, saved: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """The gradient before an activation function, and its sum over the rows.

    `saved` is the output of a ReLU, and the input of other functions.
    """
    (rows, width), d_hidden = saved.shape, torch.empty_like(saved)
    tiles = triton.cdiv(rows, ROWS)
    sums = saved.new_empty(tiles, width, dtype=torch.float32)
    activation_backward_kernel(
        (triton.cdiv(width, COLUMNS), tiles), d_out.contiguous(), saved, d_hidden, sums, rows, width,
        ACTIVATION=activation, ROWS=ROWS, COLUMNS=COLUMNS,
    )  # fmt: skip
    return d_hidden, sum_of_parts(sums[None], saved.dtype)[0]


@activation_backward.register_fake
def _activation_shapes(d_out: Tensor, saved: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    return torch.empty_like(saved), saved.new_empty(saved.shape[1])


def _keep_linear(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _, ctx.activation = inputs
    out, hidden = output
    ctx.save_for_backward(x, weight, out if ctx.activation == "relu" else hidden)
    ctx.set_materialize_grads(False)  # no zeros for `hidden`


def _linear_backward(ctx: Any, d_out: Tensor, _: None) -> tuple[Tensor, Tensor, Tensor, None]:
    x, weight, saved = ctx.saved_tensors
    d_hidden, d_bias = activation_backward(d_out, saved, ctx.activation)
    return d_hidden @ weight, d_hidden.t() @ x, d_bias, None


linear_activation_forward.register_autograd(_linear_backward, setup_context=_keep_linear)
