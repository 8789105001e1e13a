"""Kernel sums of a block of queries over the blocks of points near it, in Triton.

Coordinates lie [dim, place], values [value, place], so that neighbours in memory are neighbours in space. A program
takes ROWS queries and walks through its list of blocks, COLS points at a time. Sums stay a [ROWS, COLS] tile until the
end: a sum over the tile's columns at every step would cost more than the exponentials. For a pair in d dimensions that
is 2d + 1 instructions for the exponent, one exponential, and a multiply-add for each sum.
"""

import triton
import triton.language as tl

from jumok.attention.kernels.additive_tiles import zeros_in_squares
from jumok.attention.kernels.launch import kernel

GAUSSIAN = tl.constexpr(0)
BOXCAR = tl.constexpr(1)
EPANECHNIKOV = tl.constexpr(2)
TRIANGULAR = tl.constexpr(3)


@triton.jit
def power_of_two(x, ASSEMBLY: tl.constexpr):
    """2ˣ on the special-function unit, 0 where it is too small for its type. The interpreter knows no assembly."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.exp2(x)


@triton.jit
def plus_square(total, q, at):
    """Σ (q − k)² with one more dimension."""
    apart = q[:, None] - tl.load(at)[None, :]
    return total + apart * apart


@triton.jit
def squared_distances(q0, q1, q2, q3, q4, q5, q6, q7, at, STEP, DIM: tl.constexpr):
    """‖q − k‖² of a tile."""
    apart = q0[:, None] - tl.load(at)[None, :]
    total = apart * apart
    if DIM > 1:
        total = plus_square(total, q1, at + STEP)
    if DIM > 2:
        total = plus_square(total, q2, at + 2 * STEP)
    if DIM > 3:
        total = plus_square(total, q3, at + 3 * STEP)
    if DIM > 4:
        total = plus_square(total, q4, at + 4 * STEP)
    if DIM > 5:
        total = plus_square(total, q5, at + 5 * STEP)
    if DIM > 6:
        total = plus_square(total, q6, at + 6 * STEP)
    if DIM > 7:
        total = plus_square(total, q7, at + 7 * STEP)
    return total


@triton.jit
def load_query(at, STEP, d: tl.constexpr, DIM: tl.constexpr):
    """One coordinate of the queries; beyond the last dimension any, which nobody reads."""
    return tl.load(at + (d if d < DIM else 0) * STEP)


@triton.jit
def weigh(squared, nearest, scale, KERNEL: tl.constexpr, ASSEMBLY: tl.constexpr):
    """K of a tile; `scale` is h, and log₂e / 2h² for the Gaussian, which is relative to the nearest point's."""
    if KERNEL == 0:
        return power_of_two(squared * -scale + (nearest * scale)[:, None], ASSEMBLY)
    u = tl.div_rn(tl.sqrt_rn(squared), scale) if squared.dtype == tl.float32 else tl.sqrt(squared) / scale
    if KERNEL == 1:
        return tl.where(u <= 1, 1.0, 0.0).to(squared.dtype)
    if KERNEL == 2:
        u = u * u
    return tl.maximum(1 - u, 0.0)


@kernel
def sums_kernel(
    query_ptr, nearest_ptr, QUERY_STEP, point_ptr, value_ptr, POINT_STEP, starts_ptr, blocks_ptr,
    out_ptr, OUT_STEP, scale_ptr,
    KERNEL: tl.constexpr, SQUARES: tl.constexpr, DIM: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Σ K, Σ K v of one or two values, and Σ K² if it is wanted, for a block of queries."""
    block = tl.program_id(0)
    rows = block * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    scale = tl.load(scale_ptr)
    nearest = tl.load(nearest_ptr + rows)
    q0, q1 = load_query(query_ptr + rows, QUERY_STEP, 0, DIM), load_query(query_ptr + rows, QUERY_STEP, 1, DIM)
    q2, q3 = load_query(query_ptr + rows, QUERY_STEP, 2, DIM), load_query(query_ptr + rows, QUERY_STEP, 3, DIM)
    q4, q5 = load_query(query_ptr + rows, QUERY_STEP, 4, DIM), load_query(query_ptr + rows, QUERY_STEP, 5, DIM)
    q6, q7 = load_query(query_ptr + rows, QUERY_STEP, 6, DIM), load_query(query_ptr + rows, QUERY_STEP, 7, DIM)
    zero = zeros_in_squares(ROWS, COLS).to(nearest.dtype)
    total, first, second, squares = zero, zero, zero, zero
    for visit in range(tl.load(starts_ptr + block), tl.load(starts_ptr + block + 1)):
        start = tl.load(blocks_ptr + visit) * BLOCK
        for part in tl.static_range(BLOCK // COLS):
            at = start + part * COLS + cols
            squared = squared_distances(q0, q1, q2, q3, q4, q5, q6, q7, point_ptr + at, POINT_STEP, DIM)
            weights = weigh(squared, nearest, scale, KERNEL, ASSEMBLY)
            total += weights
            first += weights * tl.load(value_ptr + at)[None, :]
            if VALUES > 1:
                second += weights * tl.load(value_ptr + POINT_STEP + at)[None, :]
            if SQUARES:
                squares += weights * weights
    tl.store(out_ptr + rows, tl.sum(total, 1))
    tl.store(out_ptr + OUT_STEP + rows, tl.sum(first, 1))
    if VALUES > 1:
        tl.store(out_ptr + 2 * OUT_STEP + rows, tl.sum(second, 1))
    if SQUARES:
        tl.store(out_ptr + (1 + VALUES) * OUT_STEP + rows, tl.sum(squares, 1))


@kernel
def nearest_kernel(
    query_ptr, QUERY_STEP, point_ptr, POINT_STEP, starts_ptr, blocks_ptr, out_ptr,
    DIM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The squared distance to the nearest point."""
    block = tl.program_id(0)
    rows = block * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    q0, q1 = load_query(query_ptr + rows, QUERY_STEP, 0, DIM), load_query(query_ptr + rows, QUERY_STEP, 1, DIM)
    q2, q3 = load_query(query_ptr + rows, QUERY_STEP, 2, DIM), load_query(query_ptr + rows, QUERY_STEP, 3, DIM)
    q4, q5 = load_query(query_ptr + rows, QUERY_STEP, 4, DIM), load_query(query_ptr + rows, QUERY_STEP, 5, DIM)
    q6, q7 = load_query(query_ptr + rows, QUERY_STEP, 6, DIM), load_query(query_ptr + rows, QUERY_STEP, 7, DIM)
    found = zeros_in_squares(ROWS, COLS).to(q0.dtype) + float("inf")
    for visit in range(tl.load(starts_ptr + block), tl.load(starts_ptr + block + 1)):
        start = tl.load(blocks_ptr + visit) * BLOCK
        for part in tl.static_range(BLOCK // COLS):
            at = point_ptr + start + part * COLS + cols
            found = tl.minimum(found, squared_distances(q0, q1, q2, q3, q4, q5, q6, q7, at, POINT_STEP, DIM))
    tl.store(out_ptr + rows, tl.min(found, 1))
