"""English and Korean software text: write the training text, train both directions, translate and score all test sets.

    JUMOK_DATA=path/to/data python -m benchmarks.l10n text text/l10n              # the pairs, without test sentences
    python -m benchmarks.l10n train runs/l10n [en-ko ko-en]                        # on a GPU, all at once
    python -m benchmarks.l10n score runs/l10n [en-ko ko-en]

`train` and `score` read the text in text/l10n, or in the folder that JUMOK_L10N names.
The training text is software text, the Python documentation and, repeated several times, everyday sentences of
Tatoeba. Pairs that lose a placeholder and sentences that occur in a test set are left out. A symbol in front of a
source names the program it comes from, whose Korean has its own terms and speech level; every pair also occurs without
one, for text of other programs. `score` translates each test set with beam search, with and without these symbols, and
counts the lines that keep every placeholder and tag of their source.
"""

import argparse
import gzip
import json
import lzma
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu

from benchmarks.results import FOLDER, Row, write
from jumok.data.pairs import Columns, read_pairs
from jumok.data.placeholders import keeps_placeholders, placeholders

DIRECTIONS = ("en-ko", "ko-en")
EVERYDAY = 8
"""Times that the sentences of Tatoeba are repeated: 3,400 among 430,000 would drown."""
TESTS = {
    "l10n": "software text of catalogues in the training text",
    "l10n-heldout": "software text of other catalogues",
    "tatoeba": "everyday sentences, Tatoeba dev",
    "jhe": "textbook sentences, JHE eval",
    "news": "news test",
}
NAMED = 100
"""Pairs that a program must have in the training text to get a symbol of its own."""
EVERYDAY_SYMBOL, MANUAL_SYMBOL = "tatoeba", "python-docs"


class Line(NamedTuple):
    """A pair, and the program or corpus it comes from; "" for one without a symbol."""

    english: str
    korean: str
    origin: str = ""


Lines = list[Line]


def data() -> Path:
    return Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "ko-en"


def text_folder() -> Path:
    return Path(os.environ.get("JUMOK_L10N", "text/l10n"))


