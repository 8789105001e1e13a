"""The trained models of benchmarks.alignment, in both directions, with and without guided alignment.

    JUMOK_DATA=path/to/data python -m benchmarks.alignment_train prepare WORK        text and links for training; a CPU
    python -m benchmarks.alignment_train train WORK OUT --seconds 540                on a GPU, all models at once

All models are the same small Transformer (recipes/align-*.toml). Except for `plain`, they train on the links that
`jumok align` finds in the training text without a model.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.alignment_text import write_text

DIRECTIONS = (("en", "fr"), ("fr", "en"))
TEXTS = ("dev", "gold")
SIDES = {"dev": ("en", "fr"), "gold": ("en", "fr"), "zhen": ("zh", "en")}
ONE_WAY = ("forward", "backward")
METHODS = ("intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")
PRODUCTS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
TAUGHT = ("data.alignments={work}/links/train.{source}-{target}", "training.guided_alignment=1")
STAGES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "causal": TAUGHT,
    "full": (*TAUGHT, "training.guided_context=full"),
    "full-null": (*TAUGHT, "training.guided_context=full", "training.guided_null=true"),
}
"""What the recipe is changed by; of the stages that begin alike, the development set chooses."""
CLOSING = 75.0
"""Seconds of the end that are for aligning and packing."""
LARGEST = 16 << 20
"""Bytes of a file of weights that is kept."""

Say = Callable[[str], None]


def prepare(work: Path) -> None:
    """The text, the links that teach, and those of the same aligner on the test texts, as the stage `teacher`."""
    from jumok.analysis.alignment.aligner import flipped
    from jumok.analysis.alignment.statistical import align_text
    from jumok.data import read_pairs

    write_text(Path(os.environ.get("JUMOK_DATA", "../shared/data")), work / "text")
    pairs = list(read_pairs(work / "text/train.en", work / "text/train.fr"))
    rows_of_links = align_text(pairs, tell=lambda done: print(f"round {done} of aligning the text", flush=True))
    write_pharaoh(work / "links/train.en-fr", rows_of_links)
    write_pharaoh(work / "links/train.fr-en", [flipped(links) for links in rows_of_links])
    for text, rows in rows_of_tests(work, rows_of_links).items():
        write_pharaoh(work / f"links/teacher.{text}.agreement", rows)


def rows_of_tests(folder: Path, rows: list) -> dict[str, list]:
    """The rows of the gold standard and of the development set, with which the training text ends."""
    gold, dev = (len((folder / f"text/{text}.en").read_text(encoding="utf-8").splitlines()) for text in ("gold", "dev"))
    return {"gold": rows[-gold - dev : -dev], "dev": rows[-dev:]}


def train(work: Path, out: Path, seconds: float, stages: list[str], changes: tuple[str, ...]) -> None:
    """All stages side by side until the clock says so; what went wrong with one is said and hurts no other."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)

    def say(message: str) -> None:
        line = f"[{time.monotonic() - started:5.0f} s] {message}"
        print(line, flush=True)
        with (out / "log.txt").open("a", encoding="utf-8") as log:
            print(line, file=log)

    running = {(stage, *way): _start(work, stage, *way, changes=changes) for stage in stages for way in DIRECTIONS}
    _until(started + seconds - CLOSING, list(running.values()))
    _stop(list(running.values()), say)
    say(f"trained; exit codes {[process.returncode for process in running.values()]}")
    aligning = [_child(work, f"align.{stage}", "align", str(work), stage) for stage in stages]
    _until(started + seconds - CLOSING / 5, aligning)
    _stop(aligning, say)
    say("aligned")
    _pack(work, out, stages)
    say("packed")
    for stage in stages:
        for line in summary(work, stage):
            say(line)


def _start(work: Path, stage: str, source: str, target: str, *, changes: tuple[str, ...]) -> subprocess.Popen:
    folder = work / f"{stage}.{source}-{target}"
    sides = {"source": source, "target": target}
    paths = [f"data.{to}{key}={work}/text/{name}.{side}" for key, side in sides.items() for to, name in NAMES.items()]
    settings = [setting.format(work=work, **sides) for setting in STAGES[stage]]
    command = [sys.executable, "-m", "jumok", "train", f"recipes/align-{source}-{target}.toml"]
    command += ["--out", str(folder), *(f"--set={setting}" for setting in (*paths, *settings, *changes))]
    return _logged(work, folder.name, command)


NAMES = {"": "train", "valid_": "valid"}


def _child(work: Path, name: str, *arguments: str) -> subprocess.Popen:
    return _logged(work, name, [sys.executable, "-m", "benchmarks.alignment_train", *arguments])


