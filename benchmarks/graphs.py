"""Accuracy of graph attention on Cora and Citeseer, public split, over many seeds, by the recipes of the same names.

JUMOK_DATA=path/to/data python -m benchmarks.graphs run        100 seeds each, writes results/graphs.json
JUMOK_DATA=path/to/data python -m benchmarks.graphs search     compares settings, to be chosen by validation accuracy

Every outcome is kept in a file as soon as it is there, and a seed that is in it is not run again: either command can be
stopped and goes on where it was, and `run --seeds 0` makes the results of what there is.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Row, cpu, write
from jumok.tasks import read_recipe
from jumok.tasks.run import train

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
    device: str


GRAPHS: dict[str, Any] = {}


def run_one(job: Job) -> Outcome:
    """Train and test once, in a folder of memory that is gone afterwards."""
    from jumok.graphs.store import prepare_graph
    from jumok.tasks.node_classification import NodeClassificationTask
    from jumok.training.progress import Report

    changes = [*job.changes, f"training.seed={job.seed}", "training.log_every=1000000"]
    recipe = read_recipe(ROOT / f"recipes/{job.recipe}.toml", changes)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        if job.recipe not in GRAPHS:
            GRAPHS[job.recipe] = prepare_graph(Path(tempfile.mkdtemp(dir=memory)), recipe.graph)
        started = time.monotonic()
        task = NodeClassificationTask(GRAPHS[job.recipe])
        metrics = train(recipe, out=folder, device=job.device, report=Report(), task=task).metrics
    seconds = time.monotonic() - started
    return Outcome(job, metrics["accuracy"], metrics["test accuracy"], seconds, _device(job.device))


def run_all(jobs: list[Job], arguments: argparse.Namespace) -> list[Outcome]:
    """The outcomes of all jobs, and of other seeds of theirs that were run before."""
    wanted = {_settings(job) for job in jobs}
    done = [one for one in read_outcomes(arguments.outcomes) if _settings(one.job) in wanted]
    known = {(_settings(one.job), one.job.seed) for one in done}
    left = [job for job in jobs if (_settings(job), job.seed) not in known and job.seed < arguments.seeds]
    arguments.outcomes.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(arguments.processes, initializer=_alone) as pool:
        for number, outcome in enumerate(pool.imap_unordered(run_one, left), start=1):
            print(f"{number}/{len(left)} {outcome}", flush=True)
            with open(arguments.outcomes, "a", encoding="utf-8") as file:
                file.write(json.dumps({**outcome._asdict(), "job": outcome.job._asdict()}) + "\n")
            done.append(outcome)
    return done


def read_outcomes(path: Path) -> list[Outcome]:
    """What was run before."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return [Outcome(**{**one, "job": Job(**{**one["job"], "changes": tuple(one["job"]["changes"])})}) for one in found]


def _settings(job: Job) -> str:
    """All that decides an outcome but the seed and the machine."""
    from jumok.recipe import write_recipe

    recipe = read_recipe(ROOT / f"recipes/{job.recipe}.toml", job.changes)
    return write_recipe(replace(recipe, graph=replace(recipe.graph, path=job.recipe)))


def _alone() -> None:
    """One thread a process."""
    import torch

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
            "seconds": statistics.median(one.seconds for one in runs),
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
    found = summary(run_all(jobs, arguments))
    ranked = dict(sorted(found.items(), key=lambda item: -item[1]["validation mean"]))
    for name, one in ranked.items():
        test = f"{one['test mean']:.2f}±{one['test deviation']:.2f}"
        print(f"{name:40} validation {one['validation mean']:.2f}  test {test}")


def run(arguments: argparse.Namespace) -> None:
    """The recipes as they are, or with --set."""
    jobs = [
        Job(recipe, "", tuple(arguments.set), seed, arguments.device)
        for seed in range(max(arguments.seeds, 1))
        for recipe in arguments.recipes
    ]
    outcomes = [one._replace(job=one.job._replace(settings="")) for one in run_all(jobs, arguments)]
    found = summary(outcomes)
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
    print(write("graphs", rows, device=" and ".join(sorted({one.device for one in outcomes}))))


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
    parser.add_argument("--outcomes", type=Path, default=ROOT / "runs/graph-outcomes.jsonl")
    arguments = parser.parse_args()
    {"run": run, "search": search}[arguments.what](arguments)


if __name__ == "__main__":
    main()
