"""Training time and quality of recipes/small-cpu.toml on 10,000 pairs of Multi30k, on one core.

    JUMOK_DATA=path/to/data python -m benchmarks.small_cpu runs/small

The time is CPU time with one thread, so other programs on the machine do not count.
"""

import argparse
import gzip
import os
import time
from itertools import islice
from pathlib import Path

import torch

from benchmarks.results import Row, cpu, write
from jumok.analysis.scores.metrics import score_outputs
from jumok.data import read_lines
from jumok.tasks import read_recipe
from jumok.tasks.run import train

PAIRS = 10_000
TEST = "test_2016_flickr"


def measure(folder: Path) -> None:
    torch.set_num_threads(1)
    data = Path(os.environ["JUMOK_DATA"], "multi30k")
    files = [few(data / f"train.{side}.gz", folder / f"train.{side}") for side in ("en", "de")]
    changes = [f"data.{name}={path}" for name, path in zip(("source", "target"), files, strict=True)]
    recipe = read_recipe("recipes/small-cpu.toml", changes)
    before = time.process_time()
    translator = train(recipe, out=folder / "model", device="cpu", draw=False).model
    minutes = (time.process_time() - before) / 60
    sources, references = (list(read_lines(data / f"{TEST}.{side}.gz")) for side in ("en", "de"))
    outputs = [translation.text for translation in translator.translate(sources)]
    (score,) = score_outputs(outputs, references, ["bleu"], resamples=1)
    what = f"the first {PAIRS:,} pairs of Multi30k en-de, {recipe.training.steps:,} steps"
    rows = [
        Row("small-cpu-minutes", "jumok", round(minutes, 1), "min", f"{what}; of one core, prepared and validated"),
        Row("small-cpu-bleu", "jumok", round(score.value, 1), "BLEU", f"{what}; 2016 test set, {score.signature}"),
    ]
    write("small_cpu", rows, device=f"{cpu()}, 1 thread")


def few(path: Path, out: Path) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        out.write_text("".join(islice(lines, PAIRS)), encoding="utf-8")
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    measure(parser.parse_args().folder)
