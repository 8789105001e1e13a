"""Scores: from queries and keys to one number per pair, the logarithm of an unnormalised weight."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.arguments import check_signature
from jumok.attention.masks import broadcasts
from jumok.errors import ArgumentError


class Score(ABC):
    """How well a query matches a key. A score of -inf hides the key.

    Subclasses are frozen dataclasses whose fields are the score's parameters. A parameter tensor may carry leading
    axes that broadcast with those of the queries, so that heads can have parameters of their own. A score may be
    computed for some of the queries at a time: one that looks at their positions is told them by `for_rows`.
    """

    parameter_axes: ClassVar[dict[str, int]] = {}
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
        for name, own in self.parameter_axes.items():
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


@dataclass(frozen=True, eq=False)
class Dot(Score):
    """scale · q · k. Every other score of this file comes down to it."""

    scale: float = 1.0

    def __call__(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""
        return (query * self.scale) @ key.mT


@dataclass(frozen=True, eq=False)
class ScaledDot(Reducible):
    """q · k / √dim: the scores of random vectors keep a spread of 1 at every width (Vaswani et al. 2017).

    A scale that is given takes the place of 1 / √dim.
    """

    scale: float | None = None

    def prepare(self, query: Tensor, key: Tensor) -> Prepared:
        """The dot product, scaled."""
        return Prepared(Dot(max(1, query.shape[-1]) ** -0.5 if self.scale is None else self.scale), query, key)


@dataclass(frozen=True, eq=False)
class Cosine(Reducible):
    """scale · cos(q, k); a zero vector is similar to nothing (Graves et al. 2014)."""

    scale: float = 1.0

    def prepare(self, query: Tensor, key: Tensor) -> Prepared:
        """The dot product of vectors of length 1."""
        return Prepared(Dot(self.scale), _directions(query), _directions(key))


@dataclass(frozen=True, eq=False)
class General(Reducible):
    """q · W k (Luong et al. 2015)."""

    weight: Float[Tensor, "*#lead query_dim key_dim"]
    parameter_axes: ClassVar[dict[str, int]] = {"weight": 2}

    def prepare(self, query: Tensor, key: Tensor) -> Prepared:
        """The dot product of q W with k."""
        return Prepared(Dot(), query @ self.weight, key)

    def check(self, query: Tensor, key: Tensor) -> None:
        """The matrix must fit both sides."""
        wanted = [query.shape[-1], key.shape[-1]]
        if list(self.weight.shape[-2:]) != wanted:
            raise ArgumentError(
                f"general: weight has shape {list(self.weight.shape)}, but query and key have widths {wanted}, "
                f"so it must be [..., {wanted[0]}, {wanted[1]}]"
            )


@dataclass(frozen=True, eq=False)
class Location(Reducible):
    """W q, one row of W per position: where to look is read from the query alone (Luong et al. 2015, equation 8)."""

    weight: Float[Tensor, "*#lead position query_dim"]
    parameter_axes: ClassVar[dict[str, int]] = {"weight": 2}

    def prepare(self, query: Tensor, key: Tensor) -> Prepared:
        """The dot product of the query with each position's row."""
        return Prepared(Dot(), query, self.weight[..., : key.shape[-2], :])

    def check(self, query: Tensor, key: Tensor) -> None:
        """There must be a row as wide as the query for every key."""
        positions, width = self.weight.shape[-2:]
        if width != query.shape[-1]:
            raise ArgumentError(f"location: weight has {width} columns, but query has width {query.shape[-1]}")
        if positions < key.shape[-2]:
            raise ArgumentError(
                f"location: weight has rows for {positions} positions, but there are {key.shape[-2]} keys"
            )


def _directions(vectors: Float[Tensor, "*lead time dim"]) -> Float[Tensor, "*lead time dim"]:
    """Vectors of length 1, zero vectors left as they are: in their place F.normalize gives gradients of 10¹²."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / lengths.masked_fill(lengths == 0, 1)


def dot() -> Score:
    """q · k."""
    return Dot()


def scaled_dot(scale: float | None = None) -> Score:
    """scale · q · k, with scale = 1 / √dim unless given."""
    return ScaledDot(None if scale is None else _number(scale))


def cosine(scale: float = 1.0) -> Score:
    """scale · cos(q, k); the scale is an inverse temperature."""
    return Cosine(_number(scale))


def _number(scale: float) -> float:
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise ArgumentError(
            f"scale must be a number, but it is {type(scale).__name__}; a scale that is learned multiplies the query"
        )
    if not math.isfinite(scale):
        raise ArgumentError(f"scale must be a finite number, but it is {scale}")
    return float(scale)


def general(weight: Float[Tensor, "*#lead query_dim key_dim"]) -> Score:
    """q · W k, with a matrix [query_dim, key_dim]."""
    return General(weight)


def location(weight: Float[Tensor, "*#lead position query_dim"]) -> Score:
    """W q, with one row of W for every position a key can have."""
    return Location(weight)


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
    check_signature("positional", function, "query", "key", "rows")
    return Positional(function)
