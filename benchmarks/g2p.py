"""SIGMORPHON 2021, task 1: words of 21 languages to their pronunciation, 3 seeds; WER is the share of wrong words.

    JUMOK_DATA=path/to/data python -m benchmarks.g2p train runs/g2p --workers 3       # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.g2p train runs/g2p --systems hard-short transducer-short --groups low
    JUMOK_DATA=path/to/data python -m benchmarks.g2p score runs/g2p                   # writes results/g2p.json

"all" is one model for all languages (recipes/g2p-all.toml). A model for each language is a Transformer in "one", and
"transducer" and "hard" are what recipes/g2p-transducer.toml and recipes/g2p-hard.toml say, "transducer-short" and
"hard-short" train for fewer steps, "transducer-deep" and "hard-deep" also with two encoder layers. Seeds of a system
are also tested as an ensemble, and so are those of several systems, which vote. The validation words of a group decide
which single model or ensemble stands for it. `score` keeps the rows of what was not run again, and writes short logs of
the models that are still in the folder to results/logs.
"""

import argparse
import json
import multiprocessing
import os
import re
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Row, saved, write
from benchmarks.training_logs import keep_logs
from benchmarks.word_tasks import RUNS, TOGETHER, Job, largest, mean_over_seeds, read, run_all, run_ensembles

LANGUAGES = {
    "high": ["eng_us"],
    "medium": ["arm_e", "bul", "dut", "fre", "geo", "hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi"],
    "low": ["ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"],
}
ALONG: dict[str, dict[str, Any]] = {
    "high": {"batch.tokens": 2400, "training.steps": 16000, "training.validate_every": 1000},
    "medium": {"batch.tokens": 1200, "training.steps": 6000, "training.validate_every": 500},
    "low": {},
}
"""What models that go along a word letter by letter change."""
FASTER = {"training.learning_rate": 0.002}
SHORT: dict[str, dict[str, Any]] = {
    "high": FASTER | {"batch.tokens": 1200, "training.steps": 8000, "training.validate_every": 2000},
    "medium": FASTER | {"batch.tokens": 1200, "training.steps": 2000, "training.validate_every": 500},
    "low": FASTER | {"training.steps": 500},
}
"""Fewer steps with a higher learning rate, for many models."""
DEEP = {group: overrides | {"encoder.layers": 2} for group, overrides in SHORT.items()}
GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "one": {
        "high": {"batch.tokens": 8192, "training.steps": 8000, "training.validate_every": 500},
        "medium": {},
        "low": {"batch.tokens": 2048, "training.steps": 3000},
    },
    "transducer": ALONG,
    "hard": ALONG,
    "transducer-short": SHORT,
    "hard-short": SHORT,
    "transducer-deep": DEEP,
    "hard-deep": DEEP,
}
"""What a model of one language of a group changes in its recipe."""
SYSTEMS = {
    "all": "recipes/g2p-all.toml",
    "one": "recipes/g2p.toml",
    "transducer": "recipes/g2p-transducer.toml",
    "hard": "recipes/g2p-hard.toml",
    "transducer-short": "recipes/g2p-transducer.toml",
    "hard-short": "recipes/g2p-hard.toml",
    "transducer-deep": "recipes/g2p-transducer.toml",
    "hard-deep": "recipes/g2p-hard.toml",
}
"""The recipe of each."""
NAMES = {
    "all": "jumok, one model for all",
    "one": "jumok, a model for each",
    "transducer": "jumok, a transducer for each",
    "hard": "jumok, hard monotonic attention for each",
    "transducer-short": "jumok, a transducer for each, short",
    "hard-short": "jumok, hard monotonic attention for each, short",
    "transducer-deep": "jumok, a transducer for each, deep",
    "hard-deep": "jumok, hard monotonic attention for each, deep",
}
SINGLE = "jumok, single model"
PUBLISHED = {
    "high": (("baseline of the task", 41.94), ("best system of the task", 37.3)),
    "medium": (("baseline of the task", 10.64), ("best system of the task", 10.64)),
    "low": (("baseline of the task", 25.10), ("best system of the task", 24.1)),
}


def file(split: str) -> str:
    """The file of a split, with all languages."""
    return str(Path(os.environ["JUMOK_DATA"]) / f"g2p/sigmorphon2021.{split}.tsv.xz")


def jobs(system: str, seeds: Sequence[int], groups: Sequence[str]) -> list[Job]:
    """Models of one language each, the first seed of all languages first."""
    return [
        Job(group, language, system, seed, SYSTEMS[system], overrides, file("test"), kept=system != "one")
        for seed in seeds
        for group in groups
        for language in LANGUAGES[group]
        for overrides in [GROUPS[system][group] | {"data.only": [2, language]}]
    ]


