"""Copies of answers: a deep copy has the numbers and leaves autograd's graph behind, as pickle does."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import is_dataclass
from typing import Any, TypeVar

from torch import Tensor

Copied = TypeVar("Copied")


def copied(fields: Copied, memo: dict[int, Any]) -> Copied:
    """A deep copy of a dataclass or a tuple; PyTorch copies no tensor that autograd computed, so those go first."""
    for tensor in _tensors(fields):
        if not tensor.is_leaf:
            memo[id(tensor)] = tensor.detach().clone()
    return deepcopy(fields, memo)


def _tensors(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, tuple):
        for part in thing:
            yield from _tensors(part)
    elif is_dataclass(thing):
        yield from _tensors(tuple(vars(thing).values()))
