"""Flash attention, backward: weights are recomputed from the saved log-sum-exp; no atomics, so results repeat.

    p = exp(s − lse)   dv = pᵀ do   ds = p (do vᵀ − δ) with δ = Σ out · do   dq = scale · ds k   dk = scale · dsᵀ q

As in the forward kernel, numbers that are not finite show in a tile's result, which is then computed again with care.
Rows whose output is NaN have NaN as their log-sum-exp, and pass no gradient on.
"""

import triton
import triton.language as tl

from jumok.attention.flash.tile_kernels import (
    CAREFUL,
    LOG2E,
    NUMBERS,
    any_nonfinite,
    block_range,
    cleaned,
    kept,
    key_range,
    length_of,
    load_rows,
    modified,
    row_range,
    seen,
    store_rows,
    within,
)
from jumok.attention.triton_launch import kernel


@kernel(any_number=NUMBERS)
def query_gradient_kernel(
    query, key, value, out, d_out, lse, delta, d_query, key_lengths, query_lengths, query_ends, key_ends, mask, bias,
    slopes, sinks, seed,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    out_batch, out_head, out_row, d_out_batch, d_out_head, d_out_row, d_query_batch, d_query_head, d_query_row,
    key_length_batch, key_length_head, query_length_batch, query_length_head,
    mask_batch, mask_head, mask_row, mask_key, bias_batch, bias_head, bias_row, bias_key, slope_batch, slope_head,
    sink_batch, sink_head, heads, queries, keys, sequences, low, high, shift,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    KEY_LENGTHS: tl.constexpr, QUERY_LENGTHS: tl.constexpr, SEARCH: tl.constexpr, MASK: tl.constexpr,
    SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, SINKS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dq of a tile of rows, and their δ for the gradients of keys and values."""
    tiles = tl.cdiv(queries, ROWS)
    tile, plane = tiles - 1 - tl.program_id(0) % tiles, tl.program_id(0) // tiles
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    query += batch * query_batch + head * query_head
    key += batch * key_batch + head * key_head
    value += batch * value_batch + head * value_head
    out += batch * out_batch + head * out_head
    d_out += batch * d_out_batch + head * d_out_head
    d_query += batch * d_query_batch + head * d_query_head
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
    do = load_rows(d_out, real, d_out_row, VALUE_DIM, BLOCK_VALUE_DIM)
    o = load_rows(out, real, out_row, VALUE_DIM, BLOCK_VALUE_DIM)
    change = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    line = plane.to(tl.int64) * queries
    tl.store(delta + line + rows, change, mask=rows < queries)
    logarithm = tl.load(lse + line + real)
    dq = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
    if LOW or SEARCH > 0:
        for offset in range(start, inner_start, COLS):
            dq = query_block(
                dq, q, do, logarithm, change, key, value, real, offset, first, beyond, stop, key_row, value_row, mask,
                mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM, VALUE_DIM,
                BLOCK_DIM, BLOCK_VALUE_DIM, COLS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION, True, False,
                LOW or SEARCH > 0, True,
            )  # fmt: skip
    for offset in range(inner_start, inner_stop, COLS):
        dq = query_block(
            dq, q, do, logarithm, change, key, value, real, offset, first, beyond, stop, key_row, value_row, mask,
            mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM, VALUE_DIM, BLOCK_DIM,
            BLOCK_VALUE_DIM, COLS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION, False, False, False, False,
        )  # fmt: skip
    for offset in range(inner_stop, stop, COLS):
        dq = query_block(
            dq, q, do, logarithm, change, key, value, real, offset, first, beyond, stop, key_row, value_row, mask,
            mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM, VALUE_DIM, BLOCK_DIM,
            BLOCK_VALUE_DIM, COLS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION, True, False,
                LOW or SEARCH > 0, True,
        )  # fmt: skip
    if EXACT:
        if any_nonfinite(dq):
            dq = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
            do = tl.where((logarithm == logarithm)[:, None], do, tl.zeros_like(do))
            for offset in range(start, stop, CAREFUL):
                dq = query_block(
                    dq, q, do, logarithm, change, key, value, real, offset, first, beyond, stop, key_row, value_row,
                    mask, mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM,
                    VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, CAREFUL, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION,
                    True, True, True, True,
                )  # fmt: skip
    store_rows(d_query, rows, d_query_row, dq * SCALE, queries, DIM, BLOCK_DIM)


@triton.jit
def query_block(
    dq, q, do, logarithm, change, key, value, rows, offset, first, beyond, stop, key_row, value_row, mask, mask_row,
    mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE: tl.constexpr, DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, COLS: tl.constexpr,
    MASK: tl.constexpr, SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, AGAIN: tl.constexpr, LOWER: tl.constexpr,
    UPPER: tl.constexpr,
):  # fmt: skip
    """dq with the part of one block of keys."""
    cols = offset + tl.arange(0, COLS)
    inside = cols
    if MASKED:
        inside = tl.minimum(cols, stop - 1)
    k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
    v = load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM)
    if AGAIN:
        v = cleaned(v)
    visible = within(cols, first, beyond, LOWER, UPPER)
    if MASKED:
        visible = seen(visible, mask, rows[:, None], inside[None, :], mask_row, mask_key, MASK)
    _, d_scores = score_gradient(
        tl.dot(q, tl.trans(k), input_precision=PRECISION), tl.dot(do, tl.trans(v), input_precision=PRECISION),
        logarithm[:, None], change[:, None], visible, rows[:, None], inside[None, :], slope, bias, bias_row, bias_key,
        shift, seed, plane, SCALE, SOFT_CAP, SLOPES, BIAS, DROPOUT, MASKED, AGAIN, True,
    )  # fmt: skip
    if AGAIN:
        k = cleaned(k)
    return tl.dot(d_scores.to(k.dtype), k, dq, input_precision=PRECISION)


@triton.jit
def score_gradient(
    raw, d_weights, logarithm, change, visible, rows, cols, slope, bias, bias_row, bias_key, shift, seed, plane,
    SCALE: tl.constexpr, SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    MASKED: tl.constexpr, AGAIN: tl.constexpr, BY_DOT: tl.constexpr,
):  # fmt: skip
    """The weights after dropout, and the gradient by scale · q·k, or by the score itself, of a tile."""
    slant = 1.0
    if SOFT_CAP > 0 or SLOPES or BIAS:
        scores, slant = modified(
            raw, rows, cols, slope, bias, bias_row, bias_key, shift, SCALE, SOFT_CAP, SLOPES, BIAS
        )  # fmt: skip
        weights = tl.exp2(scores - logarithm)
    else:
        weights = tl.exp2(raw * (SCALE * LOG2E) - logarithm)
    if MASKED:
        if AGAIN:
            visible = visible & (logarithm == logarithm)
        weights = tl.where(visible, weights, 0.0)
    mixing = weights
    if DROPOUT > 0:
        keep = kept(seed, plane, rows, cols, DROPOUT)
        mixing = tl.where(keep, weights / (1 - DROPOUT), 0.0)
        d_weights = tl.where(keep, d_weights / (1 - DROPOUT), 0.0)
    d_scores = weights * (d_weights - change)
    if BY_DOT and SOFT_CAP > 0:
        d_scores = d_scores * slant
    if AGAIN:
        d_scores = tl.where(visible, d_scores, 0.0)
    return mixing, d_scores


@kernel(any_number=NUMBERS)
def key_gradient_kernel(
    query, key, value, d_out, lse, delta, d_key, d_value, key_lengths, query_lengths, query_ends, key_ends, mask, bias,
    slopes, sinks, seed,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    d_out_batch, d_out_head, d_out_row, d_key_batch, d_key_head, d_key_row, d_value_batch, d_value_head, d_value_row,
    key_length_batch, key_length_head, query_length_batch, query_length_head,
    mask_batch, mask_head, mask_row, mask_key, bias_batch, bias_head, bias_row, bias_key, slope_batch, slope_head,
    sink_batch, sink_head, heads, queries, keys, sequences, low, high, shift,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    KEY_LENGTHS: tl.constexpr, QUERY_LENGTHS: tl.constexpr, SEARCH: tl.constexpr, MASK: tl.constexpr,
    SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, SINKS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dk and dv of a tile of keys, one block of rows after another."""
    tiles = tl.cdiv(keys, COLS)
    tile, plane = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    query += batch * query_batch + head * query_head
    key += batch * key_batch + head * key_head
    value += batch * value_batch + head * value_head
    d_out += batch * d_out_batch + head * d_out_head
    d_key += batch * d_key_batch + head * d_key_head
    d_value += batch * d_value_batch + head * d_value_head
    mask += batch * mask_batch + head * mask_head
    bias += batch * bias_batch + head * bias_head
    slope = tl.load(slopes + batch * slope_batch + head * slope_head)
    lse += plane.to(tl.int64) * queries
    delta += plane.to(tl.int64) * queries
    key_length = length_of(key_lengths, keys, batch * key_length_batch + head * key_length_head, KEY_LENGTHS)
    query_length = length_of(
        query_lengths, queries, batch * query_length_batch + head * query_length_head, QUERY_LENGTHS
    )
    cols = tile * COLS + tl.arange(0, COLS)
    first, beyond = row_range(
        cols, keys, key_length, query_length, low, high, query_ends, key_ends, sequences, LOW, HIGH, SEARCH
    )
    start, inner_start, inner_stop, stop = block_range(first, beyond, ROWS, MASK)
    dk = tl.zeros([COLS, BLOCK_DIM], tl.float32)
    dv = tl.zeros([COLS, BLOCK_VALUE_DIM], tl.float32)
    if start < stop:  # or nobody sees these keys, and they are not read
        inside = tl.minimum(cols, key_length - 1)
        k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
        v = load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM)
        if HIGH or SEARCH > 0:
            for offset in range(start, inner_start, ROWS):
                dk, dv = key_block(
                    dk, dv, k, v, query, d_out, lse, delta, inside, offset, first, beyond, stop, query_row, d_out_row,
                    mask, mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM,
                    VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION,
                    True, False, True, True,
                )  # fmt: skip
        for offset in range(inner_start, inner_stop, ROWS):
            dk, dv = key_block(
                dk, dv, k, v, query, d_out, lse, delta, inside, offset, first, beyond, stop, query_row, d_out_row, mask,
                mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM, VALUE_DIM,
                BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION, False, False,
                False, False,
            )  # fmt: skip
        for offset in range(inner_stop, stop, ROWS):
            dk, dv = key_block(
                dk, dv, k, v, query, d_out, lse, delta, inside, offset, first, beyond, stop, query_row, d_out_row, mask,
                mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE, DIM, VALUE_DIM,
                BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, MASK, SOFT_CAP, SLOPES, BIAS, DROPOUT, PRECISION, True, False,
                HIGH or SEARCH > 0, True,
            )  # fmt: skip
        if EXACT:
            if any_nonfinite(dk) | any_nonfinite(dv):
                dk = tl.zeros([COLS, BLOCK_DIM], tl.float32)
                dv = tl.zeros([COLS, BLOCK_VALUE_DIM], tl.float32)
                for offset in range(start, stop, CAREFUL):
                    dk, dv = key_block(
                        dk, dv, k, cleaned(v), query, d_out, lse, delta, inside, offset, first, beyond, stop, query_row,
                        d_out_row, mask, mask_row, mask_key, slope, bias, bias_row, bias_key, shift, seed, plane,
                        SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, CAREFUL, MASK, SOFT_CAP, SLOPES, BIAS,
                        DROPOUT, PRECISION, True, True, True, True,
                    )  # fmt: skip
    store_rows(d_key, cols, d_key_row, dk * SCALE, keys, DIM, BLOCK_DIM)
    store_rows(d_value, cols, d_value_row, dv, keys, VALUE_DIM, BLOCK_VALUE_DIM)


