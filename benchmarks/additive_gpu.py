"""Time and memory of fused additive attention on a CUDA GPU.

    python -m benchmarks.additive_gpu [--only checks,pieces,times,spread,long] [--systems jumok] [--out FOLDER]

Compares jumok with the direct form in eager PyTorch and under torch.compile, forward and with backward: the time of an
ordinary call, the time of the GPU alone (the call replayed from a CUDA graph), and peak memory. Writes
additive_gpu.json after every shape, so an interrupted run keeps its results; rows that are not measured stay. Runs the
checks of additive_checks.py first and does not time what fails.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import results
from benchmarks.additive_checks import check_all
from benchmarks.additive_shapes import LONG, MAIN, SHAPES, SPREAD, SPREADS, Shape, inputs, run
from benchmarks.results import Row


def median_ms(function: Callable[[], object], rep: int = 60) -> float:
    from triton.testing import do_bench

    return do_bench(function, warmup=20, rep=rep, return_mode="median")


def pieces() -> list[Row]:
    """Where the GPU's time of one pass forward and backward at the main shape goes."""
    from torch.profiler import ProfilerActivity, profile

    tensors = [tensor.requires_grad_() for tensor in inputs(MAIN)]
    compute, upstream = run("fused"), torch.randn(MAIN.batch, MAIN.queries, MAIN.values, device="cuda")
    for _ in range(3):
        torch.autograd.grad(compute(*tensors), tensors, upstream)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            torch.autograd.grad(compute(*tensors), tensors, upstream)
        torch.cuda.synchronize()
    rows = []
    for event in sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total):
        if spent := event.self_device_time_total / 5000:
            print(f"  {spent:8.4f} ms  {event.count // 5:3} x  {event.key[:90]}", flush=True)
            name = f"additive-kernel/{described(event.key, event.count // 5)}"
            rows.append(Row(name, "jumok", spent, "ms", f"{MAIN}, values {MAIN.values}; fp32"))
    return rows


WORDS = {
    "sides_kernel": "gradients of queries, keys and v",
    "other_scores_kernel": "check for tiles outside the fast range",
    "scores_kernel": "scores forward",
    "mix_kernel": "softmax and values",
    "prepare_kernel": "exponentials, forward and again backward",
    "upstream_kernel": "gradient of the scores",
    "_tn_": "gradient of the weights, a product of matrices",
    "_nt_": "gradient of the values, a product of matrices",
    "reduce_kernel": "sum of v's gradient",
}
"""What a kernel does, by a part of its name."""


def described(kernel: str, times: int) -> str:
    """For people."""
    title = next((words for part, words in WORDS.items() if part in kernel), kernel[:40])
    return f"{title}, {times} launches" if times > 1 else title


def systems() -> dict[str, Callable[..., Tensor]]:
    torch._dynamo.config.recompile_limit = 64
    direct = run("direct")
    return {"jumok": run("fused"), "PyTorch": direct, "torch.compile": torch.compile(direct, dynamic=False)}


def too_large(system: str, shape: Shape, train: bool) -> str | None:
    """What would not fit."""
    kept = {"PyTorch": 3 if train else 2, "torch.compile": 1 if train else 0}.get(system, 0)
    gib = shape.elements * 4 * kept / 2**30  # tensors [batch, query, key, dim] in float32
    return f"not run: needs {gib:.0f} GiB" if gib > 110 else None


ROUNDS = 4
"""A call is timed so often, and the quickest taken, for every system: others may use the host's cores."""


def measure(compute: Callable[..., Tensor], tensors: list[Tensor], train: bool) -> dict[str, float | None]:
    """Milliseconds of a call and of the GPU alone, medians, and peak MiB beyond the inputs."""
    shape = (*tensors[0].shape[:2], tensors[2].shape[2])
    leaves = [tensor.requires_grad_(train) for tensor in tensors]
    upstream = torch.randn(shape, device="cuda", dtype=tensors[0].dtype)

    def once() -> object:
        if train:
            return torch.autograd.grad(compute(*leaves), leaves, upstream)
        with torch.no_grad():
            return compute(*leaves)

    once()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    once()
    torch.cuda.synchronize()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20
    called = min(median_ms(once, 40) for _ in range(ROUNDS))
    return {"time": called, "gpu": replayed(once), "memory": peak}