def train_all(seeds: Sequence[int], folder: Path, *, workers: int, device: str, minutes: float) -> None:
    """A model of all languages for each seed."""
    folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for runs in pool.imap_unordered(_of_seed, [(seed, str(folder), device, minutes) for seed in seeds]):
            with open(folder / RUNS, "a", encoding="utf-8") as out:
                out.writelines(json.dumps(run, ensure_ascii=False) + "\n" for run in runs)
            for run in runs:
                print({key: value for key, value in run.items() if key != "outputs"}, flush=True)
    if len(seeds) > 1:
        with open(folder / RUNS, "a", encoding="utf-8") as out:
            for run in ensemble(seeds, folder, device):
                out.write(json.dumps(run, ensure_ascii=False) + "\n")
                out.flush()


def _of_seed(task: tuple[int, str, str, float]) -> list[dict[str, Any]]:
    try:
        return list(measure(*task))
    except Exception:  # one that fails must not end the others
        traceback.print_exc()
        return []


def measure(seed: int, folder: str, device: str, minutes: float) -> Iterator[dict[str, Any]]:
    """Train one model, and count the words of every language that it gets entirely right."""
    import jumok

    out = Path(folder, f"all-{seed}")
    shutil.rmtree(out, ignore_errors=True)
    started = time.monotonic()
    overrides = {"training.seed": seed, "training.minutes": minutes}
    run = jumok.train(SYSTEMS["all"], out=out, overrides=overrides, device=device, draw=False)
    seconds = time.monotonic() - started
    shutil.copy(out / "metrics.jsonl", Path(folder, f"all-{seed}.jsonl"))
    about = {"system": "all", "seed": seed, "steps": run.state.step, "seconds": round(seconds / 21, 1)}
    yield from tested(run.model, about, {group: run.metrics[f"{group} ser"] for group in LANGUAGES})


def ensemble(seeds: Sequence[int], folder: Path, device: str) -> Iterator[dict[str, Any]]:
    """The models of all seeds together."""
    import jumok

    model = jumok.load([folder / f"all-{seed}" for seed in seeds], device=device)
    yield from tested(model, {"system": f"all{TOGETHER}", "seed": len(seeds)}, dict.fromkeys(LANGUAGES, 0.0))


def tested(model: Any, about: dict[str, Any], valid: dict[str, float]) -> Iterator[dict[str, Any]]:
    """The share of words of every language that a model gets entirely right."""
    from jumok.data import read_pairs

    model.batch_tokens = 1 << 16
    for group, languages in LANGUAGES.items():
        for language in languages:
            pairs = list(read_pairs(file("test"), columns=(3, 4), only=(2, language)))
            outputs = [output.text for output in model.translate([pair.source for pair in pairs], tag=language)]
            right = sum(output == pair.target for output, pair in zip(outputs, pairs, strict=True))
            yield {
                **{"group": group, "language": language, **about, "valid": valid[group]},
                **{"accuracy": 100 * right / len(pairs), "words": len(pairs), "outputs": outputs},
            }


class Scored(NamedTuple):
    """WER of one system in one group, in percent."""

    name: str
    wer: float
    valid: float
    """That of the validation words."""
    about: str
    languages: dict[str, float]
    single: bool = True
    """Whether each language has one model."""


def score(folder: Path, device: str) -> None:
    """WER of each group and of every language.

    Of systems and groups that were not run again, the rows of results/g2p.json stay.
    """
    rows: list[Row] = []
    runs = [run | {"wer": 100 - run["accuracy"]} for run in read(folder)]
    before = saved("g2p")
    for group, languages in LANGUAGES.items():
        of_group = [run for run in runs if run["group"] == group]
        old = [
            row for row in before if row.id in {f"g2p-2021-{group}", *(f"words-g2p/{of}" for of in (group, *languages))}
        ]
        if not of_group:
            rows += old
            continue
        single = [scored_now(of_group, name, group) or scored_before(old, name, group) for name in SYSTEMS]
        scored = [of for of in single if of is not None]
        now = list(ensembles(group, of_group))
        rows += group_rows(group, [*scored, *now, *ensembles_before(old, group, now)])
        rows += [Row(f"g2p-2021-{group}", name, value, "% WER", "as published") for name, value in PUBLISHED[group]]
    write("g2p", rows, device=device)
    keep_logs("g2p", folder)


def recipe(system: str, group: str) -> str:
    """The recipe of a system, and how it differs in a group."""
    name, kind = SYSTEMS[system], system.partition("-")[2]
    if kind:
        about = f"{name} with {SHORT[group]['training.steps']:,} steps at 0.002"
        return f"{about}, two encoder layers" if kind == "deep" else about
    along = ALONG[group] if system in ("hard", "transducer") else {}
    return f"{name} with {along['training.steps']:,} steps" if along else name


