"""Cross-entropy of an output layer on a GPU, some tokens at a time, without the logits of all tokens.

The logits x = h Wᵀ + b of some tokens are one matrix product. One pass over them finds log Z = log Σ exp(x), the loss
log Z - (1 - s) · x[target] - s · mean(x), and writes the gradient p - (1 - s) · [target] - s / V where the logits were;
its products with W and h are the gradients of the states and the weights. All of it happens in the forward pass: the
backward pass only multiplies by the gradient of the sum. With R-Drop, the logits of both passes over the same tokens
are in memory together. Importing this module imports Triton.
"""

from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from jumok.training.gpu_kernels import loss_kernel, r_drop_kernel
from jumok.training.r_drop import LOWEST

MOST_LOGITS = 13 * 2**24
"""Logits in memory at once, 416 MiB in bfloat16; fewer make the matrix products too small for a large GPU."""
ALIGNED = 8
"""Rows of logits begin at multiples of this, so that their matrix products run on whole vectors."""
TILE = 128
"""Rows of a tile of a matrix product."""
BLOCK = 4096

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
    totals, entropies = states.new_empty(2, tokens, dtype=torch.float32)
    d_states = hidden.new_empty(passes, tokens if learns else 0, width)
    d_weight = states.new_zeros(weight.shape if learns else (0,), dtype=torch.float32)
    d_bias = states.new_zeros(bias.shape if learns and bias is not None else (0,), dtype=torch.float32)
    constants = {"SMOOTHING": smoothing, "GRADIENT": learns, "BLOCK": min(BLOCK, triton.next_power_of_2(vocabulary))}
    for first in range(0, tokens, chunk):
        part = slice(first, min(first + chunk, tokens))
        rows = part.stop - first
        logits = [
            _product(vector, hidden[number, part], matrix.t(), out=buffer[number, :rows, :vocabulary])
            for number in range(passes)
        ]
        arguments = (logits[0], target[part], totals[part], entropies[part], vocabulary, stride)
        if r_drop:
            constants |= {"ALPHA": r_drop, "LOWEST": LOWEST}
            r_drop_kernel((rows,), *arguments, chunk * stride, **constants, warps=8)
        else:
            loss_kernel((rows,), *arguments, **constants, warps=8)
        for number in range(passes if learns else 0):
            torch.mm(logits[number], matrix, out=d_states[number, part])
            _add_product(d_weight, logits[number].t(), hidden[number, part])
            if bias is not None:
                d_bias += logits[number].sum(0, dtype=torch.float32)
    return totals.sum(), entropies.sum(), d_states.flatten(0, 1), d_weight, d_bias


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
        states.new_empty(bias.shape if learns and bias is not None else (0,), dtype=single),
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
