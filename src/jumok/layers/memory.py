"""What a decoder looks at: keys, values and what of them is visible; and keys and values that grow step by step."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import Visible
from jumok.attention.arguments import check_sizes
from jumok.errors import ArgumentError


class Memory(NamedTuple):
    """A sequence made ready to be attended to, once; every step of a decoder then looks at the same one."""

    keys: Float[Tensor, "batch key key_width"]
    values: Float[Tensor, "batch key value_width"]
    visible: Visible | Bool[Tensor, "batch #query key"] | None = None

    def keep(self, rows: Int[Tensor, " kept"]) -> "Memory":
        """Only these rows of the batch."""
        if isinstance(self.visible, Visible):
            raise ArgumentError("only a memory whose `visible` is a tensor or None can be cut to some of its rows")
        visible = None if self.visible is None else self.visible[rows]
        return Memory(self.keys[rows], self.values[rows], visible)


def check_memory(memory: Any) -> None:
    """It must be what `memory(states)` of a layer gave, not the states themselves."""
    if not isinstance(memory, Memory):
        raise ArgumentError(f"memory must be what layer.memory(states) gives, but it is {type(memory).__name__}")


class KeyValues(NamedTuple):
    """Projected keys and values, split into heads."""

    keys: Float[Tensor, "batch head key dim"]
    values: Float[Tensor, "batch head key value_dim"]


class KeyValueCache:
    """Room for the keys and values of `capacity` steps, filled as decoding goes on; nothing is copied to grow.

    There are two rooms: when hypotheses change places they are copied from one into the other, and back the next time,
    so a search allocates both at its beginning and nothing after that. Views given out show what they showed until the
    second change after.

    It belongs to one run of a decoder, which makes it, passes it along and drops it. Not for training: the buffers are
    written in place.
    """

    def __init__(self, *, capacity: int) -> None:
        (self.capacity,) = check_sizes(capacity=capacity, least=0)
        self.length = 0
        self._rows = 0
        self._room: KeyValues | None = None
        self._spare: KeyValues | None = None

    def append(self, new: KeyValues) -> KeyValues:
        """Add the keys and values of the newest steps; gives back all there are so far, as views."""
        end = self.length + new.keys.shape[2]
        if end > self.capacity:
            raise ArgumentError(f"the cache has room for {self.capacity} steps, but step {end} was to be added")
        if self._room is None:
            self._rows = len(new.keys)
            self._room = self._new_room(new, self._rows)
        for buffer, part in zip(self._room, new, strict=True):
            buffer[: self._rows, :, self.length : end] = part.detach()
        self.length = end
        return self._filled(self._room, self._rows)

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these rows of the batch, in this order: what a beam does when hypotheses are dropped or doubled."""
        if self._room is None:
            return
        if self._spare is None or len(self._spare.keys) < len(rows):
            self._spare = self._new_room(self._room, len(rows))
        filled = zip(self._filled(self._room, self._rows), self._filled(self._spare, len(rows)), strict=True)
        for source, target in filled:
            torch.index_select(source, 0, rows, out=target)
        self._room, self._spare, self._rows = self._spare, self._room, len(rows)

    def _filled(self, room: KeyValues, rows: int) -> KeyValues:
        return KeyValues(*(buffer[:rows, :, : self.length] for buffer in room))

    def _new_room(self, like: KeyValues, rows: int) -> KeyValues:
        return KeyValues(*(part.new_empty(rows, part.shape[1], self.capacity, part.shape[3]) for part in like))
