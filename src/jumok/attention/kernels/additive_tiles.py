"""The additive score of a tile of queries and keys, in Triton: what the kernels of additive attention are made of.

tanh(q + k) = 1 − 2r with r = 1 / (1 + e²𐞥 e²ᵏ). Scores are in units of log 2, so that weights are powers of two: with
u = −2 v log₂e they are Σ u·r − ½ Σ u. The exponentials belong to single queries and keys and are made once, in blocks
[tile, dim, time], so that the loop over features is an outer product of two short vectors in registers, read at fixed
steps. Four features share a reciprocal,

    u₀/x₀ + u₁/x₁ = (u₀x₁ + u₁x₀) / x₀x₁,    and again for the sum of two such pairs,

which takes 15 instructions for four features; a tanh unit would need 32 cycles for them. Products of four x overflow
when q + k can pass 11: there x is capped at 10⁹, where r is 0 to single precision, and beyond 40, where e²𐞥 itself
leaves the range of single precision, every pair has its own exponential. Each tile looks at its own largest |q|, |k|.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
QUADS = tl.constexpr(11.0)
"""Up to this |q| + |k| the product of four x is finite."""
PAIRS = tl.constexpr(21.9)
"""The same for two."""
EXPONENTIALS = tl.constexpr(40.0)
"""Up to this |q| and |k| their exponentials are finite and not 0."""
ANCHOR = tl.constexpr(16)


@triton.jit
def reciprocal(x, ASSEMBLY: tl.constexpr):
    """1 / x, for x of at least 1. The interpreter knows no assembly."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def in_squares(x, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The tile itself, laid out so that a thread holds squares of it, and computed once.

    Triton spreads a tile over threads as suits its loads, a row at a time, and rather computes it anew in every layout
    that is wanted of it than move it. The result of a product of matrices is what it neither spreads nor computes
    anew, so this adds a product of zeros. From squares, a thread needs but two loads of 16 bytes for 16 pairs.
    """
    left = tl.zeros([ROWS, ANCHOR], tl.float32)
    right = tl.zeros([ANCHOR, COLS], tl.float32)
    return tl.dot(left, right, x, input_precision="ieee")


@triton.jit
def zeros_in_squares(ROWS: tl.constexpr, COLS: tl.constexpr):
    return in_squares(tl.zeros([ROWS, COLS], tl.float32), ROWS, COLS)


@triton.jit
def plus_one(a, b, CAP: tl.constexpr):
    """x = 1 + e²𐞥 e²ᵏ for all pairs of a tile, one feature."""
    x = a[:, None] * b[None, :] + 1.0
    if CAP > 0:
        x = tl.minimum(x, CAP)
    return x


@triton.jit
def four_features(acc, a0, a1, a2, a3, b0, b1, b2, b3, u_ptr, CAP: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The score plus that of four more features."""
    x0, x1 = plus_one(a0, b0, CAP), plus_one(a1, b1, CAP)
    below, above = x0 * x1, tl.load(u_ptr) * x1 + tl.load(u_ptr + 1) * x0
    x2, x3 = plus_one(a2, b2, CAP), plus_one(a3, b3, CAP)
    below_, above_ = x2 * x3, tl.load(u_ptr + 2) * x3 + tl.load(u_ptr + 3) * x2
    return acc + (above * below_ + above_ * below) * reciprocal(below * below_, ASSEMBLY)


@triton.jit
def load_four(at, step: tl.constexpr):
    return tl.load(at), tl.load(at + step), tl.load(at + 2 * step), tl.load(at + 3 * step)


