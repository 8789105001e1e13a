"""Scores of the caller's own: a function of queries and keys, which may be told the positions of the queries."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.arguments import check_takes
from jumok.attention.score import Score
from jumok.attention.visible import broadcasts
from jumok.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Custom(Score):
    """Any function from [query, dim] and [key, dim] to [query, key].

    It may look at positions, which it counts for itself: it must always be given every query and every head.
    """

    function: Callable[..., Tensor]

    def __call__(
        self, query: Float[Tensor, "*#lead query query_dim"], key: Float[Tensor, "*#lead key key_dim"]
    ) -> Float[Tensor, "*lead query key"]:
        scores = self.scores(query, key)
        lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])  # type: ignore[no-untyped-call]
        wanted = (*lead, query.shape[-2], key.shape[-2])
        if not isinstance(scores, Tensor) or scores.shape[-2:] != wanted[-2:] or not broadcasts(scores.shape, wanted):
            seen = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ArgumentError(f"{self} gave {seen}, but [*lead, query, key] is {list(wanted)}")
        return scores.expand(wanted)

    def scores(self, query: Tensor, key: Tensor) -> Any:
        """What the function gives."""
        return self.function(query, key)

    def check(self, query: Tensor, key: Tensor) -> None:
        """The function knows what it takes."""

    def __str__(self) -> str:
        return f"score {getattr(self.function, '__name__', 'of the caller')}"


@dataclass(frozen=True, eq=False)
class Positional(Custom):
    """A function that also gets the positions of its queries, so that it can run on a block of rows at a time."""

    rows: Int[Tensor, " rows"] | None = None
    """None for all of them, in order."""

    def scores(self, query: Tensor, key: Tensor) -> Any:
        """What the function gives."""
        rows = torch.arange(query.shape[-2], device=query.device) if self.rows is None else self.rows
        return self.function(query, key, rows)

    def for_rows(self, rows: Int[Tensor, " rows"]) -> Score:
        """The same function, told these positions."""
        return replace(self, rows=rows)


def positional(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Score:
    """A score of your own that can run in blocks: function(query, key, rows), `rows` the positions of the queries.

    All keys are there at every call, and every head.
    """
    if not callable(function):
        raise ArgumentError(f"positional wants a function of query, key and rows, but it is {function!r}")
    check_takes("positional", function, "query", "key", "rows")
    return Positional(function)
