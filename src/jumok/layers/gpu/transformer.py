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
from torch.autograd.function import once_differentiable

from jumok.layers.gpu.transformer_kernels import (
    activation_backward_kernel,
    add_norm_backward_kernel,
    add_norm_kernel,
    column_sums_kernel,
)

WIDEST = 4096
"""Widest row that one program of `add_norm` holds in registers."""
PROGRAMS = 1056
"""Programs of the backward pass of `add_norm` and of column sums, 8 for each multiprocessor of an H200."""
ROWS, COLUMNS = 64, 128
"""Tile of the backward pass of an activation function."""
SUM_ROWS = 32
"""Rows of a tile of column sums; as many groups of rows have a sum each as make PROGRAMS programs of all columns."""
PART_ROWS, PART_COLUMNS = 512, 8
"""Tile of the sums over these groups: few columns, so that there are many programs, and few turns over the rows."""


def add_norm(
    x: Float[Tensor, "batch time width"],
    change: Float[Tensor, "batch time width"] | None,
    norm: nn.LayerNorm,
    *,
    bias: Float[Tensor, " width"] | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    post: bool = False,
) -> tuple[Float[Tensor, "batch time width"], Float[Tensor, "batch time width"]]:
    """y = x + dropout(change + bias), and norm(y) in the precision of matrix products; y = x without a change.

    With `post`, y is norm(x + dropout(change + bias)) in the precision of x, and the second result is y for matrix
    products. `bias` is that of the linear map that gave the change: its gradient is summed here, where that of the
    change is found, and not in another pass.
    """
    x, change = x.contiguous(), None if change is None else change.contiguous()
    return _AddNorm.apply(x, change, bias, norm.weight, norm.bias, seed, _Options(norm, x, dropout, post))  # type: ignore[no-any-return, no-untyped-call]


