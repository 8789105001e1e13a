"""Where the GPU's time goes in a training step of the Transformer of `benchmarks.train_gpu`.

    python -m benchmarks.train_profile [--kernels]

Profiles a few steps, sums the time of kernels by what they compute, and writes train_profile.json: milliseconds a step.
With --kernels it also prints the kernels that take the longest, with their launches a step. A profiler makes small
kernels slower, so the sum is not the time of `benchmarks.train_gpu`.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.results import Row, write
from benchmarks.train_gpu import CONDITIONS, jumok

STEPS = 3
LONGEST = 40
"""Kernels that --kernels prints."""
KINDS = {
    "matrix products": r"nvjet|gemm|splitKreduce",
    "attention": r"^(short_)?(forward|gradient)_kernel|^(query|key)_gradient_kernel",
    "residual connections and norms": r"^add_norm",
    "sums of gradients over rows": r"^column_sums|reduce_kernel",
    "loss": r"^loss_",
    "gradient of the activation function": r"^activation_backward",
    "optimiser and clipping": r"multi_tensor_apply",
    "embeddings": r"grad_weight|sum_and_scatter|radix_sort|gather_kernel|embedding|indexSelect",
}
"""What kernels compute, by their names."""
OTHERS = "copies, casts, concatenation and the rest"


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the GPU's time goes in a training step.")
    parser.add_argument("--kernels", action="store_true", help=f"print the {LONGEST} longest kernels")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with ExitStack() as stack:
        step = jumok(stack, fast=True)
        for _ in range(6):  # compiles, and records
            step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for _ in range(STEPS):
                step()
            torch.cuda.synchronize()
    events = profiled.key_averages()
    kernels = [(event.key, event.self_device_time_total) for event in events]
    if arguments.kernels:
        print(longest([(*kernel, event.count) for kernel, event in zip(kernels, events, strict=True)]))
    write("train_profile", rows(kernels), device=torch.cuda.get_device_name(), packages=("torch", "triton"))


def rows(kernels: Iterable[tuple[str, float]]) -> list[Row]:
    """Milliseconds a step of each kind, from the microseconds of every kernel in all steps."""
    spent: dict[str, float] = defaultdict(float)
    for name, microseconds in kernels:
        spent[kernel_kind(name)] += microseconds / 1000 / STEPS
    details = f"torch.profiler, {STEPS} steps; {CONDITIONS.partition('; ')[0]}"
    sums = {kind: spent[kind] for kind in (*KINDS, OTHERS)}
    by_kind = [Row(f"training-profile/{kind}", "jumok", round(value, 2), "ms", details) for kind, value in sums.items()]
    return [*by_kind, Row("training-profile/all kernels", "jumok", round(sum(sums.values()), 2), "ms", details)]


def kernel_kind(name: str) -> str:
    """What a kernel computes, by its name."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), OTHERS)


def longest(kernels: Iterable[tuple[str, float, int]]) -> str:
    """A table of the kernels that take the most time: milliseconds and launches a step, microseconds a launch."""
    ranked = sorted(kernels, key=lambda kernel: -kernel[1])[:LONGEST]
    lines = [
        f"{time / 1000 / STEPS:8.3f} {count / STEPS:8.1f} {time / count:8.1f}  {kernel_kind(name)}: {name[:150]}"
        for name, time, count in ranked
    ]
    return "\n".join([f"{'ms':>8} {'launches':>8} {'µs':>8}  kernel", *lines])


if __name__ == "__main__":
    main()