@triton.jit
def key_block(
    dk, dv, k, v, query, d_out, lse, delta, cols, offset, first, beyond, stop, query_row, d_out_row, mask, mask_row,
    mask_key, slope, bias, bias_row, bias_key, shift, seed, plane, SCALE: tl.constexpr, DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr,
    MASK: tl.constexpr, SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, AGAIN: tl.constexpr, LOWER: tl.constexpr,
    UPPER: tl.constexpr,
):  # fmt: skip
    """dk and dv with the part of one block of rows. All tiles are [keys, rows]."""
    rows = offset + tl.arange(0, ROWS)
    real = rows
    if MASKED:
        real = tl.minimum(rows, stop - 1)
    q = load_rows(query, real, query_row, DIM, BLOCK_DIM)
    do = load_rows(d_out, real, d_out_row, VALUE_DIM, BLOCK_VALUE_DIM)
    logarithm, change = tl.load(lse + real), tl.load(delta + real)
    if AGAIN:
        do = tl.where((logarithm == logarithm)[:, None], do, tl.zeros_like(do))
    visible = within(rows, first, beyond, LOWER, UPPER)
    if MASKED:
        visible = seen(visible, mask, real[None, :], cols[:, None], mask_row, mask_key, MASK)
    mixing, d_scores = score_gradient(
        tl.dot(k, tl.trans(q), input_precision=PRECISION), tl.dot(v, tl.trans(do), input_precision=PRECISION),
        logarithm[None, :], change[None, :], visible, real[None, :], cols[:, None], slope, bias, bias_row, bias_key,
        shift, seed, plane, SCALE, SOFT_CAP, SLOPES, BIAS, DROPOUT, MASKED, AGAIN, True,
    )  # fmt: skip
    dv = tl.dot(mixing.to(do.dtype), do, dv, input_precision=PRECISION)
    if AGAIN:
        q = cleaned(q)
    dk = tl.dot(d_scores.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@kernel(any_number=NUMBERS)
def bias_gradient_kernel(
    query, key, value, d_out, lse, delta, d_bias, key_lengths, query_lengths, query_ends, key_ends, mask, bias, slopes,
    sinks, seed,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    d_out_batch, d_out_head, d_out_row, key_length_batch, key_length_head, query_length_batch, query_length_head,
    mask_batch, mask_head, mask_row, mask_key, bias_batch, bias_head, bias_row, bias_key, slope_batch, slope_head,
    sink_batch, sink_head, heads, queries, keys, sequences, low, high, shift, bias_heads, batches_shared, heads_shared,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    KEY_LENGTHS: tl.constexpr, QUERY_LENGTHS: tl.constexpr, SEARCH: tl.constexpr, MASK: tl.constexpr,
    SOFT_CAP: tl.constexpr, SLOPES: tl.constexpr, BIAS: tl.constexpr, SINKS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of the bias: the sum over the entries of the batch, and the heads, that share it."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    plane = tl.program_id(2)
    real, inside = tl.minimum(rows, queries - 1), tl.minimum(cols, keys - 1)
    summed = tl.zeros([ROWS, COLS], tl.float32)
    for shared in range(batches_shared * heads_shared):
        batch = (plane // bias_heads + shared // heads_shared).to(tl.int64)
        head = (plane % bias_heads + shared % heads_shared).to(tl.int64)
        key_length = length_of(key_lengths, keys, batch * key_length_batch + head * key_length_head, KEY_LENGTHS)
        query_length = length_of(
            query_lengths, queries, batch * query_length_batch + head * query_length_head, QUERY_LENGTHS
        )
        first, beyond = key_range(
            rows, queries, key_length, query_length, low, high, query_ends, key_ends, sequences, LOW, HIGH, SEARCH
        )
        visible = within(cols, first, beyond, True, True)
        if tl.max(tl.max(visible.to(tl.int32), 1), 0) > 0:
            slope = tl.load(slopes + batch * slope_batch + head * slope_head)
            q = load_rows(query + batch * query_batch + head * query_head, real, query_row, DIM, BLOCK_DIM)
            k = load_rows(key + batch * key_batch + head * key_head, inside, key_row, DIM, BLOCK_DIM)
            v = load_rows(
                value + batch * value_batch + head * value_head, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM
            )
            do = load_rows(d_out + batch * d_out_batch + head * d_out_head, real, d_out_row, VALUE_DIM, BLOCK_VALUE_DIM)
            line = (batch * heads + head) * queries + real
            logarithm, change = tl.load(lse + line), tl.load(delta + line)
            do = tl.where((logarithm == logarithm)[:, None], do, tl.zeros_like(do))
            visible = seen(
                visible, mask + batch * mask_batch + head * mask_head, real[:, None], inside[None, :], mask_row,
                mask_key, MASK,
            )  # fmt: skip
            _, d_scores = score_gradient(
                tl.dot(q, tl.trans(k), input_precision=PRECISION),
                tl.dot(do, tl.trans(cleaned(v)), input_precision=PRECISION), logarithm[:, None], change[:, None],
                visible, real[:, None], inside[None, :], slope, bias + batch * bias_batch + head * bias_head, bias_row,
                bias_key, shift, seed, (batch * heads + head).to(tl.int32), SCALE, SOFT_CAP, SLOPES, BIAS, DROPOUT,
                True, True, False,
            )  # fmt: skip
            summed += d_scores
    pointers = d_bias + (plane.to(tl.int64) * queries + rows[:, None]) * keys + cols[None, :]
    tl.store(pointers, summed, mask=(rows < queries)[:, None] & (cols < keys)[None, :])
