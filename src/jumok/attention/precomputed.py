"""Keys and values that one query after another looks at, as the source of a recurrent decoder is.

Each step of such a decoder asks from the state that the step before gave, so its queries cannot be put together into
one call of `attend`. What belongs to the keys and values alone is made once instead, and used by every look.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import transforms
from jumok.attention.additive import steps as additive_steps
from jumok.attention.attend import attend, find_score
from jumok.attention.scores import Score
from jumok.attention.weights import Attended


class Source(ABC):
    """Something to look at many times."""

    @abstractmethod
    def look(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """What `attend` would answer to these queries."""

    @abstractmethod
    def keep(self, rows: Int[Tensor, " kept"]) -> "Source":
        """Only these rows of the batch."""


def remember(
    key: Float[Tensor, "batch key key_dim"],
    value: Float[Tensor, "batch key value_dim"],
    *,
    score: str | Score = "scaled_dot",
    visible: Bool[Tensor, "batch 1 key"] | None = None,
    backend: str = "auto",
) -> Source:
    """Make keys and values ready for many looks; `look(query)` then gives what `attend(query, key, value, …)` gives.

    `backend` is that of `attend`; only "auto" may choose the kernel made for this.
    """
    plain = AttendedAnew(key, value, find_score(score), visible, backend)
    if backend == "auto" and transforms.readable(key) and additive_steps.why_not(plain.score, key, value) is None:
        return WithExponentials(plain, additive_steps.opened(key, value, plain.score, visible))
    return plain


@dataclass(frozen=True, eq=False)
class AttendedAnew(Source):
    """Every look is a call of `attend`: for scores and devices that gain nothing from being remembered."""

    key: Float[Tensor, "batch key key_dim"]
    value: Float[Tensor, "batch key value_dim"]
    score: Score
    visible: Bool[Tensor, "batch 1 key"] | None
    backend: str

    def look(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """One call of attention."""
        return attend(query, self.key, self.value, score=self.score, visible=self.visible, backend=self.backend)

    def keep(self, rows: Int[Tensor, " kept"]) -> Source:
        """Only these rows of the batch."""
        visible = None if self.visible is None else self.visible[rows]
        return remember(self.key[rows], self.value[rows], score=self.score, visible=visible, backend=self.backend)


@dataclass(frozen=True, eq=False)
class WithExponentials(Source):
    """The additive score on a CPU: e²ᵏ of every key is there already (see kernels/additive_steps.py)."""

    plain: AttendedAnew
    opened: additive_steps.Opened

    def look(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """One step of the kernel, or a call of attention where the kernel cannot take the query."""
        if not (transforms.readable(query) and self.opened.takes(query)):
            return self.plain.look(query)
        return self.opened.look(query)

    def keep(self, rows: Int[Tensor, " kept"]) -> Source:
        """Only these rows of the batch."""
        return self.plain.keep(rows)
