"""Accuracy of graph attention on Cora and Citeseer, public split, over many seeds, by the recipes of the same names.

JUMOK_DATA=path/to/data python -m benchmarks.graphs run        100 seeds each, writes results/graphs.json
JUMOK_DATA=path/to/data python -m benchmarks.graphs search     compares settings on validation nodes, the test unseen

`search` writes results/graphs_search.json. `run --recipes cora` leaves the results of the other recipes as they are.

Every outcome is kept in a file as soon as it is there, and a seed that is in it is not run again: either command can be
stopped and goes on where it was, and `run --seeds 0` makes the results of what there is.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import FOLDER, Row, cpu, write
from jumok.tasks import read_recipe
from jumok.tasks.run import train

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = {"": "jumok", "-plain": "jumok, plain"}
"""Recipes and what the tables call them; "-plain" learns from labelled nodes alone, as in the GAT paper."""
GRAPHS = ("cora", "citeseer")
RECIPES = tuple(graph + variant for variant in SYSTEMS for graph in GRAPHS)
PAPER = {"cora": (83.0, 0.7), "citeseer": (72.5, 0.7)}
"""Velickovic et al. (2018), table 2: mean and standard deviation of 100 runs."""

CANDIDATES: dict[str, list[str]] = {
    "the recipe": [],
    "labels only": [
        *("training.consistency=0", "training.passes=2", "training.temperature=0.5", "training.confidence=0"),
    ],
    "2 passes": ["training.passes=2"],
    "temperature 0.5": ["training.temperature=0.5"],
    "no DropNode": ["network.node_dropout=0"],
    "no attention dropout": ["network.attention_dropout=0"],
    "no degrees": ["network.degree_exponent=0"],
    "degree exponent 1": ["network.degree_exponent=1"],
    "no moving average": ["training.ema=0"],
    "one hop": ["network.hops=[]", "network.teleport=0.1"],
    "8 hops": ["network.hops=[8]", "network.teleport=0.1"],
    "4 heads": ["network.output_heads=4"],
    "GATv2": ["network.kind=gatv2"],
    "supervised GAT": ["training.edge_supervision=2"],
    "SuperGAT": ["network.kind=supergat", "training.edge_supervision=2"],
    "SuperGAT, weight 10": ["network.kind=supergat", "training.edge_supervision=10"],
    "8 passes": ["training.passes=8"],
    "temperature 0.2": ["training.temperature=0.2"],
    "consistency 2": ["training.consistency=2"],
    "slower moving average": ["training.ema=0.99"],
    "longer": ["training.steps=800", "training.patience=30"],
    "learning rate 0.01": ["training.learning_rate=0.01"],
    "16 wide": ["network.width=16"],
    "64 wide": ["network.width=64"],
    "6 hops": ["network.hops=[6]"],
    "teleport 0.1": ["network.teleport=0.1"],
    "dropout 0.6": ["network.dropout=0.6"],
    "attention dropout 0.5": ["network.attention_dropout=0.5"],
    "twice the weight decay": ["network.l2=0.001"],
}
"""Settings that `search` compares: changes to a recipe that learns from nodes without labels."""


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
    loss: float
    """On the validation nodes."""
    test: float | None
    """None in a search."""
    seconds: float
    processor: float
    """Seconds of processor time."""
    device: str
    recipe: str
    """The recipe and its changes as they were, by their fingerprint."""


LOADED: dict[str, Any] = {}


def run_one(job: Job) -> Outcome:
    """Train and test once, in a folder of memory that is gone afterwards."""
    from jumok.graphs.store import prepare_graph
    from jumok.tasks.node_classification import NodeClassificationTask
    from jumok.training.progress import Report

    changes = [*job.changes, f"training.seed={job.seed}", "training.log_every=1000000"]
    recipe = read_recipe(ROOT / f"recipes/{job.recipe}.toml", changes)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        if job.recipe not in LOADED:
            LOADED[job.recipe] = prepare_graph(Path(tempfile.mkdtemp(dir=memory)), recipe.graph)
        graph = LOADED[job.recipe]
        if job.settings:  # of a search, which must not see the test nodes
            graph = replace(graph, test=graph.test[:0])
        started, worked = time.monotonic(), time.process_time()
        task = NodeClassificationTask(graph)
        metrics = train(recipe, out=folder, device=job.device, report=Report(), task=task).metrics
    times = time.monotonic() - started, time.process_time() - worked
    return Outcome(
        job,
        metrics["accuracy"],
        metrics["loss"],
        metrics.get("test accuracy"),
        *times,
        _device(job.device),
        _settings(job),
    )


def run_all(jobs: list[Job], arguments: argparse.Namespace) -> list[Outcome]:
    """The outcomes of all jobs, and of other seeds of theirs that were run before."""
    wanted = {_settings(job) for job in jobs}
    done = [earlier for earlier in read_outcomes(arguments.outcomes) if earlier.recipe in wanted]
    known = {(earlier.recipe, earlier.job.seed) for earlier in done}
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
    rows = [json.loads(line) for line in lines]
    return [Outcome(**{**row, "job": Job(**{**row["job"], "changes": tuple(row["job"]["changes"])})}) for row in rows]


def _settings(job: Job) -> str:
    """A fingerprint of all that decides an outcome but the seed and the machine; the runs of a search have no test."""
    from jumok.recipe import write_recipe

    recipe = read_recipe(ROOT / f"recipes/{job.recipe}.toml", job.changes)
    text = f"{job.settings != ''}\n" + write_recipe(replace(recipe, graph=replace(recipe.graph, path=job.recipe)))
    return hashlib.sha256(text.encode()).hexdigest()


def _alone() -> None:
    """One thread a process."""
    import torch

    torch.set_num_threads(1)


def summary(outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """Mean and standard deviation of the runs of every recipe with every choice of settings."""
    summaries: dict[str, dict[str, Any]] = {}
    for key in dict.fromkeys((outcome.job.recipe, outcome.job.settings) for outcome in outcomes):
        runs = [outcome for outcome in outcomes if (outcome.job.recipe, outcome.job.settings) == key]
        summaries[" / ".join(key)] = {
            "changes": runs[0].job.changes,
            "runs": len(runs),
            **{
                f"{name} {what}": measure([getattr(outcome, name) for outcome in runs])
                for name in ("validation", "loss", "test")
                for what, measure in (("mean", statistics.fmean), ("deviation", statistics.pstdev))
                if runs[0].test is not None or name != "test"
            },
            "seconds": statistics.median(outcome.seconds for outcome in runs),
            "processor": statistics.fmean(outcome.processor for outcome in runs),
            "device": " and ".join(sorted({outcome.device for outcome in runs})),
        }
    return summaries


def search(arguments: argparse.Namespace) -> None:
    """Compare the candidates on the validation nodes."""
    different: dict[str, Job] = {}  # a candidate that changes nothing is the recipe
    for recipe in arguments.recipes or GRAPHS:
        for name, changes in CANDIDATES.items():
            job = Job(recipe, name, tuple(changes), 0, arguments.device)
            different.setdefault(_settings(job), job)
    jobs = [job._replace(seed=seed) for seed in range(arguments.seeds) for job in different.values()]
    summaries = summary(run_all(jobs, arguments))
    for name, scores in sorted(summaries.items(), key=lambda item: -item[1]["validation mean"]):
        accuracy = f"{scores['validation mean']:.2f}±{scores['validation deviation']:.2f}"
        print(f"{name:50} validation {accuracy}  loss {scores['loss mean']:.3f}  {scores['runs']} runs")
    rows = [
        Row(
            f"validation/{recipe}/{name}",
            "jumok",
            round(scores["validation mean"], 2),
            "%",
            f"validation nodes, mean of {scores['runs']} seeds, loss {scores['loss mean']:.3f}",
        )
        for recipe, name, *_ in different.values()
        for scores in [summaries[f"{recipe} / {name}"]]
    ]
    print(
        write("graphs_search", rows, device=" and ".join(sorted({scores["device"] for scores in summaries.values()})))
    )


def run(arguments: argparse.Namespace) -> None:
    """The recipes as they are, or with --set."""
    jobs = [
        Job(recipe, "", tuple(arguments.set), seed, arguments.device)
        for seed in range(max(arguments.seeds, 1))
        for recipe in arguments.recipes or RECIPES
    ]
    outcomes = [outcome for outcome in run_all(jobs, arguments) if outcome.test is not None]
    summaries = summary([outcome._replace(job=outcome.job._replace(settings="")) for outcome in outcomes])
    before = earlier_rows()
    rows = []
    for graph in GRAPHS:
        for variant, system in SYSTEMS.items():
            means = summaries.get(f"{graph}{variant} / ")
            rows += rows_of(graph, system, means) if means else [row for row in before if _is_of(row, graph, system)]
        rows += [
            Row(graph + part, "GAT paper", value, "%", "Velickovic et al. (2018), table 2")
            for part, value in zip(("", "-deviation"), PAPER[graph], strict=True)
        ]
    print(write("graphs", rows, device=" and ".join(sorted({outcome.device for outcome in outcomes}))))


def rows_of(graph: str, system: str, means: dict[str, Any]) -> list[Row]:
    """The rows of a recipe."""
    conditions = (
        f"public split, mean ± deviation of {means['runs']} seeds, {means['seconds']:.1f} s a run and "
        f"{means['runs'] * means['processor'] / 60:.0f} processor minutes in all on {means['device']}"
    )
    return [
        Row(graph, system, round(means["test mean"], 2), "%", conditions),
        Row(f"{graph}-deviation", system, round(means["test deviation"], 2), "%", conditions),
    ]


def earlier_rows() -> list[Row]:
    """What results/graphs.json holds."""
    path = FOLDER / "graphs.json"
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]] if path.exists() else []


def _is_of(row: Row, graph: str, system: str) -> bool:
    return row.system == system and row.id.removesuffix("-deviation") == graph


def _device(name: str) -> str:
    import torch

    gpu = torch.cuda.is_available() and name != "cpu"
    return torch.cuda.get_device_name() if gpu else f"{cpu()}, one core a run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "search"))
    parser.add_argument("--recipes", nargs="+", default=[], choices=RECIPES)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--outcomes", type=Path, default=ROOT / "runs/graph-outcomes.jsonl")
    arguments = parser.parse_args()
    {"run": run, "search": search}[arguments.what](arguments)


if __name__ == "__main__":
    main()
