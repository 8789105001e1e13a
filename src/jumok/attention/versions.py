"""Whether the tensors of a call still hold what they held: weights on demand must be those that mixed the values."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jumok.attention.dot_scores import Location
from jumok.attention.lookup import Lookup
from jumok.attention.visible import Visible
from jumok.errors import ArgumentError


class Version(NamedTuple):
    """A tensor, and how often it had been changed in place."""

    name: str
    tensor: Tensor
    changes: int

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy counts its changes anew; one of a tensor that was changed already must go on saying so.
        return _counted_anew, (self.name, self.tensor, self.tensor._version == self.changes)


def _counted_anew(name: str, tensor: Tensor, unchanged: bool) -> Version:
    return Version(name, tensor, tensor._version if unchanged else -1)


def versions(lookup: Lookup) -> tuple[Version, ...]:
    """Those of all that weights are computed from; none where a compiler would have to trace them."""
    if torch.compiler.is_compiling():
        return ()
    return tuple(Version(name, tensor, tensor._version) for name, tensor in _read(lookup) if _tells(tensor))


def check_unchanged(known: tuple[Version, ...]) -> None:
    """Raise ArgumentError for a tensor that was changed in place since."""
    for name, tensor, changes in known:
        if tensor._version != changes:
            raise ArgumentError(
                f"{name} was changed in place after attend, so its weights cannot be computed any more; ask for them "
                "before the change (an optimiser's step is one), or give attend a clone()"
            )


def _read(lookup: Lookup) -> Iterator[tuple[str, Tensor]]:
    yield "query", lookup.query
    if isinstance(lookup.given, Location):
        yield f"weight of {lookup.given}", lookup.given.weight  # its rows are the keys
    else:
        yield "key", lookup.key
    for name in lookup.score.own_axes:
        parameter = getattr(lookup.score, name)
        if isinstance(parameter, Tensor):
            yield f"{name} of {lookup.named}", parameter
    if lookup.visible is not None:
        yield from (("visible", tensor) for tensor in _tensors(lookup.visible))


def _tensors(visible: Visible) -> Iterator[Tensor]:
    for part in vars(visible).values():
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, Visible):
            yield from _tensors(part)


def _tells(tensor: Tensor) -> bool:
    """Whether its count speaks of it: inference tensors have none, and a part of a larger tensor shares that one's."""
    if tensor.is_inference():
        return False
    return tensor._base is None or tensor._base.numel() <= tensor.numel()
