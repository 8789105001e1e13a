"""Fast launches of Triton kernels.

At every launch Triton works out which compiled version fits its arguments; with forty arguments that takes the host as
long as the GPU takes for a small problem. Here one dictionary lookup answers it: arguments of the same sizes and
dtypes, at addresses that are multiples of 16, run the same compiled kernel.
"""

import os
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
VARYING = ("batches", "number", "batch_start", "FIRST_BATCH", "BEYOND_BATCH")
"""Arguments that change from batch to batch and affect no address: a multiple of 16 is not compiled separately. A
multiple of queries or keys is, because whole vectors can then be read under a mask; so is 1, which simplifies much.
"""
MOST_LAUNCHES = 10_000
"""Maximum number of remembered combinations of sizes."""

Launch = Callable[[int, tuple[int, ...], list[int]], None]


class Kernel:
    """A Triton kernel whose first argument is a tensor, and whose constants come after all others."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.launches: dict[tuple[Any, ...], Launch] = {}

    def __call__(
        self, grid: tuple[int, ...], *arguments: Tensor | int, warps: int = 4, stages: int = 3,
        registers: int | None = None, multiply_add: int = True, **constants: Any,
    ) -> Launch | None:  # fmt: skip
        """Run the kernel on a grid of up to three axes, with at most `registers` per thread.

        Without `multiply_add` every product is rounded before it is added, as in PyTorch. Returns what launches the
        kernel again for arguments of the same sizes, dtypes and alignment; None in Triton's interpreter.
        """
        if INTERPRETED:
            self.function[grid](*arguments, **constants)
            return None
        assert isinstance(arguments[0], Tensor)
        gpu = arguments[0].get_device()
        if gpu != torch.cuda.current_device():  # Triton launches on the current GPU, not that of the tensors
            with torch.cuda.device(gpu):
                return self(
                    grid, *arguments, warps=warps, stages=stages, registers=registers, multiply_add=multiply_add,
                    **constants,
                )  # fmt: skip
        # `type(x) is int` is faster than isinstance: with forty arguments, the host limits small problems.
        kinds = [argument if type(argument) is int else argument.dtype for argument in arguments]  # type: ignore[union-attr]
        values = [argument if type(argument) is int else argument.data_ptr() for argument in arguments]  # type: ignore[union-attr]
        odd = [value & 15 for value, kind in zip(values, kinds, strict=True) if kind is not value]
        key = (gpu, warps, stages, registers, multiply_add, *kinds, *(odd if any(odd) else ()), *constants.items())
        launch = self.launches.get(key)
        if launch is not None:
            launch(gpu, (*grid, 1, 1)[:3], values)
            return launch
        compiled = self.function[grid](
            *arguments, **constants, num_warps=warps, num_stages=stages, maxnreg=registers,
            enable_fp_fusion=bool(multiply_add),
        )  # fmt: skip
        if len(self.launches) >= MOST_LAUNCHES:
            self.launches.clear()
        launch = launcher(compiled, [constants[name] for name in self.function.arg_names[len(arguments) :]])
        self.launches[key] = launch
        return launch


class Bound:
    """A kernel with all of its arguments but the tensors, for calls that repeat: a launch costs the host little."""

    def __init__(self, kernel: Kernel, grid: tuple[int, ...], numbers: list[int], options: dict[str, Any]) -> None:
        self.kernel, self.grid, self.numbers, self.options = kernel, (*grid, 1, 1)[:3], numbers, options
        self.launch: Launch | None = None

    def __call__(self, *tensors: Tensor, last: int = 1) -> None:
        """Run the kernel, the last tensor given `last` times.

        The tensors have the sizes, dtypes and device that this was made for.
        """
        addresses = [tensor.data_ptr() for tensor in tensors]
        bits = 0
        for address in addresses:
            bits |= address
        gpu = tensors[0].get_device()
        if self.launch is not None and not bits & 15 and gpu == torch.cuda.current_device():
            self.launch(gpu, self.grid, addresses + addresses[-1:] * (last - 1) + self.numbers)
            return
        launch = self.kernel(self.grid, *tensors, *tensors[-1:] * (last - 1), *self.numbers, **self.options)
        if not bits & 15:
            self.launch = launch


def launcher(compiled: Any, constants: list[Any]) -> Launch:
    """A function of GPU, grid and arguments; it uses Triton's own launch while a profiler is attached."""
    run, function, packed = compiled.run, compiled.function, compiled.packed_metadata

    def launch(gpu: int, grid: tuple[int, ...], values: list[int]) -> None:
        if has_hook(knobs.runtime.launch_enter_hook) or has_hook(knobs.runtime.launch_exit_hook):
            compiled[grid](*values, *constants)
        else:
            run(*grid, stream_of(gpu), function, packed, None, None, None, *values, *constants)

    return launch


def stream_of(gpu: int) -> int:
    """The driver's handle of the current stream."""
    stream: int = torch._C._cuda_getCurrentRawStream(gpu)
    return stream


def has_hook(hook: Any) -> bool:
    """Whether a hook is set: a chain of functions, or in older versions of Triton one function or None."""
    return bool(getattr(hook, "calls", hook))


def kernel(function: Any = None, *, any_number: tuple[str, ...] = ()) -> Any:
    """Decorator: compiled by Triton, launched from here; not compiled separately for values of `any_number`."""
    if function is None:
        return partial(kernel, any_number=any_number)
    names = signature(function).parameters
    return Kernel(
        triton.jit(
            function,
            do_not_specialize=[name for name in any_number if name in names],
            do_not_specialize_on_alignment=[name for name in VARYING if name in names],
        )
    )


def next_power_of_two(size: int) -> int:
    """The smallest power of two that is not below a size, at least 1.

    It is called at every launch, and takes a tenth of the time of triton.next_power_of_2, which gives 0 for 0.
    """
    return 1 << max(0, size - 1).bit_length()
