"""Start-up time and memory of jumok's dataset file, compared with a plain design of .npy files and permutations.

    python -m benchmarks.dataset        about five minutes; writes results/dataset.json; needs 1 GB of disk meanwhile

Both designs map their files into memory, and in both a batch contains pairs of similar length and depends only on
seed, epoch and step. The dataset file keeps its rows sorted by length, with a table of counts per length, and permutes
single positions; the plain design reads all lengths and sorts a permutation of all rows. Every measurement runs in its
own process; imports do not count.
"""

import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.ma
import numpy.random  # both would otherwise be loaded at their first use

from benchmarks.results import Row, cpu, write
from jumok.data import Batch, BatchConfig, Batches, Dataset, collate, write_dataset

SIZES = (10**4, 10**5, 10**6, 10**7)
JUMOK, PERMUTATION = "jumok", ".npy and a permutation"
ROUNDS, BATCHES = 3, 100
MEASURES = {"ready": "ms", "first": "ms", "late": "ms", "batch": "ms", "memory": "MiB"}


class PermutedRows:
    """Batches of rows in .npy files, permuted anew every epoch and sorted by bands of length."""

    def __init__(self, path: Path, config: BatchConfig) -> None:
        self.tokens, self.offsets = (np.load(path.with_suffix(f".{name}.npy"), mmap_mode="r") for name in PARTS)
        self.config, self.planned = config, -1

    def steps(self, epoch: int) -> int:
        if epoch != self.planned:
            self.plan(epoch)
        return len(self.starts) - 1

    def batch(self, epoch: int, step: int) -> Batch:
        self.steps(epoch)
        rows = self.order[self.starts[step] : self.starts[step + 1]].tolist()
        return collate([(self.sentence(2 * row), self.sentence(2 * row + 1)) for row in rows])

    def sentence(self, number: int) -> np.ndarray:
        return np.array(self.tokens[self.offsets[number] : self.offsets[number + 1]])

    def plan(self, epoch: int) -> None:
        draws = np.random.default_rng([0, epoch])
        longer = np.diff(self.offsets).reshape(-1, 2).max(axis=1)
        band = np.floor(np.log(longer) / np.log1p(self.config.blur) + draws.random())
        order = draws.permutation(len(longer))
        self.order = order[np.argsort(band[order], kind="stable")]
        longest = np.maximum.accumulate(longer[self.order])
        starts = [0]
        while starts[-1] < len(longest):
            end = min(starts[-1] + self.config.tokens // int(longest[starts[-1]]), len(longest))
            starts.append(max(starts[-1] + 1, min(end, starts[-1] + self.config.tokens // int(longest[end - 1]))))
        self.starts = np.array(starts)
        self.planned = epoch


PARTS = ("tokens", "offsets")


def corpus(pairs: int) -> Iterator[tuple[list[int], list[int]]]:
    """Pairs of short sentences whose sides have similar lengths."""
    draws, ids = np.random.default_rng(0), [7] * 64
    for _ in range(0, pairs, 10_000):
        source = np.clip(draws.lognormal(1.6, 0.4, 10_000), 2, 40)
        target = np.clip(source * draws.normal(1, 0.15, 10_000), 2, 60)
        yield from (
            (ids[:length], ids[:other])
            for length, other in zip(source.astype(int).tolist(), target.astype(int).tolist(), strict=True)
        )


def write_files(path: Path, pairs: int) -> None:
    """The same pairs as a dataset file and as two .npy files."""
    dataset = write_dataset(path, corpus(pairs), size=100)
    for name, array in zip(PARTS, (dataset._tokens, dataset._offsets.astype(np.int64)), strict=True):
        np.save(path.with_suffix(f".{name}.npy"), array)


def opened(path: Path, system: str) -> Batches | PermutedRows:
    return Batches(Dataset(path), BatchConfig()) if system == JUMOK else PermutedRows(path, BatchConfig())


def measure(path: Path, system: str) -> dict[str, float]:
    """Milliseconds to the number of steps, to the first batch, to the last of epoch 10, and for each of 100 others."""
    times = [time.perf_counter()]
    batches = opened(path, system)
    batches.steps(0)
    times.append(time.perf_counter())
    batches.batch(0, 0)
    times.append(time.perf_counter())
    last = batches.steps(10) - 1
    batches.batch(10, last)
    times.append(time.perf_counter())
    for step in np.linspace(0, last, BATCHES).astype(int).tolist():
        batches.batch(10, step)
    times.append(time.perf_counter())
    ready, first, late, others = (1000 * (end - start) for start, end in pairwise(times))
    return {"ready": ready, "first": first, "late": late, "batch": others / BATCHES}


def measure_memory(path: Path, system: str) -> dict[str, float]:
    """The most memory that opening, planning and a batch take, in MiB; the pages of mapped files do not count."""
    tracemalloc.start()
    batches = opened(path, system)
    batches.batch(0, batches.steps(0) - 1)
    return {"memory": tracemalloc.get_traced_memory()[1] / 2**20}


def in_a_process(path: Path, system: str, what: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.dataset", str(path), system, what]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def rows_of(path: Path, pairs: int) -> Iterator[Row]:
    conditions = f"least of {ROUNDS} processes, file in the page cache, {path.stat().st_size / 1e6:.0f} MB"
    for system in (JUMOK, PERMUTATION):
        rounds = [in_a_process(path, system, "time") for _ in range(ROUNDS)]
        least = {part: min(measured[part] for measured in rounds) for part in rounds[0]}
        least |= in_a_process(path, system, "memory")
        for part, unit in MEASURES.items():
            yield Row(f"{part}/{pairs:,} pairs", system, least[part], unit, conditions)


def main() -> None:
    if len(sys.argv) > 1:
        path, system, what = sys.argv[1:]
        print(json.dumps((measure if what == "time" else measure_memory)(Path(path), system)))
        return
    rows: list[Row] = []
    for pairs in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{pairs}.store"
            write_files(path, pairs)
            rows += rows_of(path, pairs)
            print(*rows[-2 * len(MEASURES) :], sep="\n", file=sys.stderr)
    write("dataset", rows, device=cpu(), packages=("torch", "numpy"))


if __name__ == "__main__":
    main()
