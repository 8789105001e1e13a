"""Losses of the logits of some tokens, row by row, with the gradient written in the place of the logits."""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel


@kernel
def loss_kernel(
    logits, target, totals, entropies, vocabulary, stride,
    SMOOTHING: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: the smoothed loss and the cross-entropy, zeros where the target is negative; then the gradient.

    The row is read twice, the second time from the cache.
    """
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * stride
    log_sum, mean = _log_sum(start, vocabulary, BLOCK)
    wanted = tl.load(target + row)
    counted = wanted >= 0
    entropy = log_sum - tl.load(start + tl.maximum(wanted, 0)).to(tl.float32)
    total = entropy
    if SMOOTHING > 0:
        total = (1 - SMOOTHING) * entropy + SMOOTHING * (log_sum - mean)
    tl.store(entropies + row, tl.where(counted, entropy, 0.0))
    tl.store(totals + row, tl.where(counted, total, 0.0))
    if GRADIENT:
        tl.debug_barrier()  # every thread has read the target's logit
        columns = tl.arange(0, BLOCK)
        for first in range(0, vocabulary, BLOCK):
            column = first + columns
            x = tl.load(start + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
            gradient = tl.exp(x - log_sum) - SMOOTHING / vocabulary
            gradient = tl.where(column == wanted, gradient - (1 - SMOOTHING), gradient)
            tl.store(start + column, tl.where(counted, gradient, 0.0), mask=column < vocabulary)


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
    at = tl.maximum(wanted, 0)
    together = tl.load(first_row + at).to(tl.float32) + tl.load(second_row + at).to(tl.float32)
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
        sums += tl.where(inside, x, 0.0)
    top = tl.max(highest, 0)
    return top + tl.log(tl.sum(partial * tl.exp(highest - top), 0)), tl.sum(sums, 0) / vocabulary
