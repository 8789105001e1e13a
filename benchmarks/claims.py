"""What attention is said to be better at, measured: the tables and pictures of docs/claims.md.

    JUMOK_DATA=path/to/data python -m benchmarks.claims length MODELS      quality against source length
    JUMOK_DATA=path/to/data python -m benchmarks.claims gradient MODELS    the gradient that reaches a source token
    python -m benchmarks.claims speed [--device cuda]                      time of a step against length

MODELS holds the folders fixed, rnnsearch, luong and transformer, trained by recipes/multi30k-en-de-*.toml. The first
two are `jumok compare` on the 2016 test set; speed needs neither data nor training, only the shapes of those models.
Multi30k's sentences are short, so that longer texts are made of consecutive ones (--joined).
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.results import ROOT, Row, cpu, write
from jumok.analysis.length_bands import joined
from jumok.data import read_lines

SYSTEMS = {"fixed": "fixed context", "rnnsearch": "additive", "luong": "Luong", "transformer": "Transformer"}
PICTURES = ROOT / "docs/pictures"
JUMOK = [sys.executable, "-m", "jumok.cli"]
JOINED_FROM = 500  # sentences that longer texts are made of
JOINED, BANDS = "1,2,4,6", "10,20,30,40,50,60"
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
VOCABULARY = 8000


def test_files() -> list[str]:
    """The options that name the test set."""
    test = Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k/test_2016_flickr"
    return ["--source", f"{test}.en.gz", "--reference", f"{test}.de.gz"]


def compare(what: str, picture: str, *options: str) -> Any:
    """What `jumok compare` finds; it draws the picture, too."""
    command = [*JUMOK, "compare", what, *options, "--out", PICTURES / picture, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def length(models: Path, work: Path) -> None:
    """As `jumok compare length MODELS --joined`, but translations are kept in `work`, and fewer are joined."""
    write_texts(work)
    for folder in SYSTEMS:
        translate(models / folder, work / "source", work / f"{folder}.out")
    outputs = [f"{name}={work / folder}.out" for folder, name in SYSTEMS.items()]
    files = ["--source", str(work / "source"), "--reference", str(work / "reference")]
    found = compare("length", "claims-length.svg", *outputs, *files, "--bands", BANDS)
    rows = [
        Row(f"length/{band['words']} words", name, round(band["score"]["value"], 2), "BLEU", length_conditions(band))
        for name, bands in found["by_length"].items()
        for band in bands
    ]
    write("claims_length", rows, device=cpu(), packages=("torch", "sacrebleu"))


def write_texts(work: Path) -> None:
    """All sentences, and then the first ones joined to longer texts."""
    work.mkdir(parents=True, exist_ok=True)
    for name, path in zip(("source", "reference"), test_files()[1::2], strict=True):
        texts = list(read_lines(path))
        longer = joined(texts[:JOINED_FROM], [int(number) for number in JOINED.split(",")][1:])
        (work / name).write_text("".join(f"{text}\n" for text in [*texts, *longer]), encoding="utf-8")


def translate(model: Path, source: Path, out: Path) -> None:
    if not out.exists():
        unfinished = out.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            subprocess.run([*JUMOK, "translate", model, "--source", source], stdout=file, check=True)
        unfinished.rename(out)


def length_conditions(band: dict[str, Any]) -> str:
    score = band["score"]
    said = (
        f"{band['sentences']} texts, each {JOINED.replace(',', ', ')} consecutive sentences of test_2016_flickr, beam 5"
    )
    return f"{said}; 95% interval {score['low']:.2f} to {score['high']:.2f}; {score['signature']}"


def gradient(models: Path) -> None:
    rows, given = [], [f"{name}={models / folder}" for folder, name in SYSTEMS.items()]
    for kind, options in (("gradient", []), ("gradient-fresh", ["--fresh"])):
        options = [*given, *test_files(), "--joined", JOINED, "--sentences", "1000", *options]
        found = compare("gradient", f"claims-{kind}.svg", *options)
        for name, curve in found.items():
            for reach in curve:
                place = f"{kind}/{reach['nearest']}–{reach['farthest']} tokens"
                interval = f"95% interval {reach['low']:.3g} to {reach['high']:.3g}"
                said = f"{reach['tokens']} tokens of texts of {JOINED} sentences, at least 20 tokens each; {interval}"
                rows.append(Row(place, name, float(f"{reach['share']:.4g}"), "share", said))
    write("claims_gradient", rows, device=cpu())


def speed(device: str, tokens: int) -> None:
    import torch

    from jumok.analysis.step_times import speed_chart, step_times
    from jumok.config import read_recipe
    from jumok.models.build import build_model

    where = "gpu" if device.startswith("cuda") else "cpu"
    lengths, repeats = (LENGTHS, 5) if where == "gpu" else (LENGTHS[:-1], 3)
    times = {}
    for folder, name in SYSTEMS.items():
        recipe = read_recipe(ROOT / f"recipes/multi30k-en-de-{folder}.toml", variables=False)
        sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "shared_vocabulary": True}
        model = build_model(recipe.encoder, recipe.decoder, **sizes).to(device)
        times[name] = []
        for one in step_times(model, lengths, tokens=tokens, repeats=repeats):
            print(name, one, file=sys.stderr, flush=True)
            times[name].append(one)
    clock = "" if where == "gpu" else f", {torch.get_num_threads()} thread(s), its own time if one"
    said = f"{tokens} target tokens a batch, vocabulary of {VOCABULARY}, float32, fastest of {repeats}{clock}"
    rows = [
        Row(f"{kind}-{where}/{one.length} tokens", name, float(f"{1000 * getattr(one, part):.4g}"), "ms", said)
        for kind, part in (("train", "training"), ("decode", "decoding"))
        for name, found in times.items()
        for one in found
    ]
    (PICTURES / f"claims-speed-{where}.svg").write_text(speed_chart(times, tokens=tokens, where=where.upper()), "utf-8")
    write(f"claims_speed_{where}", rows, device=torch.cuda.get_device_name() if where == "gpu" else cpu())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["length", "gradient", "speed"])
    parser.add_argument("models", type=Path, nargs="?", default=Path("runs"))
    parser.add_argument("--work", type=Path, default=Path("runs/claims"), help="keeps translations between runs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, help="target tokens of a timed batch; 4096 on a GPU, 1024 else")
    asked = parser.parse_args()
    if asked.what == "speed":
        speed(asked.device, asked.tokens or (4096 if asked.device.startswith("cuda") else 1024))
    elif asked.what == "length":
        length(asked.models, asked.work)
    else:
        gradient(asked.models)
