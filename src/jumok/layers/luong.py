"""Luong attention: the current decoder state attends to the source, globally or within a window."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.attention import (
    Attended,
    PrecomputedKeys,
    Score,
    Visible,
    additive,
    attend,
    dot,
    gaussian_window,
    location,
    precompute_keys,
    window,
)
from jumok.attention.checks import check_choice, check_sizes
from jumok.attention.masks import Tile, as_visible
from jumok.errors import ConfigError
from jumok.layers.additive import Memory, random_vector

SCORES = ("dot", "general", "concat", "location")
REACHES = ("global", "local-m", "local-p")


class LuongAttention(nn.Module):
    """c = Σ αᵢ hᵢ, then s̃ = tanh(W [c; s]) (Luong et al. 2015).

    Scores of a state s with a source state h: dot s · h, general s · W h, concat v · tanh(W [s; h]), location (W s)ᵢ.
    Reach: global; local-m, a window at the target position; local-p, a Gaussian window around a predicted position.
    `memory(states)` projects a whole source once, for all steps.
    """

    def __init__(
        self,
        *,
        query_width: int,
        key_width: int,
        score: str = "general",
        reach: str = "global",
        half_window: int = 10,
        longest: int = 512,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        query_width, key_width, longest = check_sizes(query_width=query_width, key_width=key_width, longest=longest)
        check_choice("score", score, SCORES)
        check_choice("reach", reach, REACHES)
        if score == "dot" and query_width != key_width:
            raise ConfigError(
                f'score "dot" needs equal widths, but query_width = {query_width} and key_width = {key_width}; '
                'use score "general"'
            )
        (half_window,) = check_sizes(half_window=half_window, least=1 if reach == "local-p" else 0)
        self.key_width = key_width
        self.score, self.reach, self.half_window, self.backend = score, reach, half_window, backend
        if score in ("general", "concat"):
            self.to_key = nn.Linear(key_width, query_width, bias=False)
        if score == "concat":
            self.to_query = nn.Linear(query_width, query_width, bias=False)
            self.v = random_vector(query_width)
        if score == "location":
            self.positions = nn.Parameter(torch.empty(longest, query_width).uniform_(-0.1, 0.1))
        if reach == "local-p":
            self.to_centre = nn.Sequential(
                nn.Linear(query_width, query_width, bias=False),
                nn.Tanh(),
                nn.Linear(query_width, 1, bias=False),
                nn.Sigmoid(),
            )
        self.to_state = nn.Linear(key_width + query_width, query_width, bias=False)

    def memory(
        self,
        states: Float[Tensor, "batch key key_width"],
        visible: Visible | Bool[Tensor, "batch #query key"] | None = None,
    ) -> Memory:
        """The keys, projected if the score needs it, with the states themselves as values."""
        keys = self.to_key(states) if self.score in ("general", "concat") else states
        return Memory(keys, states, visible)

    def precompute(
        self, states: Float[Tensor, "batch key key_width"], visible: Bool[Tensor, "batch 1 key"] | None = None
    ) -> Memory | PrecomputedKeys:
        """The memory for queries that come one after another; precomputed if the reach is global."""
        memory = self.memory(states, visible)
        if self.reach != "global":
            return memory
        return precompute_keys(memory.keys, states, score=self._score(), visible=visible, backend=self.backend)

    def forward(
        self,
        query: Float[Tensor, "batch query query_width"],
        memory: Memory | PrecomputedKeys,
        *,
        start: int = 0,
        together: bool = False,
    ) -> Attended:
        """Attend from every state to the memory.

        For local-m, `start` is the target position of the first state; the others follow it, or with `together` have
        the same position, as the hypotheses of a beam do.
        """
        queries = self.to_query(query) if self.score == "concat" else query
        if isinstance(memory, PrecomputedKeys):
            return memory.attend(queries)
        visible = self._window(query, memory, start, together)
        if visible is not None and memory.visible is not None:
            visible = as_visible(memory.visible) & visible
        return attend(
            queries,
            memory.keys,
            memory.values,
            score=self._score(),
            visible=memory.visible if visible is None else visible,
            backend=self.backend,
        )

    def attentional_state(
        self, context: Float[Tensor, "batch query key_width"], query: Float[Tensor, "batch query query_width"]
    ) -> Float[Tensor, "batch query query_width"]:
        """s̃ = tanh(W [c; s]), which predicts the next word (equation 5)."""
        state: Tensor = self.to_state(torch.cat([context, query], -1)).tanh()
        return state

    def _score(self) -> Score:
        if self.score == "concat":
            return additive(self.v)
        if self.score == "location":
            return location(self.positions)
        return dot()

    def _window(self, query: Tensor, memory: Memory, start: int, together: bool) -> Visible | None:
        if self.reach == "global":
            return None
        if self.reach == "local-m":
            centre = query.new_full(query.shape[:2], start, dtype=torch.float32) if together else None
            return window(self.half_window, centre=centre, offset=start)
        # p = S · sigmoid(v · tanh(W s)), S the length of the source (equation 9)
        return gaussian_window(_lengths(memory)[:, None] * self.to_centre(query).squeeze(-1), self.half_window)


def _lengths(memory: Memory) -> Float[Tensor, " batch"]:
    """The length of each source; in at least 32 bits, because bfloat16 is exact up to 256 only."""
    batch, keys = memory.keys.shape[:2]
    precision = torch.promote_types(memory.keys.dtype, torch.float32)
    if memory.visible is None:
        return memory.keys.new_full((batch,), keys, dtype=precision)
    first_row = Tile((batch,), 1, keys, memory.keys.device)
    return as_visible(memory.visible).tile(first_row).expand(batch, 1, keys).sum((1, 2)).to(precision)
