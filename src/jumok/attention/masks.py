"""Masks: which keys each query may attend to. True means visible, everywhere in jumok.

    causal()   from_lengths(lengths)   window(before, after)   gaussian_window(centre, reach)   any boolean tensor

A mask is a description, not a matrix: it computes the tile [rows, keys] that a backend works on, so causal or windowed
attention over a long sequence never builds the whole matrix. Masks combine with `&`, `|` and `~`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.checks import as_integer, broadcasts, check_sizes, check_tensor, describe
from jumok.errors import ArgumentError

T = TypeVar("T")

FEW_LENGTHS = 64
"""Up to this many, lengths are read one by one."""

SMALL_MATRIX = 2**16
"""Up to this many query-key pairs, the matrix of a causal mask or a window is kept for further calls on a CPU."""

SMALL_ROW = 2**10
"""Up to this many keys, their positions are kept for further calls on a CPU."""


@dataclass(eq=False)  # not frozen, which makes small calls on a CPU slower; nothing assigns to its fields
class Tile:
    """The part of the [query, key] matrix being computed: some query rows, all keys, some or all heads."""

    lead: tuple[int, ...]
    """The leading (batch, head, ...) axes of the whole call."""
    queries: int
    """The number of queries of the whole call."""
    keys: int
    """The number of keys."""
    device: torch.device
    row_index: Int[Tensor, " rows"] | None = None
    """Positions of the selected queries; None selects all of them without indexing."""
    head_index: Int[Tensor, " heads"] | None = None
    """Selected entries of the last leading axis; None selects all of them."""
    read_only: bool = False
    """Whether nothing changes the tensors of the tile in place, so that other calls can use them too."""

    @property
    def rows(self) -> Int[Tensor, " rows"]:
        """Positions of the queries."""
        return torch.arange(self.queries, device=self.device) if self.row_index is None else self.row_index

    @property
    def height(self) -> int:
        """The number of query rows in the tile."""
        return self.queries if self.row_index is None else len(self.row_index)

    @property
    def positions(self) -> Int[Tensor, " keys"]:
        """Positions of the keys."""
        if self.read_only and self.keys <= SMALL_ROW and self.device.type == "cpu":
            return _small_positions(self.keys)
        return torch.arange(self.keys, device=self.device)

    def select(self, matrix: Tensor) -> Tensor:
        """The tile's part of a tensor that broadcasts to [*lead, queries, keys]."""
        if self.row_index is not None and matrix.dim() >= 2 and matrix.shape[-2] != 1:
            matrix = matrix.index_select(-2, self.row_index)
        if self.head_index is not None and matrix.dim() >= 3 and matrix.shape[-3] != 1:
            matrix = matrix.index_select(-3, self.head_index)
        return matrix


@lru_cache(maxsize=64)
def _small_positions(keys: int) -> Int[Tensor, " keys"]:
    with torch.inference_mode(False):  # a gradient may need it later
        return torch.arange(keys, device="cpu")


