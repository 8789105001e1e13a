"""Development data for the hyperparameters of the aligner without a model: small texts, mostly without common spelling.

    JUMOK_DATA=path/to/data python -m benchmarks.alignment_dev prepare WORK    eflomal aligns all text; ten minutes
    python -m benchmarks.alignment_dev try WORK NULL=0.2 PRIOR=8               error rates with other values
    python -m benchmarks.alignment_dev peers WORK                              error rates of eflomal and fast_align

Neither gold standard of benchmarks.alignment is used. `hansards` is the English-French development set, 37 pairs with
manual links, aligned together with the 447 test pairs without links. The other sets have 450 pairs with the links that
eflomal finds when it aligns them together with all available text: sure links where both directions agree, possible
links from grow-diag-final-and. In the sets ending in `-masked`, every letter of the second language is replaced by a
Georgian one, so that no word is spelt alike.
"""

import argparse
import lzma
import os
import random
import re
import subprocess
from pathlib import Path

from benchmarks.alignment_text import Pair, dev_pairs, gold_pairs, train_pairs, write_text

SETS = ("hansards", "hansards-masked", "french-masked", "german-masked", "korean")
SILVER = {"french": "french-masked", "german": "german-masked", "korean": "korean"}
SIZE = 450
THRESHOLDS = (0.3, 0.4, 0.5)
ENTITIES = {"&apos;": "'", "&quot;": '"', "&amp;": "&"}


def german_pairs(data: Path) -> list[Pair]:
    """TED talks."""
    pairs = []
    for part in ("train_lowres4600", "test", "valid"):
        names = [data / f"iwslt14_deen/{part}.{side}.xz" for side in ("en", "de")]
        sides = [lzma.decompress(name.read_bytes()).decode().splitlines() for name in names]
        pairs += [(_plain(german), _plain(english)) for german, english in zip(*sides, strict=True)]
    return [pair for pair in pairs if all(pair)]


def korean_pairs(data: Path) -> list[Pair]:
    """Software strings and manuals, those with at least five words."""
    pairs = []
    for part in ("l10n", "l10n.dev"):
        with lzma.open(data / f"ko-en/{part}.en-ko.tsv.xz", "rt", encoding="utf-8") as lines:
            for line in lines:
                source, target = (_spaced(text) for text in line.rstrip("\n").split("\t")[1:])
                if len(source.split()) >= 5 and target:
                    pairs.append((source, target))
    return pairs


