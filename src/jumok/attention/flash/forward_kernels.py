"""Flash attention, forward: a tile of query rows per program, one block of keys after another (Dao et al. 2022)."""

import triton
import triton.language as tl

from jumok.attention.flash.tile_kernels import (
    CAREFUL,
    LOG2E,
    any_nonfinite,
    block_range,
    cleaned,
    finite,
    kept,
    key_range,
    load_rows,
    store_rows,
)
from jumok.attention.triton_launch import kernel


@kernel
def forward_kernel(
    query, key, value, out, lse, key_lengths, query_lengths, segments, mask, seed,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    out_batch, out_head, out_row, key_length_batch, key_length_head, query_length_batch, query_length_head,
    mask_batch, mask_head, mask_row, mask_key, heads, queries, keys, low, high,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    KEY_LENGTHS: tl.constexpr, QUERY_LENGTHS: tl.constexpr, SEGMENTS: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """out = softmax(scale · q kᵀ) v over the visible keys, and the logarithm to base 2 of its denominator.

    EXACT: numbers that are not finite reach only the rows that see them. Such a number always shows in the result of
    its tile, so the tile is computed as if there were none, and computed again with care if it has such a result.
    """
    tile, plane = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)  # causal: long rows first
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    query += batch * query_batch + head * query_head
    key += batch * key_batch + head * key_head
    value += batch * value_batch + head * value_head
    out += batch * out_batch + head * out_head
    mask += batch * mask_batch + head * mask_head
    key_length, query_length = keys, queries
    if KEY_LENGTHS:
        key_length = tl.load(key_lengths + batch * key_length_batch + head * key_length_head).to(tl.int32)
    if QUERY_LENGTHS:
        query_length = tl.load(query_lengths + batch * query_length_batch + head * query_length_head).to(tl.int32)
    rows = tile * ROWS + tl.arange(0, ROWS)
    first, beyond = key_range(
        rows, queries, keys, key_length, query_length, low, high, segments, LOW, HIGH, SEGMENTS
    )  # fmt: skip
    start, inner_start, inner_stop, stop = block_range(first, beyond, COLS)
    if MASK != 0:  # any pair may be hidden
        inner_start, inner_stop = start, start

    q = load_rows(query, tl.minimum(rows, queries - 1), query_row, DIM, BLOCK_DIM)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, BLOCK_VALUE_DIM], tl.float32)
    if LOW or SEGMENTS:
        for at in range(start, inner_start, COLS):
            peak, total, mixed = block(
                q, peak, total, mixed, key, value, mask, seed, plane, rows, at, first, beyond, stop, key_row,
                value_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, COLS, MASK, DROPOUT,
                PRECISION, True,
            )  # fmt: skip
    for at in range(inner_start, inner_stop, COLS):
        peak, total, mixed = block(
            q, peak, total, mixed, key, value, mask, seed, plane, rows, at, first, beyond, stop, key_row, value_row,
            mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, COLS, MASK, DROPOUT, PRECISION,
            False,
        )  # fmt: skip
    for at in range(inner_stop, stop, COLS):
        peak, total, mixed = block(
            q, peak, total, mixed, key, value, mask, seed, plane, rows, at, first, beyond, stop, key_row, value_row,
            mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, COLS, MASK, DROPOUT, PRECISION,
            True,
        )  # fmt: skip

    mixed = mixed / tl.where(total == 0, 1.0, total)[:, None]
    logarithm = tl.where(total == 0, float("inf"), peak + tl.log2(total))
    if EXACT:
        lost = tl.max(((total == 0) & (beyond > first)).to(tl.int32), 0) > 0  # visible scores, all of them -inf
        if any_nonfinite(mixed) | lost:
            mixed, logarithm = careful(
                q, key, value, mask, seed, plane, rows, start, first, beyond, stop, key_row, value_row, mask_row,
                mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, CAREFUL, MASK, DROPOUT, PRECISION,
            )  # fmt: skip
    store_rows(out, rows, out_row, mixed, queries, VALUE_DIM, BLOCK_VALUE_DIM)
    tl.store(lse + plane.to(tl.int64) * queries + rows, logarithm, mask=rows < queries)


