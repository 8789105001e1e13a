"""Additive scores: v · tanh(q + k) with projected queries and keys (Bahdanau), and Luong's concat."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from jumok.attention.scores import PreparedScore, Score


@dataclass(frozen=True, eq=False)
class Additive(Score):
    """v · tanh(q + k), where q = W s and k = U h are already projected (Bahdanau et al. 2015)."""

    v: Float[Tensor, "*#lead dim"]
    parameter_axes: ClassVar[dict[str, int]] = {"v": 1}

    @property
    def kind(self) -> type[Score]:
        return Additive

    def __call__(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key, from tanh(q + k) of all pairs."""
        features = (query[..., :, None, :] + key[..., None, :, :]).tanh()
        if self.v.dim() == 1:
            return features @ self.v
        return (features @ self.v[..., None, :, None]).squeeze(-1)

    def mismatch(self, query: Tensor, key: Tensor) -> str | None:
        """Query, key and v must have the same width."""
        if query.shape[-1] != key.shape[-1] or self.v.shape[-1] == query.shape[-1]:
            return super().mismatch(query, key)
        return f"additive: v has {self.v.shape[-1]} entries, but query and key have width {query.shape[-1]}"

    def planes(self, query: Tensor) -> int:
        """One for every feature."""
        return self.v.shape[-1]


@dataclass(frozen=True, eq=False)
class Concat(Score):
    """v · tanh(W [q; k]) (Luong et al. 2015): the additive score of W₁ q and W₂ k, with W = [W₁ W₂]."""

    v: Float[Tensor, "*#lead dim"]
    weight: Float[Tensor, "*#lead dim query_and_key_dim"]
    parameter_axes: ClassVar[dict[str, int]] = {"v": 1, "weight": 2}

    @property
    def kind(self) -> type[Score]:
        return Additive

    def __call__(
        self, query: Float[Tensor, "*#lead query query_dim"], key: Float[Tensor, "*#lead key key_dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""
        prepared = self.prepare(query, key)
        return prepared.score(prepared.query, prepared.key)

    def prepare(self, query: Tensor, key: Tensor) -> PreparedScore:
        """W [q; k] = W₁ q + W₂ k."""
        for_query, for_key = self.weight.split([query.shape[-1], key.shape[-1]], dim=-1)  # type: ignore[no-untyped-call]
        return PreparedScore(Additive(self.v), query @ for_query.mT, key @ for_key.mT)

    def mismatch(self, query: Tensor, key: Tensor) -> str | None:
        """W must be [dim of v, query_dim + key_dim]."""
        wanted = [self.v.shape[-1], query.shape[-1] + key.shape[-1]]
        if list(self.weight.shape[-2:]) == wanted:
            return None
        return (
            f"concat: weight has shape {list(self.weight.shape)}, but v has {wanted[0]} entries and query and key "
            f"are {wanted[1]} wide together, so it must be [..., {wanted[0]}, {wanted[1]}]"
        )

    def planes(self, query: Tensor) -> int:
        """One for every feature."""
        return self.v.shape[-1]


def additive(v: Float[Tensor, "*#lead dim"]) -> Score:
    """v · tanh(q + k), with queries and keys that are already projected."""
    return Additive(v)


def concat(v: Float[Tensor, "*#lead dim"], weight: Float[Tensor, "*#lead dim both"] | None = None) -> Score:
    """v · tanh(W [q; k]); without `weight`, query and key must be W₁ q and W₂ k, as for `additive`."""
    return Additive(v) if weight is None else Concat(v, weight)
