"""SIGMORPHON 2021, task 1: words to their pronunciation in 21 languages, 3 seeds each; WER is the share of wrong words.

    JUMOK_DATA=path/to/data python -m benchmarks.g2p train runs/g2p --workers 6       # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.g2p score runs/g2p                   # writes results/g2p.json

Recipes are recipes/g2p.toml and recipes/g2p-rnnsearch.toml with the language set; what a group of languages changes
stands in GROUPS. Which of the two systems stands for a group is decided by the mean over its validation words.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Row, write
from benchmarks.word_tasks import Job, mean_over_seeds, read, run_all

LANGUAGES = {
    "high": ["eng_us"],
    "medium": ["arm_e", "bul", "dut", "fre", "geo", "hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi"],
    "low": ["ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"],
}
SYSTEMS = {"transformer": "recipes/g2p.toml", "rnnsearch": "recipes/g2p-rnnsearch.toml"}
NAMES = {"transformer": "jumok, Transformer", "rnnsearch": "jumok, RNNsearch"}
GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "high": {
        "transformer": {"batch.tokens": 8192, "training.steps": 8000, "training.validate_every": 500},
        "rnnsearch": {"batch.tokens": 4096, "training.steps": 8000, "training.validate_every": 500},
    },
    "medium": {"transformer": {}, "rnnsearch": {}},
    "low": {
        "transformer": {"batch.tokens": 2048, "training.steps": 3000},
        "rnnsearch": {"batch.tokens": 1024, "training.steps": 2000, "training.validate_every": 200},
    },
}
PUBLISHED = {
    "high": (("baseline of the task", 41.94), ("best system of the task", 37.3)),
    "medium": (("baseline of the task", 10.64), ("best system of the task", 10.64)),
    "low": (("baseline of the task", 25.10), ("best system of the task", 24.1)),
}


def jobs(seeds: Sequence[int], groups: Sequence[str], systems: Sequence[str]) -> list[Job]:
    """All runs, the first seed of all languages first."""
    test = str(Path(os.environ["JUMOK_DATA"]) / "g2p/sigmorphon2021.test.tsv.xz")
    return [
        Job(group, language, system, seed, SYSTEMS[system], GROUPS[group][system] | {"data.only": [2, language]}, test)
        for seed in seeds
        for group in groups
        for language in LANGUAGES[group]
        for system in systems
    ]


def score(folder: Path, device: str) -> None:
    """WER of each group, by the system that is better on the validation words, and of every language."""
    rows, runs = [], read(folder)
    for group, languages in LANGUAGES.items():
        by_system = {
            system: of
            for system in SYSTEMS
            if (of := [r for r in runs if (r["group"], r["system"]) == (group, system)])
        }
        complete = {name: of for name, of in by_system.items() if {run["language"] for run in of} == set(languages)}
        best = min(complete, key=lambda name: mean_over_seeds(complete[name], "valid").value, default="")
        for system, of in complete.items():
            errors = mean_over_seeds([run | {"wer": 100 - run["accuracy"]} for run in of], "wer")
            valid = mean_over_seeds(of, "valid")
            minutes = sum(run["seconds"] for run in of) / 60
            about = (
                f"{SYSTEMS[system]}, {errors.seeds} seeds, deviation {errors.deviation:.2f}, validation "
                f"{valid.value:.2f}, {minutes:.1f} minutes of training in all, several at a time"
            )
            name = "jumok" if system == best else NAMES[system]
            rows.append(Row(f"g2p-2021-{group}", name, round(errors.value, 2), "% WER", about))
            for language in languages:
                wer = [run | {"wer": 100 - run["accuracy"]} for run in of if run["language"] == language]
                value = round(mean_over_seeds(wer, "wer").value, 2)
                rows.append(Row(f"words-g2p/{language}", NAMES[system], value, "% WER", group))
        rows += [Row(f"g2p-2021-{group}", name, value, "% WER", "as published") for name, value in PUBLISHED[group]]
    write("g2p", rows, device=device)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--groups", nargs="+", choices=[*LANGUAGES], default=[*LANGUAGES])
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS], default=[*SYSTEMS])
    parser.add_argument("--device", default="auto", help="to train on; for score, the name of what was trained on")
    given = parser.parse_args()
    if given.what == "train":
        planned = jobs(given.seeds, given.groups, given.systems)
        run_all(planned, given.folder, workers=given.workers, device=given.device)
    else:
        score(given.folder, given.device)
