"""Masks as the kernels read them: a band around the diagonal, lengths, segments, and a boolean tensor for the rest."""

import math
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.attention.flash.launch import NOTHING, Extras
from jumok.attention.masks import Both, Causal, Either, Lengths, Tile, Visible, combined
from jumok.attention.packed import Packed
from jumok.attention.windows import Window


@dataclass(frozen=True, eq=False)
class Ranges:
    """Row i sees keys from i + `low` to before i + `high`, below the length of its sequence, that `mask` shows.

    None means no limit. Tensors have the leading axes [batch, head], of size 1 where entries share.
    """

    low: int | None = None
    high: int | None = None
    key_lengths: Int[Tensor, "#batch #head"] | None = None
    query_lengths: Int[Tensor, "#batch #head"] | None = None
    query_ends: Int[Tensor, " sequence"] | None = None
    """Packed sequences: a row sees keys of its own sequence, which ends before `query_ends` and `key_ends`."""
    key_ends: Int[Tensor, " sequence"] | None = None
    mask: Bool[Tensor, "#batch #head #query #key"] | None = None

    @staticmethod
    def of(visible: Visible | None, tile: Tile) -> "Ranges":
        """Lengths, causal masks and windows as ranges; other masks as boolean tensors."""
        if visible is None:
            return Ranges()
        if isinstance(visible, Both) and not isinstance(visible, Either):
            left, right = Ranges.of(visible.left, tile), Ranges.of(visible.right, tile)
            if left.key_ends is None or right.key_ends is None:
                return left & right
        if isinstance(visible, Causal):
            return Ranges(high=visible.offset + 1)
        if isinstance(visible, Lengths):
            lengths, query_lengths = visible.lengths, visible.query_lengths
            return Ranges(
                key_lengths=two_axes(lengths, tile.lead, from_left=True),
                query_lengths=None if query_lengths is None else two_axes(query_lengths, tile.lead, from_left=True),
            )
        if isinstance(visible, Packed):
            return Ranges(query_ends=visible.query_ends, key_ends=visible.key_ends)
        if isinstance(visible, Window) and visible.centre is None:
            low, high = visible.offset - visible.before, visible.offset + visible.after
            return Ranges(
                None if low == -math.inf else math.ceil(low), None if high == math.inf else math.floor(high) + 1
            )
        mask = torch.atleast_2d(visible.tile(tile))  # type: ignore[no-untyped-call]
        return Ranges(mask=two_axes(mask, tile.lead, own=2))

    def __and__(self, other: "Ranges") -> "Ranges":
        return Ranges(
            combined(self.low, other.low, max),
            combined(self.high, other.high, min),
            combined(self.key_lengths, other.key_lengths, torch.minimum),
            combined(self.query_lengths, other.query_lengths, torch.minimum),
            self.query_ends if other.query_ends is None else other.query_ends,
            self.key_ends if other.key_ends is None else other.key_ends,
            combined(self.mask, other.mask, torch.logical_and),
        )

    def extras(self) -> Extras:
        """The tensors as the kernels take them."""
        tensors = (self.key_lengths, self.query_lengths, self.query_ends, self.key_ends, self.mask)
        return NOTHING if all(tensor is None for tensor in tensors) else Extras(*tensors)

    def matrix(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#batch #head query key"]:
        """All of it as one boolean tensor."""
        rows, cols = torch.arange(queries, device=device)[:, None], torch.arange(keys, device=device)
        visible = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
        if self.low is not None:
            visible = visible & (cols >= rows + self.low)
        if self.high is not None:
            visible = visible & (cols < rows + self.high)
        if self.key_lengths is not None:
            visible = visible & (cols < self.key_lengths[..., None, None])
        if self.query_lengths is not None:
            visible = visible & (rows < self.query_lengths[..., None, None])
        if self.query_ends is not None and self.key_ends is not None:
            visible = visible & Packed(self.query_ends, self.key_ends).tile(Tile((), queries, keys, device))
        return visible if self.mask is None else visible & self.mask


def limits(visible: Visible | None, tile: Tile) -> tuple[int | None, int | None, Extras]:
    """The band of a mask, and its tensors; by a short way for the most frequent masks."""
    if visible is None:
        return None, None, NOTHING
    if type(visible) is Causal:
        return None, visible.offset + 1, NOTHING
    ranges = Ranges.of(visible, tile)
    return ranges.low, ranges.high, ranges.extras()


def two_axes(tensor: Tensor, lead: tuple[int, ...], *, own: int = 0, from_left: bool = False) -> Tensor:
    """A tensor with leading axes that broadcast to `lead`, then `own` axes, as [#batch, #head, *own]."""
    batch_axes, rest = tensor.shape[: tensor.dim() - own], tensor.shape[tensor.dim() - own :]
    missing = [1] * (len(lead) - len(batch_axes))
    axes = (*batch_axes, *missing) if from_left else (*missing, *batch_axes)
    if len(lead) < 2:
        return tensor.reshape(*axes, *[1] * (2 - len(lead)), *rest)
    if len(lead) == 2 or prod(axes[:-1]) == 1:
        return tensor.reshape(prod(axes[:-1]), axes[-1], *rest)
    return tensor.reshape(*axes, *rest).expand(*lead[:-1], axes[-1], *rest).reshape(-1, axes[-1], *rest)


def four_axes(tensor: Tensor, lead: tuple[int, ...]) -> Tensor:
    """[*lead, time, dim] as [batch, head, time, dim]."""
    if len(lead) == 2:
        return tensor
    if len(lead) < 2:
        return tensor.reshape(*lead, *[1] * (2 - len(lead)), *tensor.shape[-2:])
    return tensor.reshape(prod(lead[:-1]), lead[-1], *tensor.shape[-2:])
