"""SIGMORPHON 2021, task 1: words of 21 languages to their pronunciation, 3 seeds; WER is the share of wrong words.

    JUMOK_DATA=path/to/data python -m benchmarks.g2p train runs/g2p --workers 3       # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.g2p score runs/g2p                   # writes results/g2p.json

"all" is one model for all languages (recipes/g2p-all.toml), "one" is a model for each (recipes/g2p.toml with its
language). Where both were trained, the validation words of a group decide which of them stands for it.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Row, write
from benchmarks.word_tasks import RUNS, Job, mean_over_seeds, read, run_all

LANGUAGES = {
    "high": ["eng_us"],
    "medium": ["arm_e", "bul", "dut", "fre", "geo", "hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi"],
    "low": ["ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"],
}
GROUPS: dict[str, dict[str, Any]] = {
    "high": {"batch.tokens": 8192, "training.steps": 8000, "training.validate_every": 500},
    "medium": {},
    "low": {"batch.tokens": 2048, "training.steps": 3000},
}
"""What a model of one language of a group changes in its recipe."""
SYSTEMS = {"all": "recipes/g2p-all.toml", "one": "recipes/g2p.toml"}
NAMES = {"all": "jumok, one model for all", "one": "jumok, a model for each"}
PUBLISHED = {
    "high": (("baseline of the task", 41.94), ("best system of the task", 37.3)),
    "medium": (("baseline of the task", 10.64), ("best system of the task", 10.64)),
    "low": (("baseline of the task", 25.10), ("best system of the task", 24.1)),
}


def file(split: str) -> str:
    """The file of a split, with all languages."""
    return str(Path(os.environ["JUMOK_DATA"]) / f"g2p/sigmorphon2021.{split}.tsv.xz")


def jobs(seeds: Sequence[int], groups: Sequence[str]) -> list[Job]:
    """Models of one language each, the first seed of all languages first."""
    return [
        Job(group, language, "one", seed, SYSTEMS["one"], GROUPS[group] | {"data.only": [2, language]}, file("test"))
        for seed in seeds
        for group in groups
        for language in LANGUAGES[group]
    ]


def train_all(seeds: Sequence[int], folder: Path, *, workers: int, device: str, minutes: float) -> None:
    """A model of all languages for each seed."""
    folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for found in pool.imap_unordered(_of_seed, [(seed, str(folder), device, minutes) for seed in seeds]):
            with open(folder / RUNS, "a", encoding="utf-8") as out:
                out.writelines(json.dumps(run, ensure_ascii=False) + "\n" for run in found)
            for run in found:
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
    yield from tested(model, {"system": "ensemble", "seed": len(seeds)}, dict.fromkeys(LANGUAGES, 0.0))


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


def score(folder: Path, device: str) -> None:
    """WER of each group, by the system that is better on the validation words, and of every language."""
    rows = []
    runs = [run | {"wer": 100 - run["accuracy"]} for run in read(folder)]
    for group, languages in LANGUAGES.items():
        found = {name: [run for run in runs if (run["group"], run["system"]) == (group, name)] for name in SYSTEMS}
        complete = {name: of for name, of in found.items() if {run["language"] for run in of} == set(languages)}
        best = min(complete, key=lambda name: mean_over_seeds(complete[name], "valid").value, default="")
        together = [run for run in runs if (run["group"], run["system"]) == (group, "ensemble")]
        if {run["language"] for run in together} == set(languages):
            value, about = mean_over_seeds(together, "wer").value, f"{together[0]['seed']} models of {SYSTEMS['all']}"
            rows.append(Row(f"g2p-2021-{group}", "jumok, ensemble", round(value, 2), "% WER", about))
        for system, of in complete.items():
            errors, valid = mean_over_seeds(of, "wer"), mean_over_seeds(of, "valid")
            about = (
                f"{SYSTEMS[system]}, {errors.seeds} seeds, deviation {errors.deviation:.2f}, validation "
                f"{valid.value:.2f}" + "".join(sorted({f", {run['steps']:,} steps" for run in of if "steps" in run}))
            )
            name = "jumok" if system == best else NAMES[system]
            rows.append(Row(f"g2p-2021-{group}", name, round(errors.value, 2), "% WER", about))
            for language in languages:
                value = mean_over_seeds([run for run in of if run["language"] == language], "wer").value
                rows.append(Row(f"words-g2p/{language}", NAMES[system], round(value, 2), "% WER", group))
        rows += [Row(f"g2p-2021-{group}", name, value, "% WER", "as published") for name, value in PUBLISHED[group]]
    write("g2p", rows, device=device)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--groups", nargs="+", choices=[*LANGUAGES], default=[*LANGUAGES], help="for system one")
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
        if "one" in given.systems:
            planned = jobs(given.seeds, given.groups)
            run_all(planned, given.folder, workers=given.workers, device=given.device)
