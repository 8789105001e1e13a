"""Argument checks shared by `attend`, the mask makers and the constructors of the layers."""

from collections.abc import Collection
from functools import reduce
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from jumok.errors import ArgumentError


def check_sizes(*, least: int = 1, **sizes: Any) -> tuple[int, ...]:
    """Check that every size is an integer of at least `least`; return them as int, also where they came from numpy."""
    for name, size in sizes.items():
        integer = isinstance(size, Integral) and not isinstance(size, bool)
        if not integer or size < least:
            raise ArgumentError(f"{name} = {size!r} must be {'' if integer else 'an integer of '}at least {least}")
    return tuple(int(size) for size in sizes.values())


def check_optional_sizes(*, least: int = 1, **sizes: Any) -> tuple[int | None, ...]:
    """`check_sizes` for sizes that may be None."""
    return tuple(None if size is None else check_sizes(least=least, **{name: size})[0] for name, size in sizes.items())


def check_probabilities(**probabilities: Any) -> None:
    """Check that every dropout probability is at least 0 and below 1."""
    for name, probability in probabilities.items():
        if isinstance(probability, bool) or not (isinstance(probability, Real) and 0 <= float(probability) < 1):
            raise ArgumentError(f"{name} = {probability!r} must be at least 0 and below 1")


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Check that a setting is one of its choices."""
    if value not in choices:
        raise ArgumentError(f"{name} = {value!r} must be one of {', '.join(choices)}")


def as_integer(name: str, number: Any) -> int:
    """A position or an offset as int; a symbolic size of torch.compile is returned as it is."""
    if isinstance(number, torch.SymInt):
        return number  # type: ignore[return-value]
    if not isinstance(number, Integral):
        raise ArgumentError(f"{name} must be an integer, but it is {number!r}")
    return int(number)


def check_tensor(name: str, tensor: Any) -> None:
    """Check that an argument is a dense tensor: attention compares every pair of rows."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{name} must be a tensor, but it is {type(tensor).__name__}; use torch.as_tensor({name})")
    if tensor.is_nested or tensor.layout != torch.strided:
        kind, advice = str(tensor.layout).removeprefix("torch."), f"{name}.to_dense()"
        if tensor.is_nested:
            kind, advice = "nested", f"torch.nested.to_padded_tensor({name}, 0.0) and visible=from_lengths(...)"
        raise ArgumentError(f"{name} must be a dense tensor, but it is {kind}; use {advice}")


def check_tensors(**tensors: Tensor) -> None:
    """Check that all are floating-point tensors [..., time, dim] of one dtype, on one device."""
    first, model = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        check_tensor(name, tensor)
        if not tensor.is_floating_point() or tensor.dim() < 2:
            raise ArgumentError(f"{name} must be floating point [..., time, dim], but it is {describe(tensor)}")
        if tensor.dtype != model.dtype or tensor.device != model.device:
            raise ArgumentError(
                f"{name} is {tensor.dtype} on {tensor.device}, but {first} is {model.dtype} on {model.device}; "
                f"use {name}.to({first})"
            )


def describe(x: Any) -> str:
    """Shape and dtype of a tensor, or the type of anything else, for error messages."""
    return f"{list(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__


def common_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in one dtype under autocast, where layers give different ones; elsewhere unchanged."""
    if not all(isinstance(tensor, Tensor) for tensor in tensors) or len({tensor.dtype for tensor in tensors}) == 1:
        return tensors
    if not is_autocast(tensors[0].device):
        return tensors
    widest = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    return tuple(tensor.to(widest) for tensor in tensors)


def is_autocast(device: torch.device) -> bool:
    """Whether autocast is on for this device; PyTorch raises an error when asked about the device "meta"."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape can be expanded to the wanted shape."""
    if len(shape) > len(wanted):
        return False
    # Written out, because torch.compile does not see through `in` with sizes it keeps open.
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return all(have == 1 or have == want for have, want in pairs)
