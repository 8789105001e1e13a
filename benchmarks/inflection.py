"""SIGMORPHON 2022, Korean: lemma and features to form, 7,000 and 700 training pairs, 3 seeds; accuracy of whole forms.

    JUMOK_DATA=path/to/data python -m benchmarks.inflection train runs/inflection --workers 6     # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.inflection score runs/inflection     # writes results/inflection.json

Recipes are recipes/inflection-kor.toml and those in SYSTEMS; what a task changes stands in TASKS. Which system stands
for a task is decided by the validation words. The seeds of a system in KEPT are also tested as an ensemble. `score`
keeps the rows of systems without runs in the folder, and writes short logs of the models that are still there to
results/logs.
"""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Row, saved, write
from benchmarks.training_logs import keep_logs
from benchmarks.word_tasks import TOGETHER, Job, largest, mean_over_seeds, read, run_all, run_ensembles

SYSTEMS = {
    "transformer": "recipes/inflection-kor.toml",
    "rnnsearch": "recipes/inflection-kor-rnnsearch.toml",
    "transducer": "recipes/inflection-kor-transducer.toml",
    "hard": "recipes/inflection-kor-hard.toml",
}
NAMES = {
    "transformer": "jumok, Transformer",
    "rnnsearch": "jumok, RNNsearch that copies",
    "transducer": "jumok, transducer",
    "hard": "jumok, hard monotonic attention",
}
KEPT = ("transducer", "hard")
TASKS: dict[str, dict[str, dict[str, Any]]] = {
    "large": {
        "transformer": {},
        "rnnsearch": {},
        "transducer": {"batch.tokens": 2400, "training.steps": 6000, "training.validate_every": 500},
        "hard": {"batch.tokens": 2400, "training.steps": 6000, "training.validate_every": 500},
    },
    "small": {
        "transformer": {"batch.tokens": 2048},
        "rnnsearch": {"batch.tokens": 1024, "training.steps": 2000, "training.validate_every": 500},
        "transducer": {},
        "hard": {},
    },
}
PUBLISHED = {
    "large": (("neural baseline of the task, its best", 56.16), ("non-neural baseline", 32.33)),
    "small": (("best system of the task", 50.51), ("neural baseline", 23.52), ("non-neural baseline", 28.87)),
}


def jobs(seeds: Sequence[int], tasks: Sequence[str], systems: Sequence[str]) -> list[Job]:
    """All runs, the first seed of all first."""
    folder = Path(os.environ["JUMOK_DATA"]) / "inflection"
    planned = []
    for seed in seeds:
        for task in tasks:
            pairs = {"data.pairs": str(folder / f"sigmorphon2022.kor_{task}.train.tsv.gz")}
            for system in systems:
                overrides = TASKS[task][system] | pairs
                test = str(folder / "sigmorphon2022.kor.gold.tsv.gz")
                planned.append(Job(task, "kor", system, seed, SYSTEMS[system], overrides, test, system in KEPT))
    return planned


class Scored(NamedTuple):
    """Accuracy in percent of a system, or of several of its models together."""

    accuracy: float
    about: str

    @property
    def valid(self) -> float:
        """The accuracy on the validation words, which the conditions of a single model contain."""
        match = re.search(r"validation ([\d.]+)", self.about)
        assert match is not None
        return float(match[1])


def score(folder: Path, device: str) -> None:
    """Accuracy of each task by the system that is better on the validation words, and of the others.

    Of systems and tasks that were not run again, the rows of results/inflection.json stay.
    """
    rows, runs, before = [], read(folder), saved("inflection")
    for task in TASKS:
        id = f"inflection-kor-{task}"
        mine, old = [run for run in runs if run["group"] == task], [row for row in before if row.id == id]
        by_system = {name: scored for name in SYSTEMS if (scored := single_now(mine, name) or single_before(old, name))}
        best = max(by_system, key=lambda name: by_system[name].valid, default="")
        for system, single in by_system.items():
            name = "jumok" if system == best else NAMES[system]
            rows.append(Row(id, name, single.accuracy, "%", single.about))
            if together := together_now(mine, system) or together_before(old, system):
                rows.append(Row(id, name + TOGETHER, together.accuracy, "%", together.about))
        rows += [Row(id, name, value, "%", "as published") for name, value in PUBLISHED[task]]
    write("inflection", rows, device=device)
    keep_logs("inflection", folder)


def single_now(runs: Sequence[dict[str, Any]], system: str) -> Scored | None:
    """The mean over the seeds of a system; None if it was not run."""
    of = [run for run in runs if run["system"] == system]
    if not of:
        return None
    accuracy, valid = mean_over_seeds(of, "accuracy"), mean_over_seeds(of, "valid")
    minutes = sum(run["seconds"] for run in of) / 60
    about = (
        f"{accuracy.about}, validation {valid.value:.2f}, {minutes:.1f} minutes of training in all, several at a time"
    )
    return Scored(round(accuracy.value, 2), f"{SYSTEMS[system]}, {about}")


def single_before(before: Sequence[Row], system: str) -> Scored | None:
    """The same from the rows of an earlier run."""
    return next((kept(row) for row in before if row.conditions.startswith(f"{SYSTEMS[system]}, ")), None)


def together_now(runs: Sequence[dict[str, Any]], system: str) -> Scored | None:
    """The ensemble of most seeds of a system; None if there is none."""
    members = largest([run for run in runs if run["system"] == system + TOGETHER])
    if not members:
        return None
    return Scored(round(members[-1]["accuracy"], 2), f"{members[-1]['seed']} models of {SYSTEMS[system]}")


def together_before(before: Sequence[Row], system: str) -> Scored | None:
    """The same from the rows of an earlier run."""
    return next((kept(row) for row in before if row.conditions.endswith(f" models of {SYSTEMS[system]}")), None)


def kept(row: Row) -> Scored:
    """What an earlier row says."""
    assert row.value is not None
    return Scored(row.value, row.conditions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS], default=[*SYSTEMS])
    parser.add_argument("--device", default="auto", help="to train on; for score, the name of what was trained on")
    given = parser.parse_args()
    if given.what == "train":
        planned = jobs(given.seeds, given.tasks, given.systems)
        run_all(planned, given.folder, workers=given.workers, device=given.device)
        run_ensembles(planned, given.folder, workers=given.workers, device=given.device)
    else:
        score(given.folder, given.device)
