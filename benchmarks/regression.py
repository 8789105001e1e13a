"""Kernel regression of many points: time and memory on a CPU and a GPU, compared with other libraries.

    python -m benchmarks.regression cpu                    about ten minutes; writes results/regression_cpu.json
    python -m benchmarks.regression check                  on a CUDA GPU: the kernels against float64, half a minute
    python -m benchmarks.regression gpu [--out FOLDER]     on a CUDA GPU, two minutes; writes regression_gpu.json after
                                                           every row, so an interrupted run keeps its rows

On the CPU, every system and case runs in its own process. A time is the fastest of three rounds, and memory is the
peak of the process minus that of the same process with 64 points. Slow systems get fewer queries and their time is
scaled; the conditions say so.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import results
from benchmarks.results import Row, cpu, write
from jumok.bench.regression import (
    Case,
    cdist_prediction,
    in_chunks,
    jumok_prediction,
    scikit_learn_prediction,
    statsmodels_prediction,
)

EXPONENTIALS = 4.18e12
"""What the special-function units of an H200 give in a second: 16 a clock on each of its 132 multiprocessors."""


# --- on a CPU

CPU_CASES = [
    Case("gaussian", 20_000, 2_000, 1, 0.02, "float64"),
    Case("gaussian", 20_000, 2_000, 3, 0.1, "float64"),
    Case("gaussian", 1_000_000, 20_000, 1, 0.001, "float64"),
    Case("epanechnikov", 1_000_000, 20_000, 1, 0.001, "float64"),
    Case("boxcar", 1_000_000, 20_000, 3, 0.03, "float64"),
]
SLOW = {"statsmodels": 100, "torch.cdist in chunks": 2_000, "scikit-learn": 20_000}
"""How many queries a system is asked at most."""
FULL = 2e8
"""Pairs that plain PyTorch is asked to compute at most."""


def cpu_systems(case: Case) -> list[str]:
    compact = case.kernel in ("boxcar", "epanechnikov")
    systems = ["jumok", "torch.cdist in chunks"]
    systems += ["scikit-learn"] if compact or case.points <= 20_000 else []
    return systems + (["statsmodels"] if case.kernel == "gaussian" and case.points <= 20_000 else [])


def answer(system: str, case: Case, queries: int) -> float:
    """Seconds to predict so many queries, fitting not counted."""
    case, on_cpu = case._replace(queries=queries), torch.device("cpu")
    if system == "jumok":
        predict = jumok_prediction(case, on_cpu)
    elif system == "torch.cdist in chunks":
        predict = cdist_prediction(case, on_cpu)
    else:
        predict = statsmodels_prediction(case) if system == "statsmodels" else scikit_learn_prediction(case)
    start = time.perf_counter()
    predict()
    return time.perf_counter() - start


def bandwidth_seconds(system: str, points: int) -> float:
    """Seconds to find the bandwidth by leaving out every point in turn."""
    from statsmodels.nonparametric.kernel_regression import KernelReg

    from jumok import KernelRegressor

    x, y, _ = Case("gaussian", points, 1, 1, 0.1, "float64").data()
    KernelRegressor(loo_points=None).fit(x[:20], y[:20])
    start = time.perf_counter()
    if system == "jumok":
        KernelRegressor(loo_points=None).fit(x, y)
    else:
        KernelReg(y, x, var_type="c", reg_type="lc", bw="cv_ls")
    return time.perf_counter() - start


def peak() -> float:
    """MiB at the peak of this process."""
    return float(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def child(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    system, what, count = arguments[0], arguments[1], int(arguments[2])
    if what == "nothing":
        answer(system, CPU_CASES[count]._replace(points=64), 1)
    seconds = 0.0
    if what == "bandwidth":
        seconds = bandwidth_seconds(system, count)
    elif what != "nothing":
        seconds = answer(system, CPU_CASES[int(what)], count)
    print(json.dumps({"seconds": seconds, "peak": peak()}))


def in_own_process(*arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.regression", "child", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def cpu_rows(rounds: int) -> Iterator[Row]:
    for number, case in enumerate(CPU_CASES):
        rows = []
        for system in cpu_systems(case):
            queries = min(case.queries, SLOW.get(system, case.queries))
            if system == "torch.cdist in chunks":
                queries = int(min(queries, FULL / case.points))
            runs = [in_own_process(system, number, queries) for _ in range(rounds)]
            note = f"one thread; {queries} queries asked, times {case.queries / queries:g}; fastest of {rounds}"
            value = min(run["seconds"] for run in runs) * case.queries / queries
            yield Row(f"predict/{case}", system, round(value, 4), "s", note)
            memory = statistics.median(run["peak"] for run in runs) - in_own_process(system, "nothing", number)["peak"]
            rows.append(
                Row(f"memory/{case}", system, round(max(memory, 0.0), 1), "MiB", f"with data; {queries} queries")
            )
            print(case, system, round(value, 3), "s", round(memory), "MiB", file=sys.stderr)
        yield from rows
    for points in (500, 2_000):
        for system in ("jumok", "statsmodels"):
            runs = [in_own_process(system, "bandwidth", points) for _ in range(rounds)]
            value = min(run["seconds"] for run in runs)
            print("bandwidth", points, system, value, file=sys.stderr)
            yield Row(f"bandwidth/{points} points", system, round(value, 4), "s", f"one thread; fastest of {rounds}")


# --- on a GPU

ONE_MILLION = 1_000_000
GPU_CASES = [
    Case("gaussian", ONE_MILLION, ONE_MILLION, 3, 1.0),
    Case("gaussian", ONE_MILLION, ONE_MILLION, 3, 0.03),
    Case("gaussian", ONE_MILLION, ONE_MILLION, 1, 0.001),
    Case("epanechnikov", ONE_MILLION, ONE_MILLION, 3, 0.03),
    Case("boxcar", ONE_MILLION, ONE_MILLION, 1, 0.001),
    Case("gaussian", ONE_MILLION, ONE_MILLION, 3, 0.03, "float64"),
    Case("gaussian", ONE_MILLION, 100_000, 3, 1.0, "float64"),
]
TILES = [(64, 64, 4, 1, 1), (64, 64, 4, 1, 2), (64, 64, 4, 2, 1), (64, 64, 4, 3, 1), (64, 32, 4, 1, 1),
         (64, 32, 4, 1, 4), (128, 32, 4, 1, 1), (128, 64, 8, 1, 1), (64, 64, 8, 1, 2)]  # fmt: skip
"""Rows, columns, warps, stages, tiles in a turn."""
PEER_QUERIES = {"use": 8_192, "donot_use": 256}
"""How many of the million queries plain PyTorch is asked, by the way it computes distances."""


def on_gpu(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    x, y, query = case.data()
    return torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda(), torch.from_numpy(query).cuda()


def timed(call: Callable[[], Any], repeats: int = 3) -> tuple[float, float]:
    """The median of some seconds after a first call, and the peak of memory in MiB above what was there before."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    memory = (torch.cuda.max_memory_allocated() - before) / 2**20
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times), memory


