"""Projected keys and values of multi-head attention, and a cache that grows as decoding goes on."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.checks import check_sizes
from jumok.errors import ArgumentError


class KeyValues(NamedTuple):
    """Projected keys and values, split into heads."""

    keys: Float[Tensor, "batch head key dim"]
    values: Float[Tensor, "batch head key value_dim"]


class KeyValueCache:
    """Keys and values of up to `capacity` decoding steps, in buffers that are allocated once.

    There are two pairs of buffers: when hypotheses are reordered, they are copied from one to the other, and back the
    next time. Views returned by `append` therefore stay valid until the second `select` after them.

    A cache belongs to one run of a decoder. It is not for training: the buffers are written in place.
    """

    def __init__(self, *, capacity: int) -> None:
        (self.capacity,) = check_sizes(capacity=capacity, least=0)
        self.length = 0
        self._rows = 0
        self._buffers: KeyValues | None = None
        self._spare: KeyValues | None = None

    def append(self, new: KeyValues) -> KeyValues:
        """Add the keys and values of the newest steps; returns views of all so far."""
        end = self.length + new.keys.shape[2]
        if end > self.capacity:
            raise ArgumentError(f"the cache has a capacity of {self.capacity} steps, but step {end} was to be added")
        if self._buffers is None:
            self._rows = len(new.keys)
            self._buffers = self._allocate(new, self._rows)
        for buffer, part in zip(self._buffers, new, strict=True):
            buffer[: self._rows, :, self.length : end] = part.detach()
        self.length = end
        return self._filled(self._buffers, self._rows)

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these rows of the batch, in this order, as beam search does with its hypotheses."""
        if self._buffers is None:
            return
        if self._spare is None or len(self._spare.keys) < len(rows):
            self._spare = self._allocate(self._buffers, len(rows))
        filled = zip(self._filled(self._buffers, self._rows), self._filled(self._spare, len(rows)), strict=True)
        for source, target in filled:
            torch.index_select(source, 0, rows, out=target)
        self._buffers, self._spare, self._rows = self._spare, self._buffers, len(rows)

    def _filled(self, buffers: KeyValues, rows: int) -> KeyValues:
        return KeyValues(*(buffer[:rows, :, : self.length] for buffer in buffers))

    def _allocate(self, like: KeyValues, rows: int) -> KeyValues:
        return KeyValues(*(part.new_empty(rows, part.shape[1], self.capacity, part.shape[3]) for part in like))