class Visible(ABC):
    """A mask: which keys each query may attend to. Subclasses compute it for one tile at a time."""

    @abstractmethod
    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        """True where a query of the tile may attend to a key."""

    def weight_factors(self, tile: Tile) -> Float[Tensor, "*#lead #rows #keys"] | None:
        """Factors that multiply the normalised weights, for a Gaussian window; None for an ordinary mask."""
        return None

    @property
    def scales_weights(self) -> bool:
        """Whether the mask has `weight_factors`."""
        return False

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        """The tensors of the mask, by the names callers gave them."""
        return ()

    @property
    def shows_first_key(self) -> bool:
        """Whether every query is known to see the first key, if there are keys."""
        return False

    def signature(self) -> Hashable:
        """What decides, but for the numbers that `fits` reads, whether the mask fits a call; None if it is unknown.

        It also tells masks apart that backends treat differently.
        """
        return None

    def fits(self, tile: Tile) -> bool:
        """Whether the numbers of a mask on a CPU fit a call that a mask of the same signature fits."""
        return True

    def mismatch(self, tile: Tile) -> str | None:
        """What does not fit a call of this size; None if the mask fits."""
        return None

    def check(self, tile: Tile) -> None:
        """Raise ArgumentError if the mask does not fit a call of this size, on this device."""
        problem = self.mismatch(tile)
        for name, tensor in self.tensors():
            if tensor.device != tile.device:
                advice = f"move it with .to({str(tile.device)!r})"
                problem = problem or f"{name} is on {tensor.device} but query is on {tile.device}; {advice}"
        if problem is not None:
            raise ArgumentError(problem)

    def __and__(self, other: "Visible | Tensor") -> "Visible":
        return Both(self, as_visible(other))

    def __or__(self, other: "Visible | Tensor") -> "Visible":
        return Either(_without_factors(self), _without_factors(as_visible(other)))

    def __invert__(self) -> "Visible":
        return Inverted(_without_factors(self))

    def __bool__(self) -> NoReturn:
        # Python would evaluate `causal() and other` to `other` alone.
        raise ArgumentError("a mask has no truth value; combine masks with &, | and ~, not with and, or and not")

    def __rand__(self, other: Tensor) -> "Visible":
        return as_visible(other) & self

    def __ror__(self, other: Tensor) -> "Visible":
        return as_visible(other) | self


def as_visible(mask: "Visible | Tensor") -> Visible:
    """A boolean tensor as a `Visible`; a `Visible` is returned unchanged."""
    if isinstance(mask, Visible):
        return mask
    check_tensor("visible", mask)
    if mask.dtype != torch.bool:
        raise ArgumentError(
            f"visible must be boolean, True where a query may attend, but it is {mask.dtype}; use mask.bool() for a "
            "0/1 mask, from_lengths(...) for lengths, from_torch_mask(...) for PyTorch's additive masks"
        )
    return Mask(mask)


def whole(
    visible: Visible | Bool[Tensor, "..."],
    *,
    lead: tuple[int, ...] = (),
    queries: int,
    keys: int,
    device: torch.device | str = "cpu",
) -> Bool[Tensor, "*lead query key"]:
    """The mask as one boolean matrix, to look at or to pass to other libraries."""
    check_sizes(queries=queries, keys=keys, **{f"lead[{axis}]": size for axis, size in enumerate(lead)}, least=0)
    visible, tile = as_visible(visible), Tile(lead, queries, keys, torch.device(device))
    visible.check(tile)
    return visible.tile(tile).expand(*lead, queries, keys)


def causal(offset: int = 0) -> Visible:
    """Query i sees keys 0 … i + offset; when decoding step by step, `offset` is the number of earlier keys."""
    return Causal(as_integer("offset", offset))


@dataclass(frozen=True)
class Causal(Visible):
    """Keys up to the query's own position, which is its row plus `offset`."""

    offset: int = 0

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return band(None, self.offset, tile)

    @property
    def shows_first_key(self) -> bool:
        return self.offset >= 0

    def signature(self) -> Hashable:
        return Causal, self.offset


def band(first: float | None, last: float, tile: Tile) -> Bool[Tensor, "#rows #keys"]:
    """Keys from `first` to `last` positions after each query's row; from the first key on if `first` is None."""
    small = tile.queries * tile.keys <= SMALL_MATRIX if tile.read_only else False
    if small and tile.row_index is None and tile.device.type == "cpu":
        return _small_band(first, last, tile.queries, tile.keys)
    return _band(first, last, tile)


def _band(first: float | None, last: float, tile: Tile) -> Bool[Tensor, "#rows #keys"]:
    rows, positions = tile.rows[:, None], tile.positions
    until_last = positions <= rows + last
    return until_last if first is None else (positions >= rows + first) & until_last


@lru_cache(maxsize=64)
def _small_band(first: float | None, last: float, queries: int, keys: int) -> Bool[Tensor, "rows keys"]:
    with torch.inference_mode(False):  # a gradient may need it later
        return _band(first, last, Tile((), queries, keys, torch.device("cpu")))