def smoother_of(case: Case, x: Tensor, y: Tensor) -> Any:
    from jumok.regression.smoother import SortedSmoother

    bandwidth = torch.tensor(case.bandwidth, dtype=x.dtype, device=x.device)
    return SortedSmoother.of(case.kernel, bandwidth, x, torch.stack([y, torch.ones_like(y)], 1))


CHECKS = [
    Case("gaussian", 5001, 1009, 1, 0.3), Case("gaussian", 70_000, 1009, 3, 0.02), Case("gaussian", 5001, 1009, 8, 0.3),
    Case("gaussian", 70_000, 1009, 1, 0.01), Case("gaussian", 70_001, 1024, 3, 0.5), Case("gaussian", 999, 1009, 8, 3),
    Case("gaussian", 5001, 1009, 3, 0.3, "float64"), Case("gaussian", 5001, 1009, 3, 1, "float64"),
    Case("epanechnikov", 20_001, 1009, 3, 0.2), Case("boxcar", 999, 1009, 1, 0.21),
]  # fmt: skip
"""At awkward sizes; with exponents from differences and, where the bandwidth is wide, from products."""


def check(case: Case) -> str:
    """Our error and plain torch's against float64."""
    x, y, query = on_gpu(case)
    fast = smoother_of(case, x, y)(query)[:, 0].double()
    wide = [tensor.double().cpu() for tensor in (x, y, query)]
    exact = smoother_of(case._replace(dtype="float64"), *wide[:2])(wide[2])[:, 0].cuda()
    plain = in_chunks(case, x, y, query, chunk=2**27).double()
    defined = ~plain.isnan()
    ours, theirs = (largest(estimate - exact, defined) for estimate in (fast, plain))
    lost = largest(fast - exact, ~defined)
    # A point at the very edge of the boxcar is in or out by its last digit.
    floor = 0.05 if case.kernel == "boxcar" else 1e-5 if case.dtype == "float32" else 1e-12
    word = "ok" if ours <= 2 * theirs + floor and lost <= 1e-5 else "WRONG"
    return f"{word} {case}: {ours:.1e}, plain {theirs:.1e}; {int((~defined).sum())} without neighbours {lost:.1e}"


def largest(error: Tensor, counted: Tensor) -> float:
    return float(error[counted].abs().max()) if counted.any() else 0.0


