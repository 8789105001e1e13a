"""Additive attention (Bahdanau et al. 2015) with its projections, and with coverage (Tu et al. 2016)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Attended, PrecomputedKeys, Visible, additive, attend, precompute_keys
from jumok.attention.checks import check_sizes


class Memory(NamedTuple):
    """The sequence attended to, with projected keys; computed once and used by every step of a decoder."""

    keys: Float[Tensor, "batch key key_width"]
    values: Float[Tensor, "batch key value_width"]
    visible: Visible | Bool[Tensor, "batch #query key"] | None = None

    def keep(self, rows: Int[Tensor, " kept"]) -> "Memory":
        """Only these rows of the batch; `visible` must be a tensor or None."""
        assert not isinstance(self.visible, Visible)
        return Memory(self.keys[rows], self.values[rows], None if self.visible is None else self.visible[rows])


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
        """The keys U h, with the states h themselves as values."""
        return Memory(self.to_key(states), states, visible)

    def precompute(
        self, states: Float[Tensor, "batch key key_width"], visible: Bool[Tensor, "batch 1 key"] | None = None
    ) -> PrecomputedKeys:
        """The memory for queries that come one after another, with all that depends on the states alone computed."""
        keys = self.to_key(states)
        return precompute_keys(keys, states, score=additive(self.v), visible=visible, backend=self.backend)

    def forward(self, query: Float[Tensor, "batch query query_width"], memory: Memory | PrecomputedKeys) -> Attended:
        """Attend from every query state to the memory."""
        if isinstance(memory, PrecomputedKeys):
            return memory.attend(self.to_query(query))
        return attend(
            self.to_query(query),
            memory.keys,
            memory.values,
            score=additive(self.v),
            visible=memory.visible,
            backend=self.backend,
        )


def random_vector(width: int) -> nn.Parameter:
    """A parameter vector, initialised like the weights of a linear layer with one output."""
    bound = width**-0.5
    return nn.Parameter(torch.empty(width).uniform_(-bound, bound))


class AttendedWithCoverage(NamedTuple):
    """The result of attention with coverage."""

    values: Float[Tensor, "batch query value_width"]
    weights: Float[Tensor, "batch query key"]
    coverage: Float[Tensor, "batch query key"]
    """The sum of the weights of all steps so far, including this one."""


class CoverageAttention(AdditiveAttention):
    """α = softmax(v · tanh(W s + U h + w · coverage)), where coverage is the sum of the weights of earlier steps.

    Every query has its own coverage, so the keys differ from query to query.
    """

    def __init__(self, *, query_width: int, key_width: int, hidden: int, bias: bool = False) -> None:
        super().__init__(query_width=query_width, key_width=key_width, hidden=hidden, bias=bias)
        # With w = 0 it starts as plain additive attention.
        self.w = nn.Parameter(torch.zeros(hidden))

    def attend(
        self,
        query: Float[Tensor, "batch query query_width"],
        memory: Memory,
        coverage: Float[Tensor, "batch query key"],
    ) -> AttendedWithCoverage:
        """Attend from every query to the memory, given the coverage before this step."""
        covered = (coverage[..., None] * self.w).to(memory.keys.dtype)  # the sum itself is in single precision
        keys = memory.keys[:, None] + covered  # batch query key hidden
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
    """Σ min(αᵢ, coverageᵢ): how much a step attends to what earlier steps covered (See et al. 2017, equation 12)."""
    return torch.minimum(weights, coverage).sum(-1)
