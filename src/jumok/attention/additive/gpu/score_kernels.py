"""Triton kernels of the additive score, for a tile of queries and keys.

tanh(q + k) = 1 − 2r with r = 1 / x, x = 1 + e²𐞥 e²ᵏ, so with u = −2v a score is Σ u (r − ½). The exponentials depend on
single queries and keys and are computed once, in blocks [tile, dim, time], so that the loop over features is an outer
product of two short vectors in registers, read at fixed strides. With y = x / u, whose u is already in the query's
exponential, two features share a reciprocal:

    u₀ r₀ + u₁ r₁ = (y₀ + y₁) / y₀y₁,

which takes six instructions for two features; a tanh unit would need 16 cycles for them. A feature's sign may be
changed with that of its q and k, and is, so that signs of u alternate: −½ Σ u, which is added at the end, is small then,
and so are the sums. Products of two y overflow when q + k exceeds 12.5: there y is capped at 2⁶², where 1 / y is
nothing. Beyond 34, where e²𐞥 / u itself leaves the range of single precision, every pair computes its own tanh.

Where q and k are both small, r − ½ would lose the digits of a tanh. There M = e²𐞥e²ᵏ − 1 is computed from e²𐞥 − 1 and
e²ᵏ − 1, and tanh(q + k) = M / (M + 2) in nine instructions for two features. Each tile decides by its own largest |q|
and |k|. The code for other tiles takes registers from these loops, so large problems run it in a second launch.
"""

from struct import pack

import triton
import triton.language as tl

from jumok.attention.additive.gpu.prepare_kernels import PART, SMALL, half_tanh, in_tiles, reciprocal, workspace
from jumok.attention.triton_launch import kernel

PRODUCTS = tl.constexpr(12.5)
"""Up to this |q| + |k| the product of two y is finite, and its reciprocal not 0."""
LARGEST_Y = tl.constexpr(2.0**62)
"""Beyond PRODUCTS |y| is capped at this."""
EXPONENTIALS = tl.constexpr(34.0)
"""Up to this |q| and |k| their exponentials, divided by u, are finite and not 0."""
ANCHOR = tl.constexpr(16)
"""Inner size of the product of zeros in `in_squares`."""


@triton.jit
def are_small(up_peak, down_peak):
    """Whether tanh must be computed from e²𐞥 − 1 and e²ᵏ − 1."""
    return (up_peak < SMALL) & (down_peak < SMALL)


@triton.jit
def is_fast(up_peak, down_peak):
    """Whether one of the two fast loops can compute a tile with these largest |q| and |k|."""
    return up_peak + down_peak <= PRODUCTS


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


def two_features_of_a_pair(caps: bool) -> str:
    """`two_features` in assembly, perhaps with y capped.

    Pairs are computed one after another. The compiler, from Triton 3.7, starts all pairs of a thread before it finishes
    one, and their numbers fill the registers. The reciprocal is started as early as possible.
    """
    most, least = (f"0f{pack('>f', limit).hex().upper()}" for limit in (LARGEST_Y.value, -LARGEST_Y.value))
    cap = f"min.f32 y0, y0, {most};\nmax.f32 y1, y1, {least};\n" if caps else ""
    return f"""{{
.reg .f32 y0, y1, above, r;
fma.rn.f32 y0, $2, $4, $6;
fma.rn.f32 y1, $3, $5, $7;
{cap}mul.rn.f32 r, y0, y1;
rcp.approx.ftz.f32 r, r;
add.rn.f32 above, y0, y1;
fma.rn.f32 $0, above, r, $1;
}}"""


