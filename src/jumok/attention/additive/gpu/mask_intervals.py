"""Masks as the GPU kernels read them: for each query an interval of keys, and a boolean tensor for the rest."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.attention.masks import Both, Causal, Either, Lengths, Tile, Visible, combined
from jumok.attention.windows import Window, as_positions


@dataclass(frozen=True, eq=False)
class MaskIntervals:
    """Each query sees the keys from `first` to before `beyond` that `mask` shows; None means no limit.

    The kernels take one batch axis (see `flat`): `first` and `beyond` [batch, query], `mask` [batch, query, key]. Axes
    of size 1 are shared by all; if `mask` has a smaller batch, neighbouring entries (the heads of a layer) share one.
    """

    first: Int[Tensor, "*#lead #rows"] | None = None
    beyond: Int[Tensor, "*#lead #rows"] | None = None
    mask: Bool[Tensor, "... #rows #keys"] | None = None

    @staticmethod
    def of(visible: Visible | None, tile: Tile) -> "MaskIntervals":
        """Lengths, causal and windowed masks as intervals; other masks as boolean tensors."""
        if visible is None:
            return MaskIntervals()
        if isinstance(visible, Both) and not isinstance(visible, Either):
            return MaskIntervals.of(visible.left, tile) & MaskIntervals.of(visible.right, tile)
        if isinstance(visible, Lengths):
            missing = len(tile.lead) - visible.lengths.dim()
            return MaskIntervals(beyond=visible.lengths.reshape(*visible.lengths.shape, *[1] * (missing + 1)))
        if isinstance(visible, Causal):
            return MaskIntervals(beyond=tile.rows + (visible.offset + 1))
        if isinstance(visible, Window):
            return _window(visible, tile)
        return MaskIntervals(mask=visible.tile(tile))

    def __and__(self, other: "MaskIntervals") -> "MaskIntervals":
        return MaskIntervals(
            combined(self.first, other.first, torch.maximum),
            combined(self.beyond, other.beyond, torch.minimum),
            combined(self.mask, other.mask, torch.logical_and),
        )

    def flat(self, lead: tuple[int, ...]) -> "MaskIntervals":
        """The same with one leading axis."""
        first, beyond = (
            None if limit is None else limit.expand(*lead, limit.shape[-1]).reshape(-1, limit.shape[-1])
            for limit in (self.first, self.beyond)
        )
        return MaskIntervals(first, beyond, None if self.mask is None else _flat_mask(self.mask, lead))

    def limits(self, stand_in: Tensor) -> tuple[Any, ...]:
        """`first` and `beyond` as kernel arguments."""
        first = (stand_in, 0, 0) if self.first is None else (self.first, *_broadcast_strides(self.first))
        beyond = (stand_in, 0, 0) if self.beyond is None else (self.beyond, *_broadcast_strides(self.beyond))
        return (*first, *beyond)

    def arguments(self, stand_in: Tensor, batches: int) -> tuple[Any, ...]:
        """All of the mask as kernel arguments."""
        if self.mask is None:
            return (*self.limits(stand_in), stand_in, 1, 0, 0, 0)
        shared = batches // self.mask.shape[0]
        return (*self.limits(stand_in), self.mask.view(torch.uint8), shared, *_broadcast_strides(self.mask))

    @property
    def bounds(self) -> dict[str, bool]:
        """Which limits there are, as kernel constants."""
        return {"FIRST": self.first is not None, "BEYOND": self.beyond is not None}

    @property
    def switches(self) -> dict[str, bool]:
        """Which parts of the mask there are, as kernel constants."""
        return {**self.bounds, "MASK": self.mask is not None}


EVERYWHERE = MaskIntervals()


def _window(window: Window, tile: Tile) -> MaskIntervals:
    """Integer positions from centre − before to centre + after."""
    centre = tile.rows + window.offset if window.centre is None else as_positions(window.centre.detach())
    first, last = (centre - window.before).double().ceil(), (centre + window.after).double().floor()
    # A query whose centre is NaN sees nothing.
    first, last = first.nan_to_num(nan=tile.keys), last.nan_to_num(nan=-1)
    return MaskIntervals(first.clamp(0, tile.keys).long(), (last + 1).clamp(0, tile.keys).long())


def _flat_mask(mask: Bool[Tensor, "*#lead #rows #keys"], lead: tuple[int, ...]) -> Bool[Tensor, "shared #rows #keys"]:
    """The mask with one leading axis; axes at the end that heads share are left out, so that nothing is copied."""
    own = list(mask.shape[:-2])
    while own and own[-1] == 1:
        own.pop()
    if not own:
        return mask.reshape(1, *mask.shape[-2:])
    axes = lead[: len(lead) - (mask.dim() - 2 - len(own))]
    return mask.reshape(*own, *mask.shape[-2:]).expand(*axes, *mask.shape[-2:]).reshape(-1, *mask.shape[-2:])


def _broadcast_strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides, 0 along axes of size 1."""
    return tuple(0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
