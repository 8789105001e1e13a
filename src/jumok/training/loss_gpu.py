"""Cross-entropy of an output layer on a GPU, some tokens at a time, without the logits of all tokens.

The logits x = h Wᵀ + b of some tokens are one matrix product. One kernel finds log Z = log Σ exp(x) and the loss
log Z - (1 - s) · x[target] - s · mean(x) of every row. Another writes the gradient p - (1 - s) · [target] - s / V where
the logits were, and sums it over the rows for the gradient of b; its products with W and h are the gradients of the
states and the weights. All of it happens in the forward pass: the backward pass only multiplies by the gradient of the
sum. With R-Drop, the logits of both passes over the same tokens
are in memory together. Importing this module imports Triton.
"""

from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from jumok.layers.gpu.transformer import sum_of_parts
from jumok.training.gpu_kernels import loss_gradient_kernel, loss_kernel, r_drop_kernel
from jumok.training.r_drop import LOWEST

MOST_LOGITS = 13 * 2**24
"""Logits in memory at once, 416 MiB in bfloat16; fewer make the matrix products too small for a large GPU."""
ALIGNED = 8
"""Rows of logits begin at multiples of this, so that their matrix products run on whole vectors."""
TILE = 128
"""Rows of a tile of a matrix product."""
BLOCK = 4096
"""Logits of a row that one program reads at a time."""
ROWS, COLUMNS, TURNS = 16, 256, 8
"""Tile of the gradient, and how many of them, one below the other, are one program's."""

Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def smoothed_cross_entropy_of_states(
    states: Float[Tensor, "token width"],
    weight: Float[Tensor, "vocabulary width"],
    bias: Float[Tensor, " vocabulary"] | None,
    target: Int[Tensor, " token"],
    *,
    smoothing: float = 0.0,
    r_drop: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sums over tokens of `smoothed_cross_entropy(states Wᵀ + b, target)`; a negative target counts nothing.

    With `r_drop` above 0, the second half of the states is another pass over the tokens of the first half, and the sums
    are those of `r_drop.py`.
    """
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    learns = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in (states, weight, bias))
    total, entropy, *_ = output_loss(states, weight, bias, target, smoothing, r_drop, dtype, learns)
    return total, entropy


@torch.library.custom_op("jumok::output_loss", mutates_args=())
def output_loss(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    smoothing: float,
    r_drop: float,
    dtype: torch.dtype,
    learns: bool,
) -> Five:
    """Smoothed loss and cross-entropy, and the gradients of states, weight and bias, which are empty unless `learns`.

    Matrix products are computed in `dtype`, sums in single precision.
    """
    with torch.autocast(states.device.type, enabled=False):
        return _chunked(states, weight, bias, target, smoothing, r_drop, dtype, learns)


def _chunked(
    states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, r_drop: float,
    dtype: torch.dtype, learns: bool,
) -> Five:  # fmt: skip
    (positions, width), vocabulary, passes = states.shape, len(weight), 2 if r_drop else 1
    tokens = positions // passes
    chunk, stride = chunk_rows(tokens, passes * vocabulary), -(-vocabulary // ALIGNED) * ALIGNED
    hidden, matrix = states.to(dtype).view(passes, tokens, width), weight.to(dtype)
    vector = None if bias is None else bias.to(dtype)
    buffer = hidden.new_empty(passes, chunk, stride)
    totals, entropies, log_sums = states.new_empty(3, tokens, dtype=torch.float32)
    d_states = hidden.new_empty(passes, tokens if learns else 0, width)
    d_weight = states.new_zeros(weight.shape if learns else (0,), dtype=torch.float32)
    d_biases = []
    block = max(min(BLOCK, triton.next_power_of_2(vocabulary)), ALIGNED)
    for first in range(0, tokens, chunk):
        part = slice(first, min(first + chunk, tokens))
        rows = part.stop - first
        logits = [
            _product(vector, hidden[number, part], matrix.t(), out=buffer[number, :rows, :vocabulary])
            for number in range(passes)
        ]
        if r_drop:
            r_drop_kernel(
                (rows,), logits[0], target[part], totals[part], entropies[part], vocabulary, stride, chunk * stride,
                SMOOTHING=smoothing, ALPHA=r_drop, LOWEST=LOWEST, GRADIENT=learns, BLOCK=block, warps=8,
            )  # fmt: skip
        else:
            loss_kernel(
                (rows,), logits[0], target[part], log_sums[part], totals[part], entropies[part], vocabulary, stride,
                SMOOTHING=smoothing, BLOCK=block, warps=8,
            )  # fmt: skip
        if not learns:
            continue
        if not r_drop:
            d_biases.append(_gradient(logits[0], target[part], log_sums[part], smoothing, summed=bias is not None))
        elif bias is not None:
            d_biases += [part.sum(0, keepdim=True, dtype=torch.float32) for part in logits]
        for number in range(passes):
            torch.mm(logits[number], matrix, out=d_states[number, part])
            _add_product(d_weight, logits[number].t(), hidden[number, part])
    d_bias = _total(d_biases) if learns and bias is not None and tokens else d_weight.new_zeros(_size(bias, learns))
    return totals.sum(), entropies.sum(), d_states.flatten(0, 1), d_weight, d_bias


def _gradient(
    logits: Float[Tensor, "token vocabulary"],
    target: Int[Tensor, " token"],
    log_sums: Float[Tensor, " token"],
    smoothing: float,
    *,
    summed: bool,
) -> Float[Tensor, "group vocabulary"]:
    """Write the gradient in the place of the logits; if `summed`, its sums over groups of rows."""
    rows, vocabulary = logits.shape
    groups = triton.cdiv(rows, ROWS * TURNS)
    sums = log_sums.new_empty(groups if summed else 1, vocabulary if summed else 1)
    loss_gradient_kernel(
        (triton.cdiv(vocabulary, COLUMNS), groups), logits, target, log_sums, sums, rows, vocabulary,
        logits.stride(0), SMOOTHING=smoothing, SUMS=summed, ROWS=ROWS, COLUMNS=COLUMNS, TURNS=TURNS,
    )  # fmt: skip
    return sums


def _total(parts: list[Float[Tensor, "group vocabulary"]]) -> Float[Tensor, " vocabulary"]:
    """The sum over all groups of all chunks."""
    return sum_of_parts(torch.cat(parts)[None], torch.float32)[0]


def _size(bias: Tensor | None, learns: bool) -> tuple[int, ...]:
    return tuple(bias.shape) if learns and bias is not None else (0,)


def chunk_rows(tokens: int, vocabulary: int) -> int:
    """Tokens at a time: the chunks are of one size but for the last, and whole tiles of a matrix product."""
    most = max(MOST_LOGITS // vocabulary, TILE)
    even = -(-tokens // max(-(-tokens // most), 1))
    return max(min(-(-even // TILE) * TILE, tokens), 1)


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
    states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, r_drop: float,
    dtype: torch.dtype, learns: bool,
) -> Five:  # fmt: skip
    single = torch.float32
    return (
        states.new_empty((), dtype=single),
        states.new_empty((), dtype=single),
        states.new_empty(states.shape if learns else (0, states.shape[1]), dtype=dtype),
        states.new_empty(weight.shape if learns else (0,), dtype=single),
        states.new_empty(_size(bias, learns), dtype=single),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Five) -> None:
    states, weight, bias, *_ = inputs
    ctx.dtypes = states.dtype, weight.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(*output[2:])


def _scale(ctx: Any, d_total: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of the forward pass times that of the total; the cross-entropy has no gradient."""
    gradients = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
    scaled = (None if dtype is None else (part * d_total).to(dtype) for part, dtype in gradients)
    return (*scaled, None, None, None, None, None)


output_loss.register_autograd(_scale, setup_context=_keep)