def scored_now(runs: Sequence[dict[str, Any]], system: str, group: str) -> Scored | None:
    """The mean over the seeds of a system; None if languages are missing."""
    of, languages = [run for run in runs if run["system"] == system], LANGUAGES[group]
    if {run["language"] for run in of} != set(languages):
        return None
    errors, valid = mean_over_seeds(of, "wer"), mean_over_seeds(of, "valid")
    steps = "".join(sorted({f", {run['steps']:,} steps" for run in of if "steps" in run}))
    minutes = sum(run.get("processor_seconds", 0) for run in of) / 60 / len(of)
    about = f"{recipe(system, group)}, {errors.about}, validation {valid.value:.2f}{steps}"
    about += f", {minutes:.1f} processor minutes each" if minutes else ""
    each = {
        language: mean_over_seeds([run for run in of if run["language"] == language], "wer").value
        for language in languages
    }
    return Scored(NAMES[system], errors.value, valid.value, about, each)


def scored_before(before: Sequence[Row], system: str, group: str) -> Scored | None:
    """The same from the rows of an earlier run."""
    for row in before:
        if row.conditions.startswith(f"{recipe(system, group)}, "):
            valid = re.search(r"validation ([\d.]+)", row.conditions)
            assert row.value is not None
            assert valid is not None
            each = {f"words-g2p/{language}": language for language in LANGUAGES[group]}
            languages = {each[of.id]: of.value or 0.0 for of in before if of.id in each and of.system == NAMES[system]}
            return Scored(NAMES[system], row.value, float(valid[1]), row.conditions, languages)
    return None


def ensembles(group: str, runs: Sequence[dict[str, Any]]) -> Iterator[Scored]:
    """The ensembles of a group, each of as many models as there are."""
    for system in dict.fromkeys(run["system"] for run in runs if run["system"].endswith(TOGETHER)):
        of = largest([run for run in runs if run["system"] == system])
        if {run["language"] for run in of} != set(LANGUAGES[group]):
            continue
        systems = system.removesuffix(TOGETHER).split(" + ")
        valid = 100 - mean_over_seeds(of, "valid_accuracy").value
        parts = " and ".join(f"{of[0]['seed'] // len(systems)} models of {recipe(name, group)}" for name in systems)
        minutes = sum(run.get("processor_seconds", 0) for run in runs if run["system"] in systems) / 60
        about = f"{parts} for each language, validation {valid:.2f}, {minutes:.0f} processor minutes for all"
        name = " and ".join(NAMES[name] for name in systems) + TOGETHER
        yield Scored(name, mean_over_seeds(of, "wer").value, valid, about, {}, single=False)


def ensembles_before(before: Sequence[Row], group: str, now: Sequence[Scored]) -> Iterator[Scored]:
    """Ensembles of an earlier run, but for those whose systems were run again."""
    named = {recipe(system, group): name for system, name in NAMES.items()}
    for row in before:
        parts, _, scores = row.conditions.partition(" for each language, validation ")
        if not scores:
            continue
        members = [part.partition(" models of ")[2] for part in re.split(r" and (?=\d+ models of)", parts)]
        name = " and ".join(named[member] for member in members) + TOGETHER
        if name not in {of.name for of in now}:
            assert row.value is not None
            yield Scored(name, row.value, float(scores.split(",")[0]), row.conditions, {}, single=False)


def group_rows(group: str, scored: Sequence[Scored]) -> Iterator[Row]:
    """Rows of a group; "jumok" is the system that is best on the validation words, SINGLE the best single model."""
    best = min(scored, key=lambda of: of.valid)
    best_single = min((of for of in scored if of.single), key=lambda of: of.valid)
    for of in sorted(scored, key=lambda of: of is not best):
        if of is best:
            row, name = f"g2p-2021-{group}", "jumok"
        elif of is best_single:
            row, name = f"g2p-2021-{group}", SINGLE
        else:
            row, name = f"g2p-2021-{group}" if of.name == NAMES["all"] else f"words-g2p/{group}", of.name
        yield Row(row, name, round(of.wer, 2), "% WER", of.about)
        for language, value in of.languages.items():
            yield Row(f"words-g2p/{language}", of.name, round(value, 2), "% WER", group)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--groups", nargs="+", choices=[*LANGUAGES], default=[*LANGUAGES], help="but for system all")
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS], default=["all"])
    parser.add_argument("--minutes", type=float, default=0.0, help="limit of the training of a model of all languages")
    parser.add_argument("--device", default="auto", help="to train on; for score, the name of what was trained on")
    given = parser.parse_args()
    if given.what == "score":
        score(given.folder, given.device)
    else:
        if "all" in given.systems:
            limits = {"workers": given.workers, "device": given.device, "minutes": given.minutes}
            train_all(given.seeds, given.folder, **limits)
        planned = [job for name in given.systems if name != "all" for job in jobs(name, given.seeds, given.groups)]
        run_all(planned, given.folder, workers=given.workers, device=given.device)
        run_ensembles(planned, given.folder, workers=given.workers, device=given.device)
