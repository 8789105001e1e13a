"""Triton kernels of additive attention for few queries, forward and backward: one pass over keys and values.

A recurrent decoder has one query at a time, so tiles of queries would be almost empty. Forward, a program computes one
query over a part of the keys. Backward, a program takes some keys of one batch entry, recomputes their weights for each
query and writes the gradients of these keys and values; those of the queries and v are summed afterwards.
"""

import triton
import triton.language as tl

from jumok.attention.additive.gpu.forward_kernels import kept, seen
from jumok.attention.additive.gpu.prepare_kernels import LOG2E, half_tanh
from jumok.attention.additive.gpu.score_kernels import seen_by
from jumok.attention.triton_launch import kernel


@kernel
def few_queries_kernel(
    query, key, value, v, V_BATCH, first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW,
    mask, MASK_SHARED, MASK_BATCH, MASK_ROW, MASK_KEY, seed, out, lse, batches, queries, keys, dim, value_dim, parts,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_DIM: tl.constexpr, VALUES: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """softmax(scores) · values of one query; keys are read directly from memory, whose speed is the limit here."""
    batch, part = (tl.program_id(0) // queries).to(tl.int64), tl.program_id(1)
    row = tl.program_id(0) % queries
    rows = row + tl.arange(0, 1)
    dims = tl.arange(0, VALUES)
    first += batch * FIRST_BATCH
    beyond += batch * BEYOND_BATCH
    mask += batch // MASK_SHARED * MASK_BATCH
    largest, total, sees_nonfinite = float("-inf"), 0.0, 0
    acc = tl.zeros([VALUES], tl.float32)
    start, end = seen_by(rows, rows < queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, FIRST, BEYOND)
    start = start // COLS * COLS
    share = tl.cdiv(tl.cdiv(tl.maximum(end - start, 0), COLS), parts) * COLS
    for block_start in range(start + part * share, tl.minimum(start + (part + 1) * share, end), COLS):
        cols = block_start + tl.arange(0, COLS)
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
            sees_nonfinite = tl.maximum(
                sees_nonfinite, tl.max(tl.max((~(tl.abs(values) < float("inf"))).to(tl.int32), 1), 0)
            )
        acc = acc * shrink + tl.sum(weights[:, None] * values, 0)
        largest = higher
    scale = tl.where(total > 0, 1.0 / (1.0 - DROPOUT) / tl.where(total > 0, total, 1.0), total)
    line = (part * batches + batch) * queries + row
    mixed = tl.where(sees_nonfinite > 0, float("nan"), acc * scale)
    tl.store(out + line * value_dim + dims, mixed.to(out.dtype.element_ty), mask=dims < value_dim)
    tl.store(lse + line, largest)
    tl.store(lse + line + parts * batches * queries, tl.where(total == 0, 1.0, total))


@triton.jit
def one_row_of_scores(
    query, key, cols, cols_in, v, dim, BLOCK_DIM: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr
):
    """The scores of one query with some keys. Each thread sums its own part; threads are reduced once, at the end."""
    partial_sums = tl.zeros([COLS, BLOCK_DIM], tl.float32)
    for d in range(0, dim, BLOCK_DIM):
        dims = d + tl.arange(0, BLOCK_DIM)
        a = tl.load(query + dims, mask=dims < dim, other=0.0).to(tl.float32)
        offsets, inside = cols[:, None].to(tl.int64) * dim + dims[None, :], cols_in[:, None] & (dims < dim)[None, :]
        b = tl.load(key + offsets, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(v + dims, mask=dims < dim, other=0.0).to(tl.float32) * -2.0
        partial_sums += u[None, :] * half_tanh(a[None, :] + b, ASSEMBLY)
    return tl.sum(partial_sums, 1)


@kernel
def few_scores_kernel(
    query, key, v, V_BATCH, scores, SCORES_BATCH, SCORES_ROW, queries, keys, dim,
    BLOCK_DIM: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The scores of few queries, written to memory."""
    batch, row = (tl.program_id(0) // queries).to(tl.int64), tl.program_id(0) % queries
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    row_of_scores = one_row_of_scores(
        query + (batch * queries + row) * dim, key + batch * keys * dim, cols, cols < keys, v + batch * V_BATCH, dim,
        BLOCK_DIM, COLS, ASSEMBLY,
    )  # fmt: skip
    tl.store(scores + batch * SCORES_BATCH + row * SCORES_ROW + cols, row_of_scores, mask=cols < keys)


@kernel
def few_gradients_kernel(
    d_out, query, key, value, v, V_BATCH, out, lse,
    first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW,
    mask, MASK_SHARED, MASK_BATCH, MASK_ROW, MASK_KEY, seed,
    d_query, d_key, d_value, d_v, batches, queries, keys, dim, value_dim,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_DIM: tl.constexpr, VALUES: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of some keys and their values, and these keys' share of the gradients of the queries and v."""
    batch, part = (tl.program_id(0) % batches).to(tl.int64), tl.program_id(0) // batches
    cols = part * COLS + tl.arange(0, COLS)
    key += batch * keys * dim
    d_key += batch * keys * dim
    v += batch * V_BATCH
    place = (part * batches + batch).to(tl.int64)
    for row in range(0, queries):
        rows, line = row + tl.arange(0, 1), batch * queries + row
        scores = one_row_of_scores(query + line * dim, key, cols, cols < keys, v, dim, BLOCK_DIM, COLS, ASSEMBLY)
        visible = seen(
            rows, cols, queries, keys, first + batch * FIRST_BATCH, FIRST_ROW,
            beyond + batch * BEYOND_BATCH, BEYOND_ROW, mask + batch // MASK_SHARED * MASK_BATCH, MASK_ROW, MASK_KEY,
            FIRST, BEYOND, MASK,
        )  # fmt: skip
        visible = tl.reshape(visible, [COLS])
        keep = visible
        if DROPOUT > 0:
            keep = keep & tl.reshape(kept(rows, cols, keys, batch, seed, DROPOUT), [COLS])
        d_weight, delta, broken = d_weights(
            value + batch * keys * value_dim, d_out + line * value_dim, out + line * value_dim, cols, keep, value_dim,
            COLS, VALUES,
        )  # fmt: skip
        level = tl.load(lse + line)
        level = tl.where(level == float("-inf"), 0.0, level)
        weights = tl.exp2((scores - level) * LOG2E) / tl.load(lse + batches * queries + line)
        # With a mask, a query whose output is NaN passes no gradient on.
        sound = (broken == 0) if FIRST or BEYOND or MASK else (broken >= 0)
        weights = tl.where(sound, tl.where(visible, weights, 0.0), 0.0)
        d_score = weights * (tl.where(keep, d_weight, 0.0) / (1.0 - DROPOUT) - delta)
        d_score = tl.where(sound, tl.where(visible, d_score, 0.0), 0.0)
        write_values(
            d_value + batch * keys * value_dim, d_out + line * value_dim,
            tl.where(keep, weights, 0.0) / (1.0 - DROPOUT), cols, cols < keys, sound, value_dim, row > 0, VALUES,
        )  # fmt: skip
        write_keys(
            query + line * dim, key, v, d_score, d_query + (place * queries + row) * dim, d_key,
            d_v + (place * queries + row) * dim, cols, cols < keys, dim, row > 0, BLOCK_DIM, ASSEMBLY,
        )  # fmt: skip
        tl.debug_barrier()  # another thread may add to what this one wrote


@triton.jit
def d_weights(value, d_out, out, cols, wanted, value_dim, COLS: tl.constexpr, VALUES: tl.constexpr):
    """dO · value for some keys, δ = dO · O, and whether O is not finite."""
    products, delta, broken = tl.zeros([COLS], tl.float32), 0.0, 0
    for start in range(0, value_dim, VALUES):
        dims = start + tl.arange(0, VALUES)
        given = tl.load(d_out + dims, mask=dims < value_dim, other=0.0).to(tl.float32)
        mixed = tl.load(out + dims, mask=dims < value_dim, other=0.0).to(tl.float32)
        delta += tl.sum(given.to(tl.float64) * mixed.to(tl.float64), 0).to(tl.float32)
        broken = tl.maximum(broken, tl.max((~(tl.abs(mixed) < float("inf"))).to(tl.int32), 0))
        pointers = value + cols[:, None].to(tl.int64) * value_dim + dims[None, :]
        values = tl.load(pointers, mask=wanted[:, None] & (dims < value_dim)[None, :], other=0.0).to(tl.float32)
        products += tl.sum(values * given[None, :], 1)
    return products, delta, broken


@triton.jit
def write_values(d_value, d_out, weights, cols, cols_in, sound, value_dim, ADD, VALUES: tl.constexpr):
    """p dO, added to that of earlier queries; 0 where the output is NaN, because dO is most likely NaN too."""
    for start in range(0, value_dim, VALUES):
        dims = start + tl.arange(0, VALUES)
        given = tl.load(d_out + dims, mask=(dims < value_dim) & sound, other=0.0).to(tl.float32)
        pointers = d_value + cols[:, None].to(tl.int64) * value_dim + dims[None, :]
        inside = cols_in[:, None] & (dims < value_dim)[None, :]
        gradients = weights[:, None] * given[None, :]
        if ADD:
            gradients += tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
        tl.store(pointers, gradients.to(d_value.dtype.element_ty), mask=inside)


@triton.jit
def write_keys(
    query, key, v, w, d_query, d_key, d_v, cols, cols_in, dim, ADD, BLOCK_DIM: tl.constexpr, ASSEMBLY: tl.constexpr
):  # fmt: skip
    """4 v w (¼ − h²) for keys, summed for the query; −2 Σ w h for v. Keys without weight may be NaN."""
    for start in range(0, dim, BLOCK_DIM):
        dims = start + tl.arange(0, BLOCK_DIM)
        dims_in = dims < dim
        a = tl.load(query + dims, mask=dims_in, other=0.0).to(tl.float32)
        offsets, inside = cols[:, None].to(tl.int64) * dim + dims[None, :], cols_in[:, None] & dims_in[None, :]
        b = tl.load(key + offsets, mask=inside, other=0.0).to(tl.float32)
        h = half_tanh(a[None, :] + b, ASSEMBLY)
        h = tl.where(h == h, h, 0.0)
        slopes = w[:, None] * (0.25 - h * h) * (4 * tl.load(v + dims, mask=dims_in, other=0.0).to(tl.float32))[None, :]
        tl.store(d_query + dims, tl.sum(slopes, 0), mask=dims_in)
        tl.store(d_v + dims, -2 * tl.sum(w[:, None] * h, 0), mask=dims_in)
        if ADD:
            slopes += tl.load(d_key + offsets, mask=inside, other=0.0).to(tl.float32)
        tl.store(d_key + offsets, slopes.to(d_key.dtype.element_ty), mask=inside)
