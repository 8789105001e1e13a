"""Where a query may look. True means visible, everywhere in jumok.

A mask is a description, not a matrix: it gives the tile [rows, keys] that somebody is computing, so that a causal or
windowed attention over a long sequence never builds the whole plane. Masks combine with `&`, `|` and `~`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NoReturn

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.arguments import check_dense, check_sizes
from jumok.errors import ArgumentError


@dataclass(frozen=True)
class Tile:
    """The part of the [query, key] plane being computed: some rows, all keys, and some or all heads of `lead`."""

    lead: tuple[int, ...]
    """The leading (batch, head, ...) axes of the whole problem."""
    queries: int
    """How many queries the whole problem has."""
    keys: int
    """How many keys there are."""
    device: torch.device
    some: Int[Tensor, " rows"] | None = None
    """Which queries; None for all of them, in order: nothing then needs to be picked out."""
    heads: Int[Tensor, " heads"] | None = None
    """Which entries of the last leading axis; None for all of them."""

    @property
    def rows(self) -> Int[Tensor, " rows"]:
        """Positions of the queries."""
        return torch.arange(self.queries, device=self.device) if self.some is None else self.some

    @property
    def height(self) -> int:
        """How many queries it holds."""
        return self.queries if self.some is None else len(self.some)

    @property
    def positions(self) -> Int[Tensor, " keys"]:
        """Positions of the keys."""
        return torch.arange(self.keys, device=self.device)

    def cut(self, plane: Tensor) -> Tensor:
        """The tile's part of a tensor that broadcasts to [*lead, queries, keys]."""
        if self.some is not None and plane.dim() >= 2 and plane.shape[-2] != 1:
            plane = plane.index_select(-2, self.some)
        if self.heads is not None and plane.dim() >= 3 and plane.shape[-3] != 1:
            plane = plane.index_select(-3, self.heads)
        return plane


class Visible(ABC):
    """A mask: which keys each query may look at. Subclasses say so for one tile at a time."""

    @abstractmethod
    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        """True where a query of the tile may look."""

    def weight_factors(self, tile: Tile) -> Float[Tensor, "*#lead #rows #keys"] | None:
        """What the weights are multiplied by after normalising, for a scales_weights window; None for a plain mask."""
        return None

    def check(self, *, lead: tuple[int, ...], queries: int, keys: int, device: torch.device) -> None:  # noqa: B027
        """Raise ArgumentError if this mask does not fit a problem of that size; a mask without tensors always does."""

    @property
    def scales_weights(self) -> bool:
        """Whether `weight_factors` is more than None."""
        return False

    def __and__(self, other: "Visible | Tensor") -> "Visible":
        return Both(self, as_visible(other))

    def __or__(self, other: "Visible | Tensor") -> "Visible":
        return Either(_plain(self), _plain(as_visible(other)))

    def __invert__(self) -> "Visible":
        return Hidden(_plain(self))

    def __bool__(self) -> NoReturn:
        # `causal() and other` would be `other` alone: Python asks the first whether it is true, and then forgets it.
        raise ArgumentError("a mask is neither true nor false: join masks with & | ~, not with and, or, not")

    def __rand__(self, other: Tensor) -> "Visible":
        return as_visible(other) & self

    def __ror__(self, other: Tensor) -> "Visible":
        return as_visible(other) | self


