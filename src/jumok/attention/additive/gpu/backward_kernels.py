"""Triton kernels of additive attention, backward: the gradient of the scores, then of queries, keys and v."""

import triton
import triton.language as tl

from jumok.attention.additive.gpu.forward_kernels import kept, seen
from jumok.attention.additive.gpu.prepare_kernels import LOG2E, by_time, half_tanh, reciprocal, workspace
from jumok.attention.additive.gpu.score_kernels import (
    EXPONENTIALS,
    are_small,
    in_squares,
    seen_by,
    zeros_in_squares,
)
from jumok.attention.triton_launch import kernel


@kernel
def upstream_kernel(
    scores, weights_out, d_weights, turned, PLANE_BATCH, PLANE_ROW, TURNED_BATCH, TURNED_ROW, lse, sound,
    first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW,
    mask, MASK_SHARED, MASK_BATCH, MASK_ROW, MASK_KEY, seed,
    batches, batch_start, row_start, count, COUNT, queries, keys,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Turn scores into weights, and gradients of weights into those of scores, which are also written transposed.

    The planes hold `count` queries from `row_start` on, and zeros up to COUNT; the transposed one has keys first.
    """
    blocks = tl.cdiv(COUNT, ROWS)
    here = (tl.program_id(0) // blocks).to(tl.int64)
    batch = here + batch_start
    local = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    rows, rows_in = row_start + local, local < count
    line = batch * queries + rows
    if FIRST or BEYOND or MASK:
        rows_in = rows_in & (tl.load(sound + line, mask=rows_in, other=0) != 0)
    level = tl.load(lse + line, mask=rows_in, other=0.0)
    level = tl.where(level == float("-inf"), 0.0, level)
    total = tl.load(lse + batches * queries + line, mask=rows_in, other=1.0)
    first += batch * FIRST_BATCH
    beyond += batch * BEYOND_BATCH
    mask += batch // MASK_SHARED * MASK_BATCH
    plane = here * PLANE_BATCH + local[:, None].to(tl.int64) * PLANE_ROW
    delta, mass = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    for start in range(0, keys, COLS):
        cols = start + tl.arange(0, COLS)
        visible = seen(
            rows, cols, queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, mask, MASK_ROW, MASK_KEY,
            FIRST, BEYOND, MASK,
        ) & rows_in[:, None]  # fmt: skip
        weights, keep, d_weight = weights_again(
            scores + plane, d_weights + plane, level, total, visible, rows, cols, keys, batch, seed, DROPOUT
        )
        delta += tl.sum(tl.where(keep, weights * d_weight, 0.0), 1)
        mass += tl.sum(tl.where(visible, weights, 0.0), 1)
    # Recomputed weights do not quite sum to 1, but the gradients of the scores must sum to 0, or errors accumulate.
    delta = delta / tl.where(mass > 0, mass, 1.0)
    for start in range(0, PLANE_ROW, COLS):
        cols = start + tl.arange(0, COLS)
        visible = seen(
            rows, cols, queries, keys, first, FIRST_ROW, beyond, BEYOND_ROW, mask, MASK_ROW, MASK_KEY,
            FIRST, BEYOND, MASK,
        ) & rows_in[:, None]  # fmt: skip
        weights, keep, d_weight = weights_again(
            scores + plane, d_weights + plane, level, total, visible, rows, cols, keys, batch, seed, DROPOUT
        )
        d_score = tl.where(visible, weights * (d_weight - delta[:, None]), 0.0)
        inside = (local < COUNT)[:, None] & (cols < PLANE_ROW)[None, :]
        tl.store(weights_out + plane + cols[None, :], tl.where(keep, weights / (1.0 - DROPOUT), 0.0), mask=inside)
        tl.store(d_weights + plane + cols[None, :], d_score, mask=inside)
        back = here * TURNED_BATCH + cols[None, :].to(tl.int64) * TURNED_ROW + local[:, None]
        tl.store(turned + back, d_score, mask=inside)


@triton.jit
def weights_again(scores, d_weights, level, total, visible, rows, cols, keys, batch, seed, DROPOUT: tl.constexpr):
    """The weights of a tile, which of them dropout kept, and their gradient with the scale of dropout."""
    stored_scores = tl.load(scores + cols[None, :], mask=visible, other=0.0)
    weights = tl.exp2((stored_scores - level[:, None]) * LOG2E) / total[:, None]
    keep = visible
    if DROPOUT > 0:
        keep = keep & kept(rows, cols, keys, batch, seed, DROPOUT)
    return weights, keep, tl.load(d_weights + cols[None, :], mask=keep, other=0.0) / (1.0 - DROPOUT)


PAIRS = tl.constexpr(21.9)
"""Up to this |q| + |k| the product of two x is finite."""
LARGEST_X = tl.constexpr(1e18)
"""Beyond PAIRS x is capped at this."""
TOGETHER = tl.constexpr(128)


@kernel
def sides_kernel(
    query, key, v, V_BATCH, room, plane, PLANE_BATCH, PLANE_ROW, turned, TURNED_BATCH, TURNED_ROW,
    first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW, d_query, d_key, d_v,
    batches, vectors, number, batch_start, row_start, count, queries, keys, UP_TIMES, DOWN_TIMES, dim, parts, ADD,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, DIM: tl.constexpr, TILED: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DIMS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """4 v Σ w (¼ − h²) for a tile [time, feature] of queries or keys, over part of the other side; and d_v."""
    _, up_peaks, down_peaks, tiles = workspace(room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM)
    by_query, by_key, by_query_small, by_key_small = by_time(tiles, batches, UP_TIMES, DOWN_TIMES, DIM, TILED)
    dims = tl.program_id(1) * DIMS + tl.arange(0, DIMS)
    row_blocks, col_blocks = tl.cdiv(count, ROWS), tl.cdiv(keys, COLS)
    program = tl.program_id(0)
    if program < number * row_blocks * parts:
        here, part = (program // row_blocks % number).to(tl.int64), program // row_blocks // number
        batch = here + batch_start
        rows = program % row_blocks * ROWS + tl.arange(0, ROWS)
        start, end = seen_by(
            row_start + rows, rows < count, keys, first + batch * FIRST_BATCH, FIRST_ROW, beyond + batch * BEYOND_BATCH,
            BEYOND_ROW, FIRST, BEYOND,
        )  # fmt: skip
        start, end = one_part(start, end, part, keys, parts)
        line, other = batch * UP_TIMES + row_start, batch * DOWN_TIMES
        one_side(
            query + (batch * queries + row_start) * dim, by_query + line * DIM, by_query_small + line * DIM,
            up_peaks + line, key + batch * keys * dim, by_key + other * DIM, by_key_small + other * DIM,
            down_peaks + other, v + batch * V_BATCH,
            turned + here * TURNED_BATCH, TURNED_ROW,
            d_query + ((part * batches + batch) * queries + row_start) * dim,
            d_v + (part * number * row_blocks + here * row_blocks + program % row_blocks) * dim,
            rows, rows < count, dims, start, end, dim, 0, True, DIM, ROWS, DIMS, ASSEMBLY,
        )  # fmt: skip
    else:
        program -= number * row_blocks * parts
        here, part = (program // col_blocks % number).to(tl.int64), program // col_blocks // number
        batch = here + batch_start
        block = program % col_blocks * COLS
        cols = block + tl.arange(0, COLS)
        start, end = seeing(
            block, block + COLS, row_start, count, first + batch * FIRST_BATCH, FIRST_ROW,
            beyond + batch * BEYOND_BATCH, BEYOND_ROW, FIRST, BEYOND,
        )  # fmt: skip
        start, end = one_part(start, end, part, count, parts)
        line, other = batch * DOWN_TIMES, batch * UP_TIMES + row_start
        one_side(
            key + batch * keys * dim, by_key + line * DIM, by_key_small + line * DIM, down_peaks + line,
            query + (batch * queries + row_start) * dim, by_query + other * DIM, by_query_small + other * DIM,
            up_peaks + other, v + batch * V_BATCH,
            plane + here * PLANE_BATCH, PLANE_ROW, d_key + (part * batches + batch) * keys * dim,
            d_v, cols, cols < keys, dims, start, end, dim, ADD, False, DIM, COLS, DIMS, ASSEMBLY,
        )  # fmt: skip


@triton.jit
def one_part(start, end, part, others, parts):
    """The interval of one part, in whole groups of four."""
    share = tl.cdiv(tl.cdiv(others, parts), 4) * 4
    start = tl.maximum(start // 4 * 4, part * share)
    return start, tl.maximum(tl.minimum(end, (part + 1) * share), start)


@triton.jit
def seeing(
    key_start, key_end, row_start, count, first, FIRST_ROW, beyond, BEYOND_ROW,
    FIRST: tl.constexpr, BEYOND: tl.constexpr,
):  # fmt: skip
    """The interval of queries that see a block of keys."""
    start, end = 0, count
    if FIRST or BEYOND:
        earliest, latest = tl.full([128], 2**30, tl.int32), tl.zeros([128], tl.int32)
        for block_start in range(0, count, 128):
            rows = block_start + tl.arange(0, 128)
            sees, line = rows < count, row_start + rows
            if FIRST:
                sees = sees & (tl.load(first + line * FIRST_ROW, mask=rows < count, other=0) < key_end)
            if BEYOND:
                sees = sees & (tl.load(beyond + line * BEYOND_ROW, mask=rows < count, other=0) > key_start)
            earliest = tl.minimum(earliest, tl.where(sees, rows, 2**30))
            latest = tl.maximum(latest, tl.where(sees, rows + 1, 0))
        start, end = tl.min(earliest, 0), tl.max(latest, 0)
    return start, end


@triton.jit
def one_side(
    own, by_own, by_own_small, own_peaks, other, by_other, by_other_small, other_peaks, v, plane, PLANE_ROW, out,
    out_sums,
    times, times_in, dims, start, end, dim, ADD, SUMS: tl.constexpr,
    DIM: tl.constexpr, TIMES: tl.constexpr, DIMS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """One tile of one side. Pointers are those of one batch entry; `plane` has the other side's time first."""
    largest = tl.max(tl.load(own_peaks + times, mask=times_in, other=0.0), 0)
    # The fast loop takes four at a time: entries past the end have no weight, but must be numbers.
    largest_other = largest_of(other_peaks, start, start + tl.cdiv(end - start, 4) * 4)
    peak = largest + largest_other
    if are_small(largest, largest_other):
        in_parts(
            by_own_small, by_other_small, DIM, v, plane, PLANE_ROW, out, out_sums, times, times_in, dims, start, end,
            dim, ADD, "small", SUMS, TIMES, DIMS, ASSEMBLY,
        )  # fmt: skip
    elif peak <= PAIRS:
        in_parts(
            by_own, by_other, DIM, v, plane, PLANE_ROW, out, out_sums, times, times_in, dims, start, end, dim, ADD,
            "shared", SUMS, TIMES, DIMS, ASSEMBLY,
        )  # fmt: skip
    elif (largest <= EXPONENTIALS) & (largest_other <= EXPONENTIALS):
        in_parts(
            by_own, by_other, DIM, v, plane, PLANE_ROW, out, out_sums, times, times_in, dims, start, end, dim, ADD,
            "capped", SUMS, TIMES, DIMS, ASSEMBLY,
        )  # fmt: skip
    else:
        in_parts(
            own, other, dim, v, plane, PLANE_ROW, out, out_sums, times, times_in, dims, start, end, dim, ADD,
            "any", SUMS, TIMES, DIMS, ASSEMBLY,
        )  # fmt: skip


@triton.jit
def write_side(slopes, sums, v, out, out_sums, times, times_in, dims, dim, ADD, ADD_SUMS, SUMS: tl.constexpr):
    """Write the sums of a tile; with ADD, add them to what is there."""
    inside = times_in[:, None] & (dims < dim)[None, :]
    slopes *= (4 * tl.load(v + dims, mask=dims < dim, other=0.0).to(tl.float32))[None, :]
    place = out + times[:, None].to(tl.int64) * dim + dims[None, :]
    tl.store(place, slopes + tl.load(place, mask=inside & (ADD != 0), other=0.0), mask=inside)
    if SUMS:
        before = tl.load(out_sums + dims, mask=(dims < dim) & ADD_SUMS, other=0.0)
        tl.store(out_sums + dims, before - 2 * tl.sum(tl.where(inside, sums, 0.0), 0), mask=dims < dim)


@triton.jit
def largest_of(peaks, start, end):
    """The largest of some peaks."""
    largest = tl.zeros([128], tl.float32)
    for block_start in range(start, end, 128):
        where = block_start + tl.arange(0, 128)
        largest = tl.maximum(largest, tl.load(peaks + where, mask=where < end, other=0.0))
    return tl.max(largest, 0)


@triton.jit
def two_slopes(slopes, sums, a, b0, b1, w0, w1, CAPS: tl.constexpr, SUMS: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Add two entries of the other side, which share a reciprocal, to Σ w (¼ − h²) and Σ w h."""
    x0, x1 = a * b0[None, :] + 1.0, a * b1[None, :] + 1.0
    if CAPS:
        x0, x1 = tl.minimum(x0, LARGEST_X), tl.minimum(x1, LARGEST_X)
    shared = reciprocal(x0 * x1, ASSEMBLY)
    h0, h1 = shared * x1 - 0.5, shared * x0 - 0.5
    slopes += w0[:, None] * (0.25 - h0 * h0)
    slopes += w1[:, None] * (0.25 - h1 * h1)
    if SUMS:
        sums += w0[:, None] * h0
        sums += w1[:, None] * h1
    return slopes, sums


@triton.jit
def two_small_slopes(slopes, sums, p, q0, q1, w0, w1, SUMS: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The same from e²ˣ − 1: h = −½ tanh is m / (1 − m) with m = −½ (e²𐞥e²ᵏ − 1)."""
    m0 = p * (-0.5 * q0 - 0.5)[None, :] - (0.5 * q0)[None, :]
    m1 = p * (-0.5 * q1 - 0.5)[None, :] - (0.5 * q1)[None, :]
    x0, x1 = 2.0 - 2.0 * m0, 2.0 - 2.0 * m1
    shared = reciprocal(x0 * x1, ASSEMBLY)
    h0, h1 = shared * x1 * m0, shared * x0 * m1
    slopes += w0[:, None] * (0.25 - h0 * h0)
    slopes += w1[:, None] * (0.25 - h1 * h1)
    if SUMS:
        sums += w0[:, None] * h0
        sums += w1[:, None] * h1
    return slopes, sums


@triton.jit
def in_parts(
    own, other, ROW, v, plane, PLANE_ROW, out, out_sums, times, times_in, dims, start, end, dim, ADD,
    NUMBERS: tl.constexpr, SUMS: tl.constexpr, TIMES: tl.constexpr, DIMS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The sums over the other side: from exponentials ("shared", "capped", "small") or queries and keys ("any").

    Long sums lose digits, so sums over TOGETHER entries are added in memory, where they take no registers.
    """
    inside = times_in[:, None] & (dims < dim)[None, :]
    a = tl.load(own + times[:, None].to(tl.int64) * ROW + dims[None, :], mask=inside, other=0.0).to(tl.float32)
    a = in_squares(a, TIMES, DIMS)
    for part in range(0, tl.maximum(tl.cdiv(end - start, TOGETHER), 1)):  # once even if there is nothing to sum
        first = start + part * TOGETHER
        others, weights = other + first.to(tl.int64) * ROW + dims, plane + first.to(tl.int64) * PLANE_ROW + times
        last = tl.minimum(end, first + TOGETHER)
        if NUMBERS == "any":
            slopes, sums = own_slopes(
                a, others, ROW, weights, PLANE_ROW, first, last, dims < dim, SUMS, TIMES, DIMS, ASSEMBLY
            )
        else:
            slopes, sums = shared_slopes(
                a, others, ROW, weights, PLANE_ROW, first, last, NUMBERS, SUMS, TIMES, DIMS, ASSEMBLY
            )
        more = first > start
        write_side(slopes, sums, v, out, out_sums, times, times_in, dims, dim, ADD | more.to(tl.int32), more, SUMS)
        tl.debug_barrier()


@triton.jit
def shared_slopes(
    a, by_other, DIM, plane, PLANE_ROW, start, end, NUMBERS: tl.constexpr, SUMS: tl.constexpr,
    TIMES: tl.constexpr, DIMS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Σ w (¼ − h²) and Σ w h over part of the other side, four at a time; rows of zeros pad the last four."""
    slopes, sums = zeros_in_squares(TIMES, DIMS), zeros_in_squares(TIMES, DIMS)
    for _ in range(start, end, 4):
        b0, b1 = tl.load(by_other), tl.load(by_other + DIM)
        b2, b3 = tl.load(by_other + 2 * DIM), tl.load(by_other + 3 * DIM)
        w0, w1 = tl.load(plane), tl.load(plane + PLANE_ROW)
        w2, w3 = tl.load(plane + 2 * PLANE_ROW), tl.load(plane + 3 * PLANE_ROW)
        if NUMBERS == "small":
            slopes, sums = two_small_slopes(slopes, sums, a, b0, b1, w0, w1, SUMS, ASSEMBLY)
            slopes, sums = two_small_slopes(slopes, sums, a, b2, b3, w2, w3, SUMS, ASSEMBLY)
        else:
            slopes, sums = two_slopes(slopes, sums, a, b0, b1, w0, w1, NUMBERS == "capped", SUMS, ASSEMBLY)
            slopes, sums = two_slopes(slopes, sums, a, b2, b3, w2, w3, NUMBERS == "capped", SUMS, ASSEMBLY)
        by_other += 4 * DIM
        plane += 4 * PLANE_ROW
    return slopes, sums


@triton.jit
def own_slopes(
    a, other, dim, plane, PLANE_ROW, start, end, dims_in, SUMS: tl.constexpr,
    TIMES: tl.constexpr, DIMS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The same with a tanh for every pair and feature; NaN has no weight and counts as 0."""
    slopes, sums = zeros_in_squares(TIMES, DIMS), zeros_in_squares(TIMES, DIMS)
    for _ in range(start, end):
        b, w = tl.load(other, mask=dims_in, other=0.0).to(tl.float32), tl.load(plane)
        x = a + b[None, :]
        h = half_tanh(x, ASSEMBLY)
        h = tl.where(h == h, h, 0.0)
        slopes += w[:, None] * (0.25 - h * h)
        if SUMS:
            sums += w[:, None] * h
        other += dim
        plane += PLANE_ROW
    return slopes, sums
