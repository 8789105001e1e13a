"""One pass over the logits of some tokens: the loss of every row, and the gradient in the place of the logits."""

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
    entropy = log_sum - tl.load(start + tl.maximum(wanted, 0)).to(tl.float32)
    total = entropy
    if SMOOTHING > 0:
        total = (1 - SMOOTHING) * entropy + SMOOTHING * (log_sum - tl.sum(sums, 0) / vocabulary)
    tl.store(entropies + row, tl.where(counted, entropy, 0.0))
    tl.store(totals + row, tl.where(counted, total, 0.0))
    if GRADIENT:
        tl.debug_barrier()  # every thread has read the target's logit
        for first in range(0, vocabulary, BLOCK):
            column = first + columns
            x = tl.load(start + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
            gradient = tl.exp(x - log_sum) - SMOOTHING / vocabulary
            gradient = tl.where(column == wanted, gradient - (1 - SMOOTHING), gradient)
            tl.store(start + column, tl.where(counted, gradient, 0.0), mask=column < vocabulary)
