"""English and Korean software text: write the training text, train both directions, translate and score all test sets.

    JUMOK_DATA=path/to/data python -m benchmarks.l10n text text/l10n              # the pairs, without test sentences
    python -m benchmarks.l10n train runs/l10n [en-ko ko-en en-ko-programs]         # on a GPU, all at once
    python -m benchmarks.l10n score runs/l10n [en-ko ko-en en-ko-programs]

`train` and `score` read the text in text/l10n, or in the folder that JUMOK_L10N names.
The training text is software text, the Python documentation and, repeated several times, everyday sentences of
Tatoeba. Pairs that lose a placeholder and sentences that occur in a test set are left out. The third
column names the program that a pair comes from, in every second copy of a pair; only recipes/l10n-en-ko-programs.toml
reads it. `score` translates each test set in several ways, of which the validation set chooses one, and counts the
lines that keep every placeholder and tag of their source.
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
from jumok.data.pairs import read_pairs
from jumok.data.placeholders import keeps_placeholders, placeholders

NAMES = ("en-ko", "ko-en", "en-ko-programs")
"""Recipes, which begin with their direction."""
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


def train(folder: Path, names: list[str], seeds: list[int], settings: list[str]) -> None:
    """Train all recipes and seeds at the same time; one model leaves much of a large GPU idle."""
    folder.mkdir(parents=True, exist_ok=True)
    environment, running = os.environ | {"JUMOK_L10N": str(text_folder())}, {}
    for name, seed in product(names, seeds):
        command = [sys.executable, "-m", "jumok", "train", f"recipes/l10n-{name}.toml"]
        command += ["--out", str(folder / name / str(seed))]
        command += [part for setting in (f"training.seed={seed}", *settings) for part in ("--set", setting)]
        with open(folder / f"{name}.{seed}.log", "w", encoding="utf-8") as log:
            running[log.name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    if failed := [log for log, process in running.items() if process.wait()]:
        sys.exit(f"training failed; read {' and '.join(failed)}")


class Way(NamedTuple):
    """How test sets are translated."""

    name: str
    """The recipe, which begins with the direction."""
    models: tuple[Path, ...]
    symbols: bool
    """Whether the name of the program is in front of a source."""
    least_risk: bool = False
    """Whether minimum Bayes risk chooses among a wider beam."""

    @property
    def direction(self) -> str:
        return self.name[:5]

    @property
    def system(self) -> str:
        parts = ["jumok", self.name[6:], f"{len(self.models)} models" if len(self.models) > 1 else ""]
        parts += ["" if self.symbols or not self.name[6:] else "not named", "MBR" if self.least_risk else ""]
        return ", ".join(part for part in parts if part)

    @property
    def settings(self) -> dict[str, Any]:
        return {"mbr": True, "beam": 16} if self.least_risk else {}

    @property
    def about(self) -> str:
        told = [json.loads(line) for path in self.models for line in (path / "metrics.jsonl").read_text().splitlines()]
        steps, minutes = max(line["step"] for line in told), max(line.get("seconds", 0) for line in told) / 60
        search = "minimum Bayes risk among a beam of 16" if self.least_risk else "beam 5"
        seeds = f"ensemble of {len(self.models)}" if len(self.models) > 1 else "one model"
        named = ", with the name of the program" if self.symbols else ""
        return f"recipes/l10n-{self.name}.toml, {steps:,} steps in {minutes:.1f} minutes, {seeds}, {search}{named}"


def ways(folder: Path, direction: str) -> Iterator[Way]:
    """All ways of a direction: one model of each recipe and all of its seeds, by beam search and minimum Bayes risk."""
    for name in NAMES:
        models = tuple(sorted(path.parent for path in (folder / name).glob("*/metrics.jsonl")))
        if name[:5] != direction or not models:
            continue
        for members in [models[:1], models][: len(models)]:
            for symbols in (True, False) if name[6:] else (False,):
                yield Way(name, members, symbols)
                yield Way(name, members, symbols, least_risk=True)


def score(folder: Path, directions: list[str]) -> None:
    """Translate every test set in every way; the best of them on the validation set is `jumok`."""
    import torch

    found: list[Row] = []
    for direction in directions:
        scored = {way: rows_of(way, folder) for way in ways(folder, direction)}
        best = max(scored, key=lambda way: scored[way][0])
        print(direction, "best on the validation set:", best.system, flush=True)
        for way, (_, rows) in scored.items():
            found += [row._replace(system="jumok") for row in rows] if way is best else rows
    path, new = FOLDER / "l10n.json", {row.id for row in found}
    saved = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    found += [Row(**old) for old in saved if old["id"] not in new]  # of the other direction
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    write("l10n", found, device=f"{device}, torch {torch.__version__}", packages=("sacrebleu",))


def rows_of(way: Way, folder: Path) -> tuple[float, list[Row]]:
    """chrF on the validation set, and the rows of all test sets."""
    import jumok

    translator, rows, kept = jumok.load(list(way.models) if len(way.models) > 1 else way.models[0]), [], [0, 0]
    dev = test(translator, way, "dev", folder).chrf
    for name, about in TESTS.items():
        tested, id = test(translator, way, name, folder), f"{way.direction.replace('-', '')}-{name}"
        said = f"{way.about}; {about}; validation {dev:.2f}"
        rows.append(Row(id, way.system, round(tested.chrf, 2), "chrF", f"{said}; {tested.signatures[0]}"))
        rows.append(Row(f"{id}-bleu", way.system, round(tested.bleu, 2), "BLEU", f"{said}; {tested.signatures[1]}"))
        print(f"{way.system}: {name} {tested.chrf:.2f} {tested.bleu:.2f}, validation {dev:.2f}", flush=True)
        if name.startswith("l10n"):
            kept = [kept[0] + tested.kept, kept[1] + tested.marked]
    id, of = f"{way.direction.replace('-', '')}-l10n-kept", f"of {kept[1]} lines with placeholders or tags"
    return dev, [*rows, Row(id, way.system, kept[0], "lines", f"{way.about}; {of}")]


class Tested(NamedTuple):
    """The scores of a test set."""

    chrf: float
    bleu: float
    signatures: tuple[str, str]
    kept: int
    """Lines that keep their placeholders and tags, of those that have some."""
    marked: int


def test(translator: Any, way: Way, name: str, folder: Path) -> Tested:
    """Translate a test set, keep the outputs, and score them."""
    lines = read(name, way.direction)
    sources = [line.named if way.symbols else line.source for line in lines]
    outputs = [output.text for output in translator.translate(sources, **way.settings)]
    saved = folder / f"{way.direction}.{name}.{re.sub(r'[, ]+', '-', way.system)}.out"
    saved.write_text("".join(f"{text}\n" for text in outputs), encoding="utf-8")
    chrf, bleu, references = sacrebleu.CHRF(), sacrebleu.BLEU(), [[line.target for line in lines]]
    values = [metric.corpus_score(outputs, references).score for metric in (chrf, bleu)]
    signatures = str(chrf.get_signature()), str(bleu.get_signature())
    marked = [(line.source, output) for line, output in zip(lines, outputs, strict=True) if placeholders(line.source)]
    return Tested(values[0], values[1], signatures, sum(keeps_placeholders(*pair) for pair in marked), len(marked))


class TestLine(NamedTuple):
    """A pair of a test set in one direction."""

    source: str
    target: str
    named: str
    """The source with the name of its program in front, if that is known."""


def read(name: str, direction: str) -> list[TestLine]:
    path, (source, target) = text_folder() / f"{name}.tsv.gz", (1, 2) if direction == "en-ko" else (2, 1)
    named = read_pairs(path, columns=((3, source), target), features=(3,))
    bare = read_pairs(path, columns=(source, target))
    return [TestLine(*pair, full.source.strip()) for pair, full in zip(bare, named, strict=True)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["text", "train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which recipes; defaults to all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--set", action="append", default=[], help="settings that replace those of the recipes")
    given = parser.parse_args()
    if given.what == "text":
        write_text(given.folder)
    elif given.what == "train":
        train(given.folder, given.names or list(NAMES), given.seeds, given.set)
    else:
        score(given.folder, list(dict.fromkeys(name[:5] for name in given.names or NAMES)))
