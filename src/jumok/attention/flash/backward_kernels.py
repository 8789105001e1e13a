"""Flash attention, backward: weights are recomputed from the saved log-sum-exp; no atomics, so results repeat.

    p = exp(s − lse)   dv = pᵀ do   ds = p (do vᵀ − δ) with δ = Σ out · do   dq = scale · ds k   dk = scale · dsᵀ q

As in the forward kernel, numbers that are not finite show in a tile's result, which is then computed again with care.
Rows whose output is NaN have NaN as their log-sum-exp, and pass no gradient on.
"""

import triton
import triton.language as tl

from jumok.attention.flash.forward_kernels import seen
from jumok.attention.flash.tile_kernels import (
    CAREFUL,
    LOG2E,
    any_nonfinite,
    block_range,
    cleaned,
    kept,
    key_range,
    load_rows,
    row_range,
    store_rows,
)
from jumok.attention.triton_launch import kernel


@kernel
def query_gradient_kernel(
    query, key, value, out, d_out, lse, delta, d_query, key_lengths, query_lengths, segments, mask, seed,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    out_batch, out_head, out_row, d_out_batch, d_out_head, d_out_row, d_query_batch, d_query_head, d_query_row,
    key_length_batch, key_length_head, query_length_batch, query_length_head,
    mask_batch, mask_head, mask_row, mask_key, heads, queries, keys, low, high,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    KEY_LENGTHS: tl.constexpr, QUERY_LENGTHS: tl.constexpr, SEGMENTS: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dq of a tile of rows, and their δ for the gradients of keys and values."""
    tile, plane = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    query += batch * query_batch + head * query_head
    key += batch * key_batch + head * key_head
    value += batch * value_batch + head * value_head
    out += batch * out_batch + head * out_head
    d_out += batch * d_out_batch + head * d_out_head
    d_query += batch * d_query_batch + head * d_query_head
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
    if MASK != 0:
        inner_start, inner_stop = start, start

    real = tl.minimum(rows, queries - 1)
    q = load_rows(query, real, query_row, DIM, BLOCK_DIM)
    do = load_rows(d_out, real, d_out_row, VALUE_DIM, BLOCK_VALUE_DIM)
    o = load_rows(out, real, out_row, VALUE_DIM, BLOCK_VALUE_DIM)
    change = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    line = plane.to(tl.int64) * queries
    tl.store(delta + line + rows, change, mask=rows < queries)
    logarithm = tl.load(lse + line + real)
    dq = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
    if LOW or SEGMENTS:
        for at in range(start, inner_start, COLS):
            dq = query_block(
                dq, q, do, logarithm, change, key, value, mask, seed, plane, rows, at, first, beyond, stop, key_row,
                value_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, COLS, MASK, DROPOUT,
                PRECISION, True, False,
            )  # fmt: skip
    for at in range(inner_start, inner_stop, COLS):
        dq = query_block(
            dq, q, do, logarithm, change, key, value, mask, seed, plane, rows, at, first, beyond, stop, key_row,
            value_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, COLS, MASK, DROPOUT,
            PRECISION, False, False,
        )  # fmt: skip
    for at in range(inner_stop, stop, COLS):
        dq = query_block(
            dq, q, do, logarithm, change, key, value, mask, seed, plane, rows, at, first, beyond, stop, key_row,
            value_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, COLS, MASK, DROPOUT,
            PRECISION, True, False,
        )  # fmt: skip
    if EXACT:
        if any_nonfinite(dq):
            dq = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
            do = tl.where((logarithm == logarithm)[:, None], do, tl.zeros_like(do))
            for at in range(start, stop, CAREFUL):
                dq = query_block(
                    dq, q, do, logarithm, change, key, value, mask, seed, plane, rows, at, first, beyond, stop,
                    key_row, value_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, CAREFUL,
                    MASK, DROPOUT, PRECISION, True, True,
                )  # fmt: skip
    store_rows(d_query, rows, d_query_row, dq * SCALE, queries, DIM, BLOCK_DIM)


@triton.jit
def query_block(
    dq, q, do, logarithm, change, key, value, mask, seed, plane, rows, at, first, beyond, stop, key_row, value_row,
    mask_row, mask_key, SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, COLS: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """dq with the part of one block of keys."""
    cols = at + tl.arange(0, COLS)
    inside = cols
    if MASKED:
        inside = tl.minimum(cols, stop - 1)
    k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
    v = load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if AGAIN:
        v = cleaned(v)
    d_weights = tl.dot(do, tl.trans(v), input_precision=PRECISION)
    weights = tl.exp2(scores * (SCALE * LOG2E) - logarithm[:, None])
    if MASKED:
        visible = seen(mask, rows, cols, inside, first, beyond, mask_row, mask_key, MASK)
        if AGAIN:
            visible = visible & (logarithm == logarithm)[:, None]
        weights = tl.where(visible, weights, 0.0)
    if DROPOUT > 0:
        keep = kept(seed, plane, rows[:, None], cols[None, :], DROPOUT)
        d_weights = tl.where(keep, d_weights / (1 - DROPOUT), 0.0)
    d_scores = weights * (d_weights - change[:, None])
    if AGAIN:
        d_scores = tl.where(visible, d_scores, 0.0)
        k = cleaned(k)
    return tl.dot(d_scores.to(k.dtype), k, dq, input_precision=PRECISION)


@kernel
def key_gradient_kernel(
    query, key, value, d_out, lse, delta, d_key, d_value, key_lengths, query_lengths, segments, mask, seed,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    d_out_batch, d_out_head, d_out_row, d_key_batch, d_key_head, d_key_row, d_value_batch, d_value_head, d_value_row,
    key_length_batch, key_length_head, query_length_batch, query_length_head,
    mask_batch, mask_head, mask_row, mask_key, heads, queries, keys, low, high,
    SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    KEY_LENGTHS: tl.constexpr, QUERY_LENGTHS: tl.constexpr, SEGMENTS: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dk and dv of a tile of keys, one block of rows after another."""
    tile, plane = tl.program_id(0), tl.program_id(1)
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    query += batch * query_batch + head * query_head
    key += batch * key_batch + head * key_head
    value += batch * value_batch + head * value_head
    d_out += batch * d_out_batch + head * d_out_head
    d_key += batch * d_key_batch + head * d_key_head
    d_value += batch * d_value_batch + head * d_value_head
    mask += batch * mask_batch + head * mask_head
    lse += plane.to(tl.int64) * queries
    delta += plane.to(tl.int64) * queries
    key_length, query_length = keys, queries
    if KEY_LENGTHS:
        key_length = tl.load(key_lengths + batch * key_length_batch + head * key_length_head).to(tl.int32)
    if QUERY_LENGTHS:
        query_length = tl.load(query_lengths + batch * query_length_batch + head * query_length_head).to(tl.int32)
    cols = tile * COLS + tl.arange(0, COLS)
    first, beyond = row_range(
        cols, queries, keys, key_length, query_length, low, high, segments, LOW, HIGH, SEGMENTS
    )  # fmt: skip
    start, inner_start, inner_stop, stop = block_range(first, beyond, ROWS)
    if MASK != 0:
        inner_start, inner_stop = start, start

    dk = tl.zeros([COLS, BLOCK_DIM], tl.float32)
    dv = tl.zeros([COLS, BLOCK_VALUE_DIM], tl.float32)
    if start < stop:  # or nobody sees these keys, and they are not read
        inside = tl.minimum(cols, key_length - 1)
        k = load_rows(key, inside, key_row, DIM, BLOCK_DIM)
        v = load_rows(value, inside, value_row, VALUE_DIM, BLOCK_VALUE_DIM)
        if HIGH or SEGMENTS:
            for at in range(start, inner_start, ROWS):
                dk, dv = key_block(
                    dk, dv, k, v, query, d_out, lse, delta, mask, seed, plane, cols, inside, at, first, beyond, stop,
                    query_row, d_out_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS,
                    MASK, DROPOUT, PRECISION, True, False,
                )  # fmt: skip
        for at in range(inner_start, inner_stop, ROWS):
            dk, dv = key_block(
                dk, dv, k, v, query, d_out, lse, delta, mask, seed, plane, cols, inside, at, first, beyond, stop,
                query_row, d_out_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS,
                MASK, DROPOUT, PRECISION, False, False,
            )  # fmt: skip
        for at in range(inner_stop, stop, ROWS):
            dk, dv = key_block(
                dk, dv, k, v, query, d_out, lse, delta, mask, seed, plane, cols, inside, at, first, beyond, stop,
                query_row, d_out_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS,
                MASK, DROPOUT, PRECISION, True, False,
            )  # fmt: skip
        if EXACT:
            if any_nonfinite(dk) | any_nonfinite(dv):
                dk = tl.zeros([COLS, BLOCK_DIM], tl.float32)
                dv = tl.zeros([COLS, BLOCK_VALUE_DIM], tl.float32)
                for at in range(start, stop, CAREFUL):
                    dk, dv = key_block(
                        dk, dv, k, cleaned(v), query, d_out, lse, delta, mask, seed, plane, cols, inside, at, first,
                        beyond, stop, query_row, d_out_row, mask_row, mask_key, SCALE, DIM, VALUE_DIM, BLOCK_DIM,
                        BLOCK_VALUE_DIM, CAREFUL, MASK, DROPOUT, PRECISION, True, True,
                    )  # fmt: skip
    store_rows(d_key, cols, d_key_row, dk * SCALE, keys, DIM, BLOCK_DIM)
    store_rows(d_value, cols, d_value_row, dv, keys, VALUE_DIM, BLOCK_VALUE_DIM)


@triton.jit
def key_block(
    dk, dv, k, v, query, d_out, lse, delta, mask, seed, plane, cols, inside, at, first, beyond, stop, query_row,
    d_out_row, mask_row, mask_key, SCALE: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """dk and dv with the part of one block of rows. All tiles are [keys, rows]."""
    rows = at + tl.arange(0, ROWS)
    real = rows
    if MASKED:
        real = tl.minimum(rows, stop - 1)
    q = load_rows(query, real, query_row, DIM, BLOCK_DIM)
    do = load_rows(d_out, real, d_out_row, VALUE_DIM, BLOCK_VALUE_DIM)
    logarithm, change = tl.load(lse + real), tl.load(delta + real)
    if AGAIN:
        do = tl.where((logarithm == logarithm)[:, None], do, tl.zeros_like(do))
    scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
    weights = tl.exp2(scores * (SCALE * LOG2E) - logarithm[None, :])
    if MASKED:
        visible = seen(mask, cols, rows, real, first, beyond, mask_key, mask_row, 0)
        if MASK == 1:
            visible = visible & (tl.load(mask + inside * mask_key) != 0)[:, None]
        if MASK == 2:
            pair = mask + inside[:, None] * mask_key + real[None, :] * mask_row
            visible = visible & (tl.load(pair, mask=visible, other=0) != 0)
        if AGAIN:
            visible = visible & (logarithm == logarithm)[None, :]
        weights = tl.where(visible, weights, 0.0)
    d_weights = tl.dot(v, tl.trans(do), input_precision=PRECISION)
    mixing = weights
    if DROPOUT > 0:
        keep = kept(seed, plane, rows[None, :], cols[:, None], DROPOUT)
        mixing = tl.where(keep, weights / (1 - DROPOUT), 0.0)
        d_weights = tl.where(keep, d_weights / (1 - DROPOUT), 0.0)
    dv = tl.dot(mixing.to(do.dtype), do, dv, input_precision=PRECISION)
    d_scores = weights * (d_weights - change[None, :])
    if AGAIN:
        d_scores = tl.where(visible, d_scores, 0.0)
        q = cleaned(q)
    dk = tl.dot(d_scores.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv
