"""Packed sequences: several of them, one after another, along one time axis, without padding between them."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.masks import Tile, Visible, as_lengths
from jumok.errors import ArgumentError


def packed(
    lengths: Int[Tensor, " sequence"] | list[int], key_lengths: Int[Tensor, " sequence"] | list[int] | None = None
) -> Visible:
    """Sequences laid one after another: a query sees the keys of its own sequence, and no other.

    `lengths` are those of the query sequences; `key_lengths`, for two packed sequences, defaults to them. Positions
    after the last sequence are padding. Combine with causal() for causal attention within each sequence.
    """
    ends = _ends("lengths", lengths)
    key_ends = ends if key_lengths is None else _ends("key_lengths", key_lengths)
    if len(ends) != len(key_ends):
        raise ArgumentError(f"lengths has {len(ends)} sequences but key_lengths has {len(key_ends)}")
    return Packed(ends, key_ends)


def _ends(name: str, lengths: Tensor | list[int]) -> Int[Tensor, " sequence"]:
    tensor = as_lengths(name, lengths)
    if tensor.dim() != 1:
        raise ArgumentError(f"{name} of packed sequences must be [sequence], but it is {list(tensor.shape)}")
    return tensor.cumsum(0, dtype=torch.int32)


@dataclass(frozen=True, eq=False)
class Packed(Visible):
    """The keys of a query's own sequence; a sequence ends before its entry in `query_ends` and in `key_ends`."""

    query_ends: Int[Tensor, " sequence"]
    key_ends: Int[Tensor, " sequence"]

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        of_row = torch.searchsorted(self.query_ends, tile.rows.to(torch.int32), right=True)[:, None]
        of_key = torch.searchsorted(self.key_ends, tile.positions.to(torch.int32), right=True)
        return (of_row == of_key) & (of_key < len(self.key_ends))

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        return (("lengths", self.query_ends), ("key_lengths", self.key_ends))

    def signature(self) -> Hashable:
        return Packed, self.query_ends.shape, self.query_ends.device, self.key_ends.device

    def fits(self, tile: Tile) -> bool:
        return self.mismatch(tile) is None

    def mismatch(self, tile: Tile) -> str | None:
        for ends, size, what in ((self.query_ends, tile.queries, "queries"), (self.key_ends, tile.keys, "keys")):
            if tracing.is_readable(ends) and len(ends) and int(ends[-1]) > size:
                return f"the lengths of the packed sequences add up to {int(ends[-1])}, but there are {size} {what}"
        return None
