"""Keys and values that one query after another looks at, as the source of a recurrent decoder is.

Each step of such a decoder asks from the state that the step before gave, so its queries cannot be put together into
one call of `attend`. What belongs to the keys and values alone is made once instead, and used by every look.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.additive import cpu_steps
from jumok.attention.attend import attend, find_score
from jumok.attention.scores import Score
from jumok.attention.weights import Attended


class PrecomputedKeys(ABC):
    """Something to look at many times."""

    @abstractmethod
    def attend(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """What `attend` would answer to these queries."""

    @abstractmethod
    def keep(self, rows: Int[Tensor, " kept"]) -> "PrecomputedKeys":
        """Only these rows of the batch."""


def precompute_keys(
    key: Float[Tensor, "batch key key_dim"],
    value: Float[Tensor, "batch key value_dim"],
    *,
    score: str | Score = "scaled_dot",
    visible: Bool[Tensor, "batch 1 key"] | None = None,
    backend: str = "auto",
) -> PrecomputedKeys:
    """Make keys and values ready for many looks; `look(query)` then gives what `attend(query, key, value, …)` gives.

    `backend` is that of `attend`; only "auto" may choose the kernel made for this.
    """
    plain = PlainKeys(key, value, find_score(score), visible, backend)
    if backend == "auto" and tracing.is_readable(key) and cpu_steps.why_not(plain.score, key, value) is None:
        return AdditiveKeys(plain, cpu_steps.opened(key, value, plain.score, visible))
    return plain


@dataclass(frozen=True, eq=False)
class PlainKeys(PrecomputedKeys):
    """Every look is a call of `attend`: for scores and devices that gain nothing from being remembered."""

    key: Float[Tensor, "batch key key_dim"]
    value: Float[Tensor, "batch key value_dim"]
    score: Score
    visible: Bool[Tensor, "batch 1 key"] | None
    backend: str

    def attend(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """One call of attention."""
        return attend(query, self.key, self.value, score=self.score, visible=self.visible, backend=self.backend)

    def keep(self, rows: Int[Tensor, " kept"]) -> PrecomputedKeys:
        """Only these rows of the batch."""
        visible = None if self.visible is None else self.visible[rows]
        return precompute_keys(
            self.key[rows], self.value[rows], score=self.score, visible=visible, backend=self.backend
        )


@dataclass(frozen=True, eq=False)
class AdditiveKeys(PrecomputedKeys):
    """The additive score on a CPU: e²ᵏ of every key is there already (see kernels/cpu_steps.py)."""

    plain: PlainKeys
    opened: cpu_steps.KeyExponentials

    def attend(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """One step of the kernel, or a call of attention where the kernel cannot take the query."""
        if not (tracing.is_readable(query) and self.opened.takes(query)):
            return self.plain.attend(query)
        return self.opened.attend(query)

    def keep(self, rows: Int[Tensor, " kept"]) -> PrecomputedKeys:
        """Only these rows of the batch."""
        return self.plain.keep(rows)
