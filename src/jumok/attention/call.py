"""One call of attention as a value: who asks, of which keys and values, and how."""

from dataclasses import dataclass, replace
from math import prod

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention.masks import Tile, Visible
from jumok.attention.normalise import Normaliser, distribution, softmax_with_sums
from jumok.attention.scores import Score
from jumok.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Attention over one set of queries, keys and values, all with the same leading axes."""

    query: Float[Tensor, "*lead query query_dim"]
    key: Float[Tensor, "*lead key key_dim"]
    value: Float[Tensor, "*lead key value_dim"]
    score: Score
    normalise: Normaliser
    visible: Visible | None
    dropout: float
    tile: Tile
    """Which rows and heads of the whole problem `query` holds."""
    sees_nonfinite: Bool[Tensor, "*lead query"] | None = None
    """Queries that see a key or value that is not finite; their answer is NaN (see isolate_nonfinite.py)."""
    sums: Float[Tensor, "2 *lead query"] | None = None
    """Where a kernel kept them: the largest score of each query, and Σ exp(score − largest)."""
    given: Score | None = None
    """The score as the caller gave it, where `score` is a simpler one that it came down to."""

    def for_rows(self, rows: Int[Tensor, " rows"] | slice) -> "AttentionCall":
        """The same for some of the queries."""
        chosen = self.tile.rows[rows]
        return replace(
            self,
            query=self.query[..., rows, :],
            score=self.score.for_rows(chosen),
            tile=replace(self.tile, some=chosen),
            sees_nonfinite=None if self.sees_nonfinite is None else self.sees_nonfinite[..., rows],
            sums=None if self.sums is None else self.sums[..., rows],
        )

    def for_heads(self, heads: Int[Tensor, " heads"]) -> "AttentionCall":
        """The same for some entries of the last leading axis."""
        return replace(
            self,
            query=self.query.index_select(-3, heads),
            key=self.key.index_select(-3, heads),
            value=self.value.index_select(-3, heads),
            score=self.score.for_heads(heads),
            tile=replace(self.tile, heads=heads),
            sees_nonfinite=None if self.sees_nonfinite is None else self.sees_nonfinite.index_select(-2, heads),
            sums=None if self.sums is None else self.sums.index_select(-2, heads),
        )

    def weights(self) -> Float[Tensor, "*lead query key"]:
        """score → visible → normalise → weight_factors: the equation of attention, up to the values."""
        scores = self.score(self.query, self.key)
        if self.visible is not None:
            scores = scores.masked_fill(~self.visible.tile(self.tile), -torch.inf)
        if self.sums is None:
            weights = distribution(scores, self.normalise).to(self.query.dtype)
        else:
            weights = softmax_with_sums(scores, *self.sums).to(self.query.dtype)
        weight_factors = None if self.visible is None else self.visible.weight_factors(self.tile)
        return weights if weight_factors is None else weights * weight_factors.to(weights.dtype)

    def mix(self, weights: Float[Tensor, "*lead query key"]) -> Float[Tensor, "*lead query value_dim"]:
        """Σ α v, some α dropped out while training."""
        return mix(F.dropout(weights, self.dropout) if self.dropout else weights, self.value)

    @property
    def named(self) -> str:
        """The score in the caller's words."""
        return str(self.score if self.given is None else self.given)

    @property
    def pairs(self) -> int:
        """How many query-key pairs there are."""
        return prod(self.query.shape[:-1]) * self.key.shape[-2]


def mix(
    weights: Float[Tensor, "*#lead query key"], value: Float[Tensor, "*#lead key value_dim"]
) -> Float[Tensor, "*lead query value_dim"]:
    """Σ αᵢ vᵢ: the last stage of attention."""
    if not (isinstance(weights, Tensor) and isinstance(value, Tensor)):
        seen = type(weights if isinstance(value, Tensor) else value).__name__
        raise ArgumentError(f"weights and value must be tensors, but one is {seen}")
    if weights.dim() < 2 or value.dim() < 2 or weights.shape[-1] != value.shape[-2]:
        raise ArgumentError(
            f"weights is {list(weights.shape)} and value is {list(value.shape)}; wanted [*lead, query, key] and "
            "[*lead, key, value_dim] with as many keys"
        )
    return weights.to(value.dtype) @ value
