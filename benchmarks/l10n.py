"""English and Korean software text: write the training text, train both directions, translate and score all test sets.

    JUMOK_DATA=path/to/data python -m benchmarks.l10n text text/l10n              # the pairs, without test sentences
    python -m benchmarks.l10n train runs/l10n [en-ko ko-en]                        # on a GPU, all at once
    python -m benchmarks.l10n score runs/l10n [en-ko ko-en]

`train` and `score` read the text in text/l10n, or in the folder that JUMOK_L10N names.
The training text is software text, the Python documentation and, repeated several times, everyday sentences of
Tatoeba. Pairs that lose a placeholder and sentences that occur in a test set are left out. `score` translates all test
sets with the first model and beam search, which is `jumok` in the tables. With --more, it also compares minimum Bayes
risk and all seeds as an ensemble on the validation set, and translates the software text with the best. It reads
outputs that are already in the folder, and writes a short log of each run to results/logs. The script also counts the
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
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu

from benchmarks.results import FOLDER, Row, write
from benchmarks.training_logs import keep_logs
from jumok.data.pairs import Pair, read_pairs
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


class Line(NamedTuple):
    """A sentence in both languages."""

    english: str
    korean: str


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


def sides(name: str) -> Lines:
    english, korean = ([row[0] for row in rows(f"{name}.{side}.gz")] for side in ("en", "ko"))
    return [Line(*pair) for pair in zip(english, korean, strict=True)]


def software(name: str) -> dict[str, Lines]:
    """Lines of software text: of packages in the training text, and of held-out ones."""
    by_part: dict[str, Lines] = {"known": [], "held-out": []}
    for origin, english, korean in rows(f"{name}.en-ko.tsv.xz"):
        by_part["held-out" if origin.startswith("held-out/") else "known"].append(Line(english, korean))
    return by_part


def test_lines() -> dict[str, Lines]:
    test = software("l10n.test")
    return {
        "l10n": test["known"],
        "l10n-heldout": test["held-out"],
        "tatoeba": [Line(row[2], row[3]) for row in rows("tatoeba_challenge.dev.eng-kor.tsv.gz")],
        "jhe": sides("jhe.eval"),
        "news": sides("news.test"),
        "dev": software("l10n.dev")["known"],
        "jhe-dev": sides("jhe.dev"),
        "news-dev": sides("news.dev"),
    }


def bare(text: str) -> str:
    """A text by which copies are found: without case, spaces and punctuation."""
    return re.sub(r"[\W_]+", "", text.lower())


def write_text(folder: Path) -> None:
    tests = test_lines()
    seen = {bare(side) for lines in tests.values() for line in lines for side in line}
    of_software = software("l10n")["known"]
    manual = [Line(row[1], row[2]) for row in rows("python_docs_3.13.en-ko.tsv.xz")]
    everyday = [Line(row[0], row[1]) for row in rows("tatoeba_anki.eng-kor.tsv.gz")] * EVERYDAY
    mixed = [line for line in (*of_software, *manual, *everyday) if not seen & {bare(side) for side in line}]
    train = [line for line in mixed if keeps_placeholders(*line)]
    random.Random(1).shuffle(train)
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in {"train": train, **tests}.items():
        text = "".join(f"{line.english}\t{line.korean}\n" for line in lines)
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    counts = f"{len(of_software)} + {len(manual)} + {len(everyday)} pairs, {len(mixed)} not in a test set"
    print(f"{counts}, {len(train)} of those with their placeholders")


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


class Search(NamedTuple):
    """How outputs are found."""

    name: str
    """Its name in the tables; "" for the default."""
    about: str
    settings: dict[str, Any]


BEAM = Search("", "beam 5", {})
LEAST_RISK = Search("MBR", "minimum Bayes risk among a beam of 16", {"mbr": True, "beam": 16})
LEAST_RISK_OF_MORE = Search("MBR 64", "minimum Bayes risk among a beam of 64", {"mbr": True, "beam": 64})


class Way(NamedTuple):
    """How test sets are translated."""

    direction: str
    models: tuple[Path, ...]
    search: Search

    @property
    def system(self) -> str:
        return ", ".join(
            filter(None, ("jumok", f"{len(self.models)} models" * (len(self.models) > 1), self.search.name))
        )

    @property
    def about(self) -> str:
        lines = [json.loads(line) for path in self.models for line in (path / "metrics.jsonl").read_text().splitlines()]
        steps, minutes = max(line["step"] for line in lines), max(line.get("seconds", 0) for line in lines) / 60
        seeds = f"ensemble of {len(self.models)}" if len(self.models) > 1 else "one model"
        recipe = f"recipes/l10n-{self.direction}.toml"
        return f"{recipe}, {steps:,} steps in {minutes:.1f} minutes, {seeds}, {self.search.about}"


def ways(folder: Path, direction: str, *, more: bool) -> Iterator[Way]:
    """One model with beam search; if `more`, also minimum Bayes risk and all models as an ensemble."""
    models = tuple(sorted(path.parent for path in (folder / direction).glob("*/metrics.jsonl")))
    for members in dict.fromkeys([models[:1], models] if more else [models[:1]]):
        for search in (BEAM, LEAST_RISK, LEAST_RISK_OF_MORE) if more else (BEAM,):
            yield Way(direction, members, search)


def score(folder: Path, directions: list[str], *, more: bool) -> None:
    import torch

    written: list[Row] = []
    for direction in directions:
        compared = list(ways(folder, direction, more=more))
        written += rows_of(compared[0], folder)
        if more:
            written += [search_row(way, "dev", folder) for way in compared]
            best = max(compared, key=lambda way: test(way, "dev", folder).chrf)
            written += [search_row(best, name, folder) for name in TESTS if name.startswith("l10n")]
    path, new = FOLDER / "l10n.json", tuple(direction.replace("-", "") for direction in directions)
    saved = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    written += [Row(**old) for old in saved if not old["id"].removeprefix("search-").startswith(new)]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    write("l10n", written, device=f"{device}, torch {torch.__version__}", packages=("sacrebleu",))
    keep_logs("l10n", folder)


@cache
def load(models: tuple[Path, ...]) -> Any:
    import torch

    import jumok

    translator = jumok.load(list(models) if len(models) > 1 else models[0])
    if torch.cuda.is_available():
        translator.batch_tokens *= 4  # a large GPU takes many sentences at once
    return translator


def rows_of(way: Way, folder: Path) -> list[Row]:
    """chrF and BLEU of all test sets, and the lines that keep their placeholders."""
    rows, kept, marked = [], 0, 0
    for name, about in TESTS.items():
        tested, id = test(way, name, folder), f"{way.direction.replace('-', '')}-{name}"
        conditions = f"{way.about}; {about}"
        rows.append(Row(id, way.system, round(tested.chrf, 2), "chrF", f"{conditions}; {tested.signatures[0]}"))
        rows.append(
            Row(f"{id}-bleu", way.system, round(tested.bleu, 2), "BLEU", f"{conditions}; {tested.signatures[1]}")
        )
        print(f"{way.direction} {way.system}: {name} {tested.chrf:.2f} {tested.bleu:.2f}", flush=True)
        if name.startswith("l10n"):
            kept, marked = kept + tested.kept, marked + tested.marked
    id, of = f"{way.direction.replace('-', '')}-l10n-kept", f"of {marked} lines with placeholders or tags"
    return [*rows, Row(id, way.system, kept, "lines", f"{way.about}; {of}")]


def search_row(way: Way, name: str, folder: Path) -> Row:
    """chrF of software text, to compare ways with each other."""
    chrf = test(way, name, folder).chrf
    return Row(f"search-{way.direction.replace('-', '')}-{name}", way.system, round(chrf, 2), "chrF", way.about)


class Tested(NamedTuple):
    """The scores of a test set."""

    chrf: float
    bleu: float
    signatures: tuple[str, str]
    kept: int
    """Lines that keep their placeholders and tags, of those that have some."""
    marked: int


def test(way: Way, name: str, folder: Path) -> Tested:
    """Translate a test set, unless its outputs are in the folder, and score them."""
    lines = read(name, way.direction)
    saved = folder / f"{way.direction}.{name}.{re.sub(r'[, ]+', '-', way.system)}.out"
    if not saved.exists():
        sources = [line.source for line in lines]
        translations = load(way.models).translate(sources, **way.search.settings)
        saved.write_text("".join(f"{output.text}\n" for output in translations), encoding="utf-8")
    outputs = saved.read_text(encoding="utf-8").splitlines()
    chrf, bleu, references = sacrebleu.CHRF(), sacrebleu.BLEU(), [[line.target for line in lines]]
    values = [metric.corpus_score(outputs, references).score for metric in (chrf, bleu)]
    signatures = str(chrf.get_signature()), str(bleu.get_signature())
    marked = [(line.source, output) for line, output in zip(lines, outputs, strict=True) if placeholders(line.source)]
    return Tested(values[0], values[1], signatures, sum(keeps_placeholders(*pair) for pair in marked), len(marked))


def read(name: str, direction: str) -> list[Pair]:
    columns = (1, 2) if direction == "en-ko" else (2, 1)
    return list(read_pairs(text_folder() / f"{name}.tsv.gz", columns=columns))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["text", "train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*DIRECTIONS, []], help="which directions; defaults to both")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--set", action="append", default=[], help="settings that replace those of the recipes")
    parser.add_argument("--more", action="store_true", help="also score minimum Bayes risk and ensembles")
    given = parser.parse_args()
    if given.what == "text":
        write_text(given.folder)
    elif given.what == "train":
        train(given.folder, given.names or list(DIRECTIONS), given.seeds, given.set)
    else:
        score(given.folder, given.names or list(DIRECTIONS), more=given.more)