def replayed(once: Callable[[], object]) -> float:
    """The GPU's own time: launched from a graph, no host in between."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            once()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.empty_cache()  # a graph has memory of its own: what the calls held would stand beside it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = once()
    milliseconds = median_ms(graph.replay, 60)
    del held
    return milliseconds


UNITS = {"time": "ms", "gpu": "ms", "memory": "MiB"}


class Problem(NamedTuple):
    """What is timed, and the table it belongs to."""

    group: str
    shape: Shape
    dtype: torch.dtype = torch.float32
    spread: float = SPREAD

    @property
    def label(self) -> str:
        if self.group == "spread":
            return f"σ = {self.spread:g}"
        return f"{self.shape}" + ("" if self.dtype == torch.float32 else " bf16")

    def id(self, name: str, what: str) -> str:
        """The call at the main shape is a goal of its own."""
        if self == Problem("shapes", MAIN) and what == "time":
            return f"additive-{name}"
        return f"{self.group}-{name}-{what}/{self.label}"


def run_times(problem: Problem, systems: dict[str, Callable[..., Tensor]]) -> list[Row]:
    """All systems at one shape."""
    _, shape, dtype, spread = problem
    rows, kind, label = [], "fp32" if dtype == torch.float32 else "bf16", problem.label
    for train in (False, True):
        name = "train" if train else "forward"
        for system, compute in systems.items():
            reason, values = too_large(system, shape, train), dict.fromkeys(UNITS)
            try:
                values = values if reason else measure(compute, inputs(shape, dtype, spread), train)
            except Exception as error:
                reason = f"failed: {type(error).__name__}"
                print(f"    {system}: {str(error)[:200]}", flush=True)
            torch.cuda.empty_cache()
            conditions = (
                f"{reason + '; ' if reason else ''}values {shape.values}; {kind}; queries and keys σ = {spread:g}"
            )
            rows += [
                Row(problem.id(name, what), system, values[what], unit, conditions) for what, unit in UNITS.items()
            ]
            summary = reason or " ".join(f"{what} {value:.4g} {UNITS[what]}" for what, value in values.items())
            print(f"  {label:26} {name:8} {system:14} {summary}", flush=True)
    return rows


def problems(parts: list[str]) -> list[Problem]:
    """What is asked for, the most important first."""
    times = [*(Problem("shapes", shape) for shape in SHAPES), Problem("shapes", MAIN, torch.bfloat16)]
    spread = [Problem("spread", MAIN, spread=spread) for spread in SPREADS]
    long = [Problem("long", shape) for shape in LONG]
    by_part = {"times": times, "spread": spread, "long": long}
    return [problem for part, of_part in by_part.items() if part in parts for problem in of_part]


def other_rows(rows: list[Row]) -> list[Row]:
    """The rows of the file that are not measured now."""
    path, now = results.FOLDER / "additive_gpu.json", {(row.id, row.system) for row in rows}
    saved = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [Row(**row) for row in saved if (row["id"], row["system"]) not in now]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="checks,pieces,times,spread,long")
    parser.add_argument("--systems", help="only these, separated by commas; all by default")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    parts = options.only.split(",")
    torch.manual_seed(0)
    results.FOLDER = options.out
    device, started, rows = torch.cuda.get_device_name(), time.time(), []
    print(device, torch.__version__, flush=True)
    if "checks" in parts and (bad := check_all()):
        sys.exit(bad)
    if "pieces" in parts:
        rows += pieces()
    compared = {name: run for name, run in systems().items() if name in (options.systems or name).split(",")}
    for problem in problems(parts):
        rows += run_times(problem, compared)
        results.write("additive_gpu", [*rows, *other_rows(rows)], device=device, packages=("torch", "triton"))
    print(f"done after {time.time() - started:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
