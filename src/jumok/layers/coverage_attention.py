"""Bahdanau's attention that remembers where it has looked (See et al. 2017)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.attention import additive, attend
from jumok.layers.additive_attention import AdditiveAttention
from jumok.layers.memory import Memory


class Covered(NamedTuple):
    """A look, and what has been looked at with it."""

    values: Float[Tensor, "batch query value_width"]
    weights: Float[Tensor, "batch query key"]
    coverage: Float[Tensor, "batch query key"]
    """The sum of the weights so far, these included."""


class CoverageAttention(AdditiveAttention):
    """α = softmax(v · tanh(W s + U h + w · coverage)); coverage is the sum of the weights of the steps before.

    Every query brings a coverage of its own, so here the keys, too, differ from query to query.
    """

    def __init__(self, *, query_width: int, key_width: int, hidden: int, bias: bool = False) -> None:
        super().__init__(query_width=query_width, key_width=key_width, hidden=hidden, bias=bias)
        # It begins as plain additive attention, and learns from there what coverage should do.
        self.w = nn.Parameter(torch.zeros(hidden))

    def look(
        self,
        query: Float[Tensor, "batch query query_width"],
        memory: Memory,
        coverage: Float[Tensor, "batch query key"],
    ) -> Covered:
        """Look from every query at the memory, each with what it has covered before."""
        keys = memory.keys[:, None] + coverage[..., None] * self.w  # batch query key hidden
        visible = memory.visible[:, :, None] if isinstance(memory.visible, Tensor) else memory.visible
        attended = attend(
            self.to_query(query)[:, :, None],
            keys,
            memory.values[:, None],
            score=additive(self.v),
            visible=visible,
            backend=self.backend,
        )
        weights = attended.weights().squeeze(2)
        return Covered(attended.values.squeeze(2), weights, coverage + weights)


def coverage_loss(
    weights: Float[Tensor, "*place key"], coverage: Float[Tensor, "*place key"]
) -> Float[Tensor, "*place"]:
    """Σ min(αᵢ, coverageᵢ): how much a step looks where those before it have looked (equation 12)."""
    return torch.minimum(weights, coverage).sum(-1)
