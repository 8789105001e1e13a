"""Time and peak memory of blocked additive attention on a CPU, compared with the direct form and torch.compile.

    python -m benchmarks.attention_cpu      about five minutes; writes results/attention_cpu.json

Every system and shape runs in its own process, in rounds, so that other programs on the machine slow them all equally.
A time is the median over all rounds. Memory is the peak of the process minus that of the same process with 8
positions.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.results import Row, cpu, write
from jumok.attention import additive, attend

SHAPES = [(1, 512, 256), (16, 64, 256), (64, 30, 512), (1, 2048, 256), (1, 4096, 256)]
VALUE_WIDTH = 128
ROUNDS = 3
LARGE = 2**30
"""Shapes whose tensor of all features is larger than this many bytes run in the first round only."""
SECONDS = 0.7
"""How long one process repeats one measurement."""

Runs = dict[tuple[str, tuple[int, int, int]], list[dict[str, Any]]]
"""For each system and shape, what each round measured."""

PHASES = ("forward", "train")
JUMOK, DIRECT, COMPILED = "jumok", "direct form", "torch.compile"
TENSORS = {JUMOK: (0, 0), DIRECT: (2, 3), COMPILED: (0, 2)}
"""How many [batch, query, key, feature] tensors each holds at once, forward and when training, as measured."""


def written_out(query: Tensor, key: Tensor, value: Tensor, v: Tensor) -> Tensor:
    """The direct form, of two equal ways to write it the one that torch.compile makes the faster code of."""
    scores = ((query[:, :, None] + key[:, None]).tanh() * v).sum(-1)
    return scores.softmax(-1) @ value


def attention(system: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    if system == COMPILED:
        return torch.compile(written_out, dynamic=False)
    backend = "blocked" if system == JUMOK else "direct"
    return lambda query, key, value, v: attend(query, key, value, score=additive(v), backend=backend).values


def measure(system: str, batch: int, length: int, width: int, phases: list[str]) -> dict[str, Any]:
    """Times of each phase in seconds, and the peak memory of the process after it, in MiB."""
    torch.manual_seed(0)
    widths = (width, width, VALUE_WIDTH)
    query, key, value = (torch.randn(batch, length, size, requires_grad=True) for size in widths)
    v = (torch.randn(width) * width**-0.5).requires_grad_()
    upstream, run = torch.randn(batch, length, VALUE_WIDTH), attention(system)

    def forward() -> None:
        with torch.no_grad():
            run(query, key, value, v)

    def train() -> None:
        torch.autograd.grad(run(query, key, value, v), (query, key, value, v), upstream)

    by_phase = {}
    for phase, call in (("forward", forward), ("train", train)):
        if phase in phases:
            times = list(repeat(call))
            by_phase[phase] = {"times": times, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    return by_phase


def repeat(call: Callable[[], None]) -> Iterator[float]:
    """Seconds of each call after a first one that warms up: for SECONDS, and at least two."""
    call()
    end = time.perf_counter() + SECONDS
    yield seconds(call)
    yield seconds(call)
    while time.perf_counter() < end:
        yield seconds(call)


def seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


FORWARD_PASSES = ("multiply-add", "reciprocal", "times v")
BACKWARD_PASSES = (
    *("multiply-add", "reciprocal"),
    *("gradient of v", "slope", "times upstream", "sum over keys", "sum over rows"),
)


def passes(rows: int = 8, keys: int = 512, width: int = 256) -> dict[str, float]:
    """Nanoseconds per number of each elementary pass over a tile: what the blocked form is made of, and tanh."""
    unit, memory, v = torch.ones(()), torch.empty(rows, keys, width), torch.rand(width)
    up, down, upstream = torch.rand(rows, 1, width), torch.rand(1, keys, width), torch.ones(rows, keys)
    calls: dict[str, Callable[[], object]] = {
        "multiply-add": lambda: torch.addcmul(unit, up, down, out=memory),
        "reciprocal": lambda: memory.reciprocal_(),
        "times v": lambda: memory @ v,
        "gradient of v": lambda: upstream.flatten() @ memory.flatten(0, 1),
        "slope": lambda: memory.addcmul_(memory, memory, value=-1),
        "times upstream": lambda: memory.mul_(upstream[..., None]),
        "sum over keys": lambda: memory.sum(1),
        "sum over rows": lambda: memory.sum(0),
        "tanh": lambda: memory.tanh_(),
    }
    nanoseconds = {}
    for name, call in calls.items():
        torch.addcmul(unit, up, down, out=memory).reciprocal_()
        nanoseconds[name] = min(seconds(call) for _ in range(150)) / memory.numel() * 1e9
    return nanoseconds


def in_own_process(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.attention_cpu", "--child", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def runnable(system: str, shape: tuple[int, int, int]) -> list[str]:
    """The phases that fit into three quarters of the machine's memory."""
    room = 0.75 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return [phase for phase, tensors in zip(PHASES, TENSORS[system], strict=True) if tensors * size(shape) < room]


