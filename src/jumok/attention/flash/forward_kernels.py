"""Flash attention, forward: a tile of query rows per program, one block of keys after another (Dao et al. 2022)."""

import triton
import triton.language as tl

from jumok.attention.flash.tile_kernels import (
    CAREFUL,
    LOG2E,
    NUMBERS,
    any_nonfinite,
    block_range,
    cleaned,
    finite,
    kept,
    key_range,
    length_of,
    load_rows,
    modified,
    seen,
    store_rows,
    within,
)
from jumok.attention.triton_launch import kernel


@kernel(any_number=NUMBERS)
def forward_kernel(
    query, key, value, out, lse, key_lengths, query_lengths, query_ends, key_ends, mask, bias, slopes, sinks, seed,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    out_batch, out_head, out_row, key_length_batch, key_length_head, query_length_batch, query_length_head,
    mask_batch, mask_head, mask_row, mask_key, bias_batch, bias_head, bias_row, bias_key, slope_batch, slope_head,
    sink_batch, sink_head, heads, queries, keys, sequences, low, high, shift,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    KEY_LENGTHS: tl.constexpr, QUERY_LENGTHS: tl.constexpr, SEARCH: tl.constexpr, MASK: tl.constexpr,
    SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, SINKS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """out = softmax(scores) v over the visible keys, and the logarithm to base 2 of its denominator.

    EXACT: numbers that are not finite reach only the rows that see them. Such a number always shows in the result of
    its tile, so the tile is computed as if there were none, and computed again with care if it has such a result.
    """
    tiles = tl.cdiv(queries, ROWS)
    tile, plane = tiles - 1 - tl.program_id(0) % tiles, tl.program_id(0) // tiles  # causal: long rows first
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    query += batch * query_batch + head * query_head
    key += batch * key_batch + head * key_head
    value += batch * value_batch + head * value_head
    out += batch * out_batch + head * out_head
    mask += batch * mask_batch + head * mask_head
    bias += batch * bias_batch + head * bias_head
    slope = tl.load(slopes + batch * slope_batch + head * slope_head)
    key_length = length_of(key_lengths, keys, batch * key_length_batch + head * key_length_head, KEY_LENGTHS)
    query_length = length_of(
        query_lengths, queries, batch * query_length_batch + head * query_length_head, QUERY_LENGTHS
    )
    rows = tile * ROWS + tl.arange(0, ROWS)
    first, beyond = key_range(
        rows, queries, key_length, query_length, low, high, query_ends, key_ends, sequences, LOW, HIGH, SEARCH
    )
    start, inner_start, inner_stop, stop = block_range(first, beyond, COLS, MASK)
    real = tl.minimum(rows, queries - 1)
    q = load_rows(query, real, query_row, DIM, BLOCK_DIM)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, BLOCK_VALUE_DIM], tl.float32)
    if LOW or SEARCH > 0:
        for offset in range(start, inner_start, COLS):
            peak, total, mixed = block(
                q, peak, total, mixed, key, value, real, offset, first, beyond, stop, key_row, value_row, mask,
                mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM, VALUE_DIM,
                BLOCK_DIM, BLOCK_VALUE_DIM, COLS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION, True,
                LOW or SEARCH > 0,
            )  # fmt: skip
    for offset in range(inner_start, inner_stop, COLS):
        peak, total, mixed = block(
            q, peak, total, mixed, key, value, real, offset, first, beyond, stop, key_row, value_row, mask, mask_row,
            mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM, VALUE_DIM, BLOCK_DIM,
            BLOCK_VALUE_DIM, COLS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION, False, False,
        )  # fmt: skip
    for offset in range(inner_stop, stop, COLS):
        peak, total, mixed = block(
            q, peak, total, mixed, key, value, real, offset, first, beyond, stop, key_row, value_row, mask, mask_row,
            mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM, VALUE_DIM, BLOCK_DIM,
            BLOCK_VALUE_DIM, COLS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION, True, LOW or SEARCH > 0,
        )  # fmt: skip

    sink = float("-inf")
    if SINKS:
        sink = tl.load(sinks + batch * sink_batch + head * sink_head).to(tl.float32) * LOG2E
    mixed, logarithm, total = finished(mixed, peak, total, sink, SINKS)
    if EXACT:
        lost = tl.max(((total == 0) & (beyond > first)).to(tl.int32), 0) > 0  # visible scores, all of them -inf
        if any_nonfinite(mixed) | lost:
            mixed, logarithm = careful(
                q, key, value, real, start, first, beyond, stop, key_row, value_row, mask, mask_row, mask_key, slope,
                bias, bias_row, bias_key, shift, sink, seed, plane, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM,
                ROWS, CAREFUL, MASK, SOFT_CAP, SLOPES, BIAS, SINKS, DROPOUT, PRECISION,
            )  # fmt: skip
    store_rows(out, rows, out_row, mixed, queries, VALUE_DIM, BLOCK_VALUE_DIM)
    tl.store(lse + plane.to(tl.int64) * queries + rows, logarithm, mask=rows < queries)


