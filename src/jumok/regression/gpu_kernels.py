"""Kernel regression in Triton: sums of a block of queries over blocks of points."""

import triton
import triton.language as tl

from jumok.attention.additive.gpu.score_kernels import zeros_in_squares
from jumok.attention.triton_launch import kernel

GAUSSIAN = tl.constexpr(0)
BOXCAR = tl.constexpr(1)
EPANECHNIKOV = tl.constexpr(2)
"""Their places in gpu.KERNELS; the last one there, "triangular", is what remains."""


@triton.jit
def fast_exp2(x, ASSEMBLY: tl.constexpr):
    """2ˣ on the special-function unit, 0 where it is too small for its type. The interpreter knows no assembly."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.exp2(x)


@triton.jit
def load_queries(pointers, STEP, DIM: tl.constexpr):
    """The coordinates of the queries, one dimension after another."""
    q = (tl.load(pointers),)
    for d in tl.static_range(1, DIM):
        q += (tl.load(pointers + d * STEP),)
    return q


@triton.jit
def squared_distances(q, pointers, STEP, DIM: tl.constexpr):
    """‖q − k‖² of a tile."""
    apart = q[0][:, None] - tl.load(pointers)[None, :]
    total = apart * apart
    for d in tl.static_range(1, DIM):
        apart = q[d][:, None] - tl.load(pointers + d * STEP)[None, :]
        total += apart * apart
    return total


@triton.jit
def weigh(squared, nearest, scale, KERNEL: tl.constexpr, ASSEMBLY: tl.constexpr):
    """K of a tile; `scale` is log₂e / 2h² for the Gaussian, relative to the nearest point's, h² for boxcar, else h."""
    if KERNEL == GAUSSIAN:
        # The difference first, and never above 0: of two large products a multiply-add leaves what was rounded away.
        return fast_exp2(tl.minimum(nearest[:, None] - squared, 0.0) * scale, ASSEMBLY)
    if KERNEL == BOXCAR:
        return tl.where(squared <= scale, 1.0, 0.0).to(squared.dtype)
    u = tl.div_rn(tl.sqrt_rn(squared), scale) if squared.dtype == tl.float32 else tl.sqrt(squared) / scale
    if KERNEL == EPANECHNIKOV:
        u = u * u
    return tl.maximum(1 - u, 0.0)


@triton.jit
def plus_weighed(sums, weights, value_ptr, points, STEP, VALUES: tl.constexpr, SQUARES: tl.constexpr):
    """Σ K, Σ K v of one or two values and, if it is wanted, Σ K² with the points of one more tile."""
    total, first, second, squares = sums
    total += weights
    first += weights * tl.load(value_ptr + points)[None, :]
    if VALUES > 1:
        second += weights * tl.load(value_ptr + STEP + points)[None, :]
    if SQUARES:
        squares += weights * weights
    return total, first, second, squares


@triton.jit
def store_sums(out_ptr, rows, STEP, sums, VALUES: tl.constexpr, SQUARES: tl.constexpr):
    """These sums, each over the columns of its tile."""
    total, first, second, squares = sums
    tl.store(out_ptr + rows, tl.sum(total, 1))
    tl.store(out_ptr + STEP + rows, tl.sum(first, 1))
    if VALUES > 1:
        tl.store(out_ptr + 2 * STEP + rows, tl.sum(second, 1))
    if SQUARES:
        tl.store(out_ptr + (1 + VALUES) * STEP + rows, tl.sum(squares, 1))


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
    q = load_queries(query_ptr + rows, QUERY_STEP, DIM)
    zero = zeros_in_squares(ROWS, COLS).to(nearest.dtype)
    sums = (zero, zero, zero, zero)
    for visit in range(tl.load(starts_ptr + block), tl.load(starts_ptr + block + 1)):
        start = tl.load(blocks_ptr + visit) * BLOCK
        for part in tl.static_range(BLOCK // COLS):
            points = start + part * COLS + cols
            squared = squared_distances(q, point_ptr + points, POINT_STEP, DIM)
            weights = weigh(squared, nearest, scale, KERNEL, ASSEMBLY)
            sums = plus_weighed(sums, weights, value_ptr, points, POINT_STEP, VALUES, SQUARES)
    store_sums(out_ptr, rows, OUT_STEP, sums, VALUES, SQUARES)


@kernel
def nearest_kernel(
    query_ptr, QUERY_STEP, point_ptr, POINT_STEP, starts_ptr, blocks_ptr, out_ptr,
    DIM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The squared distance to the nearest point."""
    block = tl.program_id(0)
    rows = block * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    q = load_queries(query_ptr + rows, QUERY_STEP, DIM)
    nearest = zeros_in_squares(ROWS, COLS).to(q[0].dtype) + float("inf")
    for visit in range(tl.load(starts_ptr + block), tl.load(starts_ptr + block + 1)):
        start = tl.load(blocks_ptr + visit) * BLOCK
        for part in tl.static_range(BLOCK // COLS):
            pointers = point_ptr + start + part * COLS + cols
            nearest = tl.minimum(nearest, squared_distances(q, pointers, POINT_STEP, DIM))
    tl.store(out_ptr + rows, tl.min(nearest, 1))


@triton.jit
def exponents(q, pointers, STEP, DIM: tl.constexpr):
    """q·k − ‖k‖²/2 of a tile; the last row of the points holds −‖k‖²/2."""
    total = tl.load(pointers + DIM * STEP)[None, :]
    for d in tl.static_range(DIM):
        total = q[d][:, None] * tl.load(pointers + d * STEP)[None, :] + total
    return total


@kernel
def wide_kernel(
    query_ptr, QUERY_STEP, point_ptr, value_ptr, POINT_STEP, out_ptr, OUT_STEP,
    SQUARES: tl.constexpr, DIM: tl.constexpr, VALUES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    STAGES: tl.constexpr, UNROLL: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Σ 2ᵉ, Σ 2ᵉ v of one or two values, and Σ 4ᵉ if it is wanted, for a block of queries and all points."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    q = load_queries(query_ptr + rows, QUERY_STEP, DIM)
    zero = zeros_in_squares(ROWS, COLS).to(q[0].dtype)
    sums = (zero, zero, zero, zero)
    for start in tl.range(0, POINT_STEP, COLS, num_stages=STAGES, loop_unroll_factor=UNROLL):
        points = start + cols
        weights = fast_exp2(exponents(q, point_ptr + points, POINT_STEP, DIM), ASSEMBLY)
        sums = plus_weighed(sums, weights, value_ptr, points, POINT_STEP, VALUES, SQUARES)
    store_sums(out_ptr, rows, OUT_STEP, sums, VALUES, SQUARES)