def _logged(work: Path, name: str, command: list[str]) -> subprocess.Popen:
    environment = {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1", **os.environ}
    with (work / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def _until(moment: float, processes: list[subprocess.Popen]) -> None:
    """Wait for all to end, but no longer than to a moment."""
    for process in processes:
        try:
            process.wait(max(moment - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            return


def _stop(processes: list[subprocess.Popen], say: Say) -> None:
    """Ask once, on which `jumok train` saves its model; what is still there after 25 seconds is ended."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    _until(time.monotonic() + 25, processes)
    for process in processes:
        if process.poll() is None:
            say(f"ended by force: process {process.pid}")
            process.kill()
            process.wait()


def align(work: Path, stage: str) -> None:
    """links/STAGE.TEXT.METHOD for every way to join the directions, forward and backward."""
    from jumok.analysis.alignment.aligner import TwoWayAligner, extract, flipped, product_links, turned
    from jumok.data import read_pairs
    from jumok.tasks.alignment import AlignmentOptions, make_aligner

    sample = list(read_pairs(work / "text/train.en", work / "text/train.fr"))
    aligner = make_aligner(work / f"{stage}.en-fr", work / f"{stage}.fr-en", AlignmentOptions(), sample, say=print)
    assert isinstance(aligner, TwoWayAligner)
    for text in TEXTS:
        pairs = list(read_pairs(work / f"text/{text}.en", work / f"text/{text}.fr"))
        forward = aligner.forward.weights(pairs)
        backward = aligner.backward.weights([turned(pair) for pair in pairs])
        one_way = ([extract(left) for left in forward], [flipped(extract(right)) for right in backward])
        write_joined(work, f"{stage}.{text}", *one_way)
        for least in PRODUCTS:
            rows = [product_links(left, right, least) for left, right in zip(forward, backward, strict=True)]
            write_pharaoh(work / f"links/{stage}.{text}.product {least:g}", rows)


def write_joined(folder: Path, name: str, forward: list, backward: list) -> None:
    """links/NAME.METHOD for every way to make one of the links of two directions."""
    from jumok.analysis.alignment.aligner import symmetrise

    by_method = dict(zip(ONE_WAY, (forward, backward), strict=True))
    for method in METHODS:
        by_method[method] = [symmetrise(left, right, method) for left, right in zip(forward, backward, strict=True)]
    for method, rows in by_method.items():
        write_pharaoh(folder / f"links/{name}.{method}", rows)


def write_pharaoh(path: Path, rows: list) -> None:
    """A line for every pair."""
    from jumok.data.word_links import format_word_links

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{format_word_links(links)}\n" for links in rows), encoding="utf-8")


def _pack(work: Path, out: Path, stages: list[str]) -> None:
    """What is worth keeping, in few files: one with all that is small, and the weights in half precision."""
    import torch

    about: dict = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "torch": torch.__version__,
    }
    about |= {"runs": {path.parent.name: _last(path) for path in sorted(work.glob("*/metrics.jsonl"))}}
    about |= {"together": len(stages) * len(DIRECTIONS)}
    (work / "about.json").write_text(json.dumps(about))
    names = [f"{stage}.{source}-{target}" for stage in stages for source, target in DIRECTIONS]
    small = [work / "about.json", *work.glob("*.log"), *work.glob("links/*.*.*")]
    small += [
        path for name in names for end in ("*.toml", "*.model", "metrics.jsonl") for path in work.glob(f"{name}/{end}")
    ]
    with tarfile.open(out / "results.tar.xz", "w:xz", preset=1) as packed:
        for path in sorted(small):
            packed.add(path, str(path.relative_to(work)))
    for name in names:
        try:
            _save_halves(work / name / "model.safetensors", out / f"{name}.safetensors")
        except Exception:  # a model that is missing must not cost the others
            traceback.print_exc()


def _last(metrics: Path) -> dict:
    lines = metrics.read_text().splitlines()
    last = next((line for line in map(json.loads, reversed(lines)) if "epoch" in line), {})
    return {key: last[key] for key in ("step", "epoch", "seconds", "loss") if key in last}


def _save_halves(path: Path, to: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(path)
    save_file({key: weight.half() if weight.is_floating_point() else weight for key, weight in weights.items()}, to)
    if to.stat().st_size > LARGEST:
        to.unlink()


def summary(work: Path, stage: str) -> list[str]:
    """The error of every way of joining, on both texts."""
    methods = sorted(path.name.removeprefix(f"{stage}.dev.") for path in work.glob(f"links/{stage}.dev.*"))
    errors = [[scores(work, work / "text", text, stage, method).error for text in TEXTS] for method in methods]
    shown = [
        f"{stage}: {method}: dev {100 * dev:.2f} gold {100 * gold:.2f}"
        for method, (dev, gold) in zip(methods, errors, strict=True)
    ]
    return shown or [f"{stage}: no links"]


def scores(folder: Path, text: Path, name: str, stage: str, method: str):
    """Of links/STAGE.NAME.METHOD against the gold standard."""
    from jumok.analysis.alignment.error_rate import alignment_scores, read_gold
    from jumok.data import read_pairs
    from jumok.data.word_links import read_word_links

    pairs = list(read_pairs(*(text / f"{name}.{side}" for side in SIDES[name])))
    lengths = [(len(source.split()), len(target.split())) for source, target in pairs]
    gold = read_gold(text / f"{name}.gold", pairs=len(lengths))
    return alignment_scores(read_word_links(folder / f"links/{stage}.{name}.{method}"), gold, lengths)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "train", "align"])
    parser.add_argument("work", type=Path)
    parser.add_argument("to", nargs="?", help="a folder for what train gives; a stage for align")
    parser.add_argument("--seconds", type=float, default=540.0, help="that train may take in all")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--set", action="append", default=[], help="a change to every recipe, to try things out")
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.work)
    elif given.what == "align":
        align(given.work, given.to)
    else:
        train(given.work, Path(given.to), given.seconds, given.stages.split(","), tuple(given.set))
