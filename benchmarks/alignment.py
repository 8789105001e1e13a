"""Word alignment of the Hansards' gold standard (447 pairs), beside eflomal and fast_align given the same text.

    JUMOK_DATA=path/to/data python -m benchmarks.alignment train OUT           on a GPU; about nine minutes
    JUMOK_DATA=path/to/data python -m benchmarks.alignment peers OUT           needs eflomal-align and fast_align
    JUMOK_DATA=path/to/data python -m benchmarks.alignment score OUT

Stage one trains a small Transformer in each direction, aligns the training text with both (layer and head chosen where
the two directions agree most) and makes one alignment of the two. Stage two trains both again, guided by those links.
No link of the gold standard is used in training; the 37 pairs of the development set, the same for every system,
choose how the two directions become one.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from benchmarks.alignment_text import write_text

DIRECTIONS = (("en", "fr"), ("fr", "en"))
METHODS = ("intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")
TEACHERS = ("intersection", "grow-diag")
PEERS = ("eflomal", "fast_align")
SYSTEMS = {
    "jumok": [f"two-{teacher}" for teacher in TEACHERS],
    "jumok, not guided": ["one"],
    "eflomal": ["eflomal"],
    "fast_align": ["fast_align"],
}
STAGES = {f"two-{teacher}": f"; guided by the {teacher} of stage one" for teacher in TEACHERS}


def data() -> Path:
    return Path(os.environ.get("JUMOK_DATA", "../shared/data"))


def train(out: Path, minutes: tuple[float, float] = (2.5, 3.0), changes: tuple[str, ...] = ()) -> None:
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="jumok-alignment-"))
    write_text(data(), work / "text")
    log = (out / "log.txt").open("a", encoding="utf-8")

    def say(message: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {message}", flush=True)
        print(f"[{time.monotonic() - started:5.0f} s] {message}", file=log, flush=True)

    say("stage one")
    _train_all(work, {"one": None}, minutes[0], changes)
    say("aligning the training text")
    for text in ("train", "dev", "gold"):
        _write_links(work, "one", text, say)
    _pack(work, out, ["one"])
    say("stage two")
    _train_all(work, {f"two-{teacher}": teacher for teacher in TEACHERS}, minutes[1], changes)
    stages = [f"two-{teacher}" for teacher in TEACHERS]
    for stage in stages:
        for text in ("dev", "gold"):
            _write_links(work, stage, text, say)
    _pack(work, out, ["one", *stages])
    say("done")


def _train_all(work: Path, stages: dict[str, str | None], minutes: float, changes: tuple[str, ...]) -> None:
    """Both directions of every stage at once, each in its own process."""
    running = []
    for stage, teacher in stages.items():
        for source, target in DIRECTIONS:
            settings = [f"training.minutes={minutes}", *_paths(work, source, target), *changes]
            if teacher is not None:
                links = work / f"links/one.train.{teacher}.{source}-{target}"
                settings += [f"data.alignments={links}", "training.guided_alignment=0.5"]
            folder = work / f"{stage}.{source}-{target}"
            command = [sys.executable, "-m", "jumok.cli", "train", f"recipes/align-{source}-{target}.toml"]
            command += ["--out", str(folder), *(f"--set={setting}" for setting in settings)]
            log = (work / f"{folder.name}.log").open("wb")
            environment = {"PYTHONPATH": "src", "OMP_NUM_THREADS": "3", **os.environ}
            running.append((folder.name, subprocess.Popen(command, stderr=log, stdout=log, env=environment)))
    failed = [name for name, process in running if process.wait()]
    for name in failed:
        print((work / f"{name}.log").read_text(errors="replace")[-3000:], file=sys.stderr)
    if failed:
        raise SystemExit(f"training failed: {', '.join(failed)}")


def _paths(work: Path, source: str, target: str) -> list[str]:
    sides = {"source": source, "target": target}
    names = {"": "train", "valid_": "valid"}
    return [f"data.{to}{key}={work}/text/{name}.{side}" for key, side in sides.items() for to, name in names.items()]


def _write_links(work: Path, stage: str, text: str, say) -> None:
    """links/STAGE.TEXT.METHOD.en-fr (and .fr-en) for every way to join the directions, and forward and backward."""
    from jumok.analysis.alignment import TwoWayAligner, flipped, turned
    from jumok.analysis.symmetrise import symmetrise
    from jumok.cli.aligners import Wanted, make_aligner
    from jumok.data import read_pairs

    pairs = list(read_pairs(work / f"text/{text}.en", work / f"text/{text}.fr"))
    sample = list(read_pairs(work / "text/train.en", work / "text/train.fr"))
    aligner = make_aligner(work / f"{stage}.en-fr", work / f"{stage}.fr-en", Wanted(), sample, say=say)
    assert isinstance(aligner, TwoWayAligner)
    forward = aligner.forward.align(pairs)
    backward = [flipped(links) for links in aligner.backward.align([turned(pair) for pair in pairs])]
    say(f"aligned {text} with stage {stage}")
    found = {"forward": forward, "backward": backward}
    for method in METHODS if text != "train" else TEACHERS:
        found[method] = [symmetrise(one, other, method) for one, other in zip(forward, backward, strict=True)]
    (work / "links").mkdir(exist_ok=True)
    for name, rows in found.items():
        _write_pharaoh(work / f"links/{stage}.{text}.{name}.en-fr", rows)
        if text == "train":
            _write_pharaoh(work / f"links/{stage}.{text}.{name}.fr-en", [flipped(links) for links in rows])


def _write_pharaoh(path: Path, rows) -> None:
    from jumok.data.links import write_links

    path.write_text("".join(f"{write_links(links)}\n" for links in rows), encoding="utf-8")


def _pack(work: Path, out: Path, stages: list[str]) -> None:
    """What is worth keeping, in few files: one with all that is small, and the weights in half precision."""
    import torch
    from safetensors.torch import load_file, save_file

    about = {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", "torch": torch.__version__}
    (work / "about.json").write_text(json.dumps(about))
    names = [f"{stage}.{source}-{target}" for stage in stages for source, target in DIRECTIONS]
    with tarfile.open(out / "results.tar.xz", "w:xz") as packed:
        packed.add(work / "about.json", "about.json")
        for path in sorted((work / "links").glob("*.*")):
            if ".train." not in path.name:
                packed.add(path, f"links/{path.name}")
        for name in names:
            packed.add(work / f"{name}.log", f"{name}.log")
            for path in [*(work / name).glob("*.toml"), *(work / name).glob("*.model"), work / name / "metrics.jsonl"]:
                packed.add(path, f"{name}/{path.name}")
    for name in names:
        weights = load_file(work / name / "model.safetensors")
        halves = {key: tensor.half() if tensor.is_floating_point() else tensor for key, tensor in weights.items()}
        save_file(halves, out / f"{name}.safetensors")


def peers(out: Path) -> None:
    """Align the same text with eflomal and fast_align, as they come."""
    from jumok.analysis.symmetrise import symmetrise
    from jumok.data import read_lines
    from jumok.data.links import read_links

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_text(data(), work / "text")
        sides = [list(read_lines(work / f"text/train.{side}")) for side in ("en", "fr")]
        (work / "both").write_text("".join(f"{one} ||| {other}\n" for one, other in zip(*sides, strict=True)))
        efmaral = ["-s", work / "text/train.en", "-t", work / "text/train.fr", "--overwrite"]
        subprocess.run(["eflomal-align", *efmaral, "-f", work / "eflomal.0", "-r", work / "eflomal.1"], check=True)
        for number, options in enumerate(([], ["-r"])):
            with (work / f"fast_align.{number}").open("wb") as found:
                command = ["fast_align", "-i", work / "both", "-d", "-o", "-v", *options]
                subprocess.run(command, stdout=found, check=True)
        counts = {text: sum(1 for _ in read_lines(work / f"text/{text}.en")) for text in ("gold", "dev")}
        for system in PEERS:
            forward, backward = (list(read_links(work / f"{system}.{number}")) for number in (0, 1))
            found = {"forward": forward, "backward": backward}
            for method in METHODS:
                found[method] = [symmetrise(one, other, method) for one, other in zip(forward, backward, strict=True)]
            ends = {"dev": slice(-counts["dev"], None), "gold": slice(-counts["gold"] - counts["dev"], -counts["dev"])}
            for name, rows in found.items():
                for text, end in ends.items():
                    _write_pharaoh(out / f"links/{system}.{text}.{name}.en-fr", rows[end])


def score(out: Path) -> None:
    """Each system with the way of joining its directions that is best on the development set."""
    from benchmarks.results import Row, write

    if (out / "results.tar.xz").exists():
        with tarfile.open(out / "results.tar.xz") as packed:
            packed.extractall(out, filter="data")
    about = json.loads((out / "about.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        write_text(data(), Path(folder))
        rows = []
        for system, stages in SYSTEMS.items():
            choices = [(stage, method) for stage in stages for method in ("forward", "backward", *METHODS)]
            chosen = min(choices, key=lambda choice: _scores(out, Path(folder), "dev", *choice).error)
            found = _scores(out, Path(folder), "gold", *chosen)
            conditions = (
                f"{chosen[1]}, chosen on the development set; precision {100 * found.precision:.1f}, "
                f"recall {100 * found.recall:.1f}" + STAGES.get(chosen[0], "")
            )
            rows.append(Row("aer-enfr", system, round(100 * found.error, 2), "AER %", conditions))
    write("alignment", rows, device=f"{about['device']}, torch {about['torch']}; peers on a CPU", packages=("torch",))


def _scores(out: Path, text: Path, name: str, stage: str, method: str):
    from jumok.analysis.alignment_score import alignment_scores, read_gold
    from jumok.data import read_pairs
    from jumok.data.links import read_links

    lengths = [
        (len(one.split()), len(two.split())) for one, two in read_pairs(text / f"{name}.en", text / f"{name}.fr")
    ]
    gold = read_gold(text / f"{name}.gold", pairs=len(lengths))
    return alignment_scores(read_links(out / f"links/{stage}.{name}.{method}.en-fr"), gold, lengths)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "peers", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, nargs=2, default=(2.5, 3.0), help="of stage one and stage two")
    parser.add_argument("--set", action="append", default=[], help="a change to every recipe, to try things out")
    given = parser.parse_args()
    if given.what == "train":
        train(given.folder, tuple(given.minutes), tuple(given.set))
    else:
        {"peers": peers, "score": score}[given.what](given.folder)
