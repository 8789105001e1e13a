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


@triton.jit
def workspace(room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM: tl.constexpr):
    """The parts of `room`, in order: the coefficients of every two features, from v; the largest |x| of every query
    and key; their exponentials in blocks [tile, dim, time], and, for gradients, also by time.
    """
    one = tl.full([], 1, tl.int64)
    ups, downs = one * batches * UP_TIMES, one * batches * DOWN_TIMES
    up_peaks = room + one * vectors * (2 * DIM)
    down_peaks = up_peaks + ups
    up = down_peaks + downs
    down = up + ups * DIM
    by_query = down + downs * DIM
    return room, up_peaks, down_peaks, up, down, by_query, by_query + ups * DIM


@kernel
def prepare_kernel(
    query, key, v, room, batches, vectors, queries, keys, UP_TIMES, DOWN_TIMES, dim, DIM: tl.constexpr,
    TILE: tl.constexpr, BY_TIME: tl.constexpr, BLOCK_DIM: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """Compute what depends on queries, keys or features alone, some of one of them per program."""
    table, up_peaks, down_peaks, up, down, by_query, by_key = workspace(
        room, batches, vectors, UP_TIMES, DOWN_TIMES, DIM
    )
    ups, downs = batches * (UP_TIMES // TILE), batches * (DOWN_TIMES // TILE)
    part = tl.program_id(0)
    if part < ups:
        exponentials(query, up, up_peaks, by_query, part, queries, UP_TIMES, dim, DIM, TILE, BY_TIME, BLOCK_DIM)
    elif part < ups + downs:
        exponentials(key, down, down_peaks, by_key, part - ups, keys, DOWN_TIMES, dim, DIM, TILE, BY_TIME, BLOCK_DIM)
    else:
        coefficients(v, table, part - ups - downs, dim, DIM, FEATURES)


@triton.jit
def exponentials(
    x, e, peaks, by_time, part, time, TIMES, dim, DIM: tl.constexpr, TILE: tl.constexpr, BY_TIME: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """e²ˣ of queries or keys in tiles, and optionally by time, with 0 in the padding; and the peak of each.

    The peak is the largest |x|, or inf if there is a NaN.
    """
    batch, tile = (part // (TIMES // TILE)).to(tl.int64), part % (TIMES // TILE)
    times = tile * TILE + tl.arange(0, TILE)
    tiled = e + (batch * TIMES + tile * TILE) * DIM + tl.arange(0, TILE)
    peak = tl.zeros([TILE], tl.float32)
    for start in range(0, DIM, BLOCK_DIM):
        dims = start + tl.arange(0, BLOCK_DIM)
        inside = (times < time)[:, None] & (dims < dim)[None, :]
        at = x + (batch * time + times[:, None]) * dim + dims[None, :]
        values = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        peak = tl.maximum(peak, tl.max(tl.where(values == values, tl.abs(values), float("inf")), 1))
        grown = tl.where(inside, squared_exponential(values), 0.0)
        real = (dims < DIM)[None, :]
        tl.store(tiled[:, None] + dims[None, :] * TILE, grown, mask=real)
        if BY_TIME:
            tl.store(by_time + (batch * TIMES + times[:, None]) * DIM + dims[None, :], grown, mask=real)
    tl.store(peaks + batch * TIMES + times, peak)


@triton.jit
def coefficients(v, table, vector, dim, DIM: tl.constexpr, FEATURES: tl.constexpr):
    """For every two features u₀, u₁, c and `scale`: u = −2v / scale, c = −½ (u₀ + u₁); zeros in the padding.

    The scale is the same for all features: a power of two that makes |u| less than 2, so that products of features
    cannot overflow, however large v is.
    """
    pairs = tl.arange(0, FEATURES // 2)
    v += vector.to(tl.int64) * dim + 2 * pairs
    one = tl.load(v, mask=2 * pairs < dim, other=0.0).to(tl.float32) * -2.0
    other = tl.load(v + 1, mask=2 * pairs + 1 < dim, other=0.0).to(tl.float32) * -2.0
    largest = tl.max(tl.maximum(tl.abs(one), tl.abs(other)), 0)
    exponent = tl.maximum(largest.to(tl.int32, bitcast=True) >> 23, BIAS)
    exponent = tl.where(exponent < INFINITE, exponent, BIAS)
    scale = (exponent << 23).to(tl.float32, bitcast=True)
    one, other = one / scale, other / scale
    table += vector.to(tl.int64) * 2 * DIM + 4 * pairs
    real = 2 * pairs < DIM
    tl.store(table, one, mask=real)
    tl.store(table + 1, other, mask=real)
    tl.store(table + 2, -0.5 * (one + other), mask=real)
    tl.store(table + 3, tl.zeros_like(one) + scale, mask=real)
