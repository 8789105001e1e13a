"""−½ tanh of single numbers in Triton, and what it is made of.

tanh(x) = 1 − 2r with r = 1 / (1 + e²ˣ), so −½ tanh is r − ½. Near 0 that difference loses the digits of a tanh, which
is nearly its argument there.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
SCALE, SCALE_REST = tl.constexpr(2.885390043258667), tl.constexpr(3.8519259817e-8)
"""2 log₂e as a number of single precision, and what that leaves out."""


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
def squared_exponential(x):
    """e²ˣ, with what rounding takes from the exponent put back: it would be the largest error of a score."""
    exponent = x * SCALE
    grown = tl.exp2(exponent)
    back = grown * ((tl.fma(x, SCALE, -exponent) + x * SCALE_REST) * LN2)
    return grown + tl.where(tl.abs(back) < float("inf"), back, 0.0)


@triton.jit
def half_tanh(x, ASSEMBLY: tl.constexpr):
    """−½ tanh(x), which is r − ½; where that is small by a polynomial, or it would lose digits."""
    y = x * x
    small = tl.fma(tl.fma(tl.fma(tl.fma(y, -0.00860998, 0.026517347), y, -0.06662856), y, 0.16666569), y, -0.5)
    return tl.where(tl.abs(x) < 0.5, x * small, reciprocal(1.0 + squared_exponential(x), ASSEMBLY) - 0.5)


@triton.jit
def small_half_tanh(x, ASSEMBLY: tl.constexpr):
    """−½ tanh(x) for |x| up to 3: x p(x²) / q(x²), with the least relative error there, 3 · 10⁻⁸."""
    y = x * x
    above = x * tl.fma(tl.fma(y, -9.3014891e-4, -5.9724394e-2), y, -0.5)
    below = tl.fma(tl.fma(tl.fma(y, 8.1559361e-5, 1.9455083e-2), y, 4.5278173e-1), y, 1.0)
    return above * reciprocal(below, ASSEMBLY)
