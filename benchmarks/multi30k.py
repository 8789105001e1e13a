"""Multi30k: train recipes with several seeds, translate the test sets, and score them as in the literature.

    JUMOK_DATA=path/to/data python -m benchmarks.multi30k train runs/multi30k [en-de-r-drop …]    # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.multi30k score runs/multi30k    # needs sacremoses
    JUMOK_DATA=path/to/data python -m benchmarks.multi30k time runs/multi30k     # time and speed of these runs
    JUMOK_DATA=path/to/data python -m benchmarks.multi30k variants runs/variants # recurrent models, on validation data

`train` takes the recipes of the tables, those in SHOWN, or the ones it is given. It runs four at the same time, because
one small model leaves most of a large GPU idle; --jobs changes their number. Models of several seeds also translate as
an ensemble. Published results are BLEU of lower-cased text tokenised with the Moses script; the tables also have
sacrebleu's cased BLEU. The validation set selects the checkpoints. ABOUT, a JSON file in the folder, describes what is
special about a run: {"en-de-luong": "…"}. `score` keeps the rows of recipes without outputs in the folder, and writes a
short log of each run to results/logs.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean, stdev

import sacrebleu

from benchmarks.results import FOLDER, Row, write
from benchmarks.training_logs import keep_logs

PAIRS = ("en-de", "de-en", "en-fr")
SYSTEMS = {
    "r-drop": "jumok",
    "transformer": "jumok, without R-Drop",
    "rnnsearch": "jumok, RNNsearch",
    "luong": "jumok, Luong",
    "fixed": "jumok, fixed context",
}
NAMES = [f"{pair}-{system}" for pair in PAIRS for system in SYSTEMS]
SHOWN = (
    *("en-de-r-drop", "en-de-rnnsearch", "en-de-luong", "en-de-fixed", "de-en-r-drop", "de-en-rnnsearch"),
    *("en-fr-r-drop", "en-fr-luong"),
)
"""The recipes of the tables."""
JOBS = 4
ABOUT = "about.json"
TESTS = {"test_2016_flickr": "2016", "test_2017_flickr": "2017", "test_2017_mscoco": "mscoco"}
ENSEMBLE = "ensemble"
"""What stands for the seed of all models together."""
PUBLISHED = {
    "en-de": {"2016": 41.02, "2017": 33.36, "mscoco": 29.88},
    "en-fr": {"2016": 61.80, "2017": 53.46, "mscoco": 44.52},
}
"""Transformer-Tiny, text only: Wu et al., ACL 2021; 41.02 also in the README of LividWo/Revisit-MMT."""
TINY = "Transformer-Tiny, text only (Wu et al. 2021)"


def data() -> Path:
    return Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k"


def lines(name: str) -> list[str]:
    return gzip.decompress((data() / f"{name}.gz").read_bytes()).decode().splitlines()


def train(folder: Path, names: list[str], seeds: list[int], jobs: int, settings: list[str]) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    about = {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", "torch": torch.__version__}
    (folder / ABOUT).write_text(json.dumps(about))

    def run(name: str, seed: int) -> None:
        recipe, out = f"recipes/multi30k-{name}.toml", folder / name / str(seed)
        options = [part for setting in (f"training.seed={seed}", *settings) for part in ("--set", setting)]
        with open(folder / f"{name}.{seed}.log", "w", encoding="utf-8") as log:
            command = [sys.executable, "-m", "jumok", "train", recipe, "--out", str(out), *options]
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)
            command = [
                sys.executable,
                "-m",
                "benchmarks.multi30k",
                "translate",
                str(folder),
                name,
                "--seeds",
                str(seed),
            ]
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda job: run(*job), product(names, seeds)))
    for name in names if len(seeds) > 1 else ():
        translate(folder, name, seeds)


def translate(folder: Path, name: str, seeds: list[int]) -> None:
    """Translate the test sets with the model of a seed, or with those of several as an ensemble."""
    import jumok

    translator = jumok.load([folder / name / str(seed) for seed in seeds])
    for test in TESTS:
        outputs = translator.translate(lines(f"{test}.{name[:2]}"))
        text = "".join(f"{output.text}\n" for output in outputs)
        which = seeds[0] if len(seeds) == 1 else ENSEMBLE
        (folder / f"{name}.{which}.{test}.out").write_text(text, encoding="utf-8")


def moses_lowercased(texts: list[str], language: str) -> list[str]:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalise, tokenise = MosesPunctNormalizer(language).normalize, MosesTokenizer(language).tokenize
    return [tokenise(normalise(text), return_str=True, escape=False).lower() for text in texts]


def score(folder: Path) -> None:
    about = json.loads((folder / ABOUT).read_text())
    rows = []
    for name, (test, year) in product(NAMES, TESTS.items()):
        pair, system = name[:5], SYSTEMS[name[6:]]
        outputs = {path.name.split(".")[1]: path for path in sorted(folder.glob(f"{name}.*.{test}.out"))}
        together = outputs.pop(ENSEMBLE, None)
        if not outputs:
            continue
        conditions = f"recipes/multi30k-{name}.toml, beam 5, {steps_of(folder, name)}{about.get(name, '')}"
        id, seeds = f"multi30k-{pair}-{year}", f"mean over training.seed = {', '.join(outputs)}"
        scores = [both_scores(path, test, pair) for path in outputs.values()]
        for suffix, values in zip(("", "-cased"), zip(*scores, strict=True), strict=True):
            rows.append(row(id + suffix, system, mean(values), f"{conditions}; {seeds}; {SIGNATURES[suffix]}"))
            if len(values) > 1 and not suffix:
                rows.append(row(f"{id}-deviation", system, stdev(values), f"{conditions}; {seeds}"))
        if together is not None:
            for suffix, value in zip(("", "-cased"), both_scores(together, test, pair), strict=True):
                members = f"ensemble of training.seed = {', '.join(outputs)}"
                details = f"{conditions}; {members}; {SIGNATURES[suffix]}"
                rows.append(row(id + suffix, f"{system}, {len(outputs)} models", value, details))
    for pair, years in PUBLISHED.items():
        for year, value in years.items():
            rows.append(row(f"multi30k-{pair}-{year}", TINY, value, "as published"))
    device = f"{about['device']}, torch {about['torch']}"
    in_order = sorted([*rows, *older_rows(rows)], key=place)
    write("multi30k", in_order, device=device, packages=("sacrebleu", "sacremoses"))
    keep_logs("multi30k", folder)


SIGNATURES = {
    "": "Moses-tokenised, lower-cased",
    "-cased": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}",
}


def both_scores(path: Path, test: str, pair: str) -> tuple[float, float]:
    """BLEU of the outputs in a file, tokenised and lower-cased, and cased."""
    outputs, references = path.read_text(encoding="utf-8").splitlines(), lines(f"{test}.{pair[3:]}")
    cased = sacrebleu.BLEU().corpus_score(outputs, [references]).score
    return tokenised_bleu(outputs, references, pair[3:]), cased


def steps_of(folder: Path, name: str) -> str:
    """How long the runs of a recipe took, as far as their metrics are there."""
    files = sorted(folder.glob(f"{name}/*/metrics.jsonl")) or sorted(folder.glob(f"{name}.*.metrics.jsonl"))
    logs = [[json.loads(line) for line in path.read_text().splitlines()] for path in files]
    steps = sorted({max(line["step"] for line in run) for run in logs})
    minutes = max((line.get("seconds", 0) for run in logs for line in run), default=0) / 60
    return f"{' to '.join(f'{step:,}' for step in dict.fromkeys([steps[0], steps[-1]]))} steps in {minutes:.1f} minutes"


def older_rows(rows: list[Row]) -> list[Row]:
    """The rows of the results so far that none of these replaces."""
    path, new = FOLDER / "multi30k.json", {(row.id, row.system) for row in rows}
    saved = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [Row(**old) for old in saved if (old["id"], old["system"]) not in new]


def place(row: Row) -> tuple[int, int, int]:
    """Where a row stands in the tables: by languages, system and test set."""
    ours = [name for system in SYSTEMS.values() for name in (system, f"{system}, 3 models")]
    systems = [*ours[:2], TINY, *ours[2:]]
    years = [f"{year}{suffix}" for year in TESTS.values() for suffix in ("", "-deviation", "-cased")]
    pair, year = row.id.removeprefix("multi30k-")[:5], row.id.removeprefix("multi30k-")[6:]
    return PAIRS.index(pair), systems.index(row.system), years.index(year)


def measure_time(folder: Path) -> None:
    """Minutes of training with the first seed, validations included, and what the model then scores."""
    about, rows = json.loads((folder / ABOUT).read_text()), []
    for name in (name for name in NAMES if (folder / name / "1/metrics.jsonl").exists()):
        pair, system = name[:5], SYSTEMS[name[6:]]
        log = [json.loads(line) for line in (folder / name / "1/metrics.jsonl").read_text().splitlines()]
        steps = max(line["step"] for line in log if "tokens_per_second" in line)
        conditions = f"recipes/multi30k-{name}.toml, {steps:,} steps"
        seconds = max(line["seconds"] for line in log if "seconds" in line)
        rows.append(Row(f"time-multi30k-{pair}", system, round(seconds / 60, 2), "minutes", conditions))
        outputs = (folder / f"{name}.1.test_2016_flickr.out").read_text(encoding="utf-8").splitlines()
        bleu = tokenised_bleu(outputs, lines(f"test_2016_flickr.{pair[3:]}"), pair[3:])
        rows.append(row(f"time-multi30k-{pair}-bleu", system, bleu, f"{conditions}; 2016, tokenised, lower-cased"))
    device = f"{about['device']}, torch {about['torch']}"
    write("multi30k_time", rows, device=device, packages=("sacrebleu", "sacremoses"))


COMMON = (
    "training.learning_rate=0.001", 'training.schedule="cosine"', "training.warmup=500", "training.steps=10000",
    "training.validate_every=2000", "training.save_every=200", "batch.tokens=2048", "encoder.dropout=0.5",
    "decoder.dropout=0.5",
)  # fmt: skip
GRU, LSTM = (tuple(f'{part}.cell="{cell}"' for part in ("encoder", "decoder")) for cell in ("gru", "lstm"))
SAMPLED = "tokenizer.sampling=0.1"
SEPARATE = ("encoder.embedding=256", "decoder.embedding=256", 'decoder.tied="none"')
TIED = ("encoder.embedding=512", "decoder.embedding=512", 'decoder.tied="all"')
VARIANTS = {
    "rnnsearch": {
        "BPE": (*GRU, *SEPARATE, "tokenizer.sampling=0"),
        "BPE-dropout": (*GRU, *SEPARATE, SAMPLED),
        "BPE-dropout, two encoder layers": (*GRU, *SEPARATE, SAMPLED, "encoder.layers=2"),
        "BPE-dropout, tied embeddings": (*GRU, *TIED, SAMPLED),
        "BPE-dropout, tied embeddings, LSTM": (*LSTM, *TIED, SAMPLED),
    },
    "luong": {
        "BPE": (*GRU, *SEPARATE, "tokenizer.sampling=0"),
        "BPE-dropout": (*GRU, *SEPARATE, SAMPLED),
        "BPE-dropout, LSTM": (*LSTM, *SEPARATE, SAMPLED),
        "BPE-dropout, tied embeddings, LSTM": (*LSTM, *TIED, SAMPLED),
        "BPE-dropout, tied embeddings, LSTM, R-Drop": (
            *LSTM, *TIED, SAMPLED, "training.r_drop=2", "encoder.dropout=0.4", "decoder.dropout=0.4",
        ),
    },
}  # fmt: skip
"""Settings of recurrent models that are compared on the validation set."""


def compare_variants(folder: Path) -> None:
    """Train the variants that are not in the folder, and write the best validation score of each."""
    import torch

    rows = []
    for kind, variants in VARIANTS.items():
        for name, settings in variants.items():
            recipe, out = f"recipes/multi30k-en-de-{kind}.toml", folder / f"{kind}, {name}"
            if not (out / "metrics.jsonl").exists():
                options = [part for setting in (*COMMON, *settings) for part in ("--set", setting)]
                command = [sys.executable, "-m", "jumok", "train", recipe, "--out", str(out), *options]
                subprocess.run(command, check=True)
            log = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            best = max(line["validation"]["bleu"] for line in log if "validation" in line)
            steps = max(line["step"] for line in log)
            conditions = (
                f"{recipe}, {', '.join((*COMMON, *settings))}; {steps:,} steps; best score on the validation set"
            )
            system = "jumok" if kind == "luong" else SYSTEMS[kind]
            rows.append(row(f"variants-multi30k/{name}", system, best, conditions))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    write("multi30k_variants", rows, device=f"{device}, torch {torch.__version__}", packages=("sacrebleu",))


def tokenised_bleu(outputs: list[str], references: list[str], language: str) -> float:
    tokenised = [moses_lowercased(texts, language) for texts in (outputs, references)]
    return sacrebleu.BLEU(tokenize="none", force=True).corpus_score(tokenised[0], [tokenised[1]]).score


def row(id: str, system: str, value: float, conditions: str) -> Row:
    return Row(id, system, round(value, 2), "BLEU", conditions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "translate", "score", "time", "variants"])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "names", nargs="*", choices=[*NAMES, []], help="which recipes to train; defaults to those of the tables"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=JOBS, help="runs at the same time")
    parser.add_argument("--set", action="append", default=[], help="settings that replace those of the recipes")
    given = parser.parse_args()
    if given.what == "train":
        train(given.folder, given.names or list(SHOWN), given.seeds, given.jobs, given.set)
    elif given.what == "translate":
        translate(given.folder, *given.names, given.seeds)
    elif given.what == "score":
        score(given.folder)
    elif given.what == "variants":
        compare_variants(given.folder)
    else:
        measure_time(given.folder)