@triton.jit
def block(
    q, peak, total, mixed, key, value, mask, seed, plane, rows, at, first, beyond, stop, key_row, value_row, mask_row,
    mask_key, SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, COLS: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add a block of keys to the running maximum, sum and mixture."""
    cols = at + tl.arange(0, COLS)
    inside = cols
    if MASKED:
        inside = tl.minimum(cols, stop - 1)  # never reads a key that no row of the tile sees
    k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if MASKED:
        visible = seen(mask, rows, cols, inside, first, beyond, mask_row, mask_key, MASK)
        scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, 1) * (SCALE * LOG2E))
    level = higher
    if MASKED:
        level = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores * (SCALE * LOG2E) - level[:, None])
    shrink = tl.exp2(peak - level)
    total = total * shrink + tl.sum(weights, 1)
    if DROPOUT > 0:
        keep = kept(seed, plane, rows[:, None], cols[None, :], DROPOUT)
        weights = tl.where(keep, weights / (1 - DROPOUT), 0.0)
    v = load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM)
    mixed = tl.dot(weights.to(v.dtype), v, mixed * shrink[:, None], input_precision=PRECISION)
    return higher, total, mixed


@triton.jit
def seen(mask, rows, cols, inside, first, beyond, mask_row, mask_key, MASK: tl.constexpr):
    """Which keys each row sees."""
    visible = (cols[None, :] >= first[:, None]) & (cols[None, :] < beyond[:, None])
    if MASK == 1:  # the same for all rows
        visible = visible & (tl.load(mask + inside * mask_key) != 0)[None, :]
    if MASK == 2:
        at = mask + rows[:, None] * mask_row + inside[None, :] * mask_key
        visible = visible & (tl.load(at, mask=visible, other=0) != 0)
    return visible


@triton.jit
def careful(
    q, key, value, mask, seed, plane, rows, start, first, beyond, stop, key_row, value_row, mask_row, mask_key,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The tile again: a row that sees a number that is not finite gets NaN, and no other row is affected."""
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, BLOCK_VALUE_DIM], tl.float32)
    broken, looks = tl.zeros([ROWS], tl.int32), tl.zeros([ROWS], tl.int32)
    for at in range(start, stop, COLS):
        cols = at + tl.arange(0, COLS)
        inside = tl.minimum(cols, stop - 1)
        k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
        v = load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        visible = seen(mask, rows, cols, inside, first, beyond, mask_row, mask_key, MASK)
        sound = tl.min(finite(v).to(tl.int32), 1) > 0
        wrong = visible & ((scores != scores) | (scores == float("inf")) | ~sound[None, :])
        broken = tl.maximum(broken, tl.max(wrong.to(tl.int32), 1))
        looks = tl.maximum(looks, tl.max(visible.to(tl.int32), 1))
        scores = tl.where(visible & ~wrong, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1) * (SCALE * LOG2E))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores * (SCALE * LOG2E) - level[:, None])
        shrink = tl.exp2(peak - level)
        total = total * shrink + tl.sum(weights, 1)
        if DROPOUT > 0:
            keep = kept(seed, plane, rows[:, None], cols[None, :], DROPOUT)
            weights = tl.where(keep, weights / (1 - DROPOUT), 0.0)
        mixed = tl.dot(weights.to(v.dtype), cleaned(v), mixed * shrink[:, None], input_precision=PRECISION)
        peak = higher
    mixed = mixed / tl.where(total == 0, 1.0, total)[:, None]
    logarithm = tl.where(total == 0, float("inf"), peak + tl.log2(total))
    wrong_row = (broken > 0) | ((total == 0) & (looks > 0))  # or all visible scores are -inf
    return tl.where(wrong_row[:, None], float("nan"), mixed), tl.where(wrong_row, float("nan"), logarithm)