def size(shape: tuple[int, int, int]) -> int:
    batch, length, width = shape
    return 4 * batch * length**2 * width


def rows_of(measured: Runs, idle: dict[tuple[str, int, str], float]) -> Iterator[Row]:
    """Medians of the times and memory over the rounds."""
    kept = f"float32, values {VALUE_WIDTH} wide, as many queries as keys; {environment()}"
    for what, unit in (("time", "ms"), ("memory", "MiB")):
        for phase in PHASES:
            for shape in SHAPES:
                row_id = f"attention-{phase}-{what}/{title(shape)}"
                for system, tensors in TENSORS.items():
                    runs = [run[phase] for run in measured[system, shape] if phase in run]
                    if not runs:
                        need = tensors[PHASES.index(phase)] * size(shape) / 2**30
                        yield Row(row_id, system, None, unit, f"not run: needs {need:.0f} GiB; {kept}")
                    elif what == "time":
                        note = f"median of {sum(len(run['times']) for run in runs)} in {len(runs)} processes; {kept}"
                        yield Row(row_id, system, round(1e3 * median_time(runs), 3), unit, note)
                    else:
                        peak = statistics.median(run["peak"] for run in runs) - idle[system, shape[2], phase]
                        yield Row(row_id, system, round(max(peak, 0.0), 1), unit, f"peak above that of T = 8; {kept}")


def floor_rows(rounds: list[dict[str, float]], measured: Runs) -> Iterator[Row]:
    """Each pass, and the sum of the passes beside what the whole of attention takes for each (query, key, feature).

    Both at their fastest, because a limit is about the machine, not about what else ran on it.
    """
    fastest = {name: min(turn[name] for turn in rounds) for name in rounds[0]}
    for name, value in fastest.items():
        yield Row(f"additive-pass/{name}", "PyTorch", round(value, 4), "ns", f"4 MiB tile; {environment()}")
    for phase, names in (("forward", FORWARD_PASSES), ("train", FORWARD_PASSES + BACKWARD_PASSES)):
        for shape in SHAPES:
            row_id, numbers = f"additive-floor-{phase}/{title(shape)}", size(shape) / 4
            taken = 1e9 * min(min(run[phase]["times"]) for run in measured[JUMOK, shape]) / numbers
            yield Row(row_id, "sum of passes", round(sum(fastest[name] for name in names), 4), "ns", environment())
            yield Row(row_id, JUMOK, round(taken, 4), "ns", environment())


def median_time(runs: list[dict[str, Any]]) -> float:
    return statistics.median(seconds for run in runs for seconds in run["times"])


def title(shape: tuple[int, int, int]) -> str:
    return "B{} T{} d{}".format(*shape)


def environment() -> str:
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT")
    settings = ", ".join(f"{name} {os.environ.get(name, 'unset')}" for name in names)
    return f"{settings}, load average {os.getloadavg()[2]:.1f} over the last quarter of an hour"


def main() -> None:
    # Threads that spin while they wait take whole time slices from each other wherever cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    rounds: list[dict[str, float]] = []
    idle: dict[tuple[str, int, str], float] = {}
    measured: Runs = {(system, shape): [] for system in TENSORS for shape in SHAPES}
    for system in TENSORS:
        for width in {shape[2] for shape in SHAPES}:
            for phase, run in in_own_process(system, 1, 8, width, *PHASES).items():
                idle[system, width, phase] = run["peak"]
    for number in range(ROUNDS):
        rounds.append(in_own_process("passes"))
        for shape in SHAPES if number == 0 else [shape for shape in SHAPES if size(shape) <= LARGE]:
            for system in TENSORS:
                phases = runnable(system, shape)
                print(f"round {number + 1} of {ROUNDS}: {title(shape)} {system}", file=sys.stderr, flush=True)
                if phases:
                    measured[system, shape].append(in_own_process(system, *shape, *phases))
    rows = [*rows_of(measured, idle), *floor_rows(rounds, measured)]
    write("attention_cpu", rows, device=f"{cpu()}, {torch.get_num_threads()} threads")


def child(arguments: list[str]) -> dict[str, Any]:
    if arguments == ["passes"]:
        return passes()
    system, batch, length, width, *phases = arguments
    return measure(system, int(batch), int(length), int(width), phases)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs="+", metavar="WHAT", help="measure one thing and print it; used by itself")
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(asked.child)))
    else:
        main()
