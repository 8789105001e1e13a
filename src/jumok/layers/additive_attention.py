"""Bahdanau's attention: a small network scores the decoder's state against every source state."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.attention import Attended, Source, Visible, additive, attend, remember
from jumok.attention.arguments import check_sizes
from jumok.layers.checks import check_input
from jumok.layers.memory import Memory, check_memory
from jumok.layers.vector import small_vector


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
        self.v = small_vector(hidden)
        self.backend = backend

    def memory(
        self,
        states: Float[Tensor, "batch key key_width"],
        visible: Visible | Bool[Tensor, "batch #query key"] | None = None,
    ) -> Memory:
        """The states, ready to be looked at: their projections are the keys, they themselves the values."""
        check_input("states", states, "batch, key", self.to_key)
        return Memory(self.to_key(states), states, visible)

    def source(
        self, states: Float[Tensor, "batch key key_width"], visible: Bool[Tensor, "batch 1 key"] | None = None
    ) -> Source:
        """The same for queries that come one after another: all that belongs to the states alone is made now."""
        keys = self.memory(states).keys
        return remember(keys, states, score=additive(self.v), visible=visible, backend=self.backend)

    def forward(self, query: Float[Tensor, "batch query query_width"], memory: Memory | Source) -> Attended:
        """Look from every query state at the memory."""
        check_input("query", query, "batch, query", self.to_query)
        if isinstance(memory, Source):
            return memory.look(self.to_query(query))
        check_memory(memory)
        return attend(
            self.to_query(query),
            memory.keys,
            memory.values,
            score=additive(self.v),
            visible=memory.visible,
            backend=self.backend,
        )
