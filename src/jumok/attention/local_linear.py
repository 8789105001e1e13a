"""Local linear attention: at every query, a line through the values instead of their mean.

Softmax attention is the local constant estimate of kernel regression (Nadaraya 1964, Watson 1964): the a that minimises
Σ wⱼ ‖vⱼ − a‖². The local linear estimate (Stone 1977, Fan 1993) is the a of

    minimise over a, B:  Σ wⱼ ‖vⱼ − a − Bᵀ (kⱼ − q)‖²,

which has no bias where the values are linear in the keys: not at the edge of the keys, and not where they are denser on
one side. It is attention again, with weights that sum to 1 but can be negative (the equivalent kernel): with w summing
to 1, k̄ = Σ wⱼ kⱼ and S = Σ wⱼ (kⱼ − k̄)(kⱼ − k̄)ᵀ,

    a = Σ lⱼ vⱼ,   lⱼ = wⱼ (1 + (q − k̄)ᵀ S⁺ (kⱼ − k̄)).

S⁺ is the pseudoinverse: directions in which the weighted keys do not spread have no slope. With a single visible key,
or several in one place, the estimate is the local constant one.
"""

from dataclasses import dataclass, fields, replace
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.call import AttentionCall
from jumok.attention.nonfinite import isolate_nonfinite

FLAT = 1e-10
"""Directions in which the keys spread by less than this share of the largest variance have no slope."""


@dataclass(eq=False)
class LocalLinearCall(AttentionCall):
    """A call whose weights are those of the local linear estimate."""

    degree = 1
    place: Float[Tensor, "*lead query dim"] | None = None
    """The queries before the projections of the score."""
    points: Float[Tensor, "*lead key dim"] | None = None
    """The keys before them."""

    def prepare(self, *, isolate: bool) -> "LocalLinearCall":
        """As for every call, with the queries and keys also kept as they are."""
        query, key, value, sees_nonfinite = self.query, self.key, self.value, None
        if isolate and self.visible is not None:
            query, key, value, sees_nonfinite = isolate_nonfinite(query, key, value, self.visible, self.tile)
        plain = replace(self, query=query, key=key, value=value)
        prepared = AttentionCall.prepare(plain, isolate=False)
        known = {field.name: getattr(prepared, field.name) for field in fields(AttentionCall)}
        lead = self.tile.lead
        place, points = (tensor.expand(*lead, *tensor.shape[-2:]) for tensor in (query, key))
        known |= {"sees_nonfinite": sees_nonfinite, "isolated": True}
        return LocalLinearCall(**known, place=place, points=points)

    def for_rows(self, rows: Int[Tensor, " rows"] | slice) -> "LocalLinearCall":
        """The same call for some of the queries."""
        assert self.place is not None
        chosen = AttentionCall.for_rows(replace(self, place=None), rows)
        return replace(cast(LocalLinearCall, chosen), place=self.place[..., rows, :])

    def for_heads(self, heads: Int[Tensor, " heads"]) -> "LocalLinearCall":
        """The same call for some entries of the last leading axis."""
        assert self.place is not None
        assert self.points is not None
        chosen = AttentionCall.for_heads(replace(self, place=None, points=None), heads)
        place, points = self.place.index_select(-3, heads), self.points.index_select(-3, heads)
        return replace(cast(LocalLinearCall, chosen), place=place, points=points)

    def weights(self) -> Float[Tensor, "*lead query key"]:
        """The equivalent kernel l."""
        assert self.place is not None
        assert self.points is not None
        return equivalent_kernel(super().weights(), self.place, self.points).to(self.query.dtype)

    @property
    def planes(self) -> int:
        """Numbers that are stored for each query-key pair, in units of the query's: all differences, in float64."""
        return max(super().planes, self.key.shape[-1] * 16 // self.query.element_size())


def equivalent_kernel(
    weights: Float[Tensor, "*lead query key"],
    query: Float[Tensor, "*lead query dim"],
    key: Float[Tensor, "*lead key dim"],
) -> Float[Tensor, "*lead query key"]:
    """lⱼ = wⱼ (1 + (q − k̄)ᵀ S⁺ (kⱼ − k̄)), computed in float64; zeros where all weights are zero."""
    weights, query, key = weights.double(), query.double(), key.double()
    total = weights.sum(-1, keepdim=True)
    weights = weights / total.masked_fill(total == 0, 1)
    # Places are counted from the key with the largest weight: far away from all keys, the others weigh next to nothing.
    largest = weights.detach().argmax(-1)[..., None].expand(*query.shape)
    origin = key.detach().gather(-2, largest)
    offsets = key[..., None, :, :] - origin[..., :, None, :]
    mean = (weights[..., None, :] @ offsets).squeeze(-2)
    offsets = offsets - mean[..., None, :]
    spread = (weights[..., None] * offsets).mT @ offsets
    slope = pseudoinverse(spread) @ (query - origin - mean)[..., None]
    return weights * (1 + (offsets @ slope).squeeze(-1))


def pseudoinverse(matrix: Float[Tensor, "*lead dim dim"]) -> Float[Tensor, "*lead dim dim"]:
    """S⁺ of a symmetric matrix, differentiable twice with its rank held fixed.

    The derivative of an eigendecomposition is infinite where eigenvalues are equal, that of S⁺ is −S⁺ dS S⁺. Two steps
    of Newton's iteration P ← 2P − P S P change nothing where P = S⁺, and have the first two derivatives of S⁺.
    """
    inverse: Tensor = torch.linalg.pinv(matrix.detach(), rtol=FLAT, hermitian=True)
    for _ in range(2 if matrix.requires_grad else 0):
        inverse = 2 * inverse - inverse @ matrix @ inverse
    return inverse
