"""Fused additive attention in Triton, forward: from scores to weights, and all in one pass where queries are few.

What a query sees is described, not built: the first key and the key beyond the last, for each query, and a boolean
tensor with any strides for what is no interval. Blocks of keys that no query sees are left out.
Scores are in units of log 2 (see additive_tiles.py); so is the log-sum-exp. It is kept as two numbers, the largest
score and the logarithm of the sum of the weights relative to it: added up they would lose digits that weights need.
"""

import triton
import triton.language as tl

from jumok.attention.kernels.additive_tiles import LOG2E, reciprocal


@triton.jit
def seen(
    rows, cols, queries, keys, first, beyond, mask, MASK_ROW, MASK_KEY,
    INTERVAL: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Which keys of a tile each of its queries sees. Pointers are those of one entry of the batch."""
    inside = (rows < queries)[:, None] & (cols < keys)[None, :]
    if INTERVAL:
        start = tl.load(first + rows, mask=rows < queries, other=0)
        end = tl.load(beyond + rows, mask=rows < queries, other=0)
        inside = inside & (cols[None, :] >= start[:, None]) & (cols[None, :] < end[:, None])
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
def block_of_keys(rows, queries, keys, first, beyond, part, parts, COLS: tl.constexpr, INTERVAL: tl.constexpr):
    """From which key to which a program looks: what its queries can see, and of that one part."""
    start, end = 0, keys
    if INTERVAL:
        some = rows < queries
        start = tl.maximum(tl.min(tl.load(first + rows, mask=some, other=keys), 0), 0) // COLS * COLS
        end = tl.minimum(tl.max(tl.load(beyond + rows, mask=some, other=0), 0), keys)
    share = tl.cdiv(tl.cdiv(tl.maximum(end - start, 0), COLS), parts) * COLS
    return start + part * share, tl.minimum(start + (part + 1) * share, end)


@triton.jit
def few_queries_kernel(
    query, QUERY_BATCH, QUERY_ROW, QUERY_STEP, key, KEY_BATCH, KEY_ROW, KEY_STEP,
    value, VALUE_BATCH, VALUE_ROW, VALUE_STEP, u, U_BATCH,
    first, beyond, mask, MASK_BATCH, MASK_ROW, MASK_KEY, seed,
    out, lse, batches, queries, keys, dim, PADDED, value_dim, parts,
    BLOCK_DIM: tl.constexpr, VALUES: tl.constexpr, COLS: tl.constexpr,
    INTERVAL: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """softmax(scores) · values of one query: keys come straight from memory, whose speed is the limit here."""
    batch, part = (tl.program_id(0) // queries).to(tl.int64), tl.program_id(1)
    row = tl.program_id(0) % queries
    rows = row + tl.arange(0, 1)
    dims = tl.arange(0, VALUES)
    first += batch * queries
    beyond += batch * queries
    largest, total = float("-inf"), 0.0
    acc = tl.zeros([VALUES], tl.float32)
    start, end = block_of_keys(rows, queries, keys, first, beyond, part, parts, COLS, INTERVAL)
    for at in range(start, end, COLS):
        cols = at + tl.arange(0, COLS)
        scores = one_row_of_scores(
            query + batch * QUERY_BATCH + row * QUERY_ROW, QUERY_STEP, key + batch * KEY_BATCH, KEY_ROW, KEY_STEP,
            cols, keys, u + batch * U_BATCH, dim, PADDED, BLOCK_DIM, COLS, ASSEMBLY,
        )  # fmt: skip
        visible = seen(
            rows, cols, queries, keys, first, beyond, mask + batch * MASK_BATCH, MASK_ROW, MASK_KEY, INTERVAL, MASK
        )
        scores = tl.where(tl.reshape(visible, [COLS]), scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        shrink = tl.exp2(largest - level)
        weights = tl.exp2(scores - level)
        total = total * shrink + tl.sum(weights, 0)
        if DROPOUT > 0:
            keep = tl.reshape(kept(rows, cols, keys, batch, seed, DROPOUT), [COLS])
            weights = tl.where(keep, weights, 0.0)
        place = value + batch * VALUE_BATCH + cols[:, None].to(tl.int64) * VALUE_ROW + dims[None, :] * VALUE_STEP
        values = tl.load(place, mask=(cols < keys)[:, None] & (dims < value_dim)[None, :], other=0.0)
        acc = acc * shrink + tl.sum(weights[:, None] * values.to(tl.float32), 0)
        largest = higher
    scale = tl.where(total > 0, 1.0 / (1.0 - DROPOUT) / tl.where(total > 0, total, 1.0), total)
    line = (part * batches + batch) * queries + row
    tl.store(out + line * value_dim + dims, (acc * scale).to(out.dtype.element_ty), mask=dims < value_dim)
    tl.store(lse + line, largest)
    tl.store(lse + line + parts * batches * queries, tl.log2(tl.where(total > 0, total, 1.0)))


@triton.jit
def one_row_of_scores(
    query, QUERY_STEP, key, KEY_ROW, KEY_STEP, cols, keys, u, dim, PADDED,
    BLOCK_DIM: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The scores of one query with some keys."""
    scores = tl.zeros([COLS], tl.float32) + tl.load(u + PADDED)
    for d in range(0, dim, BLOCK_DIM):
        dims = d + tl.arange(0, BLOCK_DIM)
        a = tl.load(query + dims * QUERY_STEP, mask=dims < dim, other=0.0).to(tl.float32)
        at = key + cols[:, None].to(tl.int64) * KEY_ROW + dims[None, :] * KEY_STEP
        b = tl.load(at, mask=(cols < keys)[:, None] & (dims < dim)[None, :], other=0.0).to(tl.float32)
        x = 1.0 + tl.exp2((a[None, :] + b) * (2 * LOG2E))
        weight = tl.load(u + dims, mask=dims < dim, other=0.0)
        scores += tl.sum(weight[None, :] * reciprocal(x, ASSEMBLY), 1)
    return scores


@triton.jit
def few_scores_kernel(
    query, QUERY_BATCH, QUERY_ROW, QUERY_STEP, key, KEY_BATCH, KEY_ROW, KEY_STEP, u, U_BATCH,
    scores, SCORES_BATCH, SCORES_ROW, queries, keys, dim, PADDED,
    BLOCK_DIM: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The scores of few queries, written out."""
    batch, row = (tl.program_id(0) // queries).to(tl.int64), tl.program_id(0) % queries
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    found = one_row_of_scores(
        query + batch * QUERY_BATCH + row * QUERY_ROW, QUERY_STEP, key + batch * KEY_BATCH, KEY_ROW, KEY_STEP,
        cols, keys, u + batch * U_BATCH, dim, PADDED, BLOCK_DIM, COLS, ASSEMBLY,
    )  # fmt: skip
    tl.store(scores + batch * SCORES_BATCH + row * SCORES_ROW + cols, found, mask=cols < keys)


@triton.jit
def softmax_kernel(
    scores, SCORES_BATCH, SCORES_ROW, first, beyond, mask, MASK_BATCH, MASK_ROW, MASK_KEY, seed,
    lse, batches, batch_start, start, count, queries, keys, COLS: tl.constexpr,
    INTERVAL: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Scores of one query become its weights, in place. The plane holds `count` queries from `start` on."""
    here, local = (tl.program_id(0) // count).to(tl.int64), tl.program_id(0) % count
    batch, row = here + batch_start, start + local
    rows = row + tl.arange(0, 1)
    scores += here * SCORES_BATCH + local.to(tl.int64) * SCORES_ROW
    first += batch * queries
    beyond += batch * queries
    mask += batch * MASK_BATCH
    largest, total = float("-inf"), 0.0
    for at in range(0, keys, COLS):
        cols = at + tl.arange(0, COLS)
        visible = seen(rows, cols, queries, keys, first, beyond, mask, MASK_ROW, MASK_KEY, INTERVAL, MASK)
        visible = tl.reshape(visible, [COLS])
        found = tl.where(visible, tl.load(scores + cols, mask=visible, other=0.0), float("-inf"))
        higher = tl.maximum(largest, tl.max(found, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp2(largest - level) + tl.sum(tl.exp2(found - level), 0)
        largest = higher
    log_total = tl.log2(tl.where(total > 0, total, 1.0))
    line = batch * queries + row
    tl.store(lse + line, largest)
    tl.store(lse + line + batches * queries, log_total)
    level = tl.where(total > 0, largest, 0.0)
    for at in range(0, keys, COLS):
        cols = at + tl.arange(0, COLS)
        visible = seen(rows, cols, queries, keys, first, beyond, mask, MASK_ROW, MASK_KEY, INTERVAL, MASK)
        visible = tl.reshape(visible, [COLS])
        weights = tl.exp2(tl.load(scores + cols, mask=visible, other=0.0) - level - log_total)
        if DROPOUT > 0:
            keep = tl.reshape(kept(rows, cols, keys, batch, seed, DROPOUT), [COLS])
            weights = tl.where(keep, weights / (1.0 - DROPOUT), 0.0)
        tl.store(scores + cols, tl.where(visible, weights, 0.0), mask=cols < keys)
