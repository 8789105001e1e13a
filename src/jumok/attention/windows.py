"""Windows: masks that show the keys around a position, and those that also weight them by a Gaussian."""

from collections.abc import Hashable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention.checks import as_integer, broadcasts, check_tensor
from jumok.attention.masks import Tile, Visible, band
from jumok.errors import ArgumentError


def window(
    before: int, after: int | None = None, *, centre: Float[Tensor, "*#lead query"] | None = None, offset: int = 0
) -> Visible:
    """Keys from `before` positions before each query to `after` positions after it (defaults to `before`): local-m.

    Query i is at key i + offset, or at `centre[i]` if centres are given (Luong et al. 2015, section 3.2).
    A query whose centre is NaN or infinite sees nothing.
    """
    after = before if after is None else after
    if not all(isinstance(distance, Real) and distance >= 0 for distance in (before, after)):
        raise ArgumentError(f"before = {before!r} and after = {after!r} must be numbers and not negative")
    if centre is not None:
        check_tensor("centre", centre)
    return Window(_python_number(before), _python_number(after), centre, as_integer("offset", offset))


@dataclass(frozen=True, eq=False)
class Window(Visible):
    """Keys from `before` positions before the centre to `after` after it; the centre defaults to the query's row."""

    before: int
    after: int
    centre: Float[Tensor, "*#lead query"] | None = None
    offset: int = 0

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        if self.centre is None:
            return band(self.offset - self.before, self.offset + self.after, tile)
        centre, positions = _centre_column(self.centre.detach(), tile), tile.positions
        return (positions >= centre - self.before) & (positions <= centre + self.after)

    def signature(self) -> Hashable:
        return None if self.centre is not None else (Window, self.before, self.after, self.offset)

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        return () if self.centre is None else (("centre", self.centre),)

    def mismatch(self, tile: Tile) -> str | None:
        return None if self.centre is None else _centre_mismatch(self.centre, tile)


def gaussian_window(centre: Float[Tensor, "*#lead query"], reach: float) -> Visible:
    """Keys within `reach` of a predicted `centre`, weighted by a Gaussian of σ = reach / 2 around it: local-p.

    The Gaussian multiplies the normalised weights (Luong et al. 2015, equation 10), so a row sums to at most 1.
    A query whose centre is NaN or infinite sees nothing.
    """
    if not (isinstance(reach, Real) and reach > 0):
        raise ArgumentError(f"reach must be a number greater than 0, but it is {reach!r}")
    check_tensor("centre", centre)
    if not centre.is_floating_point():
        raise ArgumentError(f"centre must hold floating-point positions, but it is {centre.dtype}")
    return GaussianWindow(centre, _python_number(reach))


@dataclass(frozen=True, eq=False)
class GaussianWindow(Visible):
    """Keys within `reach` of a predicted centre, with weights multiplied by a Gaussian around it.

    Luong et al. (2015), equation 10: α(s) · exp(−(s − p)² / 2σ²) with σ = reach / 2, the weights normalised before.
    The gradient reaches the centre p through the Gaussian.
    """

    centre: Float[Tensor, "*#lead query"]
    reach: float

    def tile(self, tile: Tile) -> Bool[Tensor, "*#lead #rows #keys"]:
        return (tile.positions - _centre_column(self.centre.detach(), tile)).abs() <= self.reach

    def weight_factors(self, tile: Tile) -> Float[Tensor, "*#lead #rows #keys"] | None:
        sigma, distance = self.reach / 2, tile.positions - _centre_column(self.centre, tile)
        # Outside the window the weight is 0, and a centre that is not finite must not turn it into 0 · NaN = NaN.
        distance = distance.masked_fill(~(distance.abs() <= self.reach), 0)
        return (-(distance**2) / (2 * sigma**2)).exp()

    @property
    def scales_weights(self) -> bool:
        return True

    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        return (("centre", self.centre),)

    def mismatch(self, tile: Tile) -> str | None:
        return _centre_mismatch(self.centre, tile)


def as_positions(centre: Float[Tensor, "*lead query"]) -> Float[Tensor, "*lead query"]:
    """Centres in at least 32 bits: bfloat16 is exact up to 256 only, and would round the positions of keys."""
    return centre.to(torch.promote_types(centre.dtype, torch.float32))


def _centre_column(centre: Float[Tensor, "*lead query"], tile: Tile) -> Float[Tensor, "*selected rows 1"]:
    return tile.select(as_positions(centre)[..., None])


def _centre_mismatch(centre: Tensor, tile: Tile) -> str | None:
    wanted = (*tile.lead, tile.queries)
    if broadcasts(tuple(centre.shape), wanted):
        return None
    return f"centre has shape {list(centre.shape)}, which does not broadcast to [*lead, query] = {list(wanted)}"


def _python_number(number: Any) -> Any:
    """A numpy number as int or float."""
    return int(number) if isinstance(number, Integral) else float(number)