def sweep() -> Iterator[Row]:
    """The same sums with other tiles, and with exponents from differences as where the bandwidth is narrow."""
    from jumok.regression import gpu

    case = GPU_CASES[0]._replace(queries=200_000)
    x, y, query = on_gpu(case)
    points = smoother_of(case, x, y).points
    note = "200,000 queries of 1M points, 3-D, h = 1, multiplied by 5"

    def seconds(tiling: gpu.Tiling) -> float:
        call = partial(gpu.kernel_sums, tiling=tiling)
        return 5 * timed(lambda: call(query, points.blocks, points.values[:-1], case.kernel, case.bandwidth), 2)[0]

    for tile in TILES:
        rows, cols, warps, stages, unroll = tile
        more = (f", {stages} stages" if stages > 1 else "") + (f", {unroll} in a turn" if unroll > 1 else "")
        name = f"tile/{rows} × {cols}, {warps} warps{more}"
        yield Row(name, "jumok", round(seconds(gpu.Tiling(*tile)), 3), "s", note)
        if tile == TILES[0]:
            pairs, taken = case.points * GPU_CASES[0].queries, seconds(gpu.Tiling(*tile))
            limit = round(100 * pairs / EXPONENTIALS / taken, 1)
            yield Row(
                f"limit/{GPU_CASES[0]}", "jumok", limit, "%", "of exponentials, by the kernel that looks at all pairs"
            )
    flat, gpu.FLAT = gpu.FLAT, 0.0
    yield Row("tile/64 × 64, 4 warps, from differences", "jumok", round(seconds(gpu.Tiling()), 3), "s", note)
    gpu.FLAT = flat


def gpu_id(case: Case) -> str:
    """The first case is a goal of its own."""
    return "kernel-regression-1m" if case == GPU_CASES[0] else f"predict/{case}"


def gpu_rows() -> Iterator[Row]:
    for case in GPU_CASES:
        x, y, query = on_gpu(case)
        smoother = smoother_of(case, x, y)
        note = f"{case.dtype}; points sorted before, queries sorted within; median of 3"
        seconds, memory = timed(partial(smoother, query))
        yield Row(gpu_id(case), "jumok", round(seconds, 4), "s", note)
        yield Row(f"memory/{case}", "jumok", round(memory, 1), "MiB", "beyond the data")
    yield from estimator_rows()
    yield from sweep()
    for case in GPU_CASES:
        yield from peer_rows(case)


def peer_rows(case: Case) -> Iterator[Row]:
    """Plain PyTorch; from products of matrices it is far quicker, and rounds the small distances away."""
    x, y, query = on_gpu(case)
    for mode, queries in PEER_QUERIES.items():
        call = partial(in_chunks, case, x, y, query[:queries], chunk=2**28, mode=f"{mode}_mm_for_euclid_dist")
        seconds, memory = timed(call, 1)
        system = f"torch.cdist, {'differences' if mode == 'donot_use' else 'products'}"
        scaled, note = seconds * case.queries / queries, f"{queries} queries asked, multiplied"
        yield Row(gpu_id(case), system, round(scaled, 3), "s", note)
        yield Row(f"memory/{case}", system, round(memory, 1), "MiB", "beyond the data; planes of 2²⁸ numbers")


def estimator_rows() -> Iterator[Row]:
    """The estimator as it is used: arrays in, arrays out."""
    from jumok import KernelRegressor

    case = GPU_CASES[1]
    x, y, query = case.data()
    for _ in range(2):  # the first compiles
        start = time.perf_counter()
        model = KernelRegressor(bandwidth="loo", device="cuda").fit(x, y)
        fitted = time.perf_counter()
        model.predict(query)
        predicted = time.perf_counter()
        model.interval(query)
        done = time.perf_counter()
    note = f"float32, 3-D; bandwidth found: {model.bandwidth_:.3g}, {len(model._left_out())} points left out"
    yield Row("estimator/fit with its bandwidth, 1M points", "jumok", round(fitted - start, 3), "s", note)
    yield Row("estimator/predict, 1M × 1M", "jumok", round(predicted - fitted, 3), "s", note)
    yield Row("estimator/interval, 1M × 1M", "jumok", round(done - predicted, 3), "s", note)


def gpu(out: Path) -> None:
    results.FOLDER = out
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for row in gpu_rows():
        print(row.id, row.system, row.value, row.unit, flush=True)
        rows.append(row)
        write("regression_gpu", rows, device=torch.cuda.get_device_name(), packages=["torch"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", choices=["cpu", "gpu", "check", "child"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.where == "child":
        child(given.rest)
    elif given.where == "gpu":
        gpu(given.out)
    elif given.where == "check":
        print(*map(check, CHECKS), sep="\n")
    else:
        rows = list(cpu_rows(given.rounds))
        write("regression_cpu", rows, device=cpu(), packages=["torch", "scikit-learn", "statsmodels"])


if __name__ == "__main__":
    main()
