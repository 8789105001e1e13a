"""Fused additive attention in Triton, forward: from scores to mixed values, and all at once where queries are few.

What a query sees is described, not built: the first key and the key beyond the last, for each query, and a boolean
tensor, all with any strides. Blocks of keys that no query sees are left out. The log-sum-exp is kept as two numbers,
the largest score and the sum of the weights relative to it: one number would lose digits that weights need, and so
would a GPU's quick logarithm.

NaN in a key or value reaches those who see it and nobody else, and so does infinity in a value; where there is a mask,
either makes the whole answer NaN. Keys meet queries one by one, so only values need care: a product of matrices would
give 0 · NaN to those who do not look. An infinite key or query is one like any other: its tanh is ±1.
"""

import triton
import triton.language as tl

from jumok.attention.additive.gpu.prepare_kernels import LOG2E, half_tanh
from jumok.attention.additive.gpu.score_kernels import seen_by
from jumok.attention.triton_launch import kernel

SPLIT = tl.constexpr("split")


@triton.jit
def seen(
    rows, cols, queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, mask, MASK_ROW, MASK_KEY,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Which keys of a tile each of its queries sees. Pointers are those of one entry of the batch."""
    inside = (rows < queries)[:, None] & (cols < keys)[None, :]
    if FIRST:
        inside = inside & (cols[None, :] >= tl.load(first + rows * FIRST_ROW, mask=rows < queries, other=0)[:, None])
    if BEYOND:
        inside = inside & (cols[None, :] < tl.load(beyond + rows * BEYOND_ROW, mask=rows < queries, other=0)[:, None])
    if MASK:
        at = mask + rows[:, None].to(tl.int64) * MASK_ROW + cols[None, :].to(tl.int64) * MASK_KEY
        inside = inside & (tl.load(at, mask=inside, other=0) != 0)
    return inside


@triton.jit
def kept(rows, cols, keys, batch, seed, DROPOUT: tl.constexpr):
    """Which weights dropout leaves: a random number for each place, the same in the backward pass."""
    number = tl.rand(tl.load(seed) + batch, rows[:, None] * keys + cols[None, :])
    return number >= DROPOUT


@triton.jit
def product(left, right, acc, PRECISION: tl.constexpr):
    """left · right + acc. Tensor cores read 11 of 24 bits; SPLIT multiplies the others apart.

    They also cut off what they add up instead of rounding it, so long sums are not theirs to make. What is infinite in
    `right` gives NaN, for its other bits are inf − inf.
    """
    if PRECISION == SPLIT:
        left_high, right_high = high_bits(left), high_bits(right)
        found = tl.dot(left - left_high, right_high, input_precision="tf32")
        found = tl.dot(left_high, right - right_high, found, input_precision="tf32")
        return acc + tl.dot(left_high, right_high, found, input_precision="tf32")
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
    """softmax(scores) · values for some queries of the plane, whose padding may hold anything, and some features."""
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
    spoilt = tl.zeros([ROWS], tl.int32)
    acc = tl.zeros([ROWS, VALUES], tl.float32)
    start, end = seen_by(rows, rows < queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, FIRST, BEYOND)
    for at in range(start // COLS * COLS, end, COLS):
        cols = at + tl.arange(0, COLS)
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
        # Past the end the last value stands in, with no weight.
        place = value + (batch * keys + tl.minimum(cols, keys - 1)[:, None]) * value_dim + dims[None, :]
        values = tl.load(place, mask=(dims < value_dim)[None, :], other=0.0).to(tl.float32)
        if FIRST or BEYOND or MASK:
            sound = tl.abs(values) < float("inf")
            values = tl.where(sound, values, 0.0)
            broken = tl.max((~sound).to(tl.int32), 1)
            spoilt = tl.maximum(spoilt, tl.max(tl.where(visible, broken[None, :], 0), 1))
        acc = product(weights, values, acc * shrink[:, None], PRECISION)
        largest = higher
    scale = tl.where(total > 0, 1.0 / (1.0 - DROPOUT) / tl.where(total > 0, total, 1.0), total)
    found = tl.where((spoilt > 0)[:, None], float("nan"), acc * scale[:, None])
    line = batch * queries + rows
    wanted = local < count
    tl.store(
        out + line[:, None] * value_dim + dims[None, :],
        found.to(out.dtype.element_ty),
        mask=wanted[:, None] & (dims < value_dim)[None, :],
    )
    if tl.program_id(1) == 0:
        tl.store(lse + line, largest, mask=wanted)
        tl.store(lse + line + batches * queries, tl.where(total == 0, 1.0, total), mask=wanted)


@kernel
def few_queries_kernel(
    query, key, value, v, V_BATCH, first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW,
    mask, MASK_SHARED, MASK_BATCH, MASK_ROW, MASK_KEY, seed, out, lse, batches, queries, keys, dim, value_dim, parts,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_DIM: tl.constexpr, VALUES: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """softmax(scores) · values of one query: keys come straight from memory, whose speed is the limit here."""
    batch, part = (tl.program_id(0) // queries).to(tl.int64), tl.program_id(1)
    row = tl.program_id(0) % queries
    rows = row + tl.arange(0, 1)
    dims = tl.arange(0, VALUES)
    first += batch * FIRST_BATCH
    beyond += batch * BEYOND_BATCH
    mask += batch // MASK_SHARED * MASK_BATCH
    largest, total, spoilt = float("-inf"), 0.0, 0
    acc = tl.zeros([VALUES], tl.float32)
    start, end = seen_by(rows, rows < queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, FIRST, BEYOND)
    start = start // COLS * COLS
    share = tl.cdiv(tl.cdiv(tl.maximum(end - start, 0), COLS), parts) * COLS
    for at in range(start + part * share, tl.minimum(start + (part + 1) * share, end), COLS):
        cols = at + tl.arange(0, COLS)
        scores = one_row_of_scores(
            query + (batch * queries + row) * dim, key + batch * keys * dim, cols, cols < keys, v + batch * V_BATCH,
            dim, BLOCK_DIM, COLS, ASSEMBLY,
        )  # fmt: skip
        visible = seen(
            rows, cols, queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, mask, MASK_ROW, MASK_KEY,
            FIRST, BEYOND, MASK,
        )  # fmt: skip
        visible = tl.reshape(visible, [COLS])
        scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        shrink = tl.exp2((largest - level) * LOG2E)
        weights = tl.exp2((scores - level) * LOG2E)
        total = total * shrink + tl.sum(weights, 0)
        if DROPOUT > 0:
            keep = tl.reshape(kept(rows, cols, keys, batch, seed, DROPOUT), [COLS])
            weights = tl.where(keep, weights, 0.0)
        place = value + (batch * keys + cols[:, None]) * value_dim + dims[None, :]
        values = tl.load(place, mask=visible[:, None] & (dims < value_dim)[None, :], other=0.0).to(tl.float32)
        if FIRST or BEYOND or MASK:
            spoilt = tl.maximum(spoilt, tl.max(tl.max((~(tl.abs(values) < float("inf"))).to(tl.int32), 1), 0))
        acc = acc * shrink + tl.sum(weights[:, None] * values, 0)
        largest = higher
    scale = tl.where(total > 0, 1.0 / (1.0 - DROPOUT) / tl.where(total > 0, total, 1.0), total)
    line = (part * batches + batch) * queries + row
    found = tl.where(spoilt > 0, float("nan"), acc * scale)
    tl.store(out + line * value_dim + dims, found.to(out.dtype.element_ty), mask=dims < value_dim)
    tl.store(lse + line, largest)
    tl.store(lse + line + parts * batches * queries, tl.where(total == 0, 1.0, total))


@triton.jit
def one_row_of_scores(
    query, key, cols, cols_in, v, dim, BLOCK_DIM: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr
):
    """The scores of one query with some keys. Threads add up what they hold and come together once, at the end."""
    found = tl.zeros([COLS, BLOCK_DIM], tl.float32)
    for d in range(0, dim, BLOCK_DIM):
        dims = d + tl.arange(0, BLOCK_DIM)
        a = tl.load(query + dims, mask=dims < dim, other=0.0).to(tl.float32)
        at, inside = cols[:, None].to(tl.int64) * dim + dims[None, :], cols_in[:, None] & (dims < dim)[None, :]
        b = tl.load(key + at, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(v + dims, mask=dims < dim, other=0.0).to(tl.float32) * -2.0
        found += u[None, :] * half_tanh(a[None, :] + b, ASSEMBLY)
    return tl.sum(found, 1)


@kernel
def few_scores_kernel(
    query, key, v, V_BATCH, scores, SCORES_BATCH, SCORES_ROW, queries, keys, dim,
    BLOCK_DIM: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The scores of few queries, written out."""
    batch, row = (tl.program_id(0) // queries).to(tl.int64), tl.program_id(0) % queries
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    found = one_row_of_scores(
        query + (batch * queries + row) * dim, key + batch * keys * dim, cols, cols < keys, v + batch * V_BATCH, dim,
        BLOCK_DIM, COLS, ASSEMBLY,
    )  # fmt: skip
    tl.store(scores + batch * SCORES_BATCH + row * SCORES_ROW + cols, found, mask=cols < keys)