def mask(text: str) -> str:
    """Another letter for every letter, another full stop; digits and other punctuation stay."""
    other = {letter: chr(0x10D0 + place) for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz")} | {".": "。"}
    return "".join(other.get(char, chr(0x550 + ord(char) % 38) if char.isalpha() else char) for char in text.lower())


def prepare(work: Path) -> None:
    """All sets, and the links that eflomal gives to those without manual ones."""
    from benchmarks.alignment_train import write_pharaoh
    from jumok.analysis.alignment.aligner import symmetrise
    from jumok.data.word_links import read_word_links

    data = Path(os.environ.get("JUMOK_DATA", "../shared/data"))
    write_text(data, work / "text")
    hansards = [*gold_pairs(data), *dev_pairs(data)]
    _write(work, "hansards", hansards)
    _write(work, "hansards-masked", [(left, mask(right)) for left, right in hansards])
    draws = random.Random(1)
    texts = {"french": list(train_pairs(data))[: -len(hansards)], "german": german_pairs(data)}
    for name, pairs in (texts | {"korean": korean_pairs(data)}).items():
        pairs = [pair for pair in pairs if all(pair)]
        long = [number for number, pair in enumerate(pairs) if 12 <= len(pair[0].split()) <= 70]
        chosen = sorted(draws.sample(long, SIZE))
        masked = [(pairs[place][0], pairs[place][1] if name == "korean" else mask(pairs[place][1])) for place in chosen]
        _write(work, SILVER[name], masked)
        _write(work, f"{name}-all", pairs)
        both = [list(read_word_links(path)) for path in _eflomal(work, f"{name}-all")]
        forward, backward = ([links[place] for place in chosen] for links in both)
        for kind, method in {"sure": "intersection", "possible": "grow-diag-final-and"}.items():
            links = [symmetrise(left, right, method) for left, right in zip(forward, backward, strict=True)]
            write_pharaoh(work / f"{SILVER[name]}.{kind}", links)


def attempt(work: Path, constants: dict[str, float]) -> None:
    """The error on every set, for each threshold."""
    from jumok.analysis.alignment import statistical

    for name, value in constants.items():
        setattr(statistical, name, value)
    for name in SETS:
        pairs = _read(work, name)
        corpus, model = statistical.fit(pairs)
        errors = [
            _error(work, name, statistical.joint_links(corpus, model, len(pairs), threshold))
            for threshold in THRESHOLDS
        ]
        print(
            f"{name}: "
            + ", ".join(f"{threshold:g}: {error:.2f}" for threshold, error in zip(THRESHOLDS, errors, strict=True))
        )


def peers(work: Path) -> None:
    """The least error of each peer over the ways to join its directions."""
    from benchmarks.alignment_train import METHODS
    from jumok.analysis.alignment.aligner import symmetrise
    from jumok.data.word_links import read_word_links

    for name in SETS:
        for system, aligned in {"eflomal": _eflomal, "fast_align": _fast_align}.items():
            links = [list(read_word_links(path)) for path in aligned(work, name)]
            ways = [[symmetrise(*both, method) for both in zip(*links, strict=True)] for method in METHODS]
            print(f"{name}, {system}: {min(_error(work, name, way) for way in ways):.2f}")


def _error(work: Path, name: str, links: list) -> float:
    from jumok.analysis.alignment.error_rate import Gold, alignment_scores, read_gold
    from jumok.data.word_links import read_word_links

    lengths = [(len(source.split()), len(target.split())) for source, target in _read(work, name)]
    if name.startswith("hansards"):
        gold = read_gold(work / "text/dev.gold", pairs=37)
        return 100 * alignment_scores(links[-37:], gold, lengths[-37:]).error
    silver = zip(*(read_word_links(work / f"{name}.{kind}") for kind in ("sure", "possible")), strict=True)
    gold = [Gold(frozenset(sure), frozenset({*sure, *possible})) for sure, possible in silver]
    return 100 * alignment_scores(links, gold, lengths).error


def _eflomal(work: Path, name: str) -> tuple[Path, Path]:
    both = work / f"{name}.eflomal.0", work / f"{name}.eflomal.1"
    command = ["eflomal-align", "-s", work / f"{name}.1", "-t", work / f"{name}.2", "-f", both[0], "-r", both[1]]
    subprocess.run([*command, "--overwrite"], check=True)
    return both


def _fast_align(work: Path, name: str) -> tuple[Path, Path]:
    both = work / f"{name}.fast_align.0", work / f"{name}.fast_align.1"
    (work / "both").write_text(
        "".join(f"{text} ||| {translation}\n" for text, translation in _read(work, name)), encoding="utf-8"
    )
    for path, options in zip(both, ([], ["-r"]), strict=True):
        with path.open("wb") as links:
            subprocess.run(["fast_align", "-i", work / "both", "-d", "-o", "-v", *options], stdout=links, check=True)
    return both


def _write(work: Path, name: str, pairs: list[Pair]) -> None:
    for number, texts in enumerate(zip(*pairs, strict=True), start=1):
        (work / f"{name}.{number}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def _read(work: Path, name: str) -> list:
    from jumok.data import read_pairs

    return list(read_pairs(work / f"{name}.1", work / f"{name}.2"))


def _plain(text: str) -> str:
    for entity, char in ENTITIES.items():
        text = text.replace(entity, char)
    return " ".join(text.lower().split())


def _spaced(text: str) -> str:
    return " ".join(re.sub(r"([^\w\s.'])", r" \1 ", re.sub(r"\.(?=\s|$)", " .", text.lower())).split())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "try", "peers"])
    parser.add_argument("work", type=Path)
    parser.add_argument("constants", nargs="*", help="NAME=NUMBER, constants of the aligner")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    if given.what == "try":
        attempt(given.work, {name: float(value) for name, value in (text.split("=") for text in given.constants)})
    else:
        {"prepare": prepare, "peers": peers}[given.what](given.work)
