"""Multi30k: train by recipe, translate the test sets, score them as the literature does.

    JUMOK_DATA=path/to/data python -m benchmarks.multi30k train runs/multi30k [en-de-transformer …]    # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.multi30k score runs/multi30k    # needs sacremoses
    JUMOK_DATA=path/to/data python -m benchmarks.multi30k time runs/multi30k     # minutes and speed of those runs

Published figures are BLEU of lower-cased text tokenised by Moses' script; sacrebleu's cased BLEU stands beside them.
What should be said of a run beyond its recipe stands in ABOUT, a JSON file in the folder: {"en-de-luong": "…"}.
"""

import argparse
import gzip
import json
import os
from pathlib import Path

import sacrebleu

from benchmarks.results import Row, write

PAIRS = ("en-de", "de-en", "en-fr")
SYSTEMS = {
    "transformer": "jumok",
    "rnnsearch": "jumok, RNNsearch",
    "luong": "jumok, Luong",
    "fixed": "jumok, fixed context",
}
NAMES = [f"{pair}-{system}" for pair in PAIRS for system in SYSTEMS]
ABOUT = "about.json"
TESTS = {"test_2016_flickr": "2016", "test_2017_flickr": "2017"}
PUBLISHED = 41.02  # Transformer-Tiny, text only: Wu et al., ACL 2021, as given in the README of LividWo/Revisit-MMT


def data() -> Path:
    return Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k"


def lines(name: str) -> list[str]:
    return gzip.decompress((data() / f"{name}.gz").read_bytes()).decode().splitlines()


def train(folder: Path, names: list[str]) -> None:
    import torch

    import jumok

    for name in names:
        translator = jumok.train(f"recipes/multi30k-{name}.toml", out=folder / name).model
        for test in TESTS:
            outputs = translator.translate(lines(f"{test}.{name[:2]}"))
            text = "".join(f"{output.text}\n" for output in outputs)
            (folder / f"{name}.{test}.out").write_text(text, encoding="utf-8")

    about = {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", "torch": torch.__version__}
    (folder / ABOUT).write_text(json.dumps(about))


def moses_lowercased(texts: list[str], language: str) -> list[str]:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalise, tokenise = MosesPunctNormalizer(language).normalize, MosesTokenizer(language).tokenize
    return [tokenise(normalise(text), return_str=True, escape=False).lower() for text in texts]


def score(folder: Path) -> None:
    about = json.loads((folder / ABOUT).read_text())
    rows = []
    for name in NAMES:
        pair, system = name[:5], SYSTEMS[name[6:]]
        for test, year in TESTS.items():
            if not (path := folder / f"{name}.{test}.out").exists():
                continue
            outputs, references = path.read_text(encoding="utf-8").splitlines(), lines(f"{test}.{pair[3:]}")
            conditions = f"recipes/multi30k-{name}.toml, beam 5" + about.get(name, "")
            found, signature = tokenised_bleu(outputs, references, pair[3:]), "Moses-tokenised, lower-cased"
            rows.append(row(f"multi30k-{pair}-{year}", system, found, f"{conditions}; {signature}"))
            cased = sacrebleu.BLEU()
            found = cased.corpus_score(outputs, [references]).score
            rows.append(row(f"multi30k-{pair}-{year}-cased", system, found, f"{conditions}; {cased.get_signature()}"))
    rows.append(row("multi30k-en-de-2016", "Transformer-Tiny, text only (Wu et al. 2021)", PUBLISHED, "as published"))
    write("multi30k", rows, device=f"{about['device']}, torch {about['torch']}", packages=("sacrebleu", "sacremoses"))


def measure_time(folder: Path) -> None:
    """Minutes of training, validations included, the speed between validations, and what the model then scores."""
    about, rows = json.loads((folder / ABOUT).read_text()), []
    for name in (name for name in NAMES if (folder / name / "metrics.jsonl").exists()):
        pair, system = name[:5], SYSTEMS[name[6:]]
        told = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in told if "tokens_per_second" in line]
        conditions = f"recipes/multi30k-{name}.toml, {steps[-1]['step']:,} steps"
        seconds = max(line["seconds"] for line in told if "seconds" in line)
        rows.append(Row(f"time-multi30k-{pair}", system, round(seconds / 60, 2), "minutes", conditions))
        fastest = max(line["tokens_per_second"] for line in steps)
        rows.append(Row(f"time-multi30k-{pair}-speed", system, round(fastest), "tok/s", f"{conditions}; fastest line"))
        outputs = (folder / f"{name}.test_2016_flickr.out").read_text(encoding="utf-8").splitlines()
        bleu = tokenised_bleu(outputs, lines(f"test_2016_flickr.{pair[3:]}"), pair[3:])
        rows.append(row(f"time-multi30k-{pair}-bleu", system, bleu, f"{conditions}; 2016, tokenised, lower-cased"))
    device = f"{about['device']}, torch {about['torch']}"
    write("multi30k_time", rows, device=device, packages=("sacrebleu", "sacremoses"))


def tokenised_bleu(outputs: list[str], references: list[str], language: str) -> float:
    tokenised = [moses_lowercased(texts, language) for texts in (outputs, references)]
    return sacrebleu.BLEU(tokenize="none", force=True).corpus_score(tokenised[0], [tokenised[1]]).score


def row(id: str, system: str, value: float, conditions: str) -> Row:
    return Row(id, system, round(value, 2), "BLEU", conditions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score", "time"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which recipes to train; defaults to all")
    given = parser.parse_args()
    if given.what == "train":
        train(given.folder, given.names or NAMES)
    elif given.what == "score":
        score(given.folder)
    else:
        measure_time(given.folder)
