"""Scores: one number for every pair of query and key, the logarithm of an unnormalised attention weight."""

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

from jumok.attention.checks import broadcasts, check_tensor, describe, is_autocast
from jumok.errors import ArgumentError


class Score(ABC):
    """How well a query matches a key. A score of -inf hides the key.

    Subclasses are frozen dataclasses whose fields are the score's parameters. A parameter tensor may have leading axes
    that broadcast with those of the queries, so that every head can have its own parameters. A score may be computed
    for some of the queries at a time; a score that depends on their positions receives them through `for_rows`.
    """

    parameter_axes: ClassVar[dict[str, int]] = {}
    """For each parameter tensor, the number of its own (last) axes; the axes before them are leading axes."""
    any_dtype: ClassVar[tuple[str, ...]] = ()
    """Parameter tensors that need not have the dtype of the queries."""

    @abstractmethod
    def __call__(
        self, query: Float[Tensor, "*#lead query query_dim"], key: Float[Tensor, "*#lead key key_dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""

    @property
    def kind(self) -> "type[Score]":
        """The class of the score that `prepare` gives, which decides what backends can compute it."""
        return type(self)

    def prepare(self, query: Tensor, key: Tensor) -> "PreparedScore":
        """Reduce the score to a simpler one of projected queries and keys, if there is one that kernels know."""
        return PreparedScore(self, query, key)

    def mismatch(self, query: Tensor, key: Tensor) -> str | None:
        """Why queries and keys of these shapes cannot be scored; None if they can."""
        if query.shape[-1] == key.shape[-1]:
            return None
        return (
            f"query has width {query.shape[-1]} and key has width {key.shape[-1]}, but {self} compares them "
            "feature by feature, so the widths must be equal; project one of them, or use general(weight)"
        )

    def planes(self, query: Tensor) -> int:
        """How many [query, key] matrices exist at once while scoring; blocks of rows keep more than one small."""
        return 1

    def for_rows(self, rows: Int[Tensor, " rows"]) -> "Score":
        """The score for the queries at these positions; scores that ignore positions return themselves."""
        return self

    def for_heads(self, heads: Int[Tensor, " heads"]) -> "Score":
        """The score for these entries of the last leading axis."""
        picked = {}
        for name, own in self.parameter_axes.items():
            tensor = getattr(self, name)
            if isinstance(tensor, Tensor) and tensor.dim() > own and tensor.shape[-own - 1] != 1:
                picked[name] = tensor.index_select(-own - 1, heads)
        return replace(self, **picked)  # type: ignore[type-var]

    def __str__(self) -> str:
        # ScaledDot -> scaled_dot, as callers write it
        return f'score "{re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()}"'


class PreparedScore(NamedTuple):
    """A score with the queries and keys to call it with."""

    score: Score
    query: Tensor
    key: Tensor


class DotReducible(Score):
    """A score that is a dot product of projected queries and keys."""

    @property
    def kind(self) -> type[Score]:
        return Dot

    @abstractmethod
    def prepare(self, query: Tensor, key: Tensor) -> PreparedScore:
        """The dot product, with the projected queries and keys."""

    def __call__(
        self, query: Float[Tensor, "*#lead query query_dim"], key: Float[Tensor, "*#lead key key_dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""
        prepared = self.prepare(query, key)
        return prepared.score(prepared.query, prepared.key)


@dataclass(frozen=True, eq=False)
class Dot(Score):
    """scale · q · k."""

    scale: float = 1.0

    def __call__(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""
        return (query * self.scale) @ key.mT


@dataclass(frozen=True, eq=False)
class ScaledDot(DotReducible):
    """q · k / √dim, which keeps the variance of random scores at 1 for every width (Vaswani et al. 2017).

    `scale` replaces 1 / √dim.
    """

    scale: float | None = None

    def prepare(self, query: Tensor, key: Tensor) -> PreparedScore:
        """The dot product with its scale."""
        return PreparedScore(Dot(max(1, query.shape[-1]) ** -0.5 if self.scale is None else self.scale), query, key)


@dataclass(frozen=True, eq=False)
class Cosine(DotReducible):
    """scale · cos(q, k); the cosine with a zero vector is 0 (Graves et al. 2014)."""

    scale: float = 1.0

    def prepare(self, query: Tensor, key: Tensor) -> PreparedScore:
        """The dot product of vectors of length 1."""
        return PreparedScore(Dot(self.scale), _unit_vectors(query), _unit_vectors(key))


@dataclass(frozen=True, eq=False)
class General(DotReducible):
    """q · W k (Luong et al. 2015)."""

    weight: Float[Tensor, "*#lead query_dim key_dim"]
    parameter_axes: ClassVar[dict[str, int]] = {"weight": 2}

    def prepare(self, query: Tensor, key: Tensor) -> PreparedScore:
        """The dot product of q W with k."""
        return PreparedScore(Dot(), query @ self.weight, key)

    def mismatch(self, query: Tensor, key: Tensor) -> str | None:
        """The matrix must be [query_dim, key_dim]."""
        wanted = [query.shape[-1], key.shape[-1]]
        if list(self.weight.shape[-2:]) == wanted:
            return None
        return (
            f"general: weight has shape {list(self.weight.shape)}, but query and key have widths {wanted}, "
            f"so it must be [..., {wanted[0]}, {wanted[1]}]"
        )


@dataclass(frozen=True, eq=False)
class Location(DotReducible):
    """W q with one row of W per key position: the score depends on the query alone (Luong et al. 2015, equation 8)."""

    weight: Float[Tensor, "*#lead position query_dim"]
    parameter_axes: ClassVar[dict[str, int]] = {"weight": 2}

    def prepare(self, query: Tensor, key: Tensor) -> PreparedScore:
        """The dot product of the query with the row of each position."""
        return PreparedScore(Dot(), query, self.weight[..., : key.shape[-2], :])

    def mismatch(self, query: Tensor, key: Tensor) -> str | None:
        """There must be a row as wide as the query for every key."""
        positions, width = self.weight.shape[-2:]
        if width == query.shape[-1] and positions >= key.shape[-2]:
            return None
        return (
            f"location: weight has rows for {positions} positions, each {width} wide, but there are "
            f"{key.shape[-2]} keys and query has width {query.shape[-1]}"
        )


def _unit_vectors(vectors: Float[Tensor, "*lead time dim"]) -> Float[Tensor, "*lead time dim"]:
    """Vectors divided by their lengths. Zero vectors stay zero: F.normalize would give them gradients of 10¹²."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / lengths.masked_fill(lengths == 0, 1)


def dot() -> Score:
    """q · k."""
    return Dot()


def cosine(scale: float = 1.0) -> Score:
    """scale · cos(q, k); the scale is an inverse temperature."""
    return Cosine(finite_scale(scale))


def general(weight: Float[Tensor, "*#lead query_dim key_dim"]) -> Score:
    """q · W k, with a matrix [query_dim, key_dim]."""
    return General(weight)


def location(weight: Float[Tensor, "*#lead position query_dim"]) -> Score:
    """W q, with one row of W for every position a key can have."""
    return Location(weight)


def finite_scale(scale: float) -> float:
    """Check that a scale is a finite number."""
    if isinstance(scale, bool) or not isinstance(scale, Real) or not math.isfinite(scale):
        raise ArgumentError(f"scale must be a finite number, but it is {scale!r}; a learned scale multiplies the query")
    return float(scale)


@dataclass(frozen=True, eq=False)
class Custom(Score):
    """Any function from [query, dim] and [key, dim] to [query, key].

    The function may depend on positions, so it is always called with all queries and all heads.
    """

    function: Callable[..., Tensor]

    def __call__(
        self, query: Float[Tensor, "*#lead query query_dim"], key: Float[Tensor, "*#lead key key_dim"]
    ) -> Float[Tensor, "*lead query key"]:
        scores = self.scores(query, key)
        lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])  # type: ignore[no-untyped-call]
        wanted = (*lead, query.shape[-2], key.shape[-2])
        if not isinstance(scores, Tensor) or scores.shape[-2:] != wanted[-2:] or not broadcasts(scores.shape, wanted):
            raise ArgumentError(f"{self} returned {describe(scores)}, but [*lead, query, key] is {list(wanted)}")
        return scores.expand(wanted)

    def scores(self, query: Tensor, key: Tensor) -> Any:
        """The function's result."""
        return self.function(query, key)

    def mismatch(self, query: Tensor, key: Tensor) -> str | None:
        """The function may take queries and keys of any widths."""
        return None

    def __str__(self) -> str:
        return f"score {getattr(self.function, '__name__', 'of the caller')}"


@dataclass(frozen=True, eq=False)
class Positional(Custom):
    """A function that also receives the positions of its queries, so that it can run on a block of rows at a time."""

    rows: Int[Tensor, " rows"] | None = None
    """None for all queries, in order."""

    def scores(self, query: Tensor, key: Tensor) -> Any:
        """The function's result."""
        rows = torch.arange(query.shape[-2], device=query.device) if self.rows is None else self.rows
        return self.function(query, key, rows)

    def for_rows(self, rows: Int[Tensor, " rows"]) -> Score:
        """The same function for queries at these positions."""
        return replace(self, rows=rows)


def positional(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Score:
    """A score of your own that can run in blocks: function(query, key, rows), with `rows` the queries' positions.

    Every call receives all keys and all heads.
    """
    if not callable(function):
        raise ArgumentError(f"positional takes a function of query, key and rows, but it got {function!r}")
    return Positional(function)


def check_score(score: Score, query: Tensor, key: Tensor) -> None:
    """Check that a score's parameters have the dtype and device of the queries, and that its shapes fit."""
    for name, own in score.parameter_axes.items():
        tensor = getattr(score, name)
        optional = getattr(type(score), name, ...) is None
        if (tensor is None and optional) or (not isinstance(tensor, Tensor) and not own and not optional):
            continue
        check_tensor(f"{name} of {score}", tensor)
        if not tensor.is_floating_point() or tensor.dim() < own:
            raise ArgumentError(
                f"{name} of {score} must be floating point with at least {own} axes, but it is {describe(tensor)}"
            )
        # As in PyTorch, a scalar may have any dtype and device; autocast converts dtypes.
        free = name in score.any_dtype or is_autocast(query.device)
        wrong_type = tensor.dtype != query.dtype and not free
        if tensor.dim() and (tensor.device != query.device or wrong_type):
            raise ArgumentError(
                f"{name} of {score} is {tensor.dtype} on {tensor.device}, "
                f"but query is {query.dtype} on {query.device}; use .to(query)"
            )
    if (problem := score.mismatch(query, key)) is not None:
        raise ArgumentError(problem)
