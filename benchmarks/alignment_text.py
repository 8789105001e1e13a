"""The text that every aligner of benchmarks.alignment gets: tokenised and lower-cased like the gold standard.

The Hansards of the HLT-NAACL 2003 shared task expand contractions ("l'" is "le", "du" is "de le") and put spaces
around punctuation; the training text is converted to this form. As is usual for aligners, the training text of all
systems includes the sentences of the gold standard, without their links.
"""

import gzip
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path

Pair = tuple[str, str]

ELIDED = re.compile(r"\b(l|d|j|m|t|s|c|n|qu|jusqu|lorsqu|puisqu|quoiqu)['’]\s*(?=\w)")
CONTRACTED = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}
NEGATED = {"can't": "cannot", "won't": "will not", "shan't": "shall not"}
MARKS = re.compile(r"(\.\.\.|--|[^\w\s.'])")
FULL_STOP = re.compile(r"(?<=[^\s.])\.(?=\s*[\"»)]*\s*$)")


def english(text: str) -> str:
    words = text.lower().replace("’", "'")
    for short, long in NEGATED.items():
        words = words.replace(short, long)
    words = re.sub(r"n't\b", " not", words)
    return _spaced(re.sub(r"(?<=\w)'(s|m|re|ve|ll|d)\b", r" '\1", words))


def french(text: str) -> str:
    words = ELIDED.sub(lambda match: f"{match[1]}e ", text.lower())
    words = re.sub(r"\bse (?=ils?\b)", "si ", words)  # s'il is si il
    spaced = re.sub(r"aujourd['’]\s*hui", "aujourd' hui", words)
    return " ".join(CONTRACTED.get(word, word) for word in _spaced(spaced).split())


def _spaced(text: str) -> str:
    return " ".join(FULL_STOP.sub(" .", MARKS.sub(r" \1 ", text)).split())


def gold_pairs(data: Path) -> list[Pair]:
    """The 447 test pairs, lower-cased; their tokens stay as they are."""
    lines = gzip.decompress((data / "alignments/enfr.src-tgt.gz").read_bytes()).decode().splitlines()
    return [_lower(*line.split("|||")) for line in lines]


def chinese_pairs(data: Path) -> list[Pair]:
    """The 450 Chinese-English pairs, already in words; no other text of these languages comes with them."""
    lines = gzip.decompress((data / "alignments/zhen.src-tgt.gz").read_bytes()).decode().splitlines()
    return [_lower(*line.split("|||")) for line in lines]


def dev_pairs(data: Path) -> list[Pair]:
    """The 37 pairs on which choices may be made."""
    sides = [
        gzip.decompress((data / f"alignments/hansards.dev.{side}.gz").read_bytes()).decode().splitlines()
        for side in "ef"
    ]
    return [_lower(*pair) for pair in zip(*sides, strict=True)]


def train_pairs(data: Path) -> Iterator[Pair]:
    """Tatoeba and Multi30k, then the sentences of the gold standard."""
    with lzma.open(data / "fra-eng/eng-fra.tsv.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            source, target = line.rstrip("\n").split("\t")[:2]
            yield english(source), french(target)
    yield from captions(data, "train")
    yield from gold_pairs(data)
    yield from dev_pairs(data)


def captions(data: Path, split: str) -> Iterator[Pair]:
    sides = [gzip.decompress((data / f"multi30k/{split}.{side}.gz").read_bytes()).decode() for side in ("en", "fr")]
    for source, target in zip(*(side.splitlines() for side in sides), strict=True):
        yield english(source), french(target)


def write_text(data: Path, folder: Path) -> None:
    """train, valid, gold and dev, each as .en and .fr, zhen as .zh and .en; and the links as dev.gold and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    sets: dict[str, Callable[[], list[Pair]]] = {
        "train": lambda: [pair for pair in train_pairs(data) if all(pair)],
        "valid": lambda: list(captions(data, "val")),
        "gold": lambda: gold_pairs(data),
        "dev": lambda: dev_pairs(data),
    }
    for name, pairs in sets.items():
        for side, texts in zip(("en", "fr"), zip(*pairs(), strict=True), strict=True):
            (folder / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    for side, texts in zip(("zh", "en"), zip(*chinese_pairs(data), strict=True), strict=True):
        (folder / f"zhen.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    for name, links in {"gold": "enfr.gold", "dev": "hansards.dev.wa", "zhen": "zhen.gold"}.items():
        (folder / f"{name}.gold").write_bytes(gzip.decompress((data / f"alignments/{links}.gz").read_bytes()))


def _lower(source: str, target: str) -> Pair:
    return " ".join(source.lower().split()), " ".join(target.lower().split())
