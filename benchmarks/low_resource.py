"""German to English from 4,600 pairs of TED talks (IWSLT 2014): train with several seeds, translate, score.

    JUMOK_DATA=path/to/data python -m benchmarks.low_resource train runs/low-resource --workers 3    # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.low_resource score runs/low-resource

`train` takes recipes/low-resource-de-en.toml; with --systems, also with copying, or with attention guided by the links
that jumok's aligner finds in the training text. The seeds of a system also translate as an ensemble. The text is
tokenised and lower-cased as in fairseq's recipe, and so are the scores: BLEU without further tokenisation. Entities
such as &apos; become their characters first: sacrebleu's tokenizer, which validation uses, would count each as three
words. The validation set chooses the checkpoints, the length penalty and the system that stands for jumok.
`score` keeps the rows of systems without outputs in the folder, and writes a short log of each run to results/logs.
"""

import argparse
import html
import json
import lzma
import multiprocessing
import os
import re
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import sacrebleu

from benchmarks.results import Row, saved, write
from benchmarks.training_logs import keep_logs

RECIPE = "recipes/low-resource-de-en.toml"


class System(NamedTuple):
    """How a model differs from the recipe."""

    title: str
    about: str
    overrides: dict[str, Any]


COPYING, GUIDED = {"decoder.copy": True}, {"training.guided_alignment": 0.3}
SYSTEMS = {
    "transformer": System("jumok, Transformer", RECIPE, {}),
    "copying": System("jumok, Transformer that copies", f"{RECIPE} with copying", COPYING),
    "guided": System("jumok, guided Transformer", f"{RECIPE} with guided alignment", GUIDED),
    "both": System("jumok, guided Transformer that copies", f"{RECIPE} with both", COPYING | GUIDED),
}
PENALTIES = (1.0, 1.5, 2.0)
"""The length penalties among which the validation set chooses."""
ENSEMBLE = "ensemble"
GOAL = "low-resource-de-en"


SPLITS = {"": "train_lowres4600", "valid_": "valid"}
"""By what the settings of data begin with."""


def lines(language: str, split: str = "test") -> list[str]:
    path = Path(os.environ.get("JUMOK_DATA", "../shared/data"), f"iwslt14_deen/{split}.{language}.xz")
    return html.unescape(lzma.decompress(path.read_bytes()).decode()).splitlines()


def write_text(folder: Path) -> dict[str, str]:
    """Write the text to train and validate on, with its links, and return the settings that name its files."""
    import jumok
    from jumok.data.word_links import format_word_links

    settings = {}
    for prefix, split in SPLITS.items():
        for side, language in {"source": "de", "target": "en"}.items():
            path = folder / f"{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in lines(language, split)), encoding="utf-8")
            settings[f"data.{prefix}{side}"] = str(path)
    pairs = zip(*(lines(language, SPLITS[""]) for language in ("de", "en")), strict=True)
    links = "".join(f"{format_word_links(alignment.links)}\n" for alignment in jumok.align(pairs))
    (folder / "links").write_text(links, encoding="utf-8")
    return settings


def train_one(job: tuple[str, int, str, float, dict[str, str]]) -> None:
    """Train a model and translate the test set."""
    import jumok

    system, seed, folder, minutes, text = job
    started = time.monotonic()
    how = SYSTEMS[system].overrides
    overrides = {**text, **how, "training.seed": seed, "training.minutes": minutes}
    if "training.guided_alignment" in how:
        overrides["data.alignments"] = str(Path(folder, "links"))
    run = jumok.train(RECIPE, out=Path(folder, system, str(seed)), overrides=overrides, draw=False)
    about = {"steps": run.state.step, "minutes": (time.monotonic() - started) / 60}
    translate(Path(folder), system, [seed], about)


def translate(folder: Path, system: str, seeds: list[int], about: dict[str, float]) -> None:
    """Translate the test set with the model of a seed, or with those of several as an ensemble."""
    import jumok

    model = jumok.load([folder / system / str(seed) for seed in seeds])
    valid = {penalty: bleu(translated(model, "valid", penalty), "valid") for penalty in PENALTIES}
    penalty = max(valid, key=lambda penalty: valid[penalty])
    name = seeds[0] if len(seeds) == 1 else ENSEMBLE
    record = {"seeds": seeds, **about, "valid": valid[penalty], "length_penalty": penalty, "all_penalties": valid}
    record["outputs"] = translated(model, "test", penalty)
    (folder / f"{system}.{name}.json").write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")


