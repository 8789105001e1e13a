"""Gaussian sums over all points, in Triton: for a bandwidth so wide that no point can be left out.

−‖q − k‖² / 2h² = q′·k′ − ‖q′‖²/2 − ‖k′‖²/2 with q′ = (q − c) / h and k′ = (k − c) / h about a middle c. The term of the
key comes with the keys, that of the query is a factor of the whole sum: a pair in d dimensions takes d multiply-adds
for its exponent instead of 2d + 1 instructions, one exponential, and a multiply-add for each sum. Terms of size X round
to X times the type's precision, so the exponents must stay small: who asks sees to that.
"""

import triton
import triton.language as tl

from jumok.attention.kernels.additive_tiles import zeros_in_squares
from jumok.attention.kernels.launch import kernel
from jumok.attention.kernels.smoothing_tiles import load_query, power_of_two


@triton.jit
def plus_product(total, q, at):
    """Σ q k with one more dimension."""
    return q[:, None] * tl.load(at)[None, :] + total


@triton.jit
def exponents(q0, q1, q2, q3, q4, q5, q6, q7, at, STEP, DIM: tl.constexpr):
    """q·k − ‖k‖²/2 of a tile; the last row of the points holds −‖k‖²/2."""
    total = plus_product(tl.load(at + DIM * STEP)[None, :], q0, at)
    if DIM > 1:
        total = plus_product(total, q1, at + STEP)
    if DIM > 2:
        total = plus_product(total, q2, at + 2 * STEP)
    if DIM > 3:
        total = plus_product(total, q3, at + 3 * STEP)
    if DIM > 4:
        total = plus_product(total, q4, at + 4 * STEP)
    if DIM > 5:
        total = plus_product(total, q5, at + 5 * STEP)
    if DIM > 6:
        total = plus_product(total, q6, at + 6 * STEP)
    if DIM > 7:
        total = plus_product(total, q7, at + 7 * STEP)
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
    q0, q1 = load_query(query_ptr + rows, QUERY_STEP, 0, DIM), load_query(query_ptr + rows, QUERY_STEP, 1, DIM)
    q2, q3 = load_query(query_ptr + rows, QUERY_STEP, 2, DIM), load_query(query_ptr + rows, QUERY_STEP, 3, DIM)
    q4, q5 = load_query(query_ptr + rows, QUERY_STEP, 4, DIM), load_query(query_ptr + rows, QUERY_STEP, 5, DIM)
    q6, q7 = load_query(query_ptr + rows, QUERY_STEP, 6, DIM), load_query(query_ptr + rows, QUERY_STEP, 7, DIM)
    zero = zeros_in_squares(ROWS, COLS).to(q0.dtype)
    total, first, second, squares = zero, zero, zero, zero
    for start in tl.range(0, POINT_STEP, COLS, num_stages=STAGES, loop_unroll_factor=UNROLL):
        at = start + cols
        weights = power_of_two(exponents(q0, q1, q2, q3, q4, q5, q6, q7, point_ptr + at, POINT_STEP, DIM), ASSEMBLY)
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
