"""Fused additive attention in Triton, backward: from the scores, made again, to their gradient.

The weights are p = exp(s − largest) / total, made again, and the gradient of the scores is w = p (dp − δ) with
dp = dO · value and δ = Σ p dp: Σ dO·O would be the same, but for what the answer was rounded by. Under a mask a query
whose answer is not sound, NaN or infinite, passes nothing on.
"""

import triton
import triton.language as tl

from jumok.attention.kernels.additive_passes import kept, seen
from jumok.attention.kernels.additive_tanh import LOG2E
from jumok.attention.kernels.launch import kernel


@kernel
def upstream_kernel(
    scores, d_weights, turned, PLANE_BATCH, PLANE_ROW, TURNED_BATCH, TURNED_ROW, lse, sound,
    first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW,
    mask, MASK_SHARED, MASK_BATCH, MASK_ROW, MASK_KEY, seed,
    batches, batch_start, row_start, count, COUNT, queries, keys,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Scores become weights as the values were mixed by; d_weights becomes the gradient of the scores, also turned.

    The planes hold queries from `row_start` on, `count` of them, and zeros up to COUNT; the turned one has keys first.
    """
    blocks = tl.cdiv(COUNT, ROWS)
    here = (tl.program_id(0) // blocks).to(tl.int64)
    batch = here + batch_start
    local = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    rows, some = row_start + local, local < count
    line = batch * queries + rows
    if FIRST or BEYOND or MASK:
        some = some & (tl.load(sound + line, mask=some, other=0) != 0)
    level = tl.load(lse + line, mask=some, other=0.0)
    level = tl.where(level == float("-inf"), 0.0, level)
    total = tl.load(lse + batches * queries + line, mask=some, other=1.0)
    first += batch * FIRST_BATCH
    beyond += batch * BEYOND_BATCH
    mask += batch // MASK_SHARED * MASK_BATCH
    plane = here * PLANE_BATCH + local[:, None].to(tl.int64) * PLANE_ROW
    delta, mass = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    for start in range(0, keys, COLS):
        cols = start + tl.arange(0, COLS)
        visible = seen(
            rows, cols, queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, mask, MASK_ROW, MASK_KEY,
            FIRST, BEYOND, MASK,
        ) & some[:, None]  # fmt: skip
        weights, keep, d_weight = weights_again(
            scores + plane, d_weights + plane, level, total, visible, rows, cols, keys, batch, seed, DROPOUT
        )
        delta += tl.sum(tl.where(keep, weights * d_weight, 0.0), 1)
        mass += tl.sum(tl.where(visible, weights, 0.0), 1)
    # Weights made again do not quite sum to 1, and the gradients of the scores must to 0: what is left over adds up.
    delta = delta / tl.where(mass > 0, mass, 1.0)
    for start in range(0, PLANE_ROW, COLS):
        cols = start + tl.arange(0, COLS)
        visible = seen(
            rows, cols, queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, mask, MASK_ROW, MASK_KEY,
            FIRST, BEYOND, MASK,
        ) & some[:, None]  # fmt: skip
        weights, keep, d_weight = weights_again(
            scores + plane, d_weights + plane, level, total, visible, rows, cols, keys, batch, seed, DROPOUT
        )
        d_score = tl.where(visible, weights * (d_weight - delta[:, None]), 0.0)
        inside = (local < COUNT)[:, None] & (cols < PLANE_ROW)[None, :]
        tl.store(scores + plane + cols[None, :], tl.where(keep, weights / (1.0 - DROPOUT), 0.0), mask=inside)
        tl.store(d_weights + plane + cols[None, :], d_score, mask=inside)
        back = here * TURNED_BATCH + cols[None, :].to(tl.int64) * TURNED_ROW + local[:, None]
        tl.store(turned + back, d_score, mask=inside)


@triton.jit
def weights_again(scores, d_weights, level, total, visible, rows, cols, keys, batch, seed, DROPOUT: tl.constexpr):
    """The weights of a tile, which of them dropout kept, and the gradient of those, scaled as they were."""
    found = tl.load(scores + cols[None, :], mask=visible, other=0.0)
    weights = tl.exp2((found - level[:, None]) * LOG2E) / total[:, None]
    keep = visible
    if DROPOUT > 0:
        keep = keep & kept(rows, cols, keys, batch, seed, DROPOUT)
    return weights, keep, tl.load(d_weights + cols[None, :], mask=keep, other=0.0) / (1.0 - DROPOUT)