def from_lengths(
    lengths: Int[Tensor, "*batch"] | list[int], *, query_lengths: Int[Tensor, "*batch"] | list[int] | None = None
) -> Visible:
    """The first `lengths` keys of each sequence; shape [batch], or any leading part of [batch, head, ...].

    With `query_lengths`, queries from there on are padding as well: they see nothing and get zeros, and cost nothing.
    """
    keys = as_lengths("lengths", lengths)
    return Lengths(keys, None if query_lengths is None else as_lengths("query_lengths", query_lengths))


def as_lengths(name: str, lengths: Any) -> Int[Tensor, "*batch"]:
    """Lengths as a tensor of integers."""
    try:
        tensor = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        tensor = None
    if tensor is not None and not tensor.numel():
        tensor = tensor.long()
    if tensor is None or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        description = describe(lengths) if isinstance(lengths, Tensor) else repr(lengths)
        raise ArgumentError(f"{name} must be a tensor or a list of integers, but it is {description}")
    if tracing.is_readable(tensor) and (shortest := extremes(tensor)[0]) < 0:
        raise ArgumentError(f"{name} must not be negative, but it holds {shortest}")
    return tensor


def extremes(lengths: Int[Tensor, "*batch"]) -> tuple[int, int]:
    """The shortest and the longest length; 0 and 0 if there are none."""
    if not (count := lengths.numel()):
        return 0, 0
    if count <= FEW_LENGTHS:  # a list is faster than a reduction
        values = (lengths if lengths.dim() == 1 else lengths.flatten()).tolist()
        return min(values), max(values)
    lowest, highest = lengths.aminmax()
    return int(lowest), int(highest)


@dataclass(frozen=True, eq=False)
class Lengths(Visible):
    """Keys before each sequence's length. `lengths` lines up with the leading axes from the left (the batch)."""

    lengths: Int[Tensor, "*batch"]
    query_lengths: Int[Tensor, "*batch"] | None = None

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        visible = tile.positions < _before_matrix(self.lengths, tile)
        if self.query_lengths is not None:
            visible = visible & (tile.rows[:, None] < tile.select(_before_matrix(self.query_lengths, tile)))
        return visible if self.query_lengths is not None else tile.select(visible)

    @property
    def shows_first_key(self) -> bool:
        return self.query_lengths is None and tracing.is_readable(self.lengths) and extremes(self.lengths)[0] > 0

    def signature(self) -> Hashable:
        queries = self.query_lengths
        if queries is None:
            return Lengths, self.lengths.shape, self.lengths.device
        return Lengths, self.lengths.shape, self.lengths.device, queries.shape, queries.device

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        queries = () if self.query_lengths is None else (("query_lengths", self.query_lengths),)
        return (("lengths", self.lengths), *queries)

    def fits(self, tile: Tile) -> bool:
        if extremes(self.lengths)[1] > tile.keys:
            return False
        return self.query_lengths is None or extremes(self.query_lengths)[1] <= tile.queries

    def mismatch(self, tile: Tile) -> str | None:
        sizes = {"lengths": tile.keys, "query_lengths": tile.queries}
        for name, lengths in self.tensors():
            shape = tuple(lengths.shape)
            if len(shape) > len(tile.lead) or not broadcasts(shape, tile.lead[: len(shape)]):
                return f"{name} has shape {list(shape)}, but the leading axes of query and key are {list(tile.lead)}"
            if tracing.is_readable(lengths) and (longest := extremes(lengths)[1]) > sizes[name]:
                what = "keys" if name == "lengths" else "queries"
                return f"{name} holds {longest}, but there are only {sizes[name]} {what}"
        return None


def _before_matrix(lengths: Int[Tensor, "*batch"], tile: Tile) -> Int[Tensor, "*batch_and_ones"]:
    """Lengths with an axis of size 1 for each missing leading axis and for [row, key]."""
    return lengths.reshape(*lengths.shape, *[1] * (len(tile.lead) - lengths.dim() + 2))


