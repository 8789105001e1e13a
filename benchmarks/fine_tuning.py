"""Fine-tuning of a model of image captions on everyday sentences, with and without captions in the training data.

    JUMOK_DATA=path/to/data python -m benchmarks.fine_tuning text                    # writes text/everyday
    JUMOK_DATA=path/to/data python -m benchmarks.fine_tuning train runs/fine-tuning  # on one core of a CPU
    JUMOK_DATA=path/to/data python -m benchmarks.fine_tuning score runs/fine-tuning  # writes claims_fine_tuning.json

`text` splits sentences of Tatoeba into training, validation and test sentences. `train` fine-tunes the model of
recipes/multi30k-en-fr-base.toml with recipes/fine-tune-everyday.toml, as it is, without the tag, and on everyday
sentences alone, with one or more seeds; with one seed it takes half an hour. Each model then translates both test sets;
the model with the tag uses it for everyday sentences. Models that are already in the folder are not trained again. The
minutes are CPU time with one thread, so other programs on the machine do not count. `score` also writes a short log of
each run to results/logs.
"""

import argparse
import json
import os
import random
import re
import time
import tomllib
from functools import cache
from itertools import islice, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import sacrebleu
import torch

import jumok
from benchmarks.results import Row, cpu, write
from benchmarks.training_logs import keep_logs
from jumok.data.pairs import Pair, read_pairs
from jumok.files import atomic_write

TEXT = Path("text/everyday")
SPLITS = {"test": 1_000, "valid": 1_000, "train": 20_000}
BASE, RECIPE = Path("recipes/multi30k-en-fr-base.toml"), Path("recipes/fine-tune-everyday.toml")
SYSTEMS = {
    "base": "captions alone",
    "alone": "then everyday sentences alone",
    "mixed": "then both, 1 : 1",
    "tagged": "then both, 1 : 1, with a tag",
}


def write_text() -> None:
    """Split everyday sentences, one for each English side.

    English sides that differ only in case and punctuation count as one, so none is both trained on and tested.
    """
    pairs = list(read_pairs(Path(os.environ["JUMOK_DATA"], "fra-eng/eng-fra.tsv.xz")))
    random.Random(1).shuffle(pairs)
    distinct = iter({" ".join(re.findall(r"\w+", pair.source.casefold())): pair for pair in pairs}.values())
    for split, size in SPLITS.items():
        with atomic_write(TEXT / f"{split}.tsv") as file:
            file.writelines(f"{pair.source}\t{pair.target}\n".encode() for pair in islice(distinct, size))


@cache
def test_sets() -> dict[str, list[Pair]]:
    """The pairs of both test sets."""
    captions = [Path(os.environ["JUMOK_DATA"], f"multi30k/test_2016_flickr.{side}.gz") for side in ("en", "fr")]
    return {"captions": list(read_pairs(*captions)), "everyday": list(read_pairs(TEXT / "test.tsv"))}


def corpora(system: str) -> list[dict[str, Any]]:
    """The corpora of the recipe; only the tagged model has the tag, and one has everyday sentences alone."""
    mix: list[dict[str, Any]] = tomllib.loads(RECIPE.read_text(encoding="utf-8"))["data"]["mix"]
    if system != "tagged":
        mix = [{**corpus, "tag": ""} for corpus in mix]
    return mix[1:] if system == "alone" else mix


def train_one(folder: Path, system: str, seed: int) -> None:
    """Train a model and translate both test sets."""
    outputs = folder / f"{system}.{seed}.json"
    if outputs.exists():
        return
    changes: dict[str, Any] = {"training.seed": seed}
    if system != "base":
        changes |= {"training.start_from": f"{folder}/base/1", "data.mix": corpora(system)}
    started = time.process_time()
    recipe = BASE if system == "base" else RECIPE
    run = jumok.train(recipe, out=folder / system / str(seed), overrides=changes, draw=False)
    if run.stopped == "interrupted":
        raise KeyboardInterrupt
    found: dict[str, Any] = {"minutes": (time.process_time() - started) / 60, "steps": run.state.step}
    for test, pairs in test_sets().items():
        tag = "everyday" if (system, test) == ("tagged", "everyday") else None
        found[test] = [output.text for output in run.model.translate([pair.source for pair in pairs], tag=tag)]
    with atomic_write(outputs) as file:
        file.write(json.dumps(found, ensure_ascii=False).encode())


def train(folder: Path, seeds: list[int]) -> None:
    """The model of captions first, with one seed, and then the others."""
    torch.set_num_threads(1)
    train_one(folder, "base", 1)
    for seed, system in product(seeds, ("alone", "mixed", "tagged")):
        train_one(folder, system, seed)


def score(folder: Path) -> None:
    """BLEU of all models on both test sets: the mean over seeds, and the standard deviation."""
    rows = []
    for system, name in SYSTEMS.items():
        runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{system}.*.json"))]
        for test, pairs in test_sets().items() if runs else ():
            metric, references = sacrebleu.BLEU(), [[pair.target for pair in pairs]]
            values = [metric.corpus_score(run[test], references).score for run in runs]
            about = (
                f"{runs[0]['steps']:,} steps in {max(run['minutes'] for run in runs):.0f} minutes of one core, "
                f"{len(runs)} seed{'s' * (len(runs) > 1)}; {len(pairs):,} lines, {metric.get_signature()}"
            )
            rows.append(Row(f"fine-tuning/{name}", test, round(mean(values), 2), "BLEU", about))
            if len(values) > 1:
                rows.append(Row(f"fine-tuning/{name}-deviation", test, round(stdev(values), 2), "BLEU", about))
    write("claims_fine_tuning", rows, device=f"{cpu()}, 1 thread", packages=("torch", "sacrebleu"))
    keep_logs("fine-tuning", folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("text")
    for name in ("train", "score"):
        commands.add_parser(name).add_argument("folder", type=Path)
    commands.choices["train"].add_argument("--seeds", type=int, nargs="+", default=[1])
    given = parser.parse_args()
    if given.what == "text":
        write_text()
    elif given.what == "train":
        train(given.folder, given.seeds)
    else:
        score(given.folder)
