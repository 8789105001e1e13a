"""German to English from 4,600 pairs of TED talks (IWSLT 2014): train with several seeds, translate, score.

    JUMOK_DATA=path/to/data python -m benchmarks.low_resource train runs/low-resource --workers 3    # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.low_resource score runs/low-resource

`train` takes recipes/low-resource-de-en.toml and, with --systems, further ones; the seeds of a system also translate
as an ensemble. The text is tokenised and lower-cased as in fairseq's recipe, and so are the scores: BLEU without
further tokenisation. Entities such as &apos; become their characters first: sacrebleu's tokenizer, which validation
uses, would count each as three words. The validation set chooses the checkpoints and the system that stands for jumok.
`score` also writes a short log of each run to results/logs.
"""

import argparse
import html
import json
import lzma
import multiprocessing
import os
import time
from itertools import product
from pathlib import Path
from statistics import mean, stdev

import sacrebleu

from benchmarks.results import Row, write
from benchmarks.training_logs import keep_logs

SYSTEMS = {
    "transformer": ("recipes/low-resource-de-en.toml", "jumok, Transformer"),
    "rnn": ("recipes/low-resource-de-en-rnn.toml", "jumok, RNNsearch"),
}
ENSEMBLE = "ensemble"
GOAL = "low-resource-de-en"


SPLITS = {"": "train_lowres4600", "valid_": "valid"}
"""By what the settings of data begin with."""


def lines(language: str, split: str = "test") -> list[str]:
    path = Path(os.environ.get("JUMOK_DATA", "../shared/data"), f"iwslt14_deen/{split}.{language}.xz")
    return html.unescape(lzma.decompress(path.read_bytes()).decode()).splitlines()


def write_text(folder: Path) -> dict[str, str]:
    """Write the text to train and validate on, and return the settings that name its files."""
    settings = {}
    for prefix, split in SPLITS.items():
        for side, language in {"source": "de", "target": "en"}.items():
            path = folder / f"{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in lines(language, split)), encoding="utf-8")
            settings[f"data.{prefix}{side}"] = str(path)
    return settings


def train_one(job: tuple[str, int, str, float, dict[str, str]]) -> None:
    """Train a model and translate the test set."""
    import jumok

    system, seed, folder, minutes, text = job
    started = time.monotonic()
    overrides = {**text, "training.seed": seed, "training.minutes": minutes}
    run = jumok.train(SYSTEMS[system][0], out=Path(folder, system, str(seed)), overrides=overrides, draw=False)
    about = {"valid": run.metrics["bleu"], "steps": run.state.step, "minutes": (time.monotonic() - started) / 60}
    translate(Path(folder), system, [seed], about)


def translate(folder: Path, system: str, seeds: list[int], about: dict[str, float]) -> None:
    """Translate the test set with the model of a seed, or with those of several as an ensemble."""
    import jumok

    model = jumok.load([folder / system / str(seed) for seed in seeds])
    outputs = [output.text for output in model.translate(lines("de"))]
    name = seeds[0] if len(seeds) == 1 else ENSEMBLE
    found = {"seeds": seeds, **about, "outputs": outputs}
    (folder / f"{system}.{name}.json").write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def train(folder: Path, systems: list[str], seeds: list[int], workers: int, minutes: float) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    (folder / "device").write_text(f"{device}, torch {torch.__version__}", encoding="utf-8")
    text = write_text(folder)
    jobs = [(system, seed, str(folder), minutes, text) for system, seed in product(systems, seeds)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(train_one, jobs, chunksize=1)
    for system in systems if len(seeds) > 1 else ():
        translate(folder, system, seeds, {})


def score(folder: Path) -> None:
    """The mean over seeds, and the ensemble, of every system; the one with the best validation score is `jumok`."""
    references, metric = lines("en"), sacrebleu.BLEU(tokenize="none", force=True)
    runs = {name: [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}.*.json"))] for name in SYSTEMS}
    single = {name: [run for run in found if len(run["seeds"]) == 1] for name, found in runs.items() if found}
    best = max(single, key=lambda name: mean(run["valid"] for run in single[name]))
    rows = []
    for name, found in single.items():
        recipe, title = SYSTEMS[name]
        title = "jumok" if name == best else title
        values = [metric.corpus_score(run["outputs"], [references]).score for run in found]
        about = (
            f"{recipe}, beam 5, {found[0]['steps']:,} steps in {max(run['minutes'] for run in found):.1f} minutes, "
            f"{len(found)} seeds; validation {mean(run['valid'] for run in found):.2f}; tokenised, lower-cased"
        )
        rows.append(Row(GOAL, title, round(mean(values), 2), "BLEU", about))
        if len(values) > 1:
            rows.append(Row(f"{GOAL}-deviation", title, round(stdev(values), 2), "BLEU", about))
        for run in (run for run in runs[name] if len(run["seeds"]) > 1):
            value = metric.corpus_score(run["outputs"], [references]).score
            rows.append(Row(GOAL, f"{title}, {len(run['seeds'])} models", round(value, 2), "BLEU", about))
    published = "as published, another sample of 100,000 words"
    rows.append(Row(GOAL, "tuned RNN (Sennrich & Zhang 2019)", 16.57, "BLEU", published))
    write("low_resource", rows, device=(folder / "device").read_text(encoding="utf-8"), packages=("sacrebleu",))
    keep_logs("low-resource", folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS], default=["transformer"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0, help="limit of the training of a model")
    given = parser.parse_args()
    if given.what == "train":
        train(given.folder, given.systems, given.seeds, given.workers, given.minutes)
    else:
        score(given.folder)
