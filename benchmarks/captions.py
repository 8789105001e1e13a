"""Captioners from the program's own recipes on images they have not seen, and whether words look at what they name.

    export JUMOK_DATA=path/to/data                            # with flickr8k_small/, which is not ours to give
    python -m benchmarks.captions runs/captions               # trains what is not there yet; minutes on a GPU
    python -m benchmarks.captions runs/captions scenes-en     # only some of them

Scenes: 300 of the test split, whose things were never together in training. Flickr8k: 300 photographs with five
captions each. A word points if the regions its thing reaches into hold more of its attention than those of any other
thing, and more than half of all.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.results import FOLDER, Row, cpu, write
from jumok.analysis.scores import Score
from jumok.caption_model import load_captioner
from jumok.cli.caption_scores import CaptionScores, evaluate_captioner

RECIPES = ("scenes-en", "scenes-ko", "flickr8k")
POINTING = ("all", "size", "colour", "shape")


def measure(folder: Path, names: list[str], device: str) -> None:
    kept = [row for row in earlier() if row.id.partition("/")[0] not in names]
    rows = [row for name in names for row in rows_of(name, folder / name, device)]
    where = torch.cuda.get_device_name() if device != "cpu" and torch.cuda.is_available() else cpu()
    write("captions", [*kept, *rows], device=where, packages=("torch", "sacrebleu"))


def earlier() -> list[Row]:
    path = FOLDER / "captions.json"
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]] if path.exists() else []


def rows_of(name: str, folder: Path, device: str) -> list[Row]:
    if not (folder / "README.md").exists():
        command = ["train", f"recipes/{name}.toml", "--out", str(folder), "--device", device]
        subprocess.run([sys.executable, "-m", "jumok.cli", *command], check=True)
    found = evaluate_captioner(folder, ["bleu", "exact_match"], device=device)
    recipe = load_captioner(folder).recipe
    conditions = f"{len(found.outputs)} test images; recipes/{name}.toml, {recipe.training.steps:,} steps"
    return [*scores(name, found, conditions), *pointing(name, found, conditions)]


def scores(name: str, found: CaptionScores, conditions: str) -> list[Row]:
    bleu, exact = found.scores
    row = Row(f"{name}/BLEU", "jumok", round(bleu.value, 2), "BLEU", f"{conditions}; {spread(bleu)}; {bleu.signature}")
    if found.pointing is None:
        return [row]
    return [Row(f"{name}/exact", "jumok", round(exact.value, 1), "%", f"{conditions}; {spread(exact)}")]


def pointing(name: str, found: CaptionScores, conditions: str) -> list[Row]:
    if found.pointing is None:
        return []
    said = f"{found.pointing.words} words that name a thing; {conditions}"
    shares = {**{kind: getattr(found.pointing, kind) for kind in POINTING}, "mass": found.pointing.mass}
    return [Row(f"{name}/pointing-{kind}", "jumok", round(share, 1), "%", said) for kind, share in shares.items()]


def spread(score: Score) -> str:
    return f"95% interval {score.low:.1f} to {score.high:.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(RECIPES))
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    measure(options.folder, options.names, options.device)