@dataclass(frozen=True, eq=False)
class Mask(Visible):
    """A boolean tensor that broadcasts to [*lead, query, key]."""

    tensor: Bool[Tensor, "..."]

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        matrix = self.tensor
        while matrix.dim() < 2:
            matrix = matrix[None]
        return tile.select(matrix)

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        return (("visible", self.tensor),)

    def signature(self) -> Hashable:
        return Mask, self.tensor.shape, self.tensor.device

    def mismatch(self, tile: Tile) -> str | None:
        wanted = (*tile.lead, tile.queries, tile.keys)
        if broadcasts(tuple(self.tensor.shape), wanted):
            return None
        return (
            f"visible has shape {list(self.tensor.shape)}, which does not broadcast to [*lead, query, key] = "
            f"{list(wanted)}; for a mask [batch, key] use mask[:, None, None, :] with heads, mask[:, None, :] without"
        )


@dataclass(frozen=True, eq=False)
class KeyMask(Visible):
    """The same keys for every query. The mask lines up with the leading axes from the left (the batch)."""

    mask: Bool[Tensor, "*batch key"]

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        *batch, keys = self.mask.shape
        return tile.select(self.mask.reshape(*batch, *[1] * (len(tile.lead) - len(batch) + 1), keys))

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        return (("the key mask", self.mask),)

    def signature(self) -> Hashable:
        return KeyMask, self.mask.shape, self.mask.device

    def mismatch(self, tile: Tile) -> str | None:
        *batch, keys = self.mask.shape
        if keys == tile.keys and len(batch) <= len(tile.lead) and broadcasts(tuple(batch), tile.lead[: len(batch)]):
            return None
        return (
            f"the key mask has shape {list(self.mask.shape)}, but the leading axes of query and key are "
            f"{list(tile.lead)} and there are {tile.keys} keys"
        )


@dataclass(frozen=True, eq=False)
class Both(Visible):
    """Visible in both masks."""

    left: Visible
    right: Visible

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return self.left.tile(tile) & self.right.tile(tile)

    def weight_factors(self, tile: Tile) -> Float[Tensor, "*#lead #rows #keys"] | None:
        left, right = self.left.weight_factors(tile), self.right.weight_factors(tile)
        if left is None or right is None:
            return right if left is None else left
        return left * right

    @property
    def scales_weights(self) -> bool:
        return self.left.scales_weights or self.right.scales_weights

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        return (*self.left.tensors(), *self.right.tensors())

    @property
    def shows_first_key(self) -> bool:
        return self.left.shows_first_key and self.right.shows_first_key

    def signature(self) -> Hashable:
        left, right = self.left.signature(), self.right.signature()
        return None if left is None or right is None else (type(self), left, right)

    def fits(self, tile: Tile) -> bool:
        return self.left.fits(tile) and self.right.fits(tile)

    def mismatch(self, tile: Tile) -> str | None:
        return self.left.mismatch(tile) or self.right.mismatch(tile)


@dataclass(frozen=True, eq=False)
class Either(Both):
    """Visible in at least one of two masks."""

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return self.left.tile(tile) | self.right.tile(tile)


@dataclass(frozen=True, eq=False)
class Inverted(Visible):
    """Visible where the other mask hides."""

    mask: Visible

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return ~self.mask.tile(tile)

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        return self.mask.tensors()

    def signature(self) -> Hashable:
        mask = self.mask.signature()
        return None if mask is None else (Inverted, mask)

    def fits(self, tile: Tile) -> bool:
        return self.mask.fits(tile)

    def mismatch(self, tile: Tile) -> str | None:
        return self.mask.mismatch(tile)


def _without_factors(mask: Visible) -> Visible:
    if mask.scales_weights:
        raise ArgumentError("a Gaussian window multiplies the weights, so it combines with & only, not with | or ~")
    return mask


def combined(left: T | None, right: T | None, combine: Callable[[T, T], T]) -> T | None:
    """Two limits in one, where None is no limit."""
    if left is None or right is None:
        return right if left is None else left
    return combine(left, right)
