"""The Gaussian's sums over all points where it is nearly flat, by a power series: time grows with points + queries.

With lengths in bandwidths and x, q measured from the middle of all points and queries,

    exp(−‖q − x‖²/2) = exp(−‖q‖²/2) exp(−‖x‖²/2) Π_d exp(q_d x_d),    exp(q_d x_d) = Σ_i (q_dⁱ/√i!) (x_dⁱ/√i!),

so the sums over the points are moments Σ v exp(−‖x‖²/2) Π x_dⁱ/√i!, which all queries share (Greengard and Strain, "The
Fast Gauss Transform", 1991; Yang et al., "Improved Fast Gauss Transform", 2003). A wide bandwidth needs few powers.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

MOST_TERMS = 2**12
"""Largest number of powers in half of the dimensions; with more, the kernels are faster."""
CHUNK = 2**24
"""Numbers computed at once."""


def worthwhile(points: int, queries: int, terms: list[int], values: int) -> bool:
    """Whether the series takes less time than a kernel that looks at every pair."""
    left, right = _halves(terms)
    if max(left, right) > MOST_TERMS:
        return False
    # A pair costs the kernel about what a number of a table of powers costs here, and 64 of a matrix product.
    each = 8 * (left + right * values) + left * right * values // 8
    return (points + queries) * each < points * queries


def terms_for(reach: list[float], digits: float) -> list[int]:
    """The powers needed in each dimension, where |q_d x_d| is at most `reach[d]`, for a relative error of `digits`."""
    return [_terms(r, digits / len(reach)) for r in reach]


def _terms(reach: float, digits: float) -> int:
    """n with Σ_{i ≥ n} rⁱ/i! ≤ digits · exp(−r)."""
    term, count = 1.0, 0
    while count < 2 * reach or 2 * term > digits * math.exp(-reach):
        count += 1
        term *= reach / count
    return count


def gaussian_sums(
    query: Float[Tensor, "query dim"],
    x: Float[Tensor, "point dim"],
    values: Float[Tensor, "point value"],
    bandwidth: float,
) -> Float[Tensor, "query value"]:
    """Σ exp(−‖q − x‖²/2h²) v in float64, to the digits of the inputs; both are measured from a middle."""
    reach = x.abs().amax(0).double() * query.abs().amax(0) / bandwidth**2
    terms = terms_for(reach.tolist(), torch.finfo(x.dtype).eps / 8)
    left, right = _halves(terms)
    size = max(1, CHUNK // (left + right * values.shape[1]))
    moments = values.new_zeros(left, right * values.shape[1], dtype=torch.float64)
    for part, value in zip(torch.split(x, size), torch.split(values, size), strict=True):
        part = part.double() / bandwidth
        first_half, second_half = _powers(part, terms)
        weighed = value.double() * _envelope(part)
        moments.addmm_(first_half.mT, (second_half[:, :, None] * weighed[:, None, :]).flatten(1))
    return torch.cat([_evaluate(part.double() / bandwidth, moments, terms) for part in torch.split(query, size)])


def _evaluate(query: Tensor, moments: Tensor, terms: list[int]) -> Float[Tensor, "query value"]:
    first_half, second_half = _powers(query, terms)
    partial_sums = (first_half @ moments).view(len(query), second_half.shape[1], -1)
    return torch.einsum("qrv,qr->qv", partial_sums, second_half) * _envelope(query)


def _powers(x: Float[Tensor, "point dim"], terms: list[int]) -> tuple[Tensor, Tensor]:
    """Π x_dⁱ/√i! of the first half of the dimensions and of the second, for all powers."""
    middle = (len(terms) + 1) // 2
    tables = list(_tables(x, terms))
    return _product(tables[:middle], x), _product(tables[middle:], x)


def _tables(x: Tensor, terms: list[int]) -> Iterator[Float[Tensor, "point term"]]:
    for column, count in zip(x.unbind(1), terms, strict=True):
        factors = torch.arange(1, count, device=x.device, dtype=x.dtype).rsqrt()
        yield torch.cat([torch.ones_like(column)[:, None], (column[:, None] * factors).cumprod(1)], 1)


def _product(tables: list[Tensor], x: Tensor) -> Float[Tensor, "point term"]:
    product = x.new_ones(len(x), 1)
    for table in tables:
        product = (product[:, :, None] * table[:, None, :]).flatten(1)
    return product


def _envelope(x: Float[Tensor, "point dim"]) -> Float[Tensor, "point 1"]:
    return (x.square().sum(1, keepdim=True) / -2).exp()


def _halves(terms: list[int]) -> tuple[int, int]:
    middle = (len(terms) + 1) // 2
    return math.prod(terms[:middle]), math.prod(terms[middle:])