USUAL, CAPPED = (tl.constexpr(two_features_of_a_pair(caps)) for caps in (False, True))
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
def two_features(
    acc, a0, a1, b0, b1, i0, i1, CAPS: tl.constexpr, IN_TURN: tl.constexpr, ASSEMBLY: tl.constexpr
):  # fmt: skip
    """Add two features to a tile of scores; with IN_TURN, a thread computes its pairs one after another."""
    if ASSEMBLY and IN_TURN:
        return tl.inline_asm_elementwise(
            CAPPED if CAPS else USUAL, "=f,f,f,f,f,f,f,f", [acc, a0, a1, b0, b1, i0, i1],
            dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        y0, y1 = a0 * b0 + i0, a1 * b1 + i1
        if CAPS:
            y0, y1 = tl.minimum(y0, LARGEST_Y), tl.maximum(y1, -LARGEST_Y)
        return acc + (y0 + y1) * reciprocal(y0 * y1, ASSEMBLY)


@triton.jit
def two_small_features(acc, p0, p1, q0, q1, i0, i1, IN_TURN: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The same from e²ˣ − 1: adds −2 v tanh(q + k) / scale."""
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
    at, up, down, table, TILE: tl.constexpr, DIM: tl.constexpr, FORM: tl.constexpr, AHEAD: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The scores of a tile, two features to a reciprocal. A long sum loses digits, so each PART is summed separately."""
    total = zeros_in_squares(TILE, TILE)
    for start in range(0, DIM, PART):
        part = some_scores(up + start * TILE, down + start * TILE, table + 2 * start, TILE, FORM, AHEAD, ASSEMBLY)
        if FORM != "small":
            part += tl.load(table + 2 * DIM + 1 + start // PART)
        total += part
    tl.store(at, total * (tl.load(table + 2 * DIM) * (-0.5 if FORM == "small" else 1.0)))


@triton.jit
def some_scores(
    up, down, table, TILE: tl.constexpr, FORM: tl.constexpr, AHEAD: tl.constexpr, ASSEMBLY: tl.constexpr
):
    """The partial sum over PART features.

    With the loop unrolled AHEAD times, loads are issued early and wait in registers; without, few registers are used.
    """
    acc = zeros_in_squares(TILE, TILE)
    for _ in tl.range(0, PART, 4, loop_unroll_factor=AHEAD):
        b0, b1 = tl.load(down)[None, :], tl.load(down + TILE)[None, :]
        b2, b3 = tl.load(down + 2 * TILE)[None, :], tl.load(down + 3 * TILE)[None, :]
        i0, i1, i2, i3 = tl.load(table), tl.load(table + 1), tl.load(table + 4), tl.load(table + 5)
        a0, a1 = tl.load(up)[:, None], tl.load(up + TILE)[:, None]
        a2, a3 = tl.load(up + 2 * TILE)[:, None], tl.load(up + 3 * TILE)[:, None]
        if FORM == "small":
            acc = two_small_features(acc, a0, a1, b0, b1, i0, i1, AHEAD == 1, ASSEMBLY)
            acc = two_small_features(acc, a2, a3, b2, b3, i2, i3, AHEAD == 1, ASSEMBLY)
        else:
            acc = two_features(acc, a0, a1, b0, b1, i0, i1, FORM == "capped", AHEAD == 1, ASSEMBLY)
            acc = two_features(acc, a2, a3, b2, b3, i2, i3, FORM == "capped", AHEAD == 1, ASSEMBLY)
        up += 4 * TILE
        down += 4 * TILE
        table += 8
    return acc


@triton.jit
def own_scores(query, key, table, dim, rows_in, keys_in, DIM: tl.constexpr, TILE: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The same with a tanh for every pair and feature, for any numbers."""
    acc = zeros_in_squares(TILE, TILE)
    some = acc
    for d in range(0, dim):
        a = tl.load(query + d, mask=rows_in, other=0.0).to(tl.float32)
        b = tl.load(key + d, mask=keys_in, other=0.0).to(tl.float32)
        some += tl.load(table + d // 2 * 4 + d % 2 + 2) * half_tanh(a[:, None] + b[None, :], ASSEMBLY)
        if d % 16 == 15:
            acc += some
            some = tl.zeros_like(some)
    return (acc + some) * tl.load(table + 2 * DIM)


@kernel
def scores_kernel(
    room, first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW, plane, PLANE_BATCH, PLANE_ROW,
    batches, vectors, batch_start, row_start, count, queries, keys, UP_TIMES, DOWN_TIMES,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Write the scores of `count` queries with every key, one tile per program.

    Tiles that no query sees are skipped; tiles with large numbers are left to `other_scores_kernel`.
    """
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
    if not is_fast(up_peak, down_peak):
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
    at = plane + here * PLANE_BATCH + local[:, None].to(tl.int64) * PLANE_ROW + cols[None, :]
    if are_small(up_peak, down_peak):
        write_scores(at, up_small + row_at, down_small + col_at, table, TILE, DIM, "small", 1, ASSEMBLY)
    else:
        write_scores(at, up + row_at, down + col_at, table, TILE, DIM, "usual", 1, ASSEMBLY)


@kernel
def other_scores_kernel(
    query, key, room, first, FIRST_BATCH, FIRST_ROW, beyond, BEYOND_BATCH, BEYOND_ROW, plane, PLANE_BATCH, PLANE_ROW,
    batches, vectors, batch_start, row_start, count, queries, keys, UP_TIMES, DOWN_TIMES, dim,
    FIRST: tl.constexpr, BEYOND: tl.constexpr, ALL: tl.constexpr, TILES: tl.constexpr,
    DIM: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Write the tiles that `scores_kernel` leaves, usually none, or ALL tiles; TILES neighbouring ones per program."""
    table, up_peaks, down_peaks, tiles = workspace(room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM)
    up, down, up_small, down_small = in_tiles(tiles, batches, UP_TIMES, DOWN_TIMES, DIM)
    blocks = tl.cdiv(count, TILE)
    here = (tl.program_id(0) // blocks).to(tl.int64)
    batch = here + batch_start
    local = tl.program_id(0) % blocks * TILE + tl.arange(0, TILE)
    rows, row_block = row_start + local, row_start + tl.program_id(0) % blocks * TILE
    across = tl.program_id(1) * TILES * TILE + tl.arange(0, TILES * TILE)
    down_peaks += batch * DOWN_TIMES
    up_peak = tl.max(tl.load(up_peaks + batch * UP_TIMES + rows), 0)
    peaks = tl.load(down_peaks + across, mask=across < DOWN_TIMES, other=0.0)
    if not ALL and is_fast(up_peak, tl.max(peaks, 0)):
        return
    start, end = seen_by(
        rows, rows < queries, keys, first + batch * FIRST_BATCH, FIRST_ROW, beyond + batch * BEYOND_BATCH, BEYOND_ROW,
        FIRST, BEYOND,
    )  # fmt: skip
    row_at = (batch * UP_TIMES + row_block) * DIM + tl.arange(0, TILE)
    table += tl.minimum(batch, vectors - 1) * (3 * DIM)
    query += (batch * queries + rows) * dim
    key += batch * keys * dim
    plane += here * PLANE_BATCH + local[:, None].to(tl.int64) * PLANE_ROW
    for one in tl.static_range(0, TILES):
        tile = tl.program_id(1) * TILES + one
        cols = tile * TILE + tl.arange(0, TILE)
        down_peak = tl.max(tl.load(down_peaks + cols, mask=cols < DOWN_TIMES, other=0.0), 0)
        seen = ((tile + 1) * TILE > start) & (tile * TILE < end)
        at, col_at = plane + cols[None, :], (batch * DOWN_TIMES + tile * TILE) * DIM + tl.arange(0, TILE)
        if seen & is_fast(up_peak, down_peak):
            if ALL:
                if are_small(up_peak, down_peak):
                    write_scores(at, up_small + row_at, down_small + col_at, table, TILE, DIM, "small", AHEAD, ASSEMBLY)
                else:
                    write_scores(at, up + row_at, down + col_at, table, TILE, DIM, "usual", AHEAD, ASSEMBLY)
        elif seen & (up_peak <= EXPONENTIALS) & (down_peak <= EXPONENTIALS):
            write_scores(at, up + row_at, down + col_at, table, TILE, DIM, "capped", 1, ASSEMBLY)
        elif seen:
            theirs = key + cols.to(tl.int64) * dim
            tl.store(at, own_scores(query, theirs, table, dim, rows < queries, cols < keys, DIM, TILE, ASSEMBLY))


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
