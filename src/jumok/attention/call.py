"""One call of attention as a value: queries, keys, values, score, normaliser, mask and dropout."""

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention.masks import Tile, Visible, as_visible
from jumok.attention.modified_dot import ModifiedDot, sink_share
from jumok.attention.nonfinite import isolate_nonfinite
from jumok.attention.normalise import Normaliser, distribution, softmax, softmax_with_sums
from jumok.attention.scores import Score


@dataclass(eq=False)  # not frozen, which makes small calls on a CPU slower; nothing assigns to its fields
class AttentionCall:
    """The checked arguments of `attend`; after `prepare`, with a score that kernels know and equal leading axes."""

    degree: ClassVar[int] = 0
    """Degree of the polynomial that is fitted at each query: 0 for a weighted mean (see local_linear.py for 1)."""
    query: Float[Tensor, "*#lead query query_dim"]
    key: Float[Tensor, "*#lead key key_dim"]
    value: Float[Tensor, "*#lead key value_dim"]
    score: Score
    normalise: Normaliser
    visible: Visible | None
    dropout: float
    tile: Tile
    """Which rows and heads of the whole call `query` holds."""
    sees_nonfinite: Bool[Tensor, "*lead query"] | None = None
    """Queries that see a key or value that is not finite; their output is NaN (see nonfinite.py)."""
    sums: Float[Tensor, "2 *lead query"] | None = None
    """The largest score of each query and Σ exp(score − largest), where a kernel computed them."""
    isolated: bool = True
    """Whether `query` and `key` are free of NaN behind the mask; False where only a kernel keeps it out."""
    caller_score: Score | None = None
    """The caller's score, where `score` is the simpler one it was reduced to."""

    def prepare(self, *, isolate: bool) -> "AttentionCall":
        """Project queries and keys for the score, and expand all to the leading axes of the call.

        With `isolate`, NaN and infinity behind the mask are removed before the projections can spread them.
        """
        query, key, value, sees_nonfinite = self.query, self.key, self.value, None
        if isolate and self.visible is not None:
            query, key, value, sees_nonfinite = isolate_nonfinite(query, key, value, self.visible, self.tile)
        score, query, key = self.score.prepare(query, key)
        lead = self.tile.lead
        query, key, value = (
            tensor if tensor.shape[:-2] == lead else tensor.expand(*lead, *tensor.shape[-2:])
            for tensor in (query, key, value)
        )
        return AttentionCall(
            query, key, value, score, self.normalise, self.visible, self.dropout, self.tile, sees_nonfinite, None,
            isolate, self.score,
        )  # fmt: skip

    def isolate(self) -> "AttentionCall":
        """The call without NaN and infinity behind the mask, where a kernel kept them out until now."""
        if self.isolated or self.visible is None:
            return self
        query, key, value, sees_nonfinite = isolate_nonfinite(self.query, self.key, self.value, self.visible, self.tile)
        if sees_nonfinite is None:  # nothing had to be replaced
            return self
        return replace(self, query=query, key=key, value=value, sees_nonfinite=sees_nonfinite, isolated=True)

    def for_rows(self, rows: Int[Tensor, " rows"] | slice) -> "AttentionCall":
        """The same call for some of the queries."""
        chosen = self.tile.rows[rows]
        return replace(
            self,
            query=self.query[..., rows, :],
            score=self.score.for_rows(chosen),
            tile=replace(self.tile, row_index=chosen),
            sees_nonfinite=None if self.sees_nonfinite is None else self.sees_nonfinite[..., rows],
            sums=None if self.sums is None else self.sums[..., rows],
        )

    def for_heads(self, heads: Int[Tensor, " heads"]) -> "AttentionCall":
        """The same call for some entries of the last leading axis."""
        return replace(
            self,
            query=self.query.index_select(-3, heads),
            key=self.key.index_select(-3, heads),
            value=self.value.index_select(-3, heads),
            score=self.score.for_heads(heads),
            tile=replace(self.tile, head_index=heads),
            sees_nonfinite=None if self.sees_nonfinite is None else self.sees_nonfinite.index_select(-2, heads),
            sums=None if self.sums is None else self.sums.index_select(-2, heads),
        )

    def weights(self) -> Float[Tensor, "*lead query key"]:
        """α = normalise(score(q, k)) over the visible keys, times the factors of a Gaussian window."""
        scores = self.score(self.query, self.key)
        if self.visible is not None:
            scores = scores.masked_fill(~self.visible.tile(self.tile), -torch.inf)
        if self.sums is None:
            weights = distribution(scores, self.normalise)
            if isinstance(self.score, ModifiedDot) and self.score.sinks is not None:
                weights = weights * sink_share(scores, self.score.sinks)
            weights = weights.to(self.query.dtype)
        else:
            weights = softmax_with_sums(scores, *self.sums).to(self.query.dtype)
        factors = None if self.visible is None else self.visible.weight_factors(self.tile)
        return weights if factors is None else weights * factors.to(weights.dtype)

    def mix(self, weights: Float[Tensor, "*lead query key"]) -> Float[Tensor, "*lead query value_dim"]:
        """Σ α v, with dropout on the weights."""
        return mix(F.dropout(weights, self.dropout) if self.dropout else weights, self.value)

    @property
    def score_name(self) -> str:
        """The caller's score, for messages."""
        return str(self.score if self.caller_score is None else self.caller_score)

    @property
    def planes(self) -> int:
        """Numbers that are stored for each query-key pair."""
        return self.score.planes(self.query)

    @property
    def pairs(self) -> int:
        """The number of query-key pairs."""
        return prod(self.tile.lead) * self.tile.height * self.tile.keys


def mix(
    weights: Float[Tensor, "*#lead query key"], value: Float[Tensor, "*#lead key value_dim"]
) -> Float[Tensor, "*lead query value_dim"]:
    """Σ αᵢ vᵢ: the last stage of attention."""
    return weights.to(value.dtype) @ value


def attend_as_written(
    query: Float[Tensor, "*lead query query_dim"],
    key: Float[Tensor, "*lead key key_dim"],
    value: Float[Tensor, "*lead key value_dim"],
    score: Score,
    visible: Bool[Tensor, "*#lead #query key"] | None,
) -> Float[Tensor, "*lead query value_dim"]:
    """Softmax attention by the equation, all rows at once: what kernels that have no second gradient differentiate."""
    tile = Tile(tuple(query.shape[:-2]), query.shape[-2], key.shape[-2], query.device)
    mask = None if visible is None else as_visible(visible)
    call = AttentionCall(query, key, value, score, softmax, mask, 0.0, tile).prepare(isolate=True)
    values = call.mix(call.weights())
    return values if call.sees_nonfinite is None else values.masked_fill(call.sees_nonfinite[..., None], torch.nan)
