"""Triton kernels of the additive score, for a tile of queries and keys.

tanh(q + k) = 1 − 2r with r = 1 / x, x = 1 + e²𐞥 e²ᵏ, so with u = −2v a score is Σ u (r − ½). The exponentials depend on
single queries and keys and are computed once, in blocks [tile, dim, time], so that the loop over features is an outer
product of two short vectors in registers, read at fixed strides. Two features share a fraction, centred so that sums
stay as small as the score, and two such pairs share a reciprocal:

    u₀ (r₀ − ½) + u₁ (r₁ − ½) = (u₀x₁ + u₁x₀ + c x₀x₁) / x₀x₁,    c = −½ (u₀ + u₁),

which takes 17 instructions for four features; a tanh unit would need 32 cycles for them. Products of four x, times v,
overflow when q + k exceeds 9.5: there x is capped at 3 · 10⁸, where r is 0 in single precision. Beyond 40, where e²𐞥
itself leaves the range of single precision, every pair computes its own tanh.

Where q and k are both small, r − ½ would lose the digits of a tanh. There M = e²𐞥e²ᵏ − 1 is computed from e²𐞥 − 1 and
e²ᵏ − 1, and u tanh(q + k) = M / y with y = (M + 2) / u, of which two share a reciprocal: nine instructions for two
features. Each tile decides by its own largest |q| and |k|. The code for large numbers takes registers from these loops,
so large problems run it in a second launch.
"""

from struct import pack

import triton
import triton.language as tl

from jumok.attention.additive.gpu.prepare_kernels import SMALL, half_tanh, in_tiles, reciprocal, workspace
from jumok.attention.triton_launch import kernel

SCALE = tl.constexpr(3)
"""Index in the table of the number that v's coefficients were divided by."""
SMALL_SUM = tl.constexpr(3.0)
"""From this |q| + |k| on, some tanh of a tile is near 1, and 1 − 2r is as exact as PyTorch's sum of products."""
QUADS = tl.constexpr(9.5)
"""Up to this |q| + |k| the product of four x is finite, with v's coefficients as factors, and its reciprocal not 0."""
LARGEST_X = tl.constexpr(3e8)
"""Beyond QUADS x is capped at this."""
EXPONENTIALS = tl.constexpr(40.0)
"""Up to this |q| and |k| their exponentials are finite and not 0."""
ANCHOR = tl.constexpr(16)
"""Inner size of the product of zeros in `in_squares`."""


@triton.jit
def are_small(up_peak, down_peak):
    """Whether tanh must be computed from e²𐞥 − 1 and e²ᵏ − 1, which takes a reciprocal for every two features."""
    return (up_peak + down_peak < SMALL_SUM) & (up_peak < SMALL) & (down_peak < SMALL)


@triton.jit
def is_usual(up_peak, down_peak):
    """Whether the fastest loop can compute a tile with these largest |q| and |k|."""
    return (up_peak + down_peak <= QUADS) & (not are_small(up_peak, down_peak))


