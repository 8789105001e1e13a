"""Fine-tuning of a model of image captions on talks, with and without captions in the training data.

    JUMOK_DATA=path/to/data python -m benchmarks.fine_tuning train runs/talks    # on a GPU
    JUMOK_DATA=path/to/data python -m benchmarks.fine_tuning score runs/talks    # writes claims_fine_tuning.json

Fine-tunes the model of recipes/multi30k-de-en-base.toml with recipes/fine-tune-talks.toml, as it is, without the tag,
and on talks alone. Each of the four models then translates both test sets; the model with the tag uses it for talks.
`score` also writes a short log of each run to results/logs.
"""

import argparse
import gzip
import json
import lzma
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.results import Row, write
from benchmarks.training_logs import keep_logs

TESTS = {"captions": "multi30k/test_2016_flickr", "talks": "iwslt14_deen/test"}
MOST = 1000
"""Lines of a test set."""
SYSTEMS = {
    "base": "captions alone",
    "plain": "then talks alone",
    "mixed": "then captions and talks, 1 : 1",
    "tagged": "then captions and talks, 1 : 1, with a tag",
}


def lines(name: str, language: str) -> list[str]:
    """The first lines of a test set."""
    path = Path(os.environ["JUMOK_DATA"]) / f"{TESTS[name]}.{language}"
    found = path.with_name(f"{path.name}.gz")
    if found.exists():
        text = gzip.decompress(found.read_bytes())
    else:
        text = lzma.decompress(path.with_name(f"{path.name}.xz").read_bytes())
    return text.decode().splitlines()[:MOST]


def mixed_corpora() -> list[dict[str, Any]]:
    """The corpora of the recipe, without the tag."""
    import tomllib

    with open("recipes/fine-tune-talks.toml", "rb") as file:
        return [{**corpus, "tag": ""} for corpus in tomllib.load(file)["data"]["mix"]]


def train_one(task: tuple[str, str]) -> None:
    """Train a model, and translate both test sets, with the first one while others are trained."""
    import jumok

    system, out = task
    folder, started = Path(out), time.monotonic()
    recipe = "recipes/multi30k-de-en-base.toml" if system == "base" else "recipes/fine-tune-talks.toml"
    overrides: dict[str, Any] = {} if system == "base" else {"training.start_from": str(folder / "base")}
    corpora = mixed_corpora()
    if system == "plain":
        overrides |= {"data.mix": corpora[1:]}
    elif system == "mixed":
        overrides |= {"data.mix": corpora}
    run = jumok.train(recipe, out=folder / system, overrides=overrides, draw=False)
    found = {"seconds": time.monotonic() - started, "steps": run.state.step}
    (folder / f"{system}.run.json").write_text(json.dumps(found), encoding="utf-8")
    if system != "base":
        translate_tests(task)


def translate_tests(task: tuple[str, str]) -> None:
    """Translate both test sets with a trained model."""
    import jumok

    system, folder = task[0], Path(task[1])
    model = jumok.load(folder / system)
    model.batch_tokens = 1 << 15
    found = {}
    for name in TESTS:
        tag = "talk" if (system, name) == ("tagged", "talks") else None
        found[name] = [output.text for output in model.translate(lines(name, "de"), tag=tag)]
    (folder / f"{system}.out.json").write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def train(folder: Path) -> None:
    """The model of captions first, and then the others at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    tuned = [(train_one, system) for system in ("plain", "mixed", "tagged")]
    for tasks in ([(train_one, "base")], [(translate_tests, "base"), *tuned]):
        workers = [context.Process(target=work, args=((system, str(folder)),)) for work, system in tasks]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def score(folder: Path, device: str) -> None:
    """BLEU of lower-cased text; the talks are tokenised already."""
    import sacrebleu

    rows = []
    for system, name in SYSTEMS.items():
        if not (path := folder / f"{system}.out.json").exists():
            continue
        found = json.loads((folder / f"{system}.run.json").read_text(encoding="utf-8"))
        for test, outputs in json.loads(path.read_text(encoding="utf-8")).items():
            metric = sacrebleu.BLEU(lowercase=True, tokenize="none" if test == "talks" else "13a", force=True)
            value = metric.corpus_score(outputs, [lines(test, "en")]).score
            about = f"{found['steps']:,} steps in {found['seconds']:.0f} s; {len(outputs):,} lines, lower-cased"
            rows.append(Row(f"fine-tuning/{name}", test, round(value, 2), "BLEU", about))
    write("claims_fine_tuning", rows, device=device, packages=("torch", "sacrebleu"))
    keep_logs("fine-tuning", folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="NVIDIA H200", help="for score: what was trained on")
    given = parser.parse_args()
    train(given.folder) if given.what == "train" else score(given.folder, given.device)
