"""Triton kernels of additive attention, forward: from scores to Σ softmax(scores) v.

A mask is an interval of keys for each query and a boolean tensor, with any strides (see mask_intervals.py). Blocks of
keys that no query sees are skipped. The log-sum-exp is stored as two numbers, the largest score and the sum of the
weights relative to it: one number would lose digits that the weights need, and so would the GPU's fast logarithm.

NaN in a key or value, and infinity in a value, reach only the queries that see them; if there is a mask, either makes
the whole output of the query NaN. Scores are computed pair by pair, so only values need care: a matrix product would
give 0 · NaN to queries that do not see the value. An infinite key or query is valid: its tanh is ±1.
"""

import triton
import triton.language as tl

from jumok.attention.additive.gpu.prepare_kernels import LOG2E
from jumok.attention.additive.gpu.score_kernels import seen_by
from jumok.attention.triton_launch import kernel

SPLIT = tl.constexpr("split")


@triton.jit
def seen(
    rows, cols, queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, mask, MASK_ROW, MASK_KEY,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Which keys of a tile each of its queries sees. Pointers are those of one batch entry."""
    inside = (rows < queries)[:, None] & (cols < keys)[None, :]
    if FIRST:
        inside = inside & (cols[None, :] >= tl.load(first + rows * FIRST_ROW, mask=rows < queries, other=0)[:, None])
    if BEYOND:
        inside = inside & (cols[None, :] < tl.load(beyond + rows * BEYOND_ROW, mask=rows < queries, other=0)[:, None])
    if MASK:
        pointers = mask + rows[:, None].to(tl.int64) * MASK_ROW + cols[None, :].to(tl.int64) * MASK_KEY
        inside = inside & (tl.load(pointers, mask=inside, other=0) != 0)
    return inside


@triton.jit
def kept(rows, cols, keys, batch, seed, DROPOUT: tl.constexpr):
    """Which weights dropout keeps: a random number for each pair, the same in the backward pass."""
    number = tl.rand(tl.load(seed) + batch, rows[:, None] * keys + cols[None, :])
    return number >= DROPOUT


@triton.jit
def product(left, right, acc, PRECISION: tl.constexpr):
    """left · right + acc. Tensor cores read 11 of 24 bits; SPLIT multiplies the remaining bits separately.

    Tensor cores also truncate sums instead of rounding them, so long sums are added outside. Infinity in `right` gives
    NaN, because its remaining bits are inf − inf.
    """
    if PRECISION == SPLIT:
        left_high, right_high = high_bits(left), high_bits(right)
        correction = tl.dot(left - left_high, right_high, input_precision="tf32")
        correction = tl.dot(left_high, right - right_high, correction, input_precision="tf32")
        return acc + tl.dot(left_high, right_high, correction, input_precision="tf32")
    else:
        return tl.dot(left, right, acc, input_precision=PRECISION)


@triton.jit
def high_bits(x):
    """A number rounded to the 11 bits that tensor cores read."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@kernel
def mix_kernel(
    plane, PLANE_BATCH, PLANE_ROW, value, out, lse, first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW,
    mask, MASK_SHARED, MASK_BATCH, MASK_ROW, MASK_KEY, seed,
    batches, batch_start, row_start, count, queries, keys, value_dim,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, VALUES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """softmax(scores) · values for a block of queries and value features; padding of the plane may hold anything."""
    blocks = tl.cdiv(count, ROWS)
    here = (tl.program_id(0) // blocks).to(tl.int64)
    batch = here + batch_start
    local = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    rows = row_start + local
    dims = tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    first += batch * FIRST_BATCH
    beyond += batch * BEYOND_BATCH
    mask += batch // MASK_SHARED * MASK_BATCH
    plane += here * PLANE_BATCH + local[:, None].to(tl.int64) * PLANE_ROW
    largest, total = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    sees_nonfinite = tl.zeros([ROWS], tl.int32)
    acc = tl.zeros([ROWS, VALUES], tl.float32)
    start, end = seen_by(rows, rows < queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, FIRST, BEYOND)
    for block_start in range(start // COLS * COLS, end, COLS):
        cols = block_start + tl.arange(0, COLS)
        visible = seen(
            rows, cols, queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, mask, MASK_ROW, MASK_KEY,
            FIRST, BEYOND, MASK,
        ) & (local < count)[:, None]  # fmt: skip
        scores = tl.where(visible, tl.load(plane + cols[None, :]), float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        shrink = tl.exp2((largest - level) * LOG2E)
        weights = tl.exp2((scores - level[:, None]) * LOG2E)
        total = total * shrink + tl.sum(weights, 1)
        if DROPOUT > 0:
            weights = tl.where(kept(rows, cols, keys, batch, seed, DROPOUT), weights, 0.0)
        # Past the end the last value is read, with weight 0.
        place = value + (batch * keys + tl.minimum(cols, keys - 1)[:, None]) * value_dim + dims[None, :]
        values = tl.load(place, mask=(dims < value_dim)[None, :], other=0.0).to(tl.float32)
        if FIRST or BEYOND or MASK:
            sound = tl.abs(values) < float("inf")
            values = tl.where(sound, values, 0.0)
            broken = tl.max((~sound).to(tl.int32), 1)
            sees_nonfinite = tl.maximum(sees_nonfinite, tl.max(tl.where(visible, broken[None, :], 0), 1))
        acc = product(weights, values, acc * shrink[:, None], PRECISION)
        largest = higher
    scale = tl.where(total > 0, 1.0 / (1.0 - DROPOUT) / tl.where(total > 0, total, 1.0), total)
    mixed = tl.where((sees_nonfinite > 0)[:, None], float("nan"), acc * scale[:, None])
    line = batch * queries + rows
    wanted = local < count
    tl.store(
        out + line[:, None] * value_dim + dims[None, :],
        mixed.to(out.dtype.element_ty),
        mask=wanted[:, None] & (dims < value_dim)[None, :],
    )
    if tl.program_id(1) == 0:
        tl.store(lse + line, largest, mask=wanted)
        tl.store(lse + line + batches * queries, tl.where(total == 0, 1.0, total), mask=wanted)