@triton.jit
def block(
    q, peak, total, mixed, key, value, rows, offset, first, beyond, stop, key_row, value_row, mask, mask_row, mask_key,
    slope, bias, bias_row, bias_key, shift, seed, plane, SCALE: tl.constexpr, DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, COLS: tl.constexpr,
    MASK: tl.constexpr, SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, LOWER: tl.constexpr,
):  # fmt: skip
    """Add a block of keys to the running maximum, sum and mixture."""
    cols = offset + tl.arange(0, COLS)
    inside = cols
    if MASKED:
        inside = tl.minimum(cols, stop - 1)  # never reads a key that no row of the tile sees
    k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    FACTOR: tl.constexpr = SCALE * LOG2E if SOFT_CAP == 0 and not SLOPES and not BIAS else 1.0
    if SOFT_CAP > 0 or SLOPES or BIAS:
        scores, _ = modified(
            scores, rows[:, None], inside[None, :], slope, bias, bias_row, bias_key, shift, SCALE, SOFT_CAP, SLOPES,
            BIAS,
        )  # fmt: skip
    if MASKED:
        visible = within(cols, first, beyond, LOWER, True)
        visible = seen(visible, mask, rows[:, None], inside[None, :], mask_row, mask_key, MASK)
        scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, 1) * FACTOR)
    level = higher
    if MASKED or BIAS:
        level = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores * FACTOR - level[:, None])
    shrink = tl.exp2(peak - level)
    total = total * shrink + tl.sum(weights, 1)
    if DROPOUT > 0:
        keep = kept(seed, plane, rows[:, None], cols[None, :], DROPOUT)
        weights = tl.where(keep, weights / (1 - DROPOUT), 0.0)
    v = load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM)
    mixed = tl.dot(weights.to(v.dtype), v, mixed * shrink[:, None], input_precision=PRECISION)
    return higher, total, mixed


@triton.jit
def finished(mixed, peak, total, sink, SINKS: tl.constexpr):
    """The mixture divided by the sum, which a sink joins, and the sum's logarithm to base 2."""
    if SINKS:
        level = tl.maximum(peak, sink)
        total = total * tl.exp2(peak - level) + tl.exp2(sink - level)
        mixed = mixed * tl.exp2(peak - level)[:, None]
        peak = level
    return (
        mixed / tl.where(total == 0, 1.0, total)[:, None],
        tl.where(total == 0, float("inf"), peak + tl.log2(total)),
        total,
    )


@triton.jit
def careful(
    q, key, value, rows, start, first, beyond, stop, key_row, value_row, mask, mask_row, mask_key, slope, bias,
    bias_row, bias_key, shift, sink, seed, plane, SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    MASK: tl.constexpr, SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, SINKS: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The tile again: a row that sees a number that is not finite gets NaN, and no other row is affected.

    A score of -inf hides a key, wherever it comes from.
    """
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, BLOCK_VALUE_DIM], tl.float32)
    broken, looks = tl.zeros([ROWS], tl.int32), tl.zeros([ROWS], tl.int32)
    for offset in range(start, stop, COLS):
        cols = offset + tl.arange(0, COLS)
        inside = tl.minimum(cols, stop - 1)
        k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
        v = load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM)
        scores, _ = modified(
            tl.dot(q, tl.trans(k), input_precision=PRECISION), rows[:, None], inside[None, :], slope, bias, bias_row,
            bias_key, shift, SCALE, SOFT_CAP, SLOPES, BIAS,
        )  # fmt: skip
        visible = within(cols, first, beyond, True, True)
        visible = seen(visible, mask, rows[:, None], inside[None, :], mask_row, mask_key, MASK)
        sound = tl.min(finite(v).to(tl.int32), 1) > 0
        wrong = visible & ((scores != scores) | (scores == float("inf")) | ~sound[None, :])
        broken = tl.maximum(broken, tl.max(wrong.to(tl.int32), 1))
        looks = tl.maximum(looks, tl.max(visible.to(tl.int32), 1))
        scores = tl.where(visible & ~wrong, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - level[:, None])
        shrink = tl.exp2(peak - level)
        total = total * shrink + tl.sum(weights, 1)
        if DROPOUT > 0:
            keep = kept(seed, plane, rows[:, None], cols[None, :], DROPOUT)
            weights = tl.where(keep, weights / (1 - DROPOUT), 0.0)
        mixed = tl.dot(weights.to(v.dtype), cleaned(v), mixed * shrink[:, None], input_precision=PRECISION)
        peak = higher
    mixed, logarithm, total = finished(mixed, peak, total, sink, SINKS)
    wrong_row = broken > 0
    if not BIAS:  # with a bias, all visible scores may be -inf; without, the query is infinite
        wrong_row = wrong_row | ((total == 0) & (looks > 0))
    return tl.where(wrong_row[:, None], float("nan"), mixed), tl.where(wrong_row, float("nan"), logarithm)