@triton.jit
def in_squares(x, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The tile itself, computed once and laid out so that each thread holds squares of it.

    Triton distributes a tile over threads as suits its loads, a row at a time, and recomputes it for every layout
    rather than move it. It does neither with the result of a matrix product, so this adds a product of zeros. With
    squares, a thread needs only two loads of 16 bytes for 16 pairs.
    """
    left = tl.zeros([ROWS, ANCHOR], tl.float32)
    right = tl.zeros([ANCHOR, COLS], tl.float32)
    return tl.dot(left, right, x, input_precision="ieee")


@triton.jit
def zeros_in_squares(ROWS: tl.constexpr, COLS: tl.constexpr):
    return in_squares(tl.zeros([ROWS, COLS], tl.float32), ROWS, COLS)


@triton.jit
def two_features(a0, a1, b0, b1, u0, u1, c, CAP: tl.constexpr):
    """Numerator and denominator of the score of two features, for all pairs of a tile."""
    x0, x1 = a0 * b0 + 1.0, a1 * b1 + 1.0
    if CAP > 0:
        x0, x1 = tl.minimum(x0, CAP), tl.minimum(x1, CAP)
    below = x0 * x1
    return below * c + (u0 * x1 + u1 * x0), below


def four_features_of_a_pair(cap: str) -> str:
    """`four_features` in assembly, with the instruction that caps x.

    Pairs are computed one after another. The compiler, from Triton 3.7, starts all pairs of a thread before it finishes
    one, and their numbers fill the registers. The reciprocal is started as early as possible.
    """
    return f"""{{
.reg .f32 x0, x1, x2, x3, above, below, above_, below_, r;
fma.rn.f32 x0, $2, $6, 0f3F800000;
fma.rn.f32 x1, $3, $7, 0f3F800000;
{cap.replace("x", "x0")}{cap.replace("x", "x1")}
mul.rn.f32 below, x0, x1;
mul.rn.f32 above, $11, x0;
fma.rn.f32 above, $10, x1, above;
fma.rn.f32 above, below, $12, above;
fma.rn.f32 x2, $4, $8, 0f3F800000;
fma.rn.f32 x3, $5, $9, 0f3F800000;
{cap.replace("x", "x2")}{cap.replace("x", "x3")}
mul.rn.f32 below_, x2, x3;
mul.rn.f32 r, below, below_;
rcp.approx.ftz.f32 r, r;
mul.rn.f32 above_, $14, x2;
fma.rn.f32 above_, $13, x3, above_;
fma.rn.f32 above_, below_, $15, above_;
mul.rn.f32 above_, above_, below;
fma.rn.f32 above, above, below_, above_;
fma.rn.f32 $0, above, r, $1;
}}"""


CAP_X = f"min.f32 x, x, 0f{pack('>f', LARGEST_X.value).hex().upper()};\n"
USUAL, CAPPED = (tl.constexpr(four_features_of_a_pair(cap)) for cap in ("", CAP_X))
SMALL_ONES = tl.constexpr("""{
.reg .f32 m0, m1, y0, y1, above, r;
fma.rn.f32 m0, $2, $4, $6;
fma.rn.f32 m1, $3, $5, $7;
fma.rn.f32 y0, m0, $8, $10;
fma.rn.f32 y1, m1, $9, $11;
mul.rn.f32 r, y0, y1;
rcp.approx.ftz.f32 r, r;
mul.rn.f32 above, m0, y1;
fma.rn.f32 above, m1, y0, above;
fma.rn.f32 $0, above, r, $1;
}""")
"""`two_small_features` in assembly."""


@triton.jit
def four_features(
    acc, a0, a1, a2, a3, b0, b1, b2, b3, u0, u1, c, u2, u3, c_,
    CAP: tl.constexpr, IN_TURN: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Add four features to a tile of scores; with IN_TURN, a thread computes its pairs one after another."""
    if ASSEMBLY and IN_TURN:
        return tl.inline_asm_elementwise(
            CAPPED if CAP > 0 else USUAL, "=f,f,f,f,f,f,f,f,f,f,f,f,f,f,f,f",
            [acc, a0, a1, a2, a3, b0, b1, b2, b3, u0, u1, c, u2, u3, c_], dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        above, below = two_features(a0, a1, b0, b1, u0, u1, c, CAP)
        above_, below_ = two_features(a2, a3, b2, b3, u2, u3, c_, CAP)
        return acc + (above * below_ + above_ * below) * reciprocal(below * below_, ASSEMBLY)


@triton.jit
def two_small_features(acc, p0, p1, q0, q1, i0, i1, IN_TURN: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Add two features to a tile of scores from e²ˣ − 1: u tanh(q + k) of each, i being 1 / u."""
    if ASSEMBLY and IN_TURN:
        return tl.inline_asm_elementwise(
            SMALL_ONES, "=f,f,f,f,f,f,f,f,f,f,f,f", [acc, p0, p1, q0 + 1.0, q1 + 1.0, q0, q1, i0, i1, i0 + i0, i1 + i1],
            dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        m0, m1 = p0 * (q0 + 1.0) + q0, p1 * (q1 + 1.0) + q1
        y0, y1 = m0 * i0 + (i0 + i0), m1 * i1 + (i1 + i1)
        return acc + (m0 * y1 + m1 * y0) * reciprocal(y0 * y1, ASSEMBLY)


@triton.jit
def write_scores(
    pointers, up, down, table, TILE: tl.constexpr, DIM: tl.constexpr, PART: tl.constexpr,
    FORM: tl.constexpr, AHEAD: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The scores of a tile, in the FORM for "small", "usual" or "capped" numbers.

    A long sum loses digits, so PART features are summed separately; the sum of earlier parts waits in memory, where it
    takes no registers from the loop.
    """
    scale = tl.load(table + SCALE)
    if FORM == "small":
        scale *= -0.5
    for start in range(0, DIM, PART):
        if FORM == "small":
            scores = some_small_scores(
                up + start * TILE, down + start * TILE, table + 2 * DIM + start, TILE, PART, AHEAD, ASSEMBLY
            )
        else:
            scores = some_scores(
                up + start * TILE, down + start * TILE, table + 2 * start, TILE, PART,
                LARGEST_X if FORM == "capped" else 0, AHEAD, ASSEMBLY,
            )  # fmt: skip
        tl.store(pointers, scores * scale + tl.load(pointers, mask=start > 0, other=0.0))
        tl.debug_barrier()


@triton.jit
def some_scores(
    up, down, table, TILE: tl.constexpr, FEATURES: tl.constexpr,
    CAP: tl.constexpr, AHEAD: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The partial sum over some features.

    With the loop unrolled AHEAD times, loads are issued early and wait in registers; without, few registers are used.
    """
    acc = zeros_in_squares(TILE, TILE)
    for _ in tl.range(0, FEATURES, 4, loop_unroll_factor=AHEAD):
        b0, b1 = tl.load(down)[None, :], tl.load(down + TILE)[None, :]
        b2, b3 = tl.load(down + 2 * TILE)[None, :], tl.load(down + 3 * TILE)[None, :]
        u0, u1, c = tl.load(table), tl.load(table + 1), tl.load(table + 2)
        u2, u3, c_ = tl.load(table + 4), tl.load(table + 5), tl.load(table + 6)
        a0, a1 = tl.load(up)[:, None], tl.load(up + TILE)[:, None]
        a2, a3 = tl.load(up + 2 * TILE)[:, None], tl.load(up + 3 * TILE)[:, None]
        acc = four_features(acc, a0, a1, a2, a3, b0, b1, b2, b3, u0, u1, c, u2, u3, c_, CAP, AHEAD == 1, ASSEMBLY)
        up += 4 * TILE
        down += 4 * TILE
        table += 8
    return acc


@triton.jit
def some_small_scores(
    up, down, inverses, TILE: tl.constexpr, FEATURES: tl.constexpr, AHEAD: tl.constexpr, ASSEMBLY: tl.constexpr
):
    """The partial sum over some features of small numbers."""
    acc = zeros_in_squares(TILE, TILE)
    for _ in tl.range(0, FEATURES, 4, loop_unroll_factor=AHEAD):
        b0, b1 = tl.load(down)[None, :], tl.load(down + TILE)[None, :]
        b2, b3 = tl.load(down + 2 * TILE)[None, :], tl.load(down + 3 * TILE)[None, :]
        i0, i1, i2, i3 = tl.load(inverses), tl.load(inverses + 1), tl.load(inverses + 2), tl.load(inverses + 3)
        a0, a1 = tl.load(up)[:, None], tl.load(up + TILE)[:, None]
        a2, a3 = tl.load(up + 2 * TILE)[:, None], tl.load(up + 3 * TILE)[:, None]
        acc = two_small_features(acc, a0, a1, b0, b1, i0, i1, AHEAD == 1, ASSEMBLY)
        acc = two_small_features(acc, a2, a3, b2, b3, i2, i3, AHEAD == 1, ASSEMBLY)
        up += 4 * TILE
        down += 4 * TILE
        inverses += 4
    return acc


@triton.jit
def own_scores(query, key, table, dim, rows_in, keys_in, TILE: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The same with a tanh for every pair and feature, for any numbers."""
    acc = zeros_in_squares(TILE, TILE)
    partial = acc
    for d in range(0, dim):
        a = tl.load(query + d, mask=rows_in, other=0.0).to(tl.float32)
        b = tl.load(key + d, mask=keys_in, other=0.0).to(tl.float32)
        partial += tl.load(table + d // 2 * 4 + d % 2) * half_tanh(a[:, None] + b[None, :], ASSEMBLY)
        if d % 16 == 15:
            acc += partial
            partial = tl.zeros_like(partial)
    return (acc + partial) * tl.load(table + SCALE)


@kernel
def scores_kernel(
    room, first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW, plane, PLANE_BATCH, PLANE_ROW,
    batches, vectors, batch_start, row_start, count, queries, keys, UP_TIMES, DOWN_TIMES,
    FIRST: tl.constexpr, BEYOND: tl.constexpr,
    DIM: tl.constexpr, PART: tl.constexpr, TILE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Write the scores of `count` queries with every key, one tile per program.

    Tiles that no query sees are skipped; tiles with large or small numbers are left to `other_scores_kernel`.
    """
    table, up_peaks, down_peaks, tiles = workspace(room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM)
    up, down, _, _ = in_tiles(tiles, batches, UP_TIMES, DOWN_TIMES, DIM)
    blocks = tl.cdiv(count, TILE)
    here = (tl.program_id(0) // blocks).to(tl.int64)
    batch = here + batch_start
    local = tl.program_id(0) % blocks * TILE + tl.arange(0, TILE)
    rows, row_block = row_start + local, row_start + tl.program_id(0) % blocks * TILE
    col_block = tl.program_id(1) * TILE
    cols = col_block + tl.arange(0, TILE)
    up_peak = tl.max(tl.load(up_peaks + batch * UP_TIMES + rows), 0)
    down_peak = tl.max(tl.load(down_peaks + batch * DOWN_TIMES + cols), 0)
    if not is_usual(up_peak, down_peak):
        return
    start, end = seen_by(
        rows, rows < queries, keys, first + batch * FIRST_BATCH, FIRST_ROW, beyond + batch * BEYOND_BATCH, BEYOND_ROW,
        FIRST, BEYOND,
    )  # fmt: skip
    if (col_block >= end) | (col_block + TILE <= start):
        return
    row_at = (batch * UP_TIMES + row_block) * DIM + tl.arange(0, TILE)
    col_at = (batch * DOWN_TIMES + col_block) * DIM + tl.arange(0, TILE)
    table += tl.minimum(batch, vectors - 1) * (3 * DIM)
    pointers = plane + here * PLANE_BATCH + local[:, None].to(tl.int64) * PLANE_ROW + cols[None, :]
    write_scores(pointers, up + row_at, down + col_at, table, TILE, DIM, PART, "usual", 1, ASSEMBLY)


@kernel
def other_scores_kernel(
    query, key, room, first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW, plane, PLANE_BATCH, PLANE_ROW,
    batches, vectors, batch_start, row_start, count, queries, keys, UP_TIMES, DOWN_TIMES, dim,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, ALL: tl.constexpr,
    DIM: tl.constexpr, PART: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Write the tiles that `scores_kernel` leaves, usually none, or ALL tiles, one per program."""
    table, up_peaks, down_peaks, tiles = workspace(room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM)
    up, down, up_small, down_small = in_tiles(tiles, batches, UP_TIMES, DOWN_TIMES, DIM)
    blocks = tl.cdiv(count, TILE)
    here = (tl.program_id(0) // blocks).to(tl.int64)
    batch = here + batch_start
    local = tl.program_id(0) % blocks * TILE + tl.arange(0, TILE)
    rows, row_block = row_start + local, row_start + tl.program_id(0) % blocks * TILE
    col_block = tl.program_id(1) * TILE
    cols = col_block + tl.arange(0, TILE)
    up_peak = tl.max(tl.load(up_peaks + batch * UP_TIMES + rows), 0)
    down_peak = tl.max(tl.load(down_peaks + batch * DOWN_TIMES + cols), 0)
    if not ALL and is_usual(up_peak, down_peak):
        return
    start, end = seen_by(
        rows, rows < queries, keys, first + batch * FIRST_BATCH, FIRST_ROW, beyond + batch * BEYOND_BATCH, BEYOND_ROW,
        FIRST, BEYOND,
    )  # fmt: skip
    if (col_block >= end) | (col_block + TILE <= start):
        return
    row_at = (batch * UP_TIMES + row_block) * DIM + tl.arange(0, TILE)
    col_at = (batch * DOWN_TIMES + col_block) * DIM + tl.arange(0, TILE)
    table += tl.minimum(batch, vectors - 1) * (3 * DIM)
    pointers = plane + here * PLANE_BATCH + local[:, None].to(tl.int64) * PLANE_ROW + cols[None, :]
    if are_small(up_peak, down_peak):
        write_scores(pointers, up_small + row_at, down_small + col_at, table, TILE, DIM, PART, "small", AHEAD, ASSEMBLY)
    elif is_usual(up_peak, down_peak):
        if ALL:
            write_scores(pointers, up + row_at, down + col_at, table, TILE, DIM, PART, "usual", AHEAD, ASSEMBLY)
    elif (up_peak <= EXPONENTIALS) & (down_peak <= EXPONENTIALS):
        write_scores(pointers, up + row_at, down + col_at, table, TILE, DIM, PART, "capped", 1, ASSEMBLY)
    else:
        own, theirs = query + (batch * queries + rows) * dim, key + (batch * keys + cols) * dim
        tl.store(pointers, own_scores(own, theirs, table, dim, rows < queries, cols < keys, TILE, ASSEMBLY))


@triton.jit
def seen_by(rows, rows_in, keys, first, FIRST_ROW, beyond, BEYOND_ROW, FIRST: tl.constexpr, BEYOND: tl.constexpr):
    """The interval of keys that a block of queries sees. Pointers are those of one batch entry."""
    start, end = 0, keys
    if FIRST:
        start = tl.maximum(tl.min(tl.load(first + rows * FIRST_ROW, mask=rows_in, other=keys), 0).to(tl.int32), 0)
    if BEYOND:
        last = tl.max(tl.load(beyond + rows * BEYOND_ROW, mask=rows_in, other=0), 0)
        end = tl.minimum(last, keys).to(tl.int32)
    return start, end
