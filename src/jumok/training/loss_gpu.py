"""Cross-entropy of an output layer on a GPU, some tokens at a time, without the logits of all tokens.

The logits x = h Wᵀ + b of some tokens are one matrix product. One pass over them finds log Z = log Σ exp(x), the loss
log Z - (1 - s) · x[target] - s · mean(x), and writes the gradient p - (1 - s) · [target] - s / V where the logits were;
its products with W and h are the gradients of the states and the weights. All of it happens in the forward pass: the
backward pass only multiplies by the gradient of the sum. Importing this module imports Triton.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.triton_launch import kernel

MOST_LOGITS = 2**27
"""Logits in memory at once, 256 MiB in bfloat16; fewer make the matrix products too small for a large GPU."""
ALIGNED = 8
"""Rows of logits begin at multiples of this, so that their matrix products run on whole vectors."""
BLOCK = 4096
ROWS, COLUMNS = 32, 128
"""Tile of the pass that writes the gradient and sums it over tokens."""

Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@kernel
def row_sums_kernel(
    logits, target, log_sums, totals, entropies, vocabulary, stride, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr
):
    """One row: log Z, the smoothed loss, and the cross-entropy; zeros where the target is negative."""
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * stride
    columns = tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), float("-inf"), tl.float32)
    partial = tl.zeros((BLOCK,), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, vocabulary, BLOCK):
        inside = first + columns < vocabulary
        x = tl.load(start + first + columns, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, x)
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        partial = partial * tl.exp(highest - finite) + tl.exp(x - finite)
        highest = higher
        if SMOOTHING:
            sums += tl.where(inside, x, 0.0)
    top = tl.max(highest, 0)
    log_sum = top + tl.log(tl.sum(partial * tl.exp(highest - top), 0))
    wanted = tl.load(target + row)
    counted = wanted >= 0
    right = tl.load(start + tl.maximum(wanted, 0)).to(tl.float32)
    entropy = log_sum - right
    total = entropy
    if SMOOTHING:
        total = (1 - SMOOTHING) * entropy + SMOOTHING * (log_sum - tl.sum(sums, 0) / vocabulary)
    tl.store(log_sums + row, log_sum)
    tl.store(entropies + row, tl.where(counted, entropy, 0.0))
    tl.store(totals + row, tl.where(counted, total, 0.0))


@kernel
def gradient_kernel(
    logits, target, log_sums, bias_sums, rows, vocabulary, stride,
    SMOOTHING: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """One tile: the gradient in the place of the logits, and its sums over the tile's rows."""
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column = row < rows, column < vocabulary
    wanted = tl.load(target + row, mask=is_row, other=-1)
    log_sum = tl.load(log_sums + row, mask=is_row, other=0.0)
    place = logits + row[:, None] * stride + column[None]
    inside = is_row[:, None] & is_column[None]
    x = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
    gradient = tl.exp(x - log_sum[:, None]) - SMOOTHING / vocabulary
    gradient = tl.where(column[None] == wanted[:, None], gradient - (1 - SMOOTHING), gradient)
    gradient = tl.where(wanted[:, None] >= 0, gradient, 0.0)
    tl.store(place, gradient, mask=inside)
    if BIAS:
        tl.store(bias_sums + tl.program_id(1) * vocabulary + column, tl.sum(gradient, 0), mask=is_column)


