"""Triton kernels that compute what depends on queries, keys or features alone, once for all pairs."""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
SCALE, SCALE_REST = tl.constexpr(2.885390043258667), tl.constexpr(3.8519259817e-8)
"""2 log₂e in single precision, and its rounding error."""


@triton.jit
def reciprocal(x, ASSEMBLY: tl.constexpr):
    """1 / x, for x of at least 1. The interpreter cannot run assembly."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def squared_exponential(x):
    """e²ˣ, corrected for the rounding of the exponent, which would be the largest error of a score."""
    exponent = x * SCALE
    grown = tl.exp2(exponent)
    back = grown * ((tl.fma(x, SCALE, -exponent) + x * SCALE_REST) * LN2)
    return grown + tl.where(tl.abs(back) < float("inf"), back, 0.0)


@triton.jit
def half_tanh(x, ASSEMBLY: tl.constexpr):
    """−½ tanh(x) = r − ½; by a polynomial where it is small, because r − ½ would lose digits."""
    y = x * x
    small = tl.fma(tl.fma(tl.fma(tl.fma(y, -0.00860998, 0.026517347), y, -0.06662856), y, 0.16666569), y, -0.5)
    return tl.where(tl.abs(x) < 0.5, x * small, reciprocal(1.0 + squared_exponential(x), ASSEMBLY) - 0.5)


@triton.jit
def small_half_tanh(x, ASSEMBLY: tl.constexpr):
    """−½ tanh(x) for |x| up to 3: x p(x²) / q(x²), with minimal relative error, 3 · 10⁻⁸."""
    y = x * x
    above = x * tl.fma(tl.fma(y, -9.3014891e-4, -5.9724394e-2), y, -0.5)
    below = tl.fma(tl.fma(tl.fma(y, 8.1559361e-5, 1.9455083e-2), y, 4.5278173e-1), y, 1.0)
    return above * reciprocal(below, ASSEMBLY)


BIAS, INFINITE = tl.constexpr(127), tl.constexpr(255)
"""Exponents of 1 and infinity in the bits of single precision."""
LEAST = tl.constexpr(2.0**-27)
"""Smallest |u| beside a largest one between 1 and 2: a smaller one would make no difference to a score."""
SMALL = tl.constexpr(2.5)
"""Queries and keys below this are small: their tanh keeps its digits only as M / (M + 2) (see score_kernels.py)."""
PART = tl.constexpr(32)
"""Features of a partial sum."""


@triton.jit
def workspace(room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM: tl.constexpr):
    """The parts of `room`, in order: what comes from v; the largest |x| of every query and key; for scores their
    exponentials in blocks [tile, dim, time], and e²ˣ − 1 of small ones; for gradients, both by time.
    """
    one = tl.full([], 1, tl.int64)
    ups, downs = one * batches * UP_TIMES, one * batches * DOWN_TIMES
    up_peaks = room + one * vectors * (3 * DIM)
    down_peaks = up_peaks + ups
    return room, up_peaks, down_peaks, down_peaks + downs


@triton.jit
def in_tiles(first, batches, UP_TIMES, DOWN_TIMES, DIM: tl.constexpr):
    """Exponentials in blocks: those of queries and keys, then e²ˣ − 1 of small ones."""
    one = tl.full([], 1, tl.int64)
    ups, downs = one * batches * UP_TIMES * DIM, one * batches * DOWN_TIMES * DIM
    return first, first + ups, first + ups + downs, first + 2 * ups + downs


@triton.jit
def by_time(first, batches, UP_TIMES, DOWN_TIMES, DIM: tl.constexpr, TILED: tl.constexpr):
    """The same by time, after those in blocks if there are any."""
    one = tl.full([], 1, tl.int64)
    both = one * batches * (UP_TIMES + DOWN_TIMES) * DIM
    return in_tiles(first + 2 * TILED * both, batches, UP_TIMES, DOWN_TIMES, DIM)


@kernel
def prepare_kernel(
    query, key, v, room, batches, vectors, queries, keys, UP_TIMES, DOWN_TIMES, dim, DIM: tl.constexpr,
    TILE: tl.constexpr, TILED: tl.constexpr, BY_TIME: tl.constexpr, BLOCK_DIM: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """Compute what depends on queries, keys or features alone, some of one of them per program."""
    table, up_peaks, down_peaks, first = workspace(room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM)
    up, down, up_small, down_small = in_tiles(first, batches, UP_TIMES, DOWN_TIMES, DIM)
    by_query, by_key, by_query_small, by_key_small = by_time(first, batches, UP_TIMES, DOWN_TIMES, DIM, TILED)
    ups, downs = batches * (UP_TIMES // TILE), batches * (DOWN_TIMES // TILE)
    part = tl.program_id(0)
    if part < ups:
        exponentials(
            query, v, vectors, up, up_small, up_peaks, by_query, by_query_small, part, queries, UP_TIMES, dim,
            True, DIM, TILE, TILED, BY_TIME, BLOCK_DIM, FEATURES,
        )  # fmt: skip
    elif part < ups + downs:
        exponentials(
            key, v, vectors, down, down_small, down_peaks, by_key, by_key_small, part - ups, keys, DOWN_TIMES, dim,
            False, DIM, TILE, TILED, BY_TIME, BLOCK_DIM, FEATURES,
        )  # fmt: skip
    else:
        coefficients(v, table, part - ups - downs, dim, DIM, FEATURES)


@triton.jit
def exponentials(
    x, v, vectors, e, e_small, peaks, timed, timed_small, part, time, TIMES, dim,
    OF_QUERIES: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr, TILED: tl.constexpr, BY_TIME: tl.constexpr,
    BLOCK_DIM: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """e²ˣ of queries or keys, with 0 in the padding; and the peak of each: the largest |x|, or inf if there is a NaN.

    In tiles, x has the sign of its feature (see `signed`), and e²ˣ of a query is divided by the feature's u.
    """
    batch, tile = (part // (TIMES // TILE)).to(tl.int64), part % (TIMES // TILE)
    times = tile * TILE + tl.arange(0, TILE)
    v += tl.minimum(batch, vectors - 1) * dim
    scale = scale_of(v, dim, FEATURES)
    peak = tl.zeros([TILE], tl.float32)
    for start in range(0, DIM, BLOCK_DIM):
        dims = start + tl.arange(0, BLOCK_DIM)
        inside = (times < time)[:, None] & (dims < dim)[None, :]
        at = x + (batch * time + times[:, None]) * dim + dims[None, :]
        values = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        peak = tl.maximum(peak, tl.max(tl.where(values == values, tl.abs(values), float("inf")), 1))
        real = (dims < DIM)[None, :]
        if BY_TIME:
            place = (batch * TIMES + times[:, None]) * DIM + dims[None, :]
            tl.store(timed + place, tl.where(inside, squared_exponential(values), 0.0), mask=real)
            tl.store(timed_small + place, tl.where(inside, less_one(values), 0.0), mask=real)
        if TILED:
            sign, inverse = signed(v, dims, dim, scale)
            values *= sign[None, :]
            grown = squared_exponential(values)
            if OF_QUERIES:
                grown *= inverse[None, :]
            tiled = (batch * TIMES + tile * TILE) * DIM + tl.arange(0, TILE)[:, None] + dims[None, :] * TILE
            tl.store(e + tiled, tl.where(inside, grown, 0.0), mask=real)
            # The others of this tile may follow: then these are not read.
            if tl.max(peak, 0) < SMALL:
                tl.store(e_small + tiled, tl.where(inside, less_one(values), 0.0), mask=real)
    tl.store(peaks + batch * TIMES + times, peak)


@triton.jit
def less_one(x):
    """e²ˣ − 1 for small |x|: by a series where e²ˣ − 1 would lose digits."""
    y = 2.0 * x
    series = tl.fma(tl.fma(tl.fma(tl.fma(tl.fma(y, 1 / 5040, 1 / 720), y, 1 / 120), y, 1 / 24), y, 1 / 6), y, 0.5)
    series = tl.fma(series * y, y, y)
    return tl.where(tl.abs(y) < 0.5, series, squared_exponential(x) - 1.0)


@triton.jit
def scale_of(v, dim, FEATURES: tl.constexpr):
    """A power of two such that the largest |u| = |2v / scale| is less than 2, however large v is."""
    dims = tl.arange(0, FEATURES)
    largest = tl.max(tl.abs(tl.load(v + dims, mask=dims < dim, other=0.0).to(tl.float32) * 2.0), 0)
    exponent = tl.maximum(largest.to(tl.int32, bitcast=True) >> 23, 1)
    exponent = tl.where(exponent < INFINITE, exponent, BIAS)
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def signed(v, dims, dim, scale):
    """For each feature the sign that makes its u = −2v / scale positive, or negative if its number is odd; and 1 / u.

    With signs that alternate, sums of u / x stay as small as scores. A u below LEAST counts as that.
    """
    u = tl.load(v + dims, mask=dims < dim, other=0.0).to(tl.float32) * -2.0 / scale
    wanted = tl.where(dims % 2 == 0, 1.0, -1.0)
    sign = tl.where((u < 0) == (wanted < 0), 1.0, -1.0)
    size = tl.where(u == u, tl.maximum(tl.abs(u), LEAST), u)
    return sign, wanted / size


@triton.jit
def coefficients(v, table, vector, dim, DIM: tl.constexpr, FEATURES: tl.constexpr):
    """For every two features 1 / u and, without their signs, u; then the scale of u, and −½ Σ u of every PART."""
    dims = tl.arange(0, FEATURES)
    v += vector.to(tl.int64) * dim
    table += vector.to(tl.int64) * 3 * DIM
    scale = scale_of(v, dim, FEATURES)
    sign, inverse = signed(v, dims, dim, scale)
    place, real = dims // 2 * 4 + dims % 2, dims < DIM
    tl.store(table + place, inverse, mask=real)
    u = tl.load(v + dims, mask=dims < dim, other=0.0).to(tl.float32) * -2.0 / scale
    tl.store(table + place + 2, u, mask=real)
    tl.store(table + 2 * DIM, scale)
    for part in range(0, DIM // PART):
        inside = (dims >= part * PART) & (dims < (part + 1) * PART)
        tl.store(table + 2 * DIM + 1 + part, -0.5 * tl.sum(tl.where(inside, 1.0 / inverse, 0.0), 0))
