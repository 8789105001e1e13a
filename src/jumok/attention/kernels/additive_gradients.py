"""Fused additive attention in Triton, backward: from the scores, made again, to the gradients of queries and keys.

The weights are p = 2^(s − log-sum-exp), and the gradient of the scores is w = p (dp − δ) with δ = Σ dO·O. With
r = ½ (1 − tanh),

    d_query = 4 v Σ_keys w r (1 − r),    d_key = 4 v Σ_queries w r (1 − r),    d_v = Σ w (1 − 2r).

Each is a loop over one side with a tile [time, feature] of the other in
registers: nothing is reduced across threads and nothing added from two places at once, so two runs agree to the bit.
"""

import triton
import triton.language as tl

from jumok.attention.kernels.additive_passes import kept, seen
from jumok.attention.kernels.additive_tiles import EXPONENTIALS, LOG2E, PAIRS, in_squares, reciprocal, zeros_in_squares


@triton.jit
def upstream_kernel(
    scores, d_weights, turned, PLANE_BATCH, PLANE_ROW, TURNED_BATCH, TURNED_ROW, lse, delta,
    first, beyond, mask, MASK_BATCH, MASK_ROW, MASK_KEY, seed,
    batches, batch_start, start, count, COUNT, queries, keys, ROWS: tl.constexpr, COLS: tl.constexpr,
    INTERVAL: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Scores become weights as the values were mixed by; d_weights becomes the gradient of the scores, also turned.

    The planes hold queries from `start` on, `count` of them, and zeros up to COUNT; the turned one has keys first.
    """
    blocks = tl.cdiv(COUNT, ROWS)
    here = (tl.program_id(0) // blocks).to(tl.int64)
    batch = here + batch_start
    local = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    rows = start + local
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    first += batch * queries
    beyond += batch * queries
    visible = seen(
        rows, cols, queries, keys, first, beyond, mask + batch * MASK_BATCH, MASK_ROW, MASK_KEY, INTERVAL, MASK
    ) & (local < count)[:, None]  # fmt: skip
    some = rows < queries
    level = tl.load(lse + batch * queries + rows, mask=some, other=0.0)
    level = tl.where(level == float("-inf"), 0.0, level)
    log_total = tl.load(lse + (batches + batch) * queries + rows, mask=some, other=0.0)
    mean = tl.load(delta + batch * queries + rows, mask=some, other=0.0)
    at = here * PLANE_BATCH + local[:, None].to(tl.int64) * PLANE_ROW + cols[None, :]
    weights = tl.exp2(tl.load(scores + at, mask=visible, other=0.0) - level[:, None] - log_total[:, None])
    d_weight = tl.load(d_weights + at, mask=visible, other=0.0)
    dropped = weights
    if DROPOUT > 0:
        keep = kept(rows, cols, keys, batch, seed, DROPOUT)
        dropped = tl.where(keep, weights / (1.0 - DROPOUT), 0.0)
        d_weight = tl.where(keep, d_weight / (1.0 - DROPOUT), 0.0)
    d_score = tl.where(visible, weights * (d_weight - mean[:, None]), 0.0)
    inside = (local < COUNT)[:, None] & (cols < PLANE_ROW)[None, :]
    tl.store(scores + at, tl.where(visible, dropped, 0.0), mask=inside)
    tl.store(d_weights + at, d_score, mask=inside)
    back = here * TURNED_BATCH + cols[None, :].to(tl.int64) * TURNED_ROW + local[:, None]
    tl.store(turned + back, d_score, mask=inside)


@triton.jit
def one_side_kernel(
    up, UP_BATCH, own, OWN_BATCH, OWN_ROW, OWN_STEP, own_peak, OWN_PEAKS,
    down, DOWN_BATCH, other, OTHER_BATCH, OTHER_ROW, OTHER_STEP, other_peak, OTHER_PEAKS,
    plane, PLANE_BATCH, PLANE_ROW, u, U_BATCH, spans, out, OUT_BATCH, OUT_PART, out_sums,
    batches, times, others, share, dim, DIM: tl.constexpr, TIMES: tl.constexpr, DIMS: tl.constexpr,
    SPANS: tl.constexpr, SUMS: tl.constexpr, ADD: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """4 v Σ w r (1 − r) over one part of the other side for a tile [time, feature]; on demand also Σ w r."""
    blocks = tl.cdiv(times, TIMES)
    batch = (tl.program_id(0) // blocks % batches).to(tl.int64)
    part = tl.program_id(0) // blocks // batches
    at = tl.program_id(0) % blocks * TIMES + tl.arange(0, TIMES)
    dims = tl.program_id(1) * DIMS + tl.arange(0, DIMS)
    start, end = part * share, tl.minimum((part + 1) * share, others)
    if SPANS:  # beyond these, w is 0
        span = spans + 2 * (batch * blocks + tl.program_id(0) % blocks)
        start = tl.maximum(start, tl.load(span) // 4 * 4)
        end = tl.maximum(tl.minimum(end, tl.load(span + 1)), start)
    plane += batch * PLANE_BATCH + at
    inside = (at < times)[:, None] & (dims < dim)[None, :]
    largest = tl.max(tl.load(own_peak + batch * OWN_PEAKS + at, mask=at < times, other=0.0), 0)
    largest_other = largest_of(other_peak + batch * OTHER_PEAKS, start, end)
    slopes, sums = zeros_in_squares(TIMES, DIMS), zeros_in_squares(TIMES, DIMS)
    down += batch * DOWN_BATCH + dims
    if (largest <= EXPONENTIALS) & (largest_other <= EXPONENTIALS):
        grown = up + batch * UP_BATCH + at[:, None].to(tl.int64) * DIM + dims[None, :]
        a = in_squares(tl.load(grown, mask=inside, other=0.0), TIMES, DIMS)
        if largest + largest_other <= PAIRS:
            slopes, sums = shared_slopes(slopes, sums, a, down, plane, DIM, PLANE_ROW, start, end, 0, SUMS, ASSEMBLY)
        else:
            slopes, sums = shared_slopes(slopes, sums, a, down, plane, DIM, PLANE_ROW, start, end, 1e18, SUMS, ASSEMBLY)
    else:
        given = own + batch * OWN_BATCH + at[:, None].to(tl.int64) * OWN_ROW + dims[None, :] * OWN_STEP
        a = in_squares(tl.load(given, mask=inside, other=0.0).to(tl.float32), TIMES, DIMS)
        slopes, sums = own_slopes(
            slopes, sums, a, other + batch * OTHER_BATCH + dims * OTHER_STEP, dims < dim, plane, OTHER_ROW, PLANE_ROW,
            start, end, ASSEMBLY,
        )  # fmt: skip
    slopes *= (tl.load(u + batch * U_BATCH + dims, mask=dims < dim, other=0.0) * (-2 / LOG2E))[None, :]
    place = out + part * OUT_PART + batch * OUT_BATCH + at[:, None].to(tl.int64) * dim + dims[None, :]
    if ADD:
        slopes += tl.load(place, mask=inside, other=0.0)
    tl.store(place, slopes, mask=inside)
    if SUMS:
        found = tl.sum(tl.where(inside, sums, 0.0), 0)
        tl.store(out_sums + tl.program_id(0).to(tl.int64) * dim + dims, found, mask=dims < dim)


@triton.jit
def largest_of(peaks, start, end):
    """The largest of some peaks."""
    found = tl.zeros([128], tl.float32)
    for at in range(start, end, 128):
        where = at + tl.arange(0, 128)
        found = tl.maximum(found, tl.load(peaks + where, mask=where < end, other=0.0))
    return tl.max(found, 0)


@triton.jit
def two_slopes(slopes, sums, a, b0, b1, w0, w1, CAP: tl.constexpr, SUMS: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Σ w r (1 − r) and Σ w r with two more of the other side, which share a reciprocal."""
    x0, x1 = a * b0[None, :] + 1.0, a * b1[None, :] + 1.0
    if CAP > 0:
        x0, x1 = tl.minimum(x0, CAP), tl.minimum(x1, CAP)
    shared = reciprocal(x0 * x1, ASSEMBLY)
    r0, r1 = shared * x1, shared * x0
    slopes += w0[:, None] * (r0 - r0 * r0)
    slopes += w1[:, None] * (r1 - r1 * r1)
    if SUMS:
        sums += w0[:, None] * r0
        sums += w1[:, None] * r1
    return slopes, sums


@triton.jit
def shared_slopes(
    slopes, sums, a, down, plane, DIM: tl.constexpr, PLANE_ROW, start, end,
    CAP: tl.constexpr, SUMS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The loop over the other side, two at a time, the next two on their way; a row of zeros evens out the last."""
    down += start.to(tl.int64) * DIM
    plane += start.to(tl.int64) * PLANE_ROW
    b0, b1, w0, w1 = tl.load(down), tl.load(down + DIM), tl.load(plane), tl.load(plane + PLANE_ROW)
    for _ in range(start, end, 4):
        down += 2 * DIM
        plane += 2 * PLANE_ROW
        b2, b3, w2, w3 = tl.load(down), tl.load(down + DIM), tl.load(plane), tl.load(plane + PLANE_ROW)
        slopes, sums = two_slopes(slopes, sums, a, b0, b1, w0, w1, CAP, SUMS, ASSEMBLY)
        down += 2 * DIM
        plane += 2 * PLANE_ROW
        b0, b1, w0, w1 = tl.load(down), tl.load(down + DIM), tl.load(plane), tl.load(plane + PLANE_ROW)
        slopes, sums = two_slopes(slopes, sums, a, b2, b3, w2, w3, CAP, SUMS, ASSEMBLY)
    return slopes, sums


@triton.jit
def own_slopes(slopes, sums, a, other, dims_in, plane, OTHER_ROW, PLANE_ROW, start, end, ASSEMBLY: tl.constexpr):
    """The same with an exponential for every pair and feature."""
    other += start.to(tl.int64) * OTHER_ROW
    plane += start.to(tl.int64) * PLANE_ROW
    for _ in range(start, end):
        b = tl.load(other, mask=dims_in, other=0.0).to(tl.float32)
        w = tl.load(plane)
        other += OTHER_ROW
        plane += PLANE_ROW
        r = reciprocal(1.0 + tl.exp2((a + b[None, :]) * (2 * LOG2E)), ASSEMBLY)
        slopes += w[:, None] * (r - r * r)
        sums += w[:, None] * r
    return slopes, sums
