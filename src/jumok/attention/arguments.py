"""Sizes, probabilities and dense tensors as arguments: the one place that says what is wrong with them."""

import inspect
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from jumok.errors import ArgumentError


def check_sizes(*, least: int = 1, **sizes: Any) -> tuple[int, ...]:
    """Each must be a whole number, `least` or more; they come back as int, which PyTorch and its compiler want."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, Integral):
            raise ArgumentError(f"{name} = {size!r}; wanted a whole number, at least {least}")
        if size < least:
            raise ArgumentError(f"{name} = {size}; wanted at least {least}")
    return tuple(int(size) for size in sizes.values())


def check_optional_sizes(*, least: int = 1, **sizes: Any) -> tuple[int | None, ...]:
    """The same for sizes that are None where they are left out."""
    return tuple(None if size is None else check_sizes(least=least, **{name: size})[0] for name, size in sizes.items())


def whole_number(name: str, given: Any) -> int:
    """A position or an offset as int; a size that a compiler leaves open stays itself."""
    if isinstance(given, torch.SymInt):
        return given  # type: ignore[return-value]
    if not isinstance(given, Integral):
        raise ArgumentError(f"{name} must be a whole number, but it is {given!r}")
    return int(given)


def check_probabilities(**probabilities: Any) -> None:
    """Each must be a share that can be dropped: at least 0 and below 1."""
    for name, probability in probabilities.items():
        number = isinstance(probability, Real) and not isinstance(probability, bool)
        if not number or not 0 <= float(probability) < 1:
            raise ArgumentError(f"{name} = {probability!r}; wanted at least 0 and below 1")


def check_dense(name: str, tensor: Tensor) -> None:
    """Attention looks at every pair, so every number must be in its place."""
    if tensor.is_nested:
        raise ArgumentError(
            f"{name} must be one dense tensor, but it is nested; use torch.nested.to_padded_tensor({name}, 0.0) "
            "and visible=from_lengths(...)"
        )
    if tensor.layout != torch.strided:
        kind = str(tensor.layout).removeprefix("torch.")
        raise ArgumentError(f"{name} must be a dense tensor, but it is {kind}; use {name}.to_dense()")


def check_signature(name: str, function: Callable[..., Any], *given: str) -> None:
    """A function of the caller's must take so many arguments; what cannot be told is left to the call."""
    if torch.compiler.is_compiling():
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function written in C
        return
    try:
        signature.bind(*given)
    except TypeError:
        called = getattr(function, "__name__", type(function).__name__)
        raise ArgumentError(
            f"{name} {called}{signature} must be a function of {' and '.join(given)}, to be called with these alone"
        ) from None