@triton.jit
def shared_scores(
    acc,
    up,
    down,
    u_ptr,
    UP_STEP: tl.constexpr,
    DOWN_STEP: tl.constexpr,
    DIM: tl.constexpr,
    CAP: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """The scores of a tile by shared reciprocals; the next features are on their way while four are computed."""
    a0, a1, a2, a3 = load_four(up, UP_STEP)
    b0, b1, b2, b3 = load_four(down, DOWN_STEP)
    for d in range(0, DIM, 8):
        up += 4 * UP_STEP
        down += 4 * DOWN_STEP
        c0, c1, c2, c3 = load_four(up, UP_STEP)
        e0, e1, e2, e3 = load_four(down, DOWN_STEP)
        acc = four_features(acc, a0, a1, a2, a3, b0, b1, b2, b3, u_ptr + d, CAP, ASSEMBLY)
        up += 4 * UP_STEP
        down += 4 * DOWN_STEP
        a0, a1, a2, a3 = load_four(up, UP_STEP)
        b0, b1, b2, b3 = load_four(down, DOWN_STEP)
        acc = four_features(acc, c0, c1, c2, c3, e0, e1, e2, e3, u_ptr + d + 4, CAP, ASSEMBLY)
    return acc


@triton.jit
def own_scores(acc, query, key, u_ptr, QUERY_STEP, KEY_STEP, dim, rows_in, keys_in, ASSEMBLY: tl.constexpr):
    """The same with an exponential for every pair and feature: right for any numbers, at twice the price of a tanh."""
    for d in range(0, dim):
        a = tl.load(query + d * QUERY_STEP, mask=rows_in, other=0.0).to(tl.float32)
        b = tl.load(key + d * KEY_STEP, mask=keys_in, other=0.0).to(tl.float32)
        x = 1.0 + tl.exp2((a[:, None] + b[None, :]) * (2 * LOG2E))
        acc += tl.load(u_ptr + d) * reciprocal(x, ASSEMBLY)
    return acc


@triton.jit
def tile_scores(
    up, up_peak, query, QUERY_ROW, QUERY_STEP, row_start, queries,
    down, down_peak, key, KEY_ROW, KEY_STEP, col_start, keys, u_ptr, dim,
    DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The scores of a tile by the fastest way its numbers allow. Pointers are those of one entry of the batch."""
    rows, cols = row_start + tl.arange(0, ROWS), col_start + tl.arange(0, COLS)
    up += row_start * DIM + tl.arange(0, ROWS)
    down += col_start * DIM + tl.arange(0, COLS)
    rows_in, cols_in = rows < queries, cols < keys
    largest = tl.max(tl.load(up_peak + rows, mask=rows_in, other=0.0), 0)
    largest_key = tl.max(tl.load(down_peak + cols, mask=cols_in, other=0.0), 0)
    acc = zeros_in_squares(ROWS, COLS) + tl.load(u_ptr + DIM)
    if largest + largest_key <= QUADS:
        acc = shared_scores(acc, up, down, u_ptr, ROWS, COLS, DIM, 0, ASSEMBLY)
    elif (largest <= EXPONENTIALS) & (largest_key <= EXPONENTIALS):
        acc = shared_scores(acc, up, down, u_ptr, ROWS, COLS, DIM, 1e9, ASSEMBLY)
    else:
        acc = own_scores(
            acc, query + rows * QUERY_ROW, key + cols * KEY_ROW, u_ptr, QUERY_STEP, KEY_STEP, dim, rows_in, cols_in,
            ASSEMBLY,
        )  # fmt: skip
    return acc


@triton.jit
def coefficients_kernel(v, V_BATCH, V_STEP, u, dim, DIMS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """u = −2 v log₂e, padded with zeros to DIMS, then −½ Σ u."""
    dims = tl.arange(0, BLOCK)
    batch = tl.program_id(0).to(tl.int64)
    found = tl.load(v + batch * V_BATCH + dims * V_STEP, mask=dims < dim, other=0.0).to(tl.float32) * (-2 * LOG2E)
    tl.store(u + batch * WIDTH + dims, found, mask=dims < DIMS)
    tl.store(u + batch * WIDTH + DIMS, tl.sum(found, 0) * -0.5)


@triton.jit
def exponentials_kernel(
    x, X_BATCH, X_TIME, X_DIM, e, peaks, time, dim, TIMES, DIMS: tl.constexpr, STEP: tl.constexpr,
    BLOCK_TIME: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """e²ˣ of queries or keys, in blocks of STEP times or by time, 0 in the padding; and the largest |x| of each time.

    The largest is inf where there is a NaN.
    """
    blocks = tl.cdiv(TIMES, BLOCK_TIME)
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    times = tl.program_id(0) % blocks * BLOCK_TIME + tl.arange(0, BLOCK_TIME)
    peak = tl.zeros([BLOCK_TIME], tl.float32)
    for start in range(0, DIMS, BLOCK_DIM):
        dims = start + tl.arange(0, BLOCK_DIM)
        inside = (times < time)[:, None] & (dims < dim)[None, :]
        at = x + batch * X_BATCH + times[:, None].to(tl.int64) * X_TIME + dims[None, :] * X_DIM
        values = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        peak = tl.maximum(peak, tl.max(tl.where(values == values, tl.abs(values), float("inf")), 1))
        grown = tl.where(inside, tl.exp2(values * (2 * LOG2E)), 0.0)
        if STEP > 0:
            block = (times // STEP).to(tl.int64) * (DIMS * STEP) + times % STEP
            where = e + batch * TIMES * DIMS + block[:, None] + dims[None, :] * STEP
        else:
            where = e + batch * TIMES * DIMS + times[:, None].to(tl.int64) * DIMS + dims[None, :]
        tl.store(where, grown, mask=(times < TIMES)[:, None] & (dims < DIMS)[None, :])
    tl.store(peaks + batch * TIMES + times, peak, mask=times < TIMES)


@triton.jit
def scores_kernel(
    up, up_peak, query, QUERY_BATCH, QUERY_ROW, QUERY_STEP, down, down_peak, key, KEY_BATCH, KEY_ROW, KEY_STEP,
    u, U_BATCH, first, beyond, LIMITS_BATCH, scores, SCORES_BATCH, SCORES_ROW,
    queries, keys, up_times, down_times, dim, INTERVAL: tl.constexpr,
    DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The scores of every query with every key, written out; tiles that no query sees are left as they are."""
    blocks = tl.cdiv(queries, ROWS)
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    row_start, col_start = tl.program_id(0) % blocks * ROWS, tl.program_id(1) * COLS
    if INTERVAL:
        rows = row_start + tl.arange(0, ROWS)
        start = tl.min(tl.load(first + batch * LIMITS_BATCH + rows, mask=rows < queries, other=keys), 0)
        end = tl.max(tl.load(beyond + batch * LIMITS_BATCH + rows, mask=rows < queries, other=0), 0)
        if (col_start >= end) | (col_start + COLS <= start):
            return
    acc = tile_scores(
        up + batch * DIM * up_times, up_peak + batch * up_times,
        query + batch * QUERY_BATCH, QUERY_ROW, QUERY_STEP, row_start, queries,
        down + batch * DIM * down_times, down_peak + batch * down_times,
        key + batch * KEY_BATCH, KEY_ROW, KEY_STEP, col_start, keys,
        u + batch * U_BATCH, dim, DIM, ROWS, COLS, ASSEMBLY,
    )  # fmt: skip
    rows, cols = row_start + tl.arange(0, ROWS), col_start + tl.arange(0, COLS)
    at = scores + batch * SCORES_BATCH + rows[:, None].to(tl.int64) * SCORES_ROW + cols[None, :]
    tl.store(at, acc, mask=(rows < queries)[:, None] & (cols < keys)[None, :])
