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
from jumok.attention.kernels.smoothing_tiles import load_queries, plus_weighed, power_of_two, store_sums


@triton.jit
def exponents(q, at, STEP, DIM: tl.constexpr):
    """q·k − ‖k‖²/2 of a tile; the last row of the points holds −‖k‖²/2."""
    total = tl.load(at + DIM * STEP)[None, :]
    for d in tl.static_range(DIM):
        total = q[d][:, None] * tl.load(at + d * STEP)[None, :] + total
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
        at = start + cols
        weights = power_of_two(exponents(q, point_ptr + at, POINT_STEP, DIM), ASSEMBLY)
        sums = plus_weighed(sums, weights, value_ptr, at, POINT_STEP, VALUES, SQUARES)
    store_sums(out_ptr, rows, OUT_STEP, sums, VALUES, SQUARES)
