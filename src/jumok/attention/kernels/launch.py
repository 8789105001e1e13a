"""Launching a Triton kernel again and again, quickly.

Triton works out at every launch which compiled form fits its arguments; with forty of them that takes the host as long
as the GPU takes for a small problem. Here the same question is answered by one look into a table: the form depends on
the constants, on the types of the tensors, and on which addresses and sizes are multiples of 16, or 1.
"""

import os
from typing import Any

import torch
import triton
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
LARGEST = 2**31 - 1
"""Larger numbers are passed in 64 bits."""


class Kernel:
    """A Triton kernel whose constants come after all other arguments."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(
        self, grid: tuple[int, ...], *arguments: Tensor | int, warps: int = 4, stages: int = 3, **constants: Any
    ) -> None:
        """Run it on a grid of up to three axes."""
        if INTERPRETED:
            self.function[grid](*arguments, **constants)
            return
        at = next(argument for argument in arguments if isinstance(argument, Tensor)).get_device()
        if at != torch.cuda.current_device():  # Triton launches on the current GPU, wherever the tensors are
            with torch.cuda.device(at):
                self(grid, *arguments, warps=warps, stages=stages, **constants)
            return
        values: list[int] = []
        kinds: list[int] = []
        for argument in arguments:
            if isinstance(argument, Tensor):
                argument = argument.data_ptr()
                kinds.append(argument & 15 == 0)
            else:
                kinds.append((argument & 15 == 0) + 2 * (argument == 1) + 4 * (argument > LARGEST))
            values.append(argument)
        types = [argument.dtype for argument in arguments if isinstance(argument, Tensor)]
        last = [constants[name] for name in self.function.arg_names[len(arguments) :]]
        key = (at, warps, stages, *kinds, *types, *last)
        compiled = self.compiled.get(key)
        if compiled is None:
            self.compiled[key] = self.function[grid](*arguments, **constants, num_warps=warps, num_stages=stages)
        else:
            compiled[(*grid, 1, 1)[:3]](*values, *last)


def kernel(function: Any) -> Kernel:
    """A decorator: compiled by Triton, launched from here."""
    return Kernel(triton.jit(function))
