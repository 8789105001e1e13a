"""Launching a Triton kernel again and again, quickly.

Triton works out at every launch which compiled form fits its arguments; with forty of them that takes the host as long
as the GPU takes for a small problem. Here the same question is answered by one look into a table: arguments of the same
sizes and types, at addresses that are multiples of 16, run the same compiled kernel.
"""

import os
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
VARYING = ("batches", "number", "batch_start", "FIRST_BATCH", "BEYOND_BATCH")
"""Arguments that change from batch to batch and place nothing: multiples of 16 need no compilation of their own. One of
queries or keys does, for it lets whole vectors be read under a mask; and so does 1, with which much is left out.
"""
MOST = 10_000
"""So many combinations of sizes are remembered."""

Launch = Callable[[int, tuple[int, ...], list[int]], None]


class Kernel:
    """A Triton kernel whose first argument is a tensor, and whose constants come after all others."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.launches: dict[tuple[Any, ...], Launch] = {}

    def __call__(
        self, grid: tuple[int, ...], *arguments: Tensor | int, warps: int = 4, stages: int = 3,
        registers: int | None = None, multiply_add: int = True, **constants: Any,
    ) -> None:  # fmt: skip
        """Run it on a grid of up to three axes; a thread takes at most so many registers.

        Without `multiply_add` every product is rounded before it is added, as PyTorch's are.
        """
        if INTERPRETED:
            self.function[grid](*arguments, **constants)
            return
        assert isinstance(arguments[0], Tensor)
        at = arguments[0].get_device()
        if at != torch.cuda.current_device():  # Triton launches on the current GPU, wherever the tensors are
            with torch.cuda.device(at):
                self(
                    grid, *arguments, warps=warps, stages=stages, registers=registers, multiply_add=multiply_add,
                    **constants,
                )  # fmt: skip
            return
        # `type(x) is int`, not isinstance: there are forty of them, and the host is what small problems wait for.
        kinds = [argument if type(argument) is int else argument.dtype for argument in arguments]  # type: ignore[union-attr]
        values = [argument if type(argument) is int else argument.data_ptr() for argument in arguments]  # type: ignore[union-attr]
        odd = [value & 15 for value, kind in zip(values, kinds, strict=True) if kind is not value]
        key = (at, warps, stages, registers, multiply_add, *kinds, *(odd if any(odd) else ()), *constants.items())
        launch = self.launches.get(key)
        if launch is not None:
            launch(at, (*grid, 1, 1)[:3], values)
            return
        compiled = self.function[grid](
            *arguments, **constants, num_warps=warps, num_stages=stages, maxnreg=registers,
            enable_fp_fusion=bool(multiply_add),
        )  # fmt: skip
        if len(self.launches) >= MOST:
            self.launches.clear()
        self.launches[key] = launcher(compiled, [constants[name] for name in self.function.arg_names[len(arguments) :]])


def launcher(compiled: Any, constants: list[Any]) -> Launch:
    """A function of GPU, grid and arguments; it takes Triton's own way while a profiler listens."""
    run, function, packed = compiled.run, compiled.function, compiled.packed_metadata

    def launch(at: int, grid: tuple[int, ...], values: list[int]) -> None:
        if is_heard(knobs.runtime.launch_enter_hook) or is_heard(knobs.runtime.launch_exit_hook):
            compiled[grid](*values, *constants)
        else:
            run(*grid, stream_of(at), function, packed, None, None, None, *values, *constants)

    return launch


def stream_of(gpu: int) -> int:
    """The current stream, as the driver knows it."""
    stream: int = torch._C._cuda_getCurrentRawStream(gpu)
    return stream


def is_heard(hook: Any) -> bool:
    """Whether anybody listens: a chain of functions, or in older versions of Triton one or none."""
    return bool(getattr(hook, "calls", hook))


def kernel(function: Any) -> Kernel:
    """A decorator: compiled by Triton, launched from here."""
    names = signature(function).parameters
    return Kernel(triton.jit(function, do_not_specialize_on_alignment=[name for name in VARYING if name in names]))
