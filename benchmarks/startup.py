"""Start-up against the size of the corpus: from a tokenised store on disk to a batch, and the memory that takes.

    python -m benchmarks.startup        about three minutes; writes results/startup.json; needs 1 GB of disk meanwhile

Every measurement is one process of its own, the imports not counted. Beside jumok the way without a table of lengths on
disk: read all lengths and sort them.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.ma
import numpy.random  # both would else be loaded by who first uses them

from benchmarks.results import Row, cpu, write
from jumok.data import BatchConfig, Batches, Dataset, write_dataset

SIZES = (10**4, 10**5, 10**6, 10**7)
JUMOK, SORTED = "jumok", "all lengths read and sorted"
ROUNDS = 5


def corpus(pairs: int) -> Iterator[tuple[list[int], list[int]]]:
    """Pairs of short sentences, the sides much alike."""
    draws, ids = np.random.default_rng(0), [7] * 64
    for _ in range(0, pairs, 10_000):
        source = np.clip(draws.lognormal(1.6, 0.4, 10_000), 2, 40)
        target = np.clip(source * draws.normal(1, 0.15, 10_000), 2, 60)
        yield from (
            (ids[:one], ids[:other])
            for one, other in zip(source.astype(int).tolist(), target.astype(int).tolist(), strict=True)
        )


def held() -> float:
    """Memory this process holds, in MiB; pages of mapped files do not count."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) / 1024


def measure(path: str, system: str) -> dict[str, float]:
    """Milliseconds until the steps are known, from there to the first batch, then to the last of epoch 10; MiB held."""
    before, started = held(), time.perf_counter()
    store = Dataset(path)
    if system == SORTED:
        lengths = np.diff(np.asarray(store._offsets)).reshape(-1, 2).max(axis=1)
        kept = [lengths, np.argsort(lengths, kind="stable")]
        return {"ready": 1000 * (time.perf_counter() - started), "memory": held() - before, "kept": len(kept)}
    batches = Batches(store, BatchConfig())
    batches.steps(0)
    times = [started, time.perf_counter()]
    for epoch, step in ((0, 0), (10, batches.steps(10) - 1)):
        batches.batch(epoch, step)
        times.append(time.perf_counter())
    ready, first, late = (1000 * (end - start) for start, end in pairwise(times))
    return {"ready": ready, "first": first, "late": late, "memory": held() - before}


def in_a_process(path: Path, system: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.startup", str(path), system]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rows_of(path: Path, pairs: int) -> Iterator[Row]:
    conditions = f"least of {ROUNDS} processes, file in the page cache, {path.stat().st_size / 1e6:.0f} MB"
    for system in (JUMOK, SORTED):
        found = [in_a_process(path, system) for _ in range(ROUNDS)]
        for part, unit in (("ready", "ms"), ("first", "ms"), ("late", "ms"), ("memory", "MiB")):
            if part in found[0]:
                value = min(one[part] for one in found)
                yield Row(f"{part}/{pairs:,} pairs", system, value, unit, conditions)


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(*sys.argv[1:])))
        return
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for pairs in SIZES:
            path = Path(folder) / f"{pairs}.store"
            write_dataset(path, corpus(pairs), size=100)
            rows += rows_of(path, pairs)
            path.unlink()
            print(*rows[-6:], sep="\n", file=sys.stderr)
    write("startup", rows, device=cpu(), packages=("torch", "numpy"))


if __name__ == "__main__":
    main()
