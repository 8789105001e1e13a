"""Multi30k English to German: train by recipe, translate the test sets, score them as the literature does.

    JUMOK_DATA=path/to/data python -m benchmarks.multi30k train runs/multi30k    # on a GPU; about 4 and 8 minutes
    JUMOK_DATA=path/to/data python -m benchmarks.multi30k score runs/multi30k    # needs sacremoses

Published figures are BLEU of lower-cased text tokenised by Moses' script; sacrebleu's cased BLEU stands beside them.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import sacrebleu

from benchmarks.results import Row, write

SYSTEMS = {"transformer": "jumok", "rnnsearch": "jumok, RNNsearch"}
TESTS = {"test_2016_flickr": "2016", "test_2017_flickr": "2017"}
PUBLISHED = 41.02  # Transformer-Tiny, text only: Wu et al., ACL 2021, as given in the README of LividWo/Revisit-MMT


def data() -> Path:
    return Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k"


def lines(name: str) -> list[str]:
    return gzip.decompress((data() / f"{name}.gz").read_bytes()).decode().splitlines()


def train(folder: Path) -> None:
    jumok = [sys.executable, "-m", "jumok.cli"]
    for system in SYSTEMS:
        subprocess.run([*jumok, "train", f"recipes/multi30k-en-de-{system}.toml", "--out", folder / system], check=True)
        for test in TESTS:
            source = data() / f"{test}.en.gz"
            with (folder / f"{system}.{test}.de").open("wb") as out:
                subprocess.run([*jumok, "translate", folder / system, "--source", source], stdout=out, check=True)
    import torch

    about = {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", "torch": torch.__version__}
    (folder / "about.json").write_text(json.dumps(about))


def moses_lowercased(texts: list[str]) -> list[str]:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalise, tokenise = MosesPunctNormalizer("de").normalize, MosesTokenizer("de").tokenize
    return [tokenise(normalise(text), return_str=True, escape=False).lower() for text in texts]


def score(folder: Path) -> None:
    about = json.loads((folder / "about.json").read_text())
    rows = []
    for test, year in TESTS.items():
        references = lines(f"{test}.de")
        for system, label in SYSTEMS.items():
            outputs = (folder / f"{system}.{test}.de").read_text(encoding="utf-8").splitlines()
            tokenised = sacrebleu.BLEU(tokenize="none", force=True).corpus_score(
                moses_lowercased(outputs), [moses_lowercased(references)]
            )
            cased = sacrebleu.BLEU()
            conditions = f"recipes/multi30k-en-de-{system}.toml, beam 5" + about.get(system, "")
            said = f"{conditions}; Moses-tokenised, lower-cased"
            rows.append(row(f"multi30k-en-de-{year}", label, tokenised.score, said))
            found = cased.corpus_score(outputs, [references]).score
            rows.append(row(f"multi30k-en-de-{year}-cased", label, found, f"{conditions}; {cased.get_signature()}"))
    rows.append(row("multi30k-en-de-2016", "Transformer-Tiny, text only (Wu et al. 2021)", PUBLISHED, "as published"))
    write("multi30k", rows, device=f"{about['device']}, torch {about['torch']}", packages=("sacrebleu", "sacremoses"))


def row(id: str, system: str, value: float, conditions: str) -> Row:
    return Row(id, system, round(value, 2), "BLEU", conditions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    {"train": train, "score": score}[given.what](given.folder)
