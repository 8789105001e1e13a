"""What every score shares: from queries and keys to one number per pair, the logarithm of an unnormalised weight."""

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from jumok.errors import ArgumentError


class Score(ABC):
    """How well a query matches a key. A score of -inf hides the key.

    Subclasses are frozen dataclasses whose fields are the score's parameters. A parameter tensor may carry leading
    axes that broadcast with those of the queries, so that heads can have parameters of their own. A score may be
    computed for some of the queries at a time: one that looks at their positions is told them by `for_rows`.
    """

    own_axes: ClassVar[dict[str, int]] = {}
    """For each parameter tensor, how many of its last axes are its own; the axes before them are leading ones."""

    @abstractmethod
    def __call__(
        self, query: Float[Tensor, "*#lead query query_dim"], key: Float[Tensor, "*#lead key key_dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""

    def prepare(self, query: Tensor, key: Tensor) -> "Prepared":
        """Reduce to a simpler score of projected queries and keys, where there is one: kernels know only the simple."""
        return Prepared(self, query, key)

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise ArgumentError if queries and keys of these shapes cannot be scored."""
        if query.shape[-1] != key.shape[-1]:
            raise ArgumentError(
                f"query has width {query.shape[-1]} and key has width {key.shape[-1]}, but {self} compares them "
                "feature by feature, so the widths must be equal; project one of them, or use general(weight)"
            )

    def planes(self, query: Tensor) -> int:
        """How many [query, key] planes exist at once while scoring; more than 1 is what blocks are for."""
        return 1

    def for_rows(self, rows: Int[Tensor, " rows"]) -> "Score":
        """The same score for the queries at these positions; another one only where it looks at positions."""
        return self

    def for_heads(self, heads: Int[Tensor, " heads"]) -> "Score":
        """The same score for some entries of the last leading axis."""
        picked = {}
        for name, own in self.own_axes.items():
            tensor = getattr(self, name)
            if isinstance(tensor, Tensor) and tensor.dim() > own and tensor.shape[-own - 1] != 1:
                picked[name] = tensor.index_select(-own - 1, heads)
        return replace(self, **picked)  # type: ignore[type-var]

    def __str__(self) -> str:
        return f'score "{_snake(type(self).__name__)}"'


def _snake(name: str) -> str:
    """ScaledDot -> scaled_dot, as callers write it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class Prepared(NamedTuple):
    """A score, and the queries and keys it is to be given."""

    score: Score
    query: Tensor
    key: Tensor


class Reducible(Score):
    """A score that is a simpler one once query and key are projected."""

    @abstractmethod
    def prepare(self, query: Tensor, key: Tensor) -> Prepared:
        """The simpler score, with the queries and keys it wants."""

    def __call__(
        self, query: Float[Tensor, "*#lead query query_dim"], key: Float[Tensor, "*#lead key key_dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""
        prepared = self.prepare(query, key)
        return prepared.score(prepared.query, prepared.key)