def embed_norm(
    vectors: Float[Tensor, "batch time width"],
    positions: Float[Tensor, "time width"] | None,
    norm: nn.LayerNorm,
    *,
    factor: float = 1.0,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> tuple[Float[Tensor, "batch time width"], Float[Tensor, "batch time width"]]:
    """y = dropout(factor · vectors + positions), and norm(y) in the precision of matrix products.

    The positions have no gradient.
    """
    options = _Options(norm, vectors, dropout, False, factor)
    return _AddNorm.apply(None, vectors.contiguous(), positions, norm.weight, norm.bias, seed, options)  # type: ignore[no-any-return, no-untyped-call]


class _Options:
    """What `_AddNorm` takes beside tensors."""

    def __init__(self, norm: nn.LayerNorm, x: Tensor, dropout: float, post: bool, factor: float = 1.0) -> None:
        self.eps, self.dtype = norm.eps, product_dtype(x)
        self.dropout, self.post, self.factor = dropout, post, factor


def sum_and_norm(
    x: Tensor | None, change: Tensor | None, change_bias: Tensor | None, weight: Tensor, bias: Tensor, eps: float,
    dtype: torch.dtype, *, seed: Tensor | None = None, dropout: float = 0.0, post: bool = False, factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The results of `add_norm` or `embed_norm` for contiguous tensors, and the mean and scale of every row."""
    like = change if x is None else x
    assert like is not None
    width = like.shape[-1]
    rows = like.numel() // width
    y, stats = like if change is None else torch.empty_like(like), like.new_empty(2, rows, dtype=torch.float32)
    normed = torch.empty_like(like, dtype=dtype)
    add_norm_kernel(
        (rows,), like, like if change is None else change, weight if change_bias is None else change_bias, weight,
        bias, stats if seed is None else seed, y, normed, *stats, width, EPS=eps,
        DROPOUT=0.0 if seed is None else dropout, X=x is not None, CHANGE=change is not None, FACTOR=factor,
        BIASES=0 if change_bias is None else change_bias.numel() // width, POST=post,
        BLOCK=triton.next_power_of_2(width), warps=_warps(width),
    )  # fmt: skip
    return y, normed, stats


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor | None, change: Tensor | None, change_bias: Tensor | None, weight: Tensor, bias: Tensor,
        seed: Tensor | None, options: _Options,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        post, ctx.factor, ctx.dropout = options.post, options.factor, 0.0 if seed is None else options.dropout
        y, normed, stats = sum_and_norm(
            x, change, change_bias, weight, bias, options.eps, options.dtype, seed=seed, dropout=ctx.dropout,
            post=post, factor=ctx.factor,
        )  # fmt: skip
        kept = (x, change) if post else (y, None)  # a post-norm layer computes the sum again
        ctx.save_for_backward(*kept, change_bias if ctx.needs_input_grad[2] or post else None, stats, weight, seed)
        ctx.has_x, ctx.dtype = x is not None, None if change is None else change.dtype
        ctx.set_materialize_grads(False)  # no zeros for what is not used
        return y, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor | None, d_normed: Tensor | None) -> tuple[Tensor | None, ...]:
        y, added, change_bias, stats, weight, seed = ctx.saved_tensors
        width = y.shape[-1]
        rows = y.numel() // width
        programs = min(PROGRAMS, rows)
        sums = y.new_empty(2 if change_bias is None else 3, programs, width, dtype=torch.float32)
        d_x = torch.empty_like(y) if ctx.has_x else None
        d_change = None if ctx.dtype is None else torch.empty_like(y, dtype=ctx.dtype)
        d_normed = torch.zeros_like(y) if d_normed is None else d_normed.contiguous()
        add_norm_backward_kernel(
            (programs,), y if d_y is None else d_y.contiguous(), d_normed, y, y if added is None else added,
            weight if change_bias is None else change_bias, weight, stats if seed is None else seed, *stats,
            d_change if d_x is None else d_x, d_x if d_change is None else d_change, sums, rows, width,
            DROPOUT=ctx.dropout, D_Y=d_y is not None, X=d_x is not None, CHANGE=d_change is not None,
            FACTOR=ctx.factor, CHANGE_BIAS=change_bias is not None, POST=added is not None,
            BLOCK=triton.next_power_of_2(width), warps=_warps(width),
        )  # fmt: skip
        d_weight, d_bias, *d_change_bias = sum_of_parts(sums, weight.dtype)
        return d_x, d_change, d_change_bias[0] if d_change_bias else None, d_weight, d_bias, None, None


def _warps(width: int) -> int:
    """Four numbers a thread, as measured on an H200."""
    return max(1, min(8, 1 << (width - 1).bit_length() >> 7))


def product_dtype(x: Tensor) -> torch.dtype:
    """The precision that autocast multiplies matrices in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def linear_on_gpu(
    x: Float[Tensor, "*lead width"], weight: Float[Tensor, "out width"], bias: Float[Tensor, " out"]
) -> Float[Tensor, "*lead out"]:
    """x Wᵀ + b; PyTorch sums the gradient of b over the rows four times as slowly."""
    dtype = product_dtype(x)
    out: Tensor = linear_forward(x.flatten(0, -2).to(dtype), weight.to(dtype), bias.to(dtype))
    return out.view(*x.shape[:-1], -1)


@torch.library.custom_op("jumok::linear", mutates_args=())
def linear_forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b for [row, width], all of one dtype."""
    return torch.addmm(bias, x, weight.t())


@torch.library.custom_op("jumok::column_sums", mutates_args=())
def column_sums(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The sum over the rows of a contiguous [row, width] in a dtype, always in the same order."""
    rows, width = x.shape
    tiles = triton.cdiv(width, COLUMNS)
    groups = max(1, min(PROGRAMS // tiles, triton.cdiv(rows, SUM_ROWS)))
    sums = x.new_empty(groups, width, dtype=torch.float32)
    column_sums_kernel((tiles, groups), x, sums, rows, width, ROWS=SUM_ROWS, COLUMNS=COLUMNS)
    return sum_of_parts(sums[None], dtype or x.dtype)[0]


def sum_of_parts(parts: Float[Tensor, "matrix part width"], dtype: torch.dtype) -> Float[Tensor, "matrix width"]:
    """The sum over the parts, in one kernel where PyTorch takes one for the sum and another for the cast."""
    matrices, count, width = parts.shape
    sums = parts.new_empty(matrices, width, dtype=dtype)
    column_sums_kernel(
        (triton.cdiv(width, PART_COLUMNS), 1, matrices), parts, sums, count, width, ROWS=PART_ROWS,
        COLUMNS=PART_COLUMNS, warps=8,
    )  # fmt: skip
    return sums


@linear_forward.register_fake
def _product_shape(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


@column_sums.register_fake
def _sums_shape(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return x.new_empty(x.shape[1], dtype=dtype or x.dtype)


def _keep_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _product_backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    d_out = d_out.contiguous()
    d_bias = d_out.sum(0) if torch.is_grad_enabled() else column_sums(d_out)  # the first for a second gradient
    return d_out @ weight, d_out.t() @ x, d_bias


linear_forward.register_autograd(_product_backward, setup_context=_keep_product)


def linear_activation(
    x: Float[Tensor, "row width"], weight: Float[Tensor, "out width"], bias: Float[Tensor, " out"], activation: str
) -> tuple[Float[Tensor, "row out"], Float[Tensor, "row out"]]:
    """activation(x Wᵀ + b) for "relu", "gelu" and "silu", and what `activation_backward` needs; all of one dtype."""
    if activation == "relu":
        out: Tensor = torch.ops.aten._addmm_activation(bias, x, weight.t())
        return out, out
    hidden = torch.addmm(bias, x, weight.t())
    return F.gelu(hidden) if activation == "gelu" else F.silu(hidden), hidden


def activation_backward(
    d_out: Float[Tensor, "row out"], saved: Float[Tensor, "row out"], activation: str, dtype: torch.dtype
) -> tuple[Float[Tensor, "row out"], Float[Tensor, " out"]]:
    """The gradient before an activation function, and its sum over the rows in a dtype.

    `saved` is the output of a ReLU, and the input of other functions.
    """
    (rows, width), d_hidden = saved.shape, torch.empty_like(saved)
    tiles = triton.cdiv(rows, ROWS)
    sums = saved.new_empty(tiles, width, dtype=torch.float32)
    activation_backward_kernel(
        (triton.cdiv(width, COLUMNS), tiles), d_out.contiguous(), saved, d_hidden, sums, rows, width,
        ACTIVATION=activation, ROWS=ROWS, COLUMNS=COLUMNS,
    )  # fmt: skip
    return d_hidden, sum_of_parts(sums[None], dtype)[0]
