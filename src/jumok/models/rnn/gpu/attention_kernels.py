"""Triton kernels of one step of additive attention in a recurrent decoder, forward and backward.

A program computes one sentence. The score is v · tanh(q + k), with coverage v · tanh(q + k + coverage · w). What later
steps do not wait for, the gradients of keys and v, is summed over all steps at once after the last (`key_gradients`).
"""

import triton
import triton.language as tl

from jumok.attention.additive.gpu.prepare_kernels import half_tanh
from jumok.attention.triton_launch import kernel

PLAIN, EXACT, FAST = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""How tanh is computed: for the interpreter, in single precision, or by one instruction, exact enough for bfloat16."""


@triton.jit
def tanh(x, ASSEMBLY: tl.constexpr):
    """tanh(x)."""
    if ASSEMBLY == FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return -2.0 * half_tanh(x, ASSEMBLY == EXACT)


@triton.jit
def key_tile(key, rows, dims, seen, width):
    """Some features of some keys; hidden keys are not read."""
    inside = seen[:, None] & (dims < width)[None, :]
    return tl.load(key + rows[:, None] * width + dims[None, :], mask=inside, other=0.0).to(tl.float32)


@kernel
def attend_step_kernel(
    query, QUERY_ROW, key, value, v, w, visible, coverage, context, weights, keys, width, value_width,
    KEYS: tl.constexpr, DIMS: tl.constexpr, VALUES: tl.constexpr, COVERAGE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """α = softmax of the scores, c = Σ αᵢ hᵢ; a sentence without visible keys gets zeros."""
    batch = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, KEYS)
    seen = tl.load(visible + batch * keys + rows, mask=rows < keys, other=0) != 0
    key += batch * keys * width
    value += batch * keys * value_width
    if COVERAGE:
        covered = tl.load(coverage + batch * keys + rows, mask=seen, other=0.0)
    found = tl.zeros([KEYS, DIMS], tl.float32)
    for start in range(0, width, DIMS):
        dims = start + tl.arange(0, DIMS)
        q = tl.load(query + batch * QUERY_ROW + dims, mask=dims < width, other=0.0).to(tl.float32)
        u = tl.load(v + dims, mask=dims < width, other=0.0).to(tl.float32)
        x = key_tile(key, rows, dims, seen, width) + q[None, :]
        if COVERAGE:
            x += covered[:, None] * tl.load(w + dims, mask=dims < width, other=0.0).to(tl.float32)[None, :]
        found += u[None, :] * tanh(x, ASSEMBLY)
    scores = tl.where(seen, tl.sum(found, 1), float("-inf"))
    largest = tl.max(scores, 0)
    powers = tl.exp(scores - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(powers, 0)
    shares = powers / tl.where(total == 0, 1.0, total)
    tl.store(weights + batch * keys + rows, shares, mask=rows < keys)
    for start in range(0, value_width, VALUES):
        dims = start + tl.arange(0, VALUES)
        mixed = tl.sum(shares[:, None] * key_tile(value, rows, dims, seen, value_width), 0)
        tl.store(context + batch * value_width + dims, mixed.to(context.dtype.element_ty), mask=dims < value_width)


@kernel
def attend_step_backward_kernel(
    d_context, d_context_given, query, QUERY_ROW, key, value, v, w, visible, coverage, weights, d_weights, d_coverage,
    d_query, d_scores, keys, width, value_width,
    KEYS: tl.constexpr, DIMS: tl.constexpr, VALUES: tl.constexpr, COVERAGE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of the scores and the query of one step.

    `d_context`, the share of the cell, gets that of the decoder's outputs added; `d_coverage` is the gradient of the
    coverage after this step and becomes that before it.
    """
    batch = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, KEYS)
    seen = tl.load(visible + batch * keys + rows, mask=rows < keys, other=0) != 0
    key += batch * keys * width
    value += batch * keys * value_width
    shares = tl.load(weights + batch * keys + rows, mask=seen, other=0.0)
    d_shares = tl.load(d_weights + batch * keys + rows, mask=seen, other=0.0)
    if COVERAGE:
        covered = tl.load(coverage + batch * keys + rows, mask=seen, other=0.0)
        d_covered = tl.load(d_coverage + batch * keys + rows, mask=seen, other=0.0)
        d_shares += d_covered
    for start in range(0, value_width, VALUES):
        dims = start + tl.arange(0, VALUES)
        place, inside = batch * value_width + dims, dims < value_width
        given = tl.load(d_context + place, mask=inside, other=0.0).to(tl.float32)
        given += tl.load(d_context_given + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(d_context + place, given.to(d_context.dtype.element_ty), mask=inside)
        d_shares += tl.sum(key_tile(value, rows, dims, seen, value_width) * given[None, :], 1)
    d_score = shares * (d_shares - tl.sum(shares * d_shares, 0))
    tl.store(d_scores + batch * keys + rows, d_score, mask=rows < keys)
    for start in range(0, width, DIMS):
        dims = start + tl.arange(0, DIMS)
        q = tl.load(query + batch * QUERY_ROW + dims, mask=dims < width, other=0.0).to(tl.float32)
        u = tl.load(v + dims, mask=dims < width, other=0.0).to(tl.float32)
        x = key_tile(key, rows, dims, seen, width) + q[None, :]
        if COVERAGE:
            by = tl.load(w + dims, mask=dims < width, other=0.0).to(tl.float32)
            x += covered[:, None] * by[None, :]
        y = tanh(x, ASSEMBLY)
        slope = u[None, :] * (1.0 - y * y)
        found = tl.sum(d_score[:, None] * slope, 0)
        tl.store(d_query + batch * QUERY_ROW + dims, found.to(d_query.dtype.element_ty), mask=dims < width)
        if COVERAGE:
            d_covered += d_score * tl.sum(slope * by[None, :], 1)
    if COVERAGE:
        # The coverage before this step also went into the coverage after it, and the weights into that alone.
        tl.store(d_coverage + batch * keys + rows, d_covered, mask=rows < keys)


@kernel
def key_gradients_kernel(
    query, QUERY_STEP, QUERY_ROW, key, v, w, visible, coverage, d_scores, d_key, d_v, d_w, steps, batches, keys, width,
    KEYS: tl.constexpr, DIMS: tl.constexpr, COVERAGE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of some features of a sentence's keys, and its share of those of v and w, over all steps."""
    batch = tl.program_id(0).to(tl.int64)
    rows, dims = tl.arange(0, KEYS), tl.program_id(1) * DIMS + tl.arange(0, DIMS)
    seen = tl.load(visible + batch * keys + rows, mask=rows < keys, other=0) != 0
    k = key_tile(key + batch * keys * width, rows, dims, seen, width)
    found = tl.zeros([KEYS, DIMS], tl.float32)
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
        found += slope
        sums += d_score[:, None] * y
        if COVERAGE:
            covers += covered[:, None] * slope
        query += QUERY_STEP
        line += batches * keys
    u = tl.load(v + dims, mask=dims < width, other=0.0).to(tl.float32)
    place = d_key + (batch * keys + rows[:, None]) * width + dims[None, :]
    inside = (rows < keys)[:, None] & (dims < width)[None, :]
    tl.store(place, (found * u[None, :]).to(d_key.dtype.element_ty), mask=inside)
    tl.store(d_v + batch * width + dims, tl.sum(sums, 0), mask=dims < width)
    if COVERAGE:
        tl.store(d_w + batch * width + dims, u * tl.sum(covers, 0), mask=dims < width)
