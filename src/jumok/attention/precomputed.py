"""Keys and values that are attended to by one query after another, such as the source of a recurrent decoder.

Each step of such a decoder computes its query from the state of the step before, so the queries cannot be put into one
call of `attend`. Instead, what depends on the keys and values alone is computed once and used by every step.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import backends, tracing
from jumok.attention.additive.cpu_steps import KeyExponentials, in_range
from jumok.attention.additive.reference import Additive
from jumok.attention.attend import attend, find_score
from jumok.attention.scores import Score
from jumok.attention.weights import Attended


class PrecomputedKeys(ABC):
    """Keys and values prepared for many calls of attention."""

    @abstractmethod
    def attend(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """The result of `attend` for these queries."""

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
    """Prepare keys and values for many queries: `.attend(query)` then gives what `attend(query, key, value, …)` gives.

    `backend` is that of `attend`; only "auto" may use the CPU kernel for additive steps.
    """
    plain = PlainKeys(key, value, find_score(score), visible, backend)
    if backend != "auto" or not _has_step_kernel(plain.score, key, value):
        return plain
    return AdditiveKeys(plain, KeyExponentials.of(key, value, plain.score, visible))


def _has_step_kernel(score: Score, key: Tensor, value: Tensor) -> bool:
    """Whether the CPU kernel for additive steps can take these keys and values."""
    if not (isinstance(score, Additive) and tracing.is_readable(key) and backends.why_no_tiles(score, key) is None):
        return False
    if key.dim() != 3 or value.dim() != 3 or key.dtype != value.dtype or 0 in key.shape or 0 in value.shape:
        return False
    return in_range(key) and bool(value.detach().sum().isfinite())


@dataclass(frozen=True, eq=False)
class PlainKeys(PrecomputedKeys):
    """Keys and values passed to `attend` each time, for scores and devices that gain nothing from preparing them."""

    key: Float[Tensor, "batch key key_dim"]
    value: Float[Tensor, "batch key value_dim"]
    score: Score
    visible: Bool[Tensor, "batch 1 key"] | None
    backend: str

    def attend(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """A call of `attend`."""
        return attend(query, self.key, self.value, score=self.score, visible=self.visible, backend=self.backend)

    def keep(self, rows: Int[Tensor, " kept"]) -> PrecomputedKeys:
        """Only these rows of the batch."""
        visible = None if self.visible is None else self.visible[rows]
        key, value = self.key[rows], self.value[rows]
        return precompute_keys(key, value, score=self.score, visible=visible, backend=self.backend)


@dataclass(frozen=True, eq=False)
class AdditiveKeys(PrecomputedKeys):
    """Keys of the additive score on a CPU, with e²ᵏ computed once (see additive/cpu_steps.py)."""

    plain: PlainKeys
    exponentials: KeyExponentials

    def attend(self, query: Float[Tensor, "batch query dim"]) -> Attended:
        """One step of the kernel, or a call of `attend` where the kernel cannot take the query."""
        if not (tracing.is_readable(query) and self.exponentials.accepts(query)):
            return self.plain.attend(query)
        return self.exponentials.attend(query)

    def keep(self, rows: Int[Tensor, " kept"]) -> PrecomputedKeys:
        """Only these rows of the batch."""
        return self.plain.keep(rows)