def translated(model: Any, split: str, penalty: float) -> list[str]:
    return [output.text for output in model.translate(lines("de", split), length_penalty=penalty)]


def bleu(outputs: list[str], split: str) -> float:
    return float(sacrebleu.BLEU(tokenize="none", force=True).corpus_score(outputs, [lines("en", split)]).score)


def train(folder: Path, systems: list[str], seeds: list[int], workers: int, minutes: float) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    (folder / "device").write_text(f"{device}, torch {torch.__version__}", encoding="utf-8")
    text = write_text(folder)
    jobs = [(system, seed, str(folder), minutes, text) for system, seed in product(systems, seeds)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(train_one, jobs, chunksize=1)
    for system in systems if len(seeds) > 1 else ():
        translate(folder, system, seeds, {})


class Scored(NamedTuple):
    """What the tables have of a system."""

    valid: float
    """BLEU on the validation set."""
    values: list[tuple[str, str, float]]
    """An id, what follows the name of the system, and BLEU."""
    about: str


def score(folder: Path) -> None:
    """The mean over seeds, and the ensemble, of every system; the one with the best validation score is `jumok`.

    Of systems that were not run again, the rows of results/low_resource.json stay.
    """
    before = saved("low_resource")
    systems = {name: of for name in SYSTEMS if (of := scored_now(folder, name) or scored_before(before, name))}
    best = max(systems, key=lambda name: systems[name].valid, default="")
    rows = [
        Row(id, ("jumok" if name == best else SYSTEMS[name].title) + ending, value, "BLEU", of.about)
        for name, of in systems.items()
        for id, ending, value in of.values
    ]
    published = "as published, another sample of 100,000 words"
    rows.append(Row(GOAL, "tuned RNN (Sennrich & Zhang 2019)", 16.57, "BLEU", published))
    write("low_resource", rows, device=(folder / "device").read_text(encoding="utf-8"), packages=("sacrebleu",))
    keep_logs("low-resource", folder)


def scored_now(folder: Path, name: str) -> Scored | None:
    """The scores of a system in a folder; None if it has no single model there."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{name}.*.json"))]
    single = [run for run in runs if len(run["seeds"]) == 1]
    if not single:
        return None
    valid = mean(run["valid"] for run in single)
    penalties = ", ".join(dict.fromkeys(f"{run['length_penalty']}" for run in single))
    about = (
        f"{SYSTEMS[name].about}, beam 5, length penalty {penalties}, {single[0]['steps']:,} steps in "
        f"{max(run['minutes'] for run in single):.1f} minutes, {len(single)} seed{'s' * (len(single) > 1)}; "
        f"validation {valid:.2f}; tokenised, lower-cased"
    )
    scores = [bleu(run["outputs"], "test") for run in single]
    values = [(GOAL, "", round(mean(scores), 2))]
    if len(scores) > 1:
        values.append((f"{GOAL}-deviation", "", round(stdev(scores), 2)))
    for run in (run for run in runs if len(run["seeds"]) > 1):
        values.append((GOAL, f", {len(run['seeds'])} models", round(bleu(run["outputs"], "test"), 2)))
    return Scored(valid, values, about)


def scored_before(before: Sequence[Row], name: str) -> Scored | None:
    """The same from the rows of an earlier run, which may call the system `jumok`."""
    rows = [row for row in before if row.conditions.startswith(f"{SYSTEMS[name].about}, ")]
    if not rows:
        return None
    title, about = min((row.system for row in rows), key=len), rows[0].conditions
    valid = re.search(r"validation ([\d.]+)", about)
    assert valid is not None
    values = [(row.id, row.system.removeprefix(title), row.value) for row in rows if row.value is not None]
    return Scored(float(valid[1]), values, about)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS], default=["transformer"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0, help="limit of the training of a model")
    given = parser.parse_args()
    if given.what == "train":
        train(given.folder, given.systems, given.seeds, given.workers, given.minutes)
    else:
        score(given.folder)
