"""Triton kernels of one step of attention in a recurrent decoder, forward and backward.

A program computes one sentence. The score is v · tanh(q + k), with coverage v · tanh(q + k + coverage · w), or q · k if
DOT. What later steps do not wait for, the gradients of keys and v, is summed over all steps at once after the last: by
`key_gradients_kernel`, or for q · k by a product.
"""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel
from jumok.layers.gpu.cell_kernels import tanh


@triton.jit
def key_tile(key, rows, dims, keys, width):
    """Some features of some keys or values; what is hidden is emptied by `visible_only` once it is there."""
    inside = (rows < keys)[:, None] & (dims < width)[None, :]
    return tl.load(key + rows[:, None] * width + dims[None, :], mask=inside, other=0.0)


@triton.jit
def visible_only(tile, seen):
    """Zeros for hidden keys, NaN among them; in single precision."""
    return tl.where(seen[:, None], tile.to(tl.float32), 0.0)


@triton.jit
def vector(pointer, dims, width):
    """Some features of a vector, in single precision."""
    return tl.load(pointer + dims, mask=dims < width, other=0.0).to(tl.float32)


@kernel
def attend_step_kernel(
    query, QUERY_ROW, key, value, v, w, visible, coverage, context, CONTEXT_ROW, weights, keys, width, value_width,
    number,
    KEYS: tl.constexpr, DIMS: tl.constexpr, VALUES: tl.constexpr, EARLY: tl.constexpr, SPREAD: tl.constexpr,
    COVERAGE: tl.constexpr, DOT: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """α = softmax of the scores, c = Σ αᵢ hᵢ; a sentence without visible keys gets zeros.

    The wait for memory is most of the time. So keys are not read under the mask, which would have to come first, and
    if EARLY the values are read before they are needed, all at once. If SPREAD, the compiler is not told how vectors
    are aligned (`number` is 0), reads two features a thread, and so gives every thread all keys: warps then wait for
    each other once, not for every sum over keys.
    """
    batch = tl.program_id(0).to(tl.int64)
    rows, key_dims, value_dims = tl.arange(0, KEYS), tl.arange(0, DIMS), tl.arange(0, VALUES)
    key += batch * keys * width
    value += batch * keys * value_width
    query += batch * QUERY_ROW
    if SPREAD:
        key += 2 * number
        value += 2 * number
    k = key_tile(key, rows, key_dims, keys, width)
    if EARLY:
        values = key_tile(value, rows, value_dims, keys, value_width)
    seen = tl.load(visible + batch * keys + rows, mask=rows < keys, other=0) != 0
    if COVERAGE:
        covered = tl.load(coverage + batch * keys + rows, mask=seen, other=0.0)
    scores = tl.zeros([KEYS], tl.float32)
    for start in range(0, width, DIMS):
        dims = start + key_dims
        if start > 0:
            k = key_tile(key, rows, dims, keys, width)
        x, q = visible_only(k, seen), vector(query, dims, width)
        if DOT:
            scores += tl.sum(x * q[None, :], 1)
        else:
            x += q[None, :]
            if COVERAGE:
                x += covered[:, None] * vector(w, dims, width)[None, :]
            scores += tl.sum(vector(v, dims, width)[None, :] * tanh(x, ASSEMBLY), 1)
    scores = tl.where(seen, scores, float("-inf"))
    largest = tl.max(scores, 0)
    powers = tl.exp(scores - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(powers, 0)
    shares = powers / tl.where(total == 0, 1.0, total)
    tl.store(weights + batch * keys + rows, shares, mask=rows < keys)
    for start in range(0, value_width, VALUES):
        dims = start + value_dims
        if not EARLY:
            values = key_tile(value, rows, dims, keys, value_width)
        mixed = tl.sum(shares[:, None] * visible_only(values, seen), 0)
        tl.store(context + batch * CONTEXT_ROW + dims, mixed.to(context.dtype.element_ty), mask=dims < value_width)


@kernel
def attend_step_backward_kernel(
    d_context, CONTEXT_ROW, d_context_given, d_context_sum, query, QUERY_ROW, key, value, v, w, visible, coverage,
    weights, d_weights, d_coverage, d_coverage_before, d_query, D_QUERY_ROW, d_scores, keys, width, value_width, number,
    KEYS: tl.constexpr, DIMS: tl.constexpr, VALUES: tl.constexpr, EARLY: tl.constexpr, SPREAD: tl.constexpr,
    COVERAGE: tl.constexpr, DOT: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of the scores and the query of one step.

    The gradient of the context is the sum of what the cell gives and what the decoder's outputs give. `d_coverage` is
    the gradient of the coverage after this step, `d_coverage_before` that before it. Nothing is written where it was
    read: several threads may read one number.
    """
    batch = tl.program_id(0).to(tl.int64)
    rows, key_dims, value_dims = tl.arange(0, KEYS), tl.arange(0, DIMS), tl.arange(0, VALUES)
    key += batch * keys * width
    value += batch * keys * value_width
    query += batch * QUERY_ROW
    if SPREAD:
        key += 2 * number
        value += 2 * number
    values = key_tile(value, rows, value_dims, keys, value_width)
    if EARLY:
        k = key_tile(key, rows, key_dims, keys, width)
    seen = tl.load(visible + batch * keys + rows, mask=rows < keys, other=0) != 0
    shares = tl.load(weights + batch * keys + rows, mask=seen, other=0.0)
    d_shares = tl.load(d_weights + batch * keys + rows, mask=seen, other=0.0)
    if COVERAGE:
        covered = tl.load(coverage + batch * keys + rows, mask=seen, other=0.0)
        d_covered = tl.load(d_coverage + batch * keys + rows, mask=seen, other=0.0)
        d_shares += d_covered
    for start in range(0, value_width, VALUES):
        dims = start + value_dims
        if start > 0:
            values = key_tile(value, rows, dims, keys, value_width)
        given = vector(d_context + batch * CONTEXT_ROW, dims, value_width)
        given += vector(d_context_given + batch * value_width, dims, value_width)
        place = d_context_sum + batch * value_width + dims
        tl.store(place, given.to(d_context_sum.dtype.element_ty), mask=dims < value_width)
        d_shares += tl.sum(visible_only(values, seen) * given[None, :], 1)
    d_score = shares * (d_shares - tl.sum(shares * d_shares, 0))
    tl.store(d_scores + batch * keys + rows, d_score, mask=rows < keys)
    for start in range(0, width, DIMS):
        dims = start + key_dims
        if not EARLY:
            k = key_tile(key, rows, dims, keys, width)
        slope = visible_only(k, seen)
        if not DOT:
            x = slope + vector(query, dims, width)[None, :]
            if COVERAGE:
                by = vector(w, dims, width)
                x += covered[:, None] * by[None, :]
            y = tanh(x, ASSEMBLY)
            slope = vector(v, dims, width)[None, :] * (1.0 - y * y)
        gradient = tl.sum(d_score[:, None] * slope, 0)
        tl.store(d_query + batch * D_QUERY_ROW + dims, gradient.to(d_query.dtype.element_ty), mask=dims < width)
        if COVERAGE:
            d_covered += d_score * tl.sum(slope * by[None, :], 1)
    if COVERAGE:
        # The coverage before this step also went into the coverage after it, and the weights into that alone.
        tl.store(d_coverage_before + batch * keys + rows, d_covered, mask=rows < keys)


@kernel
def key_gradients_kernel(
    query, QUERY_STEP, QUERY_ROW, key, v, w, visible, coverage, d_scores, d_key, d_v, d_w, steps, batches, keys, width,
    KEYS: tl.constexpr, DIMS: tl.constexpr, COVERAGE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of some features of a sentence's keys, and its share of those of v and w, over all steps."""
    batch = tl.program_id(0).to(tl.int64)
    rows, dims = tl.arange(0, KEYS), tl.program_id(1) * DIMS + tl.arange(0, DIMS)
    seen = tl.load(visible + batch * keys + rows, mask=rows < keys, other=0) != 0
    k = visible_only(key_tile(key + batch * keys * width, rows, dims, keys, width), seen)
    gradient = tl.zeros([KEYS, DIMS], tl.float32)
    sums = tl.zeros([KEYS, DIMS], tl.float32)
    covers = tl.zeros([KEYS, DIMS], tl.float32)
    line = batch * keys + rows
    query += batch * QUERY_ROW
    for _ in range(0, steps):
        q = tl.load(query + dims, mask=dims < width, other=0.0).to(tl.float32)
        d_score = tl.load(d_scores + line, mask=seen, other=0.0)
        x = k + q[None, :]
        if COVERAGE:
            covered = tl.load(coverage + line, mask=seen, other=0.0)
            x += covered[:, None] * tl.load(w + dims, mask=dims < width, other=0.0).to(tl.float32)[None, :]
        y = tanh(x, ASSEMBLY)
        slope = d_score[:, None] * (1.0 - y * y)
        gradient += slope
        sums += d_score[:, None] * y
        if COVERAGE:
            covers += covered[:, None] * slope
        query += QUERY_STEP
        line += batches * keys
    u = tl.load(v + dims, mask=dims < width, other=0.0).to(tl.float32)
    place = d_key + (batch * keys + rows[:, None]) * width + dims[None, :]
    inside = (rows < keys)[:, None] & (dims < width)[None, :]
    tl.store(place, (gradient * u[None, :]).to(d_key.dtype.element_ty), mask=inside)
    tl.store(d_v + batch * width + dims, tl.sum(sums, 0), mask=dims < width)
    if COVERAGE:
        tl.store(d_w + batch * width + dims, u * tl.sum(covers, 0), mask=dims < width)
