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


BIAS, INFINITE = tl.constexpr(127), tl.constexpr(255)
"""Exponents of 1 and infinity in the bits of single precision."""
LEAST = tl.constexpr(2.0**-27)
"""Smallest |u| beside a largest one between 1 and 2: a smaller one would make no difference to a score."""
SMALL = tl.constexpr(2.5)
"""Queries and keys below this are small: their tanh keeps its digits only as M / (M + 2) (see score_kernels.py)."""


@triton.jit
def workspace(room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM: tl.constexpr):
    """The parts of `room`, in order: what comes from v; the largest |x| of every query and key; for scores their
    exponentials in blocks [tile, dim, time], and e²ˣ − 1 of small ones; for gradients, both by time.
    """
    unit = tl.full([], 1, tl.int64)
    ups, downs = unit * batches * UP_TIMES, unit * batches * DOWN_TIMES
    up_peaks = room + unit * vectors * (3 * DIM)
    down_peaks = up_peaks + ups
    return room, up_peaks, down_peaks, down_peaks + downs


@triton.jit
def in_tiles(first, batches, UP_TIMES, DOWN_TIMES, DIM: tl.constexpr):
    """Exponentials in blocks: those of queries and keys, then e²ˣ − 1 of small ones."""
    unit = tl.full([], 1, tl.int64)
    ups, downs = unit * batches * UP_TIMES * DIM, unit * batches * DOWN_TIMES * DIM
    return first, first + ups, first + ups + downs, first + 2 * ups + downs


@triton.jit
def by_time(first, batches, UP_TIMES, DOWN_TIMES, DIM: tl.constexpr, TILED: tl.constexpr):
    """The same by time, after those in blocks if there are any."""
    unit = tl.full([], 1, tl.int64)
    both = unit * batches * (UP_TIMES + DOWN_TIMES) * DIM
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
            query, up, up_small, up_peaks, by_query, by_query_small, part, queries, UP_TIMES, dim,
            DIM, TILE, TILED, BY_TIME, BLOCK_DIM,
        )  # fmt: skip
    elif part < ups + downs:
        exponentials(
            key, down, down_small, down_peaks, by_key, by_key_small, part - ups, keys, DOWN_TIMES, dim,
            DIM, TILE, TILED, BY_TIME, BLOCK_DIM,
        )  # fmt: skip
    else:
        coefficients(v, table, part - ups - downs, dim, DIM, FEATURES)


@triton.jit
def exponentials(
    x, e, e_small, peaks, timed, timed_small, part, time, TIMES, dim,
    DIM: tl.constexpr, TILE: tl.constexpr, TILED: tl.constexpr, BY_TIME: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """e²ˣ of queries or keys, and e²ˣ − 1, with 0 in the padding; and the peak of each.

    The peak is the largest |x|, or inf if there is a NaN.
    """
    batch, tile = (part // (TIMES // TILE)).to(tl.int64), part % (TIMES // TILE)
    times = tile * TILE + tl.arange(0, TILE)
    peak = tl.zeros([TILE], tl.float32)
    for start in range(0, DIM, BLOCK_DIM):
        dims = start + tl.arange(0, BLOCK_DIM)
        inside = (times < time)[:, None] & (dims < dim)[None, :]
        pointers = x + (batch * time + times[:, None]) * dim + dims[None, :]
        values = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
        peak = tl.maximum(peak, tl.max(tl.where(values == values, tl.abs(values), float("inf")), 1))
        real = (dims < DIM)[None, :]
        grown = tl.where(inside, squared_exponential(values), 0.0)
        if BY_TIME:
            place = (batch * TIMES + times[:, None]) * DIM + dims[None, :]
            tl.store(timed + place, grown, mask=real)
            tl.store(timed_small + place, less_one(values), mask=real)
        if TILED:
            tiled = (batch * TIMES + tile * TILE) * DIM + tl.arange(0, TILE)[:, None] + dims[None, :] * TILE
            tl.store(e + tiled, grown, mask=real)
            # Features that follow may be larger: then nobody reads these.
            if tl.max(peak, 0) < SMALL:
                tl.store(e_small + tiled, less_one(values), mask=real)
    tl.store(peaks + batch * TIMES + times, peak)


@triton.jit
def less_one(x):
    """e²ˣ − 1 for small |x|: by a series where e²ˣ − 1 would lose digits."""
    y = 2.0 * x
    series = tl.fma(tl.fma(tl.fma(tl.fma(tl.fma(y, 1 / 5040, 1 / 720), y, 1 / 120), y, 1 / 24), y, 1 / 6), y, 0.5)
    series = tl.fma(series * y, y, y)
    return tl.where(tl.abs(y) < 0.5, series, squared_exponential(x) - 1.0)


@triton.jit
def coefficients(v, table, vector, dim, DIM: tl.constexpr, FEATURES: tl.constexpr):
    """For every two features u₀, u₁, c and `scale`: u = −2v / scale, c = −½ (u₀ + u₁); then 1 / u of every feature.

    The scale is the same for all features: a power of two that makes |u| less than 2, so that products of features
    cannot overflow, however large v is. For 1 / u, a smaller |u| than LEAST counts as that, padding too.
    """
    pairs = tl.arange(0, FEATURES // 2)
    v += vector.to(tl.int64) * dim + 2 * pairs
    even = tl.load(v, mask=2 * pairs < dim, other=0.0).to(tl.float32) * -2.0
    odd = tl.load(v + 1, mask=2 * pairs + 1 < dim, other=0.0).to(tl.float32) * -2.0
    largest = tl.max(tl.maximum(tl.abs(even), tl.abs(odd)), 0)
    exponent = tl.maximum(largest.to(tl.int32, bitcast=True) >> 23, 1)
    exponent = tl.where(exponent < INFINITE, exponent, BIAS)
    scale = (exponent << 23).to(tl.float32, bitcast=True)
    even, odd = even / scale, odd / scale
    table += vector.to(tl.int64) * 3 * DIM
    real = 2 * pairs < DIM
    tl.store(table + 4 * pairs, even, mask=real)
    tl.store(table + 4 * pairs + 1, odd, mask=real)
    tl.store(table + 4 * pairs + 2, -0.5 * (even + odd), mask=real)
    tl.store(table + 4 * pairs + 3, tl.zeros_like(even) + scale, mask=real)
    tl.store(table + 2 * DIM + 2 * pairs, inverse(even), mask=real)
    tl.store(table + 2 * DIM + 2 * pairs + 1, inverse(odd), mask=real)


@triton.jit
def inverse(u):
    """1 / u, u being no nearer to 0 than LEAST."""
    return 1.0 / tl.where(tl.abs(u) < LEAST, tl.where(u < 0, -LEAST, LEAST), u)
