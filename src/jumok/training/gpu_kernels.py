"""Losses of the logits of some tokens, and their gradient, written in the place of the logits."""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel

GROUP = tl.constexpr(8)
"""Neighbouring logits that share a running maximum: what one thread reads at once."""


@kernel
def loss_kernel(
    logits, target, log_sums, totals, entropies, vocabulary, stride, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One row: log Z, the smoothed loss and the cross-entropy; losses are zero where the target is negative."""
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * stride
    log_sum, mean = _log_sum(start, vocabulary, BLOCK)
    wanted = tl.load(target + row)
    counted = wanted >= 0
    entropy = log_sum - tl.load(start + tl.maximum(wanted, 0)).to(tl.float32)
    total = entropy
    if SMOOTHING > 0:
        total = (1 - SMOOTHING) * entropy + SMOOTHING * (log_sum - mean)
    tl.store(log_sums + row, log_sum)
    tl.store(entropies + row, tl.where(counted, entropy, 0.0))
    tl.store(totals + row, tl.where(counted, total, 0.0))


@kernel
def loss_gradient_kernel(
    logits, target, log_sums, sums, rows, vocabulary, stride,
    SMOOTHING: tl.constexpr, SUMS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """The gradient of ROWS · TURNS rows of some columns, in the place of the logits, and its sums over these rows."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    within = column < vocabulary
    first = tl.program_id(1).to(tl.int64) * ROWS * TURNS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(0, TURNS):
        row = first + turn * ROWS + tl.arange(0, ROWS)
        wanted = tl.load(target + row, mask=row < rows, other=-1)
        log_sum = tl.load(log_sums + row, mask=row < rows, other=0.0)
        inside = (row < rows)[:, None] & within[None]
        place = logits + row[:, None] * stride + column[None]
        x = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(x - log_sum[:, None]) - SMOOTHING / vocabulary
        gradient = tl.where(column[None] == wanted[:, None], gradient - (1 - SMOOTHING), gradient)
        gradient = tl.where((wanted >= 0)[:, None], gradient, 0.0)
        tl.store(place, gradient, mask=inside)
        if SUMS:
            total += gradient
    if SUMS:
        tl.store(sums + tl.program_id(1).to(tl.int64) * vocabulary + column, tl.sum(total, 0), mask=within)


@kernel
def r_drop_kernel(
    logits, target, totals, entropies, vocabulary, stride, distance,
    SMOOTHING: tl.constexpr, ALPHA: tl.constexpr, LOWEST: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The rows of one token in two passes, `distance` apart: ½ · (CE(p) + CE(q) + α · ½ (KL(p ‖ q) + KL(q ‖ p))).

    The first reading finds both log Z, the second the divergence, and the third the gradients (see `r_drop.py`).
    """
    row = tl.program_id(0).to(tl.int64)
    first_row = logits + row * stride
    second_row = first_row + distance
    wanted = tl.load(target + row)
    counted = wanted >= 0
    log_sum_p, mean_p = _log_sum(first_row, vocabulary, BLOCK)
    log_sum_q, mean_q = _log_sum(second_row, vocabulary, BLOCK)
    columns = tl.arange(0, BLOCK)
    p_sums = tl.zeros((BLOCK,), tl.float32)
    q_sums = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, vocabulary, BLOCK):
        column = first + columns
        x = tl.load(first_row + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
        y = tl.load(second_row + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
        log_p = tl.maximum(x - log_sum_p, LOWEST)
        log_q = tl.maximum(y - log_sum_q, LOWEST)
        p_sums += tl.exp(log_p) * (log_p - log_q)
        q_sums += tl.exp(log_q) * (log_q - log_p)
    p_to_q = tl.sum(p_sums, 0)
    q_to_p = tl.sum(q_sums, 0)
    label = tl.maximum(wanted, 0)
    together = tl.load(first_row + label).to(tl.float32) + tl.load(second_row + label).to(tl.float32)
    entropy = 0.5 * (log_sum_p + log_sum_q - together)
    spread = 0.5 * (log_sum_p + log_sum_q - mean_p - mean_q)
    total = (1 - SMOOTHING) * entropy + SMOOTHING * spread + 0.25 * ALPHA * (p_to_q + q_to_p)
    tl.store(entropies + row, tl.where(counted, entropy, 0.0))
    tl.store(totals + row, tl.where(counted, total, 0.0))
    if GRADIENT:
        tl.debug_barrier()  # every thread has read the target's logits
        for first in range(0, vocabulary, BLOCK):
            column = first + columns
            inside = column < vocabulary
            x = tl.load(first_row + column, mask=inside, other=float("-inf")).to(tl.float32)
            y = tl.load(second_row + column, mask=inside, other=float("-inf")).to(tl.float32)
            log_p = tl.maximum(x - log_sum_p, LOWEST)
            log_q = tl.maximum(y - log_sum_q, LOWEST)
            p, q = tl.exp(log_p), tl.exp(log_q)
            wish = tl.where(column == wanted, 1 - SMOOTHING, 0.0) + SMOOTHING / vocabulary
            d_first = p - wish + 0.5 * ALPHA * (p * (log_p - log_q - p_to_q) + p - q)
            d_second = q - wish + 0.5 * ALPHA * (q * (log_q - log_p - q_to_p) + q - p)
            tl.store(first_row + column, tl.where(counted, 0.5 * d_first, 0.0), mask=inside)
            tl.store(second_row + column, tl.where(counted, 0.5 * d_second, 0.0), mask=inside)


@triton.jit
def _log_sum(start, vocabulary, BLOCK: tl.constexpr):
    """log Σ exp(x) and the mean of x over one row of logits."""
    columns = tl.arange(0, BLOCK // GROUP)[:, None] * GROUP + tl.arange(0, GROUP)[None]
    highest = tl.full((BLOCK // GROUP,), float("-inf"), tl.float32)
    partial = tl.zeros((BLOCK // GROUP,), tl.float32)
    sums = tl.zeros((BLOCK // GROUP,), tl.float32)
    for first in range(0, vocabulary, BLOCK):
        inside = first + columns < vocabulary
        x = tl.load(start + first + columns, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(x, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        partial = partial * tl.exp(highest - finite) + tl.sum(tl.exp(x - finite[:, None]), 1)
        highest = higher
        sums += tl.sum(tl.where(inside, x, 0.0), 1)
    top = tl.max(highest, 0)
    return top + tl.log(tl.sum(partial * tl.exp(highest - top), 0)), tl.sum(sums, 0) / vocabulary
