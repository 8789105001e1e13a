"""Accuracy of graph attention on Cora and Citeseer, public split, over many seeds, by the recipes of the same names.

JUMOK_DATA=path/to/data python -m benchmarks.graphs run                     100 seeds each, writes results/graphs.json;
                                                             Ctrl-C writes it with the seeds that are done
JUMOK_DATA=path/to/data python -m benchmarks.graphs search --out found.json  compares settings by validation accuracy
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Row, cpu, write

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ("cora", "citeseer")
PAPER = {"cora": (83.0, 0.7), "citeseer": (72.5, 0.7)}
"""Velickovic et al. (2018), table 2: mean and standard deviation of 100 runs."""

CANDIDATES: dict[str, list[str]] = {
    "as in the paper": ["network.value_dropout=0.0"],
    "authors' code": ["network.value_dropout=0.6"],
    "best by accuracy": ["network.value_dropout=0.6", "training.metric=accuracy", "training.patience=40"],
    "width 128": ["network.value_dropout=0.6", "network.width=128"],
    "width 256": ["network.value_dropout=0.6", "network.width=256"],
    "width 256, l2 0.001": ["network.value_dropout=0.6", "network.width=256", "network.l2=0.001"],
    "l2 0.001": ["network.value_dropout=0.6", "network.l2=0.001"],
    "l2 0.002": ["network.value_dropout=0.6", "network.l2=0.002"],
    "average": ["network.value_dropout=0.6", "training.ema=0.99"],
    "average, width 256": ["network.value_dropout=0.6", "training.ema=0.99", "network.width=256"],
    "4 output heads": ["network.value_dropout=0.6", "network.output_heads=4"],
    "8 output heads, average": ["network.value_dropout=0.6", "network.output_heads=8", "training.ema=0.99"],
    "dropout 0.7": ["network.value_dropout=0.7", "network.dropout=0.7", "network.attention_dropout=0.5"],
    "gatv2": ["network.value_dropout=0.6", "network.kind=gatv2"],
}


class Job(NamedTuple):
    """One run."""

    recipe: str
    settings: str
    changes: tuple[str, ...]
    seed: int
    device: str


class Outcome(NamedTuple):
    """What came of it; accuracies in percent."""

    job: Job
    validation: float
    test: float
    seconds: float


GRAPHS: dict[str, Any] = {}


def run_one(job: Job) -> Outcome:
    """Train and test once, in a folder of memory that is gone afterwards."""
    from jumok.cli.graph_run import run_graph_recipe
    from jumok.data.graph_store import prepare_graph
    from jumok.graph_model import read_graph_recipe
    from jumok.training.progress import Report

    changes = [*job.changes, f"training.seed={job.seed}", "training.log_every=1000000"]
    recipe = read_graph_recipe(ROOT / f"recipes/{job.recipe}.toml", changes)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        if job.recipe not in GRAPHS:
            GRAPHS[job.recipe] = prepare_graph(Path(tempfile.mkdtemp(dir=memory)), recipe.graph)
        started = time.monotonic()
        found = run_graph_recipe(recipe, folder, device=job.device, report=Report(), graph=GRAPHS[job.recipe])
    scores = found.scores
    return Outcome(job, scores["validation accuracy"], scores["test accuracy"], time.monotonic() - started)


def run_all(jobs: list[Job], processes: int) -> Iterator[Outcome]:
    """The outcomes as they come."""
    with multiprocessing.get_context("spawn").Pool(processes, initializer=_alone) as pool:
        try:
            for number, outcome in enumerate(pool.imap_unordered(run_one, jobs), start=1):
                print(f"{number}/{len(jobs)} {outcome}", flush=True)
                yield outcome
        except KeyboardInterrupt:
            print("stopped; going on with the seeds that are done", flush=True)


def _alone() -> None:
    """One thread a process; Ctrl-C is for the process that collects."""
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def summary(outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """Mean and standard deviation of the runs of every recipe with every choice of settings."""
    found: dict[str, dict[str, Any]] = {}
    for key in dict.fromkeys((one.job.recipe, one.job.settings) for one in outcomes):
        runs = [one for one in outcomes if (one.job.recipe, one.job.settings) == key]
        found[" / ".join(key)] = {
            "changes": runs[0].job.changes,
            "runs": len(runs),
            **{
                f"{name} {what}": measure([getattr(one, name) for one in runs])
                for name in ("validation", "test")
                for what, measure in (("mean", statistics.fmean), ("deviation", statistics.pstdev))
            },
            "seconds": statistics.fmean(one.seconds for one in runs),
        }
    return found


def search(arguments: argparse.Namespace) -> None:
    """Compare the candidates; the test accuracies are written down, but validation is what to choose by."""
    jobs = [
        Job(recipe, name, tuple(changes), seed, arguments.device)
        for seed in range(arguments.seeds)
        for recipe in arguments.recipes
        for name, changes in CANDIDATES.items()
    ]
    found = summary(list(run_all(jobs, arguments.processes)))
    ranked = dict(sorted(found.items(), key=lambda item: -item[1]["validation mean"]))
    for name, one in ranked.items():
        test = f"{one['test mean']:.2f}±{one['test deviation']:.2f}"
        print(f"{name:40} validation {one['validation mean']:.2f}  test {test}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(ranked, indent=1), encoding="utf-8")


def run(arguments: argparse.Namespace) -> None:
    """The recipes as they are, or with --set."""
    jobs = [
        Job(recipe, "", tuple(arguments.set), seed, arguments.device)
        for seed in range(arguments.seeds)
        for recipe in arguments.recipes
    ]
    found = summary(list(run_all(jobs, arguments.processes)))
    rows = []
    for recipe in arguments.recipes:
        one = found[f"{recipe} / "]
        conditions = f"public split, mean ± deviation of {one['runs']} seeds, {one['seconds']:.1f} s a run"
        rows.append(Row(recipe, "jumok", round(one["test mean"], 2), "%", conditions))
        rows.append(Row(f"{recipe}-deviation", "jumok", round(one["test deviation"], 2), "%", conditions))
        mean, deviation = PAPER[recipe]
        said = "Velickovic et al. (2018), table 2"
        rows.append(Row(recipe, "GAT paper", mean, "%", said))
        rows.append(Row(f"{recipe}-deviation", "GAT paper", deviation, "%", said))
    print(write("graphs", rows, device=_device(arguments.device)))


def _device(name: str) -> str:
    import torch

    gpu = torch.cuda.is_available() and name != "cpu"
    return torch.cuda.get_device_name() if gpu else f"{cpu()}, one core a run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "search"))
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--out", type=Path, default=Path("found.json"))
    arguments = parser.parse_args()
    {"run": run, "search": search}[arguments.what](arguments)


if __name__ == "__main__":
    main()
