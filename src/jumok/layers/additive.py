"""Additive attention (Bahdanau et al. 2015) with its projections, and with coverage (Tu et al. 2016)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.attention import Attended, PrecomputedKeys, Visible, additive, attend, precompute_keys
from jumok.attention.arguments import check_sizes
from jumok.attention.checks import check_input
from jumok.layers.memory import Memory, check_memory


def random_vector(width: int) -> nn.Parameter:
    """`width` numbers drawn like the weights of a linear layer with one output."""
    bound = width**-0.5
    return nn.Parameter(torch.empty(width).uniform_(-bound, bound))


class AdditiveAttention(nn.Module):
    """c = Σ αᵢ hᵢ, α = softmax(v · tanh(W s + U h)) (Bahdanau et al. 2015).

    `memory(states)` computes U h once for a whole sequence; each step passes it in again with the state s.
    """

    def __init__(
        self, *, query_width: int, key_width: int, hidden: int, bias: bool = False, backend: str = "auto"
    ) -> None:
        super().__init__()
        query_width, key_width, hidden = check_sizes(query_width=query_width, key_width=key_width, hidden=hidden)
        self.to_query = nn.Linear(query_width, hidden, bias=bias)
        self.to_key = nn.Linear(key_width, hidden, bias=False)
        self.v = random_vector(hidden)
        self.backend = backend

    def memory(
        self,
        states: Float[Tensor, "batch key key_width"],
        visible: Visible | Bool[Tensor, "batch #query key"] | None = None,
    ) -> Memory:
        """The states, ready to be looked at: their projections are the keys, they themselves the values."""
        check_input("states", states, "batch, key", self.to_key)
        return Memory(self.to_key(states), states, visible)

    def precompute(
        self, states: Float[Tensor, "batch key key_width"], visible: Bool[Tensor, "batch 1 key"] | None = None
    ) -> PrecomputedKeys:
        """The same for queries that come one after another: all that belongs to the states alone is made now."""
        keys = self.memory(states).keys
        return precompute_keys(keys, states, score=additive(self.v), visible=visible, backend=self.backend)

    def forward(self, query: Float[Tensor, "batch query query_width"], memory: Memory | PrecomputedKeys) -> Attended:
        """Look from every query state at the memory."""
        check_input("query", query, "batch, query", self.to_query)
        if isinstance(memory, PrecomputedKeys):
            return memory.attend(self.to_query(query))
        check_memory(memory)
        return attend(
            self.to_query(query),
            memory.keys,
            memory.values,
            score=additive(self.v),
            visible=memory.visible,
            backend=self.backend,
        )


class AttendedWithCoverage(NamedTuple):
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

    def attend(
        self,
        query: Float[Tensor, "batch query query_width"],
        memory: Memory,
        coverage: Float[Tensor, "batch query key"],
    ) -> AttendedWithCoverage:
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
        return AttendedWithCoverage(attended.values.squeeze(2), weights, coverage + weights)


def coverage_loss(
    weights: Float[Tensor, "*place key"], coverage: Float[Tensor, "*place key"]
) -> Float[Tensor, "*place"]:
    """Σ min(αᵢ, coverageᵢ): how much a step looks where those before it have looked (equation 12)."""
    return torch.minimum(weights, coverage).sum(-1)
