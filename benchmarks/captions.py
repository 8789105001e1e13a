"""Captions of unseen images by jumok's own recipes, and whether words attend to what they name.

    export JUMOK_DATA=path/to/data                            # with flickr8k_small/, which is not part of jumok
    python -m benchmarks.captions runs/captions               # trains missing models; minutes on a GPU
    python -m benchmarks.captions runs/captions scenes-en     # only this model

Scenes: 300 of the test split, whose combinations of shapes do not occur in training. Flickr8k: 300 photographs with
five captions each. A word attends to its shape if the regions of this shape have more of its attention than those of
any other shape, and more than half in total. A short log of each training run is written to results/logs.
"""

import argparse
import json
from pathlib import Path

import torch

from benchmarks.results import FOLDER, Row, cpu, write
from benchmarks.training_logs import keep_logs
from jumok.analysis.scores.metrics import MetricScore, score_outputs
from jumok.images.pairs import ImagesConfig, read_split
from jumok.tasks import load, read_recipe
from jumok.tasks.captioning_scores import CaptionScores, score_captioner
from jumok.tasks.results import EvaluationOptions
from jumok.tasks.run import train

RECIPES = {
    "scenes-en": ("scenes", "jumok, English"),
    "scenes-ko": ("scenes", "jumok, Korean"),
    "flickr8k": ("flickr8k", "jumok"),
}
"""Where each stands in the results: what its ids begin with, and the column."""
PUBLISHED = Row(
    "flickr8k/BLEU",
    "Show, Attend and Tell",
    19.5,
    "points",
    "Xu et al. 2015, soft attention: full-size images, 6,000 to learn from, an encoder trained on ImageNet",
)
POINTING = ("size", "colour", "shape")


def measure(folder: Path, names: list[str], device: str, trained_on: str) -> None:
    anew = {RECIPES[name] for name in names}
    kept = [row for row in earlier() if (row.id.partition("/")[0], row.system) not in anew and row != PUBLISHED]
    rows = [row for name in names for row in rows_of(name, folder / name, device)]
    where = torch.cuda.get_device_name() if device != "cpu" and torch.cuda.is_available() else cpu()
    where = f"trained on {trained_on}, scored on {where}" if trained_on else where
    write("captions", [*kept, *rows, PUBLISHED], device=where, packages=("torch", "sacrebleu"))
    keep_logs("captions", folder)


def earlier() -> list[Row]:
    path = FOLDER / "captions.json"
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]] if path.exists() else []


def rows_of(name: str, folder: Path, device: str) -> list[Row]:
    if not (folder / "README.md").exists():
        train(f"recipes/{name}.toml", out=folder, device=device)
    captioner, files = load(folder, device=device), read_recipe(f"recipes/{name}.toml").images
    recipe, metrics = captioner.trained.recipe, ("bleu", "exact_match", "cider", "meteor")
    # It may have been trained elsewhere, on files in another place.
    options = EvaluationOptions(source=files.path or None, reference=files.captions or None, metrics=metrics)
    scored = score_captioner(captioner, options)
    seconds = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["seconds"]
    trained = f"recipes/{name}.toml, {recipe.training.steps:,} steps in {seconds:.0f} s"
    conditions = f"{len(scored.outputs)} test images; {trained}"
    rows = [*scores(name, scored, conditions), *pointing(name, scored, conditions)]
    return rows if scored.pointing else [*rows, of_others(name, scored, files, conditions)]


def scores(name: str, scored: CaptionScores, conditions: str) -> list[Row]:
    (place, system), (bleu, exact, *others) = RECIPES[name], scored.scores
    if scored.pointing is None:
        return [
            Row(
                f"{place}/{score.name}",
                system,
                round(score.value, 2),
                "points",
                f"{conditions}; {spread(score)}; {score.signature}",
            )
            for score in (bleu, *others)
        ]
    return [Row(f"{place}/captions right", system, round(exact.value, 1), "%", f"{conditions}; {spread(exact)}")]


def of_others(name: str, scored: CaptionScores, files: ImagesConfig, conditions: str) -> Row:
    """What the same captions score if each is given to the next image: how much of BLEU needs no look at all."""
    place, system = RECIPES[name]
    rights = [row.captions for row in read_split(files, "test").rows]
    (bleu,) = score_outputs([*scored.outputs[1:], scored.outputs[0]], rights, ["bleu"], lowercase=True)
    details = f"each caption given to another image; {conditions}; {spread(bleu)}"
    return Row(f"{place}/BLEU of captions of other images", system, round(bleu.value, 2), "points", details)


def pointing(name: str, scored: CaptionScores, conditions: str) -> list[Row]:
    if scored.pointing is None:
        return []
    place, system = RECIPES[name]
    details = f"{scored.pointing.words} words that name a thing; {conditions}"
    shares = {
        "words that point": scored.pointing.all,
        **{f"words of {kind} that point": getattr(scored.pointing, kind) for kind in POINTING},
        "attention on what is named": scored.pointing.mass,
    }
    return [Row(f"{place}/{what}", system, round(share, 1), "%", details) for what, share in shares.items()]


def spread(score: MetricScore) -> str:
    return f"95% interval {score.low:.1f} to {score.high:.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(RECIPES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--trained-on", default="", help="where models that are there already were trained")
    options = parser.parse_args()
    measure(options.folder, options.names, options.device, options.trained_on)