def rows(name: str) -> Iterator[list[str]]:
    unpack = lzma.open if name.endswith(".xz") else gzip.open
    with unpack(data() / name, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n").split("\t")


def sides(name: str, origin: str = "") -> Lines:
    english, korean = ([row[0] for row in rows(f"{name}.{side}.gz")] for side in ("en", "ko"))
    return [Line(*pair, origin) for pair in zip(english, korean, strict=True)]


def software(name: str) -> Lines:
    """Lines of software text; their origin is a Debian package."""
    return [Line(row[1], row[2], symbol(row[0].partition(":")[0])) for row in rows(f"{name}.en-ko.tsv.xz")]


def symbol(package: str) -> str:
    """The name of a package as one symbol; that of a package which is not in the training text has none."""
    return "" if package.startswith("held-out/") else re.sub(r"[^\w.-]", "-", package)


def test_lines() -> dict[str, Lines]:
    test = software("l10n.test")
    everyday = [Line(row[2], row[3], EVERYDAY_SYMBOL) for row in rows("tatoeba_challenge.dev.eng-kor.tsv.gz")]
    return {
        "l10n": [line for line in test if line.origin],
        "l10n-heldout": [line for line in test if not line.origin],
        "tatoeba": everyday,
        "jhe": sides("jhe.eval", EVERYDAY_SYMBOL),
        "news": sides("news.test"),
        "dev": software("l10n.dev"),
        "jhe-dev": sides("jhe.dev", EVERYDAY_SYMBOL),
        "news-dev": sides("news.dev"),
    }


def bare(text: str) -> str:
    """A text by which copies are found: without case, spaces and punctuation."""
    return re.sub(r"[\W_]+", "", text.lower())


def write_text(folder: Path) -> None:
    tests = test_lines()
    seen = {bare(side) for lines in tests.values() for line in lines for side in line[:2]}
    of_software = software("l10n")
    manual = [Line(row[1], row[2], MANUAL_SYMBOL) for row in rows("python_docs_3.13.en-ko.tsv.xz")]
    everyday = [Line(row[0], row[1], EVERYDAY_SYMBOL) for row in rows("tatoeba_anki.eng-kor.tsv.gz")] * EVERYDAY
    mixed = [line for line in (*of_software, *manual, *everyday) if not seen & {bare(side) for side in line[:2]}]
    kept = [line for line in mixed if keeps_placeholders(line.english, line.korean)]
    counts = Counter(line.origin for line in kept)
    train = [line._replace(origin=origin) for line in kept for origin in (line.origin, "")]
    random.Random(1).shuffle(train)
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in {"train": train, **tests}.items():
        text = "".join(
            f"{line.english}\t{line.korean}\t{line.origin if counts[line.origin] >= NAMED else ''}\n" for line in lines
        )
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    told = f"{len(of_software)} + {len(manual)} + {len(everyday)} pairs, {len(mixed)} not in a test set"
    print(f"{told}, {len(kept)} of those with their placeholders; {sum(n >= NAMED for n in counts.values())} symbols")


def train(folder: Path, directions: list[str], seeds: list[int], settings: list[str]) -> None:
    """Train all directions and seeds at the same time; one model leaves much of a large GPU idle."""
    folder.mkdir(parents=True, exist_ok=True)
    environment, running = os.environ | {"JUMOK_L10N": str(text_folder())}, {}
    for direction, seed in product(directions, seeds):
        command = [sys.executable, "-m", "jumok", "train", f"recipes/l10n-{direction}.toml"]
        command += ["--out", str(folder / direction / str(seed))]
        command += [part for setting in (f"training.seed={seed}", *settings) for part in ("--set", setting)]
        with open(folder / f"{direction}.{seed}.log", "w", encoding="utf-8") as log:
            running[log.name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    if failed := [log for log, process in running.items() if process.wait()]:
        sys.exit(f"training failed; read {' and '.join(failed)}")


def read(name: str, direction: str, *, symbols: bool) -> list[tuple[str, str]]:
    """The pairs of a test set in one direction, sources with their symbols or without."""
    path, (source, target) = text_folder() / f"{name}.tsv.gz", (1, 2) if direction == "en-ko" else (2, 1)
    columns: Columns = ((3, source), target) if symbols else (source, target)
    return [(pair.source.strip(), pair.target) for pair in read_pairs(path, columns=columns, features=(3,) * symbols)]


class Way(NamedTuple):
    """How a test set is translated."""

    models: list[Path]
    about: str
    symbols: bool = True
    least_risk: bool = False
    """Whether minimum Bayes risk chooses among a wider beam."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"mbr": True, "beam": 16} if self.least_risk else {}


def ways(models: list[Path]) -> dict[str, Way]:
    """All ways that are compared on the validation set, by the name of their system."""
    one, number = models[:1], len(models)
    found = {
        "jumok, one model": Way(one, "beam 5"),
        "jumok, one model, no symbol": Way(one, "beam 5, without the symbol of the program", symbols=False),
        "jumok, one model, MBR": Way(one, "minimum Bayes risk among a beam of 16", least_risk=True),
    }
    if number > 1:
        found |= {
            f"jumok, {number} models": Way(models, f"beam 5, ensemble of {number}"),
            f"jumok, {number} models, no symbol": Way(
                models, f"beam 5, ensemble of {number}, without the symbol of the program", symbols=False
            ),
            f"jumok, {number} models, MBR": Way(
                models, f"minimum Bayes risk among a beam of 16, ensemble of {number}", least_risk=True
            ),
        }
    return found


def score(folder: Path, directions: list[str]) -> None:
    """Every test set in every way; the best of them on the validation set is `jumok`."""
    import torch

    import jumok

    found: list[Row] = []
    for direction in directions:
        models = sorted(path.parent for path in (folder / direction).glob("*/metrics.jsonl"))
        dev: dict[str, float] = {}
        rows: list[tuple[str, Row]] = []
        for name, way in ways(models).items():
            translator = jumok.load(way.models if len(way.models) > 1 else way.models[0])
            conditions = f"recipes/l10n-{direction}.toml, {steps_of(way.models)}, {way.about}"
            (dev[name], *_), _ = tested(translator, way, "dev", direction, folder, name)
            print(direction, name, f"dev {dev[name]:.2f}", flush=True)
            kept = [0, 0]
            for test, about in TESTS.items():
                (chrf, bleu, *signatures), marked = tested(translator, way, test, direction, folder, name)
                id, said = f"{direction.replace('-', '')}-{test}", f"{conditions}; {about}; validation {dev[name]:.2f}"
                rows.append((name, Row(id, name, round(chrf, 2), "chrF", f"{said}; {signatures[0]}")))
                rows.append((name, Row(f"{id}-bleu", name, round(bleu, 2), "BLEU", f"{said}; {signatures[1]}")))
                print(direction, name, test, round(chrf, 2), round(bleu, 2), flush=True)
                if test.startswith("l10n"):
                    kept = [sum(pair) for pair in zip(kept, marked, strict=True)]
            id, of = f"{direction.replace('-', '')}-l10n-kept", f"of {kept[1]} lines with placeholders or tags"
            rows.append((name, Row(id, name, kept[0], "lines", f"{conditions}; {of}")))
        best = max(dev, key=lambda name: dev[name])
        print(direction, "best on the validation set:", best, flush=True)
        found += [row._replace(system="jumok") if name == best else row for name, row in rows]
    path, new = FOLDER / "l10n.json", {row.id for row in found}
    saved = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    found += [Row(**old) for old in saved if old["id"] not in new]  # of the other direction
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    write("l10n", found, device=f"{device}, torch {torch.__version__}", packages=("sacrebleu",))


def tested(
    translator: Any, way: Way, test: str, direction: str, folder: Path, name: str
) -> tuple[tuple[float, float, str, str], tuple[int, int]]:
    """chrF and BLEU of a test set with their signatures, and how many of the lines with placeholders keep them all."""
    pairs = read(test, direction, symbols=way.symbols)
    outputs = [output.text for output in translator.translate([source for source, _ in pairs], **way.settings)]
    saved = folder / f"{direction}.{test}.{name.replace(', ', '-').replace(' ', '-')}.out"
    saved.write_text("".join(f"{text}\n" for text in outputs), encoding="utf-8")
    chrf, bleu, references = sacrebleu.CHRF(), sacrebleu.BLEU(), [[target for _, target in pairs]]
    values = [metric.corpus_score(outputs, references).score for metric in (chrf, bleu)]
    bare = [source for source, _ in read(test, direction, symbols=False)]
    marked = [pair for pair in zip(bare, outputs, strict=True) if placeholders(pair[0])]
    kept = sum(keeps_placeholders(*pair) for pair in marked)
    return (values[0], values[1], str(chrf.get_signature()), str(bleu.get_signature())), (kept, len(marked))


def steps_of(models: list[Path]) -> str:
    told = [json.loads(line) for path in models for line in (path / "metrics.jsonl").read_text().splitlines()]
    steps = max(line["step"] for line in told)
    return f"{steps:,} steps in {max(line.get('seconds', 0) for line in told) / 60:.1f} minutes"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["text", "train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("directions", nargs="*", choices=[*DIRECTIONS, []], help="which to train; defaults to both")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--set", action="append", default=[], help="settings that replace those of the recipes")
    given = parser.parse_args()
    if given.what == "text":
        write_text(given.folder)
    elif given.what == "train":
        train(given.folder, given.directions or list(DIRECTIONS), given.seeds, given.set)
    else:
        score(given.folder, given.directions or list(DIRECTIONS))
