"""Flash attention, backward, for sequences that fit one tile: one program has a whole head, and reads it once.

The equations are those of `backward_kernels`, always computed with care for numbers that are not finite.
"""

import triton.language as tl

from jumok.attention.flash.backward_kernels import score_gradient
from jumok.attention.flash.tile_kernels import cleaned, key_range, length_of, load_rows, seen, store_rows, within
from jumok.attention.triton_launch import kernel


@kernel
def short_gradient_kernel(
    query, key, value, out, d_out, lse, delta, d_query, d_key, d_value, key_lengths, query_lengths, query_ends,
    key_ends, mask, bias, slopes, sinks, seed,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    out_batch, out_head, out_row, d_out_batch, d_out_head, d_out_row, d_query_batch, d_query_head, d_query_row,
    d_key_batch, d_key_head, d_key_row, d_value_batch, d_value_head, d_value_row,
    key_length_batch, key_length_head, query_length_batch, query_length_head,
    mask_batch, mask_head, mask_row, mask_key, bias_batch, bias_head, bias_row, bias_key, slope_batch, slope_head,
    sink_batch, sink_head, heads, queries, keys, sequences, low, high, shift,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    KEY_LENGTHS: tl.constexpr, QUERY_LENGTHS: tl.constexpr, SEARCH: tl.constexpr, MASK: tl.constexpr,
    SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, SINKS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dq, dk, dv and δ of one head."""
    plane = tl.program_id(0)
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    query += batch * query_batch + head * query_head
    key += batch * key_batch + head * key_head
    value += batch * value_batch + head * value_head
    out += batch * out_batch + head * out_head
    d_out += batch * d_out_batch + head * d_out_head
    mask += batch * mask_batch + head * mask_head
    bias += batch * bias_batch + head * bias_head
    slope = tl.load(slopes + batch * slope_batch + head * slope_head)
    key_length = length_of(key_lengths, keys, batch * key_length_batch + head * key_length_head, KEY_LENGTHS)
    query_length = length_of(
        query_lengths, queries, batch * query_length_batch + head * query_length_head, QUERY_LENGTHS
    )
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    real, inside = tl.minimum(rows, queries - 1), tl.minimum(cols, keys - 1)
    first, beyond = key_range(
        rows, queries, key_length, query_length, low, high, query_ends, key_ends, sequences, LOW, HIGH, SEARCH
    )
    q = load_rows(query, real, query_row, DIM, BLOCK_DIM)
    k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
    v = cleaned(load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM))
    do = load_rows(d_out, real, d_out_row, VALUE_DIM, BLOCK_VALUE_DIM)
    o = load_rows(out, real, out_row, VALUE_DIM, BLOCK_VALUE_DIM)
    line = plane.to(tl.int64) * queries
    logarithm = tl.load(lse + line + real)
    change = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta + line + rows, change, mask=rows < queries)
    do = tl.where((logarithm == logarithm)[:, None], do, tl.zeros_like(do))
    visible = within(cols, first, beyond, True, True) & (rows < queries)[:, None]
    visible = seen(visible, mask, real[:, None], inside[None, :], mask_row, mask_key, MASK)
    mixing, d_scores = score_gradient(
        tl.dot(q, tl.trans(k), input_precision=PRECISION), tl.dot(do, tl.trans(v), input_precision=PRECISION),
        logarithm[:, None], change[:, None], visible, real[:, None], inside[None, :], slope, bias, bias_row, bias_key,
        shift, seed, plane, SCALE, SOFT_CAP, SLOPES, BIAS, DROPOUT, True, True, True,
    )  # fmt: skip
    d_scores = d_scores.to(q.dtype)
    dv = tl.dot(tl.trans(mixing.to(do.dtype)), do, input_precision=PRECISION)
    d_value += batch * d_value_batch + head * d_value_head
    store_rows(d_value, cols, d_value_row, dv, keys, VALUE_DIM, BLOCK_VALUE_DIM)
    dq = tl.dot(d_scores, cleaned(k), input_precision=PRECISION)
    d_query += batch * d_query_batch + head * d_query_head
    store_rows(d_query, rows, d_query_row, dq * SCALE, queries, DIM, BLOCK_DIM)
    dk = tl.dot(tl.trans(d_scores), cleaned(q), input_precision=PRECISION)
    d_key += batch * d_key_batch + head * d_key_head
    store_rows(d_key, cols, d_key_row, dk * SCALE, keys, DIM, BLOCK_DIM)
