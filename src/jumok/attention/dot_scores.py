"""Scores that are dot products: plain, scaled, cosine, through a matrix (general), and with a position (location)."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention.score import Prepared, Reducible, Score
from jumok.errors import ArgumentError


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
    own_axes: ClassVar[dict[str, int]] = {"weight": 2}

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
    own_axes: ClassVar[dict[str, int]] = {"weight": 2}

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