def as_visible(mask: "Visible | Tensor") -> Visible:
    """A boolean tensor as a `Visible`; one that already is one stays."""
    if isinstance(mask, Visible):
        return mask
    if not isinstance(mask, Tensor):
        raise ArgumentError(f"visible must be a boolean tensor or a mask of jumok.attention, not {type(mask).__name__}")
    check_dense("visible", mask)
    if mask.dtype != torch.bool:
        raise ArgumentError(
            f"visible must be boolean, True where a query may look, but it is {mask.dtype}; use mask.bool() for a 0/1 "
            "mask, from_lengths(...) for lengths, from_torch_mask(...) for PyTorch's additive masks"
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
    """The mask as one boolean matrix, to look at or to hand to other libraries."""
    check_sizes(queries=queries, keys=keys, **{f"lead[{axis}]": size for axis, size in enumerate(lead)}, least=0)
    visible, device = as_visible(visible), torch.device(device)
    visible.check(lead=lead, queries=queries, keys=keys, device=device)
    return visible.tile(Tile(lead, queries, keys, device)).expand(*lead, queries, keys)


@dataclass(frozen=True, eq=False)
class Mask(Visible):
    """A mask that somebody built: any boolean tensor that broadcasts to [*lead, query, key]."""

    tensor: Bool[Tensor, "..."]

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return tile.cut(torch.atleast_2d(self.tensor))  # type: ignore[no-untyped-call]

    def check(self, *, lead: tuple[int, ...], queries: int, keys: int, device: torch.device) -> None:
        wanted = (*lead, queries, keys)
        if not broadcasts(tuple(self.tensor.shape), wanted):
            raise ArgumentError(
                f"visible has shape {list(self.tensor.shape)}, which does not broadcast to [*lead, query, key] = "
                f"{list(wanted)}; a mask per key of a batch is mask[:, None, None, :] with heads, mask[:, None, :] else"
            )
        if self.tensor.device != device:
            raise ArgumentError(
                f"visible is on {self.tensor.device} but query is on {device}; move it with .to({str(device)!r})"
            )


@dataclass(frozen=True, eq=False)
class Lengths(Visible):
    """Keys before each sequence's length. `lengths` lines up with the leading axes from the left (the batch)."""

    lengths: Int[Tensor, "*batch"]

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        missing = len(tile.lead) - self.lengths.dim()
        lengths = self.lengths.reshape(*self.lengths.shape, *[1] * (missing + 2))
        return tile.cut(tile.positions < lengths)

    def check(self, *, lead: tuple[int, ...], queries: int, keys: int, device: torch.device) -> None:
        shape = tuple(self.lengths.shape)
        if len(shape) > len(lead) or not broadcasts(shape, lead[: len(shape)]):
            raise ArgumentError(
                f"lengths has shape {list(shape)}, but the leading axes of query and key are {list(lead)}"
            )
        if self.lengths.device != device:
            raise ArgumentError(f"lengths is on {self.lengths.device} but query is on {device}")
        if tracing.is_readable(self.lengths) and self.lengths.numel() and int(self.lengths.max()) > keys:
            raise ArgumentError(f"lengths holds {int(self.lengths.max())}, but there are only {keys} keys")


@dataclass(frozen=True, eq=False)
class Keys(Visible):
    """The same keys for every query. The mask lines up with the leading axes from the left (the batch)."""

    mask: Bool[Tensor, "*batch key"]

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        *batch, keys = self.mask.shape
        return tile.cut(self.mask.reshape(*batch, *[1] * (len(tile.lead) - len(batch) + 1), keys))

    def check(self, *, lead: tuple[int, ...], queries: int, keys: int, device: torch.device) -> None:
        *batch, seen = self.mask.shape
        if seen != keys or len(batch) > len(lead) or not broadcasts(tuple(batch), lead[: len(batch)]):
            raise ArgumentError(
                f"the mask of keys has shape {list(self.mask.shape)}, but the leading axes of query and key are "
                f"{list(lead)} and there are {keys} keys"
            )
        if self.mask.device != device:
            raise ArgumentError(f"the mask of keys is on {self.mask.device} but query is on {device}")


@dataclass(frozen=True)
class Causal(Visible):
    """Keys up to the query's own position, which is its row plus `offset` (the keys that came before this call)."""

    offset: int = 0

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return tile.positions <= tile.rows[:, None] + self.offset


@dataclass(frozen=True, eq=False)
class Window(Visible):
    """Keys from `before` places before the centre to `after` places after it; the centre is the row unless given."""

    before: int
    after: int
    centre: Float[Tensor, "*#lead query"] | None = None
    offset: int = 0

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        centre = tile.rows[:, None] + self.offset if self.centre is None else _places(self.centre.detach(), tile)
        return (tile.positions >= centre - self.before) & (tile.positions <= centre + self.after)

    def check(self, *, lead: tuple[int, ...], queries: int, keys: int, device: torch.device) -> None:
        if self.centre is not None:
            _check_centre(self.centre, (*lead, queries), device)


@dataclass(frozen=True, eq=False)
class GaussianWindow(Visible):
    """Keys within `reach` of a predicted centre, their weights multiplied by a Gaussian around it.

    Luong et al. (2015), equation 10: α(s) · exp(−(s − p)² / 2σ²) with σ = reach / 2, the weights normalised before.
    The gradient reaches the centre p through the Gaussian.
    """

    centre: Float[Tensor, "*#lead query"]
    reach: float

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return (tile.positions - _places(self.centre.detach(), tile)).abs() <= self.reach

    def weight_factors(self, tile: Tile) -> Float[Tensor, "*#lead #rows #keys"] | None:
        sigma, away = self.reach / 2, tile.positions - _places(self.centre, tile)
        # Out of reach the weight is 0, and a centre that is not finite must not make NaN of it: 0 · NaN.
        away = away.masked_fill(~(away.abs() <= self.reach), 0)
        return (-(away**2) / (2 * sigma**2)).exp()

    @property
    def scales_weights(self) -> bool:
        return True

    def check(self, *, lead: tuple[int, ...], queries: int, keys: int, device: torch.device) -> None:
        _check_centre(self.centre, (*lead, queries), device)


@dataclass(frozen=True, eq=False)
class Both(Visible):
    """Visible to both masks."""

    one: Visible
    other: Visible

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return self.one.tile(tile) & self.other.tile(tile)

    def weight_factors(self, tile: Tile) -> Float[Tensor, "*#lead #rows #keys"] | None:
        one, other = self.one.weight_factors(tile), self.other.weight_factors(tile)
        if one is None or other is None:
            return other if one is None else one
        return one * other

    @property
    def scales_weights(self) -> bool:
        return self.one.scales_weights or self.other.scales_weights

    def check(self, *, lead: tuple[int, ...], queries: int, keys: int, device: torch.device) -> None:
        for part in (self.one, self.other):
            part.check(lead=lead, queries=queries, keys=keys, device=device)


@dataclass(frozen=True, eq=False)
class Either(Both):
    """Visible to at least one of two masks."""

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return self.one.tile(tile) | self.other.tile(tile)


@dataclass(frozen=True, eq=False)
class Hidden(Visible):
    """Visible where the other mask hides."""

    mask: Visible

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return ~self.mask.tile(tile)

    def check(self, *, lead: tuple[int, ...], queries: int, keys: int, device: torch.device) -> None:
        self.mask.check(lead=lead, queries=queries, keys=keys, device=device)


def _places(centre: Float[Tensor, "*lead query"], tile: Tile) -> Float[Tensor, "*picked rows 1"]:
    return tile.cut(places(centre)[..., None])


def places(centre: Float[Tensor, "*lead query"]) -> Float[Tensor, "*lead query"]:
    """In 32 bits at least: bfloat16 counts to 256 only, and the positions of keys would be rounded to its numbers."""
    return centre.to(torch.promote_types(centre.dtype, torch.float32))


def _plain(mask: Visible) -> Visible:
    if mask.scales_weights:
        raise ArgumentError(
            "a Gaussian window grades what is visible, so it combines with other masks by & only, not by | or ~"
        )
    return mask


def _check_centre(centre: Tensor, wanted: tuple[int, ...], device: torch.device) -> None:
    if not broadcasts(tuple(centre.shape), wanted):
        raise ArgumentError(
            f"centre has shape {list(centre.shape)}, which does not broadcast to [*lead, query] = {list(wanted)}"
        )
    if centre.device != device:
        raise ArgumentError(f"centre is on {centre.device} but query is on {device}; move one of them")


def broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a tensor of that shape can be expanded to the one wanted."""
    if len(shape) > len(wanted):
        return False
    return all(have in (1, want) for have, want in zip(reversed(shape), reversed(wanted), strict=False))
