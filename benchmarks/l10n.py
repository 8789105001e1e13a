"""English and Korean software text: write the training text, train both directions, translate and score all test sets.

    JUMOK_DATA=path/to/data python -m benchmarks.l10n text text/l10n              # the pairs, without test sentences
    python -m benchmarks.l10n train runs/l10n [en-ko ko-en]                        # on a GPU, both at once
    python -m benchmarks.l10n score runs/l10n [en-ko ko-en]

`train` and `score` read the text in text/l10n, or in the folder that JUMOK_L10N names.
The training text is software text, the Python documentation and, repeated several times, everyday sentences of
Tatoeba. Pairs that lose a placeholder and sentences that occur in a test set are left out. `score` translates each
test set with beam search and counts the lines that keep every placeholder and tag of their source.
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
import time
from collections.abc import Iterator
from pathlib import Path

import sacrebleu

from benchmarks.results import FOLDER, Row, write
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
Pairs = list[tuple[str, str]]


def data() -> Path:
    return Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "ko-en"


def text_folder() -> Path:
    return Path(os.environ.get("JUMOK_L10N", "text/l10n"))


def rows(name: str) -> Iterator[list[str]]:
    unpack = lzma.open if name.endswith(".xz") else gzip.open
    with unpack(data() / name, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n").split("\t")


def sides(name: str) -> Pairs:
    english, korean = ([row[0] for row in rows(f"{name}.{side}.gz")] for side in ("en", "ko"))
    return list(zip(english, korean, strict=True))


def test_pairs() -> dict[str, Pairs]:
    test = list(rows("l10n.test.en-ko.tsv.xz"))
    return {
        "l10n": [(row[1], row[2]) for row in test if not row[0].startswith("held-out/")],
        "l10n-heldout": [(row[1], row[2]) for row in test if row[0].startswith("held-out/")],
        "tatoeba": [(row[2], row[3]) for row in rows("tatoeba_challenge.dev.eng-kor.tsv.gz")],
        "jhe": sides("jhe.eval"),
        "news": sides("news.test"),
        "dev": [(row[1], row[2]) for row in rows("l10n.dev.en-ko.tsv.xz")],
        "jhe-dev": sides("jhe.dev"),
        "news-dev": sides("news.dev"),
    }


def bare(text: str) -> str:
    """A text by which copies are found: without case, spaces and punctuation."""
    return re.sub(r"[\W_]+", "", text.lower())


def write_text(folder: Path) -> None:
    tests = test_pairs()
    seen = {bare(side) for pairs in tests.values() for pair in pairs for side in pair}
    software = [(row[1], row[2]) for row in rows("l10n.en-ko.tsv.xz")]
    manual = [(row[1], row[2]) for row in rows("python_docs_3.13.en-ko.tsv.xz")]
    everyday = [(row[0], row[1]) for row in rows("tatoeba_anki.eng-kor.tsv.gz")] * EVERYDAY
    mixed = [pair for pair in (*software, *manual, *everyday) if not seen & {bare(side) for side in pair}]
    kept = [pair for pair in mixed if keeps_placeholders(*pair)]
    random.Random(1).shuffle(kept)
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in {"train": kept, **tests}.items():
        text = "".join(f"{english}\t{korean}\n" for english, korean in pairs)
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    told = f"{len(software)} + {len(manual)} + {len(everyday)} pairs, {len(mixed)} not in a test set"
    print(f"{told}, {len(kept)} of those with their placeholders")


def train(folder: Path, directions: list[str], settings: list[str]) -> None:
    """Train all directions at the same time; one model leaves much of a large GPU idle."""
    folder.mkdir(parents=True, exist_ok=True)
    environment, running = os.environ | {"JUMOK_L10N": str(text_folder())}, {}
    for direction in directions:
        command = [sys.executable, "-m", "jumok", "train", f"recipes/l10n-{direction}.toml"]
        command += ["--out", str(folder / direction), *(part for setting in settings for part in ("--set", setting))]
        with open(folder / f"{direction}.log", "w", encoding="utf-8") as log:
            running[log.name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    if failed := [log for log, process in running.items() if process.wait()]:
        sys.exit(f"training failed; read {' and '.join(failed)}")


def read(name: str, direction: str) -> Pairs:
    lines = gzip.decompress((text_folder() / f"{name}.tsv.gz").read_bytes()).decode().splitlines()
    pairs = [tuple(line.split("\t")) for line in lines]
    return [pair if direction == "en-ko" else pair[::-1] for pair in pairs]  # type: ignore[misc]


def score(folder: Path, directions: list[str]) -> None:
    import torch

    import jumok

    found: list[Row] = []
    for direction in directions:
        translator = jumok.load(folder / direction)
        conditions = f"recipes/l10n-{direction}.toml, {steps_of(folder / direction)}"
        kept = lines = 0
        for test, about in TESTS.items():
            pairs, began = read(test, direction), time.perf_counter()
            outputs = [output.text for output in translator.translate([source for source, _ in pairs])]
            seconds = time.perf_counter() - began
            (folder / f"{direction}.{test}.out").write_text("".join(f"{text}\n" for text in outputs), encoding="utf-8")
            id, references = f"{direction.replace('-', '')}-{test}", [[target for _, target in pairs]]
            chrf, bleu = sacrebleu.CHRF(), sacrebleu.BLEU()
            for metric in (chrf, bleu):
                value = round(metric.corpus_score(outputs, references).score, 2)
                name = "chrF" if metric is chrf else "BLEU"
                suffix = "" if metric is chrf else "-bleu"
                found.append(Row(id + suffix, "jumok", value, name, f"{conditions}; {about}; {metric.get_signature()}"))
            marked = [(pair[0], output) for pair, output in zip(pairs, outputs, strict=True) if placeholders(pair[0])]
            if test.startswith("l10n"):
                kept, lines = kept + sum(keeps_placeholders(*pair) for pair in marked), lines + len(marked)
            print(found[-2], found[-1].value, f"{seconds:.1f} s", flush=True)
        id = f"{direction.replace('-', '')}-l10n-kept"
        found.append(Row(id, "jumok", kept, "lines", f"{conditions}; of {lines} lines with placeholders or tags"))
        print(found[-1], flush=True)
    path, new = FOLDER / "l10n.json", {row.id for row in found}
    saved = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    found += [Row(**old) for old in saved if old["id"] not in new]  # of the other direction
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    write("l10n", found, device=f"{device}, torch {torch.__version__}", packages=("sacrebleu",))


def steps_of(folder: Path) -> str:
    told = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = max(line["step"] for line in told)
    return f"{steps:,} steps in {max(line.get('seconds', 0) for line in told) / 60:.1f} minutes"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["text", "train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("directions", nargs="*", choices=[*DIRECTIONS, []], help="which to train; defaults to both")
    parser.add_argument("--set", action="append", default=[], help="settings that replace those of the recipes")
    given = parser.parse_args()
    if given.what == "text":
        write_text(given.folder)
    elif given.what == "train":
        train(given.folder, given.directions or list(DIRECTIONS), given.set)
    else:
        score(given.folder, given.directions or list(DIRECTIONS))
