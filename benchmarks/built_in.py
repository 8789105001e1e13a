"""Models of the built-in corpora, trained by jumok's own recipes on a CPU: the demo, dates and reversed digits.

    python -m benchmarks.built_in runs/built-in                    # about five minutes on two cores
    python -m benchmarks.built_in runs/built-in --only reverse     # one recipe; the other rows stay

Every model is scored on 1,000 values that occur in neither its training nor its validation data.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from benchmarks.results import FOLDER, Row, cpu, write
from jumok.data.corpora.built_in import corpus_pairs
from jumok.tasks import read_recipe
from jumok.tasks.demo import demonstrate_translation
from jumok.tasks.run import train

UNSEEN = 1000
SYSTEMS = {"attention": "jumok", "fixed": "jumok, fixed context"}


RECIPES = ("dates", "reverse")


def measure(folder: Path, only: str | None) -> None:
    if only is None:
        rows = [*demo(folder / "demo"), *(recipe(name, folder / name) for name in RECIPES)]
    else:
        kept = [Row(**row) for row in json.loads((FOLDER / "built_in.json").read_text(encoding="utf-8"))["rows"]]
        again = demo(folder / "demo") if only == "demo" else [recipe(only, folder / only)]
        rows = [*again, *(row for row in kept if row.id not in {new.id for new in again})]
    write("built_in", rows, device=cpu())


def demo(folder: Path) -> list[Row]:
    """As `jumok demo` does it."""
    scores = demonstrate_translation(folder, steps=1800, minutes=12, say=print).as_plain()
    every = {"tokens": "all", "sentences": UNSEEN, **scores["exact_match"]}
    return [
        Row(f"demo/{band['tokens']}", system, round(band[name], 1), "% exact", f"{band['sentences']} values")
        for band in [*scores["by_length"], every]
        for name, system in SYSTEMS.items()
    ]


def recipe(name: str, folder: Path) -> Row:
    """A recipe as it stands."""
    wanted, started = read_recipe(f"recipes/{name}.toml"), time.monotonic()
    translator = train(wanted, out=folder, device="cpu", draw=False).model
    seconds = time.monotonic() - started
    pairs = list(corpus_pairs(name, UNSEEN, split="test", longest=wanted.data.longest))
    translations = translator.translate([pair.source for pair in pairs])
    right = sum(translation.text == pair.target for translation, pair in zip(translations, pairs, strict=True))
    took = f"{wanted.training.steps:,} steps in {seconds:.0f} s, {torch.get_num_threads()} threads"
    took += ", with its text prepared and validated"
    conditions = f"{UNSEEN:,} unseen values; recipes/{name}.toml, {took}"
    return Row(f"recipe/{name}", "jumok", round(100 * right / UNSEEN, 1), "% exact", conditions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=("demo", *RECIPES))
    arguments = parser.parse_args()
    measure(arguments.folder, arguments.only)
