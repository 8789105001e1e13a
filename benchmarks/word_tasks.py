"""Runs of tasks on single words, many small ones at a time: what `benchmarks.g2p` and `benchmarks.inflection` share.

A model is chosen by its score on the validation words alone; the test words are translated once, at the end.
"""

import json
import multiprocessing
import shutil
import statistics
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RUNS = "runs.jsonl"
TOGETHER = ", ensemble"
"""Ends the name of a system whose seeds were tested together."""


class Job(NamedTuple):
    """A model to train and test."""

    group: str
    """What a mean is taken over, such as "medium"."""
    language: str
    system: str
    seed: int
    recipe: str
    overrides: dict[str, Any]
    test: str
    """The file of test pairs; its columns are those of the recipe."""
    kept: bool = False
    """Whether the model stays on disk, for an ensemble of its seeds."""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What a run is known by."""
        return self.group, self.language, self.system, self.seed


def run_all(jobs: Sequence[Job], folder: Path, *, workers: int, device: str) -> None:
    """Train and test every model that RUNS does not have yet, `workers` at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {(run["group"], run["language"], run["system"], run["seed"]) for run in read(folder)}
    missing = [(job, str(folder), device) for job in jobs if job.key not in done]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        _write(pool.imap_unordered(_measured, missing), folder)


def run_ensembles(jobs: Sequence[Job], folder: Path, *, workers: int, device: str) -> None:
    """Test the seeds of every kept model together, and those of all systems; as its seed, a run has their number."""
    together: dict[tuple[str, ...], list[Job]] = defaultdict(list)
    for job in jobs:
        if job.kept and _folder(job, folder).exists():
            together[job.key[:3]].append(job)
            together[job.key[:2]].append(job)
    done = {(run["group"], run["language"], run["system"], run["seed"]) for run in read(folder)}
    of = [
        (members, str(folder), device)
        for key, members in together.items()
        if len(members) > 1 and (len(key) == 3 or len({job.system for job in members}) > 1)
        if _ensemble_key(members) not in done
    ]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        _write(pool.imap_unordered(_tested_together, of), folder)


def _ensemble_key(members: Sequence[Job]) -> tuple[str, str, str, int]:
    """What the run of several models is known by."""
    systems = " + ".join(dict.fromkeys(job.system for job in members))
    return members[0].group, members[0].language, f"{systems}{TOGETHER}", len(members)


def _write(runs: Iterable[dict[str, Any]], folder: Path) -> None:
    for run in runs:
        with open(folder / RUNS, "a", encoding="utf-8") as file:
            file.write(json.dumps(run, ensure_ascii=False) + "\n")
        print({key: value for key, value in run.items() if key != "outputs"}, flush=True)


def read(folder: Path) -> list[dict[str, Any]]:
    """The runs that are done."""
    path = folder / RUNS
    if not path.exists():
        return []
    runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [run for run in runs if "error" not in run]


def _measured(task: tuple[Job, str, str]) -> dict[str, Any]:
    job, folder, device = task
    name = {"group": job.group, "language": job.language, "system": job.system, "seed": job.seed}
    try:
        return name | measure(job, Path(folder), device)
    except Exception as error:  # one that fails must not end the others
        traceback.print_exc()
        return name | {"error": str(error)}


def measure(job: Job, folder: Path, device: str) -> dict[str, Any]:
    """Train a model, and count the test words that it gets entirely right."""
    import jumok

    out = _folder(job, folder)
    shutil.rmtree(out, ignore_errors=True)
    started, processor = time.monotonic(), time.process_time()
    run = jumok.train(
        job.recipe, out=out, overrides=job.overrides | {"training.seed": job.seed}, device=device, draw=False
    )
    seconds, processor = time.monotonic() - started, time.process_time() - processor
    tested = test(run.model, job.test)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    speed = max((line["tokens_per_second"] for line in lines if "tokens_per_second" in line), default=0.0)
    for spare in ("checkpoints", "data", "tensorboard") if job.kept else ("",):
        shutil.rmtree(out / spare, ignore_errors=True)
    (valid,) = (value for name, value in run.metrics.items() if name in ("ser", "exact_match"))
    return {
        "valid": valid,
        **tested,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "test_seconds": round(time.monotonic() - started - seconds, 1),
        "tokens_per_second": round(speed),
    }


def test(model: Any, file: str) -> dict[str, Any]:
    """What a model makes of the test words, and how many it gets entirely right."""
    from jumok.data import read_pairs

    data = model.trained.recipe.data
    pairs = list(read_pairs(file, columns=data.columns, features=data.features, only=data.only))
    outputs = [output.text for output in model.translate([pair.source for pair in pairs])]
    right = sum(output == pair.target for output, pair in zip(outputs, pairs, strict=True))
    return {"accuracy": 100 * right / len(pairs), "words": len(pairs), "outputs": outputs}


def _folder(job: Job, folder: Path) -> Path:
    return folder / "-".join(map(str, job.key))


def _tested_together(task: tuple[list[Job], str, str]) -> dict[str, Any]:
    import jumok

    members, folder, device = task
    name = dict(zip(("group", "language", "system", "seed"), _ensemble_key(members), strict=True))
    try:
        model = jumok.load([_folder(job, Path(folder)) for job in members], device=device)
        valid = test(model, model.trained.recipe.data.valid_pairs)
        return name | {"valid_accuracy": valid["accuracy"]} | test(model, members[0].test)
    except Exception as error:  # one that fails must not end the others
        traceback.print_exc()
        return name | {"error": str(error)}


def largest(ensembles: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of most models."""
    most = max((run["seed"] for run in ensembles), default=0)
    return [run for run in ensembles if run["seed"] == most]


class Mean(NamedTuple):
    """A mean over seeds, and its deviation."""

    value: float
    deviation: float
    seeds: int

    @property
    def about(self) -> str:
        """Of how many seeds it is, and their deviation, which one seed does not have."""
        return f"{self.seeds} seeds, deviation {self.deviation:.2f}" if self.seeds > 1 else "1 seed"


def mean_over_seeds(runs: Sequence[dict[str, Any]], score: str) -> Mean:
    """Of every seed the mean over languages; of those, mean and deviation."""
    seeds = sorted({run["seed"] for run in runs})
    languages = {run["language"] for run in runs}
    means = []
    for seed in seeds:
        of_seed = [run for run in runs if run["seed"] == seed]
        if {run["language"] for run in of_seed} == languages:
            means.append(statistics.mean(run[score] for run in of_seed))
    return Mean(statistics.mean(means), statistics.stdev(means) if len(means) > 1 else 0.0, len(means))
