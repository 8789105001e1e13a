"""Passes over the logits of some tokens: the loss of every row, and the gradient in the place of the logits."""

import triton.language as tl

from jumok.attention.triton_launch import kernel


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
        if SMOOTHING > 0:
            sums += tl.where(inside, x, 0.0)
    top = tl.max(highest, 0)
    log_sum = top + tl.log(tl.sum(partial * tl.exp(highest - top), 0))
    wanted = tl.load(target + row)
    counted = wanted >= 0
    right = tl.load(start + tl.maximum(wanted, 0)).to(tl.float32)
    entropy = log_sum - right
    total = entropy
    if SMOOTHING > 0:
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