def smoothed_cross_entropy_of_states(
    states: Float[Tensor, "token width"],
    weight: Float[Tensor, "vocabulary width"],
    bias: Float[Tensor, " vocabulary"] | None,
    target: Int[Tensor, " token"],
    *,
    smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sums over tokens of `smoothed_cross_entropy(states Wᵀ + b, target)`; a negative target counts nothing."""
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    learns = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in (states, weight, bias))
    total, entropy, *_ = output_loss(states, weight, bias, target, smoothing, dtype, learns)
    return total, entropy


@torch.library.custom_op("jumok::output_loss", mutates_args=())
def output_loss(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    smoothing: float,
    dtype: torch.dtype,
    learns: bool,
) -> Five:
    """Smoothed loss and cross-entropy, and the gradients of states, weight and bias, which are empty unless `learns`.

    Matrix products are computed in `dtype`, sums in single precision.
    """
    with torch.autocast(states.device.type, enabled=False):
        return _chunked(states, weight, bias, target, smoothing, dtype, learns)


def _chunked(
    states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, dtype: torch.dtype,
    learns: bool,
) -> Five:  # fmt: skip
    (tokens, width), vocabulary = states.shape, len(weight)
    chunk, stride = chunk_rows(tokens, vocabulary), -(-vocabulary // ALIGNED) * ALIGNED
    hidden, matrix = states.to(dtype), weight.to(dtype)
    vector = None if bias is None else bias.to(dtype)
    buffer = hidden.new_empty(chunk, stride)
    log_sums, totals, entropies = states.new_empty(3, tokens, dtype=torch.float32)
    d_states = hidden.new_empty(tokens if learns else 0, width)
    d_weight = states.new_zeros(weight.shape if learns else (0,), dtype=torch.float32)
    d_bias = states.new_zeros(bias.shape if learns and bias is not None else (0,), dtype=torch.float32)
    for first in range(0, tokens, chunk):
        part = slice(first, min(first + chunk, tokens))
        rows = part.stop - first
        logits = _product(vector, hidden[part], matrix.t(), out=buffer[:rows, :vocabulary])
        row_sums_kernel(
            (rows,), logits, target[part], log_sums[part], totals[part], entropies[part], vocabulary, stride,
            SMOOTHING=smoothing, BLOCK=min(BLOCK, triton.next_power_of_2(vocabulary)),
        )  # fmt: skip
        if not learns:
            continue
        tiles = triton.cdiv(rows, ROWS)
        sums = log_sums.new_empty(tiles if bias is not None else 0, vocabulary)
        gradient_kernel(
            (triton.cdiv(vocabulary, COLUMNS), tiles), logits, target[part], log_sums[part], sums, rows, vocabulary,
            stride, SMOOTHING=smoothing, ROWS=ROWS, COLUMNS=COLUMNS, BIAS=bias is not None,
        )  # fmt: skip
        torch.mm(logits, matrix, out=d_states[part])
        _add_product(d_weight, logits.t(), hidden[part])
        if bias is not None:
            d_bias += sums.sum(0)
    return totals.sum(), entropies.sum(), d_states, d_weight, d_bias


def chunk_rows(tokens: int, vocabulary: int) -> int:
    """Tokens at a time: the chunks are of one size but for the last, and whole tiles of a matrix product."""
    most = max(MOST_LOGITS // vocabulary, 128)
    return min(triton.cdiv(triton.cdiv(tokens, triton.cdiv(tokens, most)), 128) * 128, tokens)


def _product(vector: Tensor | None, left: Tensor, right: Tensor, *, out: Tensor) -> Tensor:
    """left · right + vector, into `out`."""
    return torch.mm(left, right, out=out) if vector is None else torch.addmm(vector, left, right, out=out)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left · right in single precision."""
    if total.is_cuda and left.dtype != torch.float32:
        torch.ops.aten.addmm.dtype_out(total, left, right, torch.float32, out=total)
    else:
        total.addmm_(left.float(), right.float())


@output_loss.register_fake
def _shapes(
    states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, dtype: torch.dtype,
    learns: bool,
) -> Five:  # fmt: skip
    single = torch.float32
    return (
        states.new_empty((), dtype=single),
        states.new_empty((), dtype=single),
        states.new_empty(states.shape if learns else (0, states.shape[1]), dtype=dtype),
        states.new_empty(weight.shape if learns else (0,), dtype=single),
        states.new_empty(bias.shape if learns and bias is not None else (0,), dtype=single),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Five) -> None:
    states, weight, bias, *_ = inputs
    ctx.dtypes = states.dtype, weight.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(*output[2:])


def _scale(ctx: Any, d_total: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of the forward pass times that of the total; the cross-entropy is for looking at alone."""
    found = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
    scaled = (None if dtype is None else (part * d_total).to(dtype) for part, dtype in found)
    return (*scaled, None, None, None, None)


output_loss.register_autograd(_scale, setup_context=_keep)
