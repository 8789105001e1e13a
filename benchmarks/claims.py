"""The tables and pictures of docs/claims.md, which tests common claims about attention.

    JUMOK_DATA=path/to/data python -m benchmarks.claims length MODELS      quality against source length
    JUMOK_DATA=path/to/data python -m benchmarks.claims long MODELS        the same for models trained on long texts
    JUMOK_DATA=path/to/data python -m benchmarks.claims gradient MODELS    gradient against distance
    python -m benchmarks.claims speed [--device cuda]                      time of a step against length

MODELS is a folder with the models fixed, rnnsearch, luong and transformer, trained by recipes/multi30k-en-de-*.toml,
and for `long` by recipes/multi30k-en-de-long-*.toml. All but `speed` compare them, as `jumok compare` does, on
the test sets of Multi30k, whose sentences are short, so longer texts are joined from consecutive sentences. `speed`
needs neither data nor training.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jumok
from benchmarks.results import FOLDER, ROOT, Row, cpu, write
from jumok.analysis.curves.gradient_reach import reach_curves
from jumok.analysis.curves.score_by_length import length_curves
from jumok.analysis.report.numbers import System
from jumok.analysis.scores.length_bands import Band, join_texts
from jumok.data import read_lines
from jumok.tasks.comparison import gradient_by_distance, quality_by_length, read_joined, save_charts
from jumok.tasks.results import write_outputs
from jumok.tasks.translation_scores import read_composed, read_test_set

SYSTEMS = {"fixed": "fixed context", "rnnsearch": "additive", "luong": "Luong", "transformer": "Transformer"}
PICTURES = ROOT / "docs/pictures" if FOLDER == ROOT / "benchmarks/results" else FOLDER
"""Pictures of results that are written elsewhere lie beside them."""
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
BANDS, JOINED_BANDS = (5, 8, 11, 14, 17, 20, 25), (10, 20, 30, 40, 50, 60)
JOINED = (1, 2, 3, 4, 5, 6)  # how many sentences make a text
TEXTS = {"length": "length", "joined": "joined", "long": "joined"}  # which texts each curve is about
LENGTHS = (8, 16, 32, 64, 128, 256)
VOCABULARY = 8000


def files_of(test: str = TESTS[0]) -> tuple[str, str]:
    """Sources and references of a test set."""
    path = Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k" / test
    return f"{path}.en.gz", f"{path}.de.gz"


def length(models: Path, work: Path, beam: int) -> None:
    """Models that learned single sentences: on the sentences of all test sets, and on longer texts."""
    write_texts(work)
    rows = [*by_length(models, work, "length", BANDS, beam), *by_length(models, work, "joined", JOINED_BANDS, beam)]
    rows += words_written(work, "joined", beam)
    write("claims_length", rows, device=cpu(), packages=("torch", "sacrebleu"))


def long(models: Path, work: Path, beam: int) -> None:
    """Models that learned from texts of up to six sentences, on the same longer texts."""
    write_texts(work)
    trained = {name: f"; {steps_of(models / folder)} steps of training" for folder, name in SYSTEMS.items()}
    rows = by_length(models, work, "long", JOINED_BANDS, beam, trained)
    write("claims_long", [*rows, *words_written(work, "long", beam)], device=gpu(), packages=("torch", "sacrebleu"))


def by_length(
    models: Path, work: Path, kind: str, bands: tuple[int, ...], beam: int, more: Mapping[str, str] = {}
) -> list[Row]:
    """As `jumok compare length MODELS`, but translations are kept in `work` and not made again."""
    text = work / TEXTS[kind]
    for folder in SYSTEMS:
        translate(models / folder, Path(f"{text}.en"), work / f"{kind}.{folder}-{beam}", beam)
    systems = [System(name, read_composed(work / f"{kind}.{folder}-{beam}")) for folder, name in SYSTEMS.items()]
    found = quality_by_length(systems, *read_test_set(f"{text}.en", f"{text}.de"), edges=bands)
    save_charts(length_curves(found), PICTURES / f"claims-{kind}.svg")
    return [
        Row(
            f"{kind}/{band.words} words",
            name,
            round(band.score.value, 2),
            "BLEU",
            length_conditions(TEXTS[kind], band, beam) + more.get(name, ""),
        )
        for name, curve in found.items()
        for band in curve
    ]


def words_written(work: Path, kind: str, beam: int) -> Iterator[Row]:
    """How many of the reference's words the outputs have, by the number of sentences in a text."""
    references = list(read_lines(work / "joined.de"))
    sentences = len(list(read_lines(files_of()[0])))
    for folder, name in SYSTEMS.items():
        outputs, start = list(read_lines(work / f"{kind}.{folder}-{beam}")), 0
        for size in JOINED:
            end = start + sentences // size
            words, wanted = (sum(len(text.split()) for text in texts[start:end]) for texts in (outputs, references))
            said = f"words of {end - start} outputs over words of their references; beam {beam}"
            yield Row(f"{kind}-words/{size} sentence{'s' * (size > 1)}", name, round(words / wanted, 2), "share", said)
            start = end


def steps_of(model: Path) -> int:
    """The steps a model was trained for, which may be fewer than its recipe's where the clock stopped it."""
    lines = (model / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max(int(json.loads(line)["step"]) for line in lines)


def write_texts(work: Path) -> None:
    """All sentences of the test sets, and longer texts of consecutive sentences of the first one."""
    work.mkdir(parents=True, exist_ok=True)
    for number, side in enumerate(("en", "de")):
        sentences = [line for test in TESTS for line in read_lines(files_of(test)[number])]
        longer = join_texts(list(read_lines(files_of()[number])), JOINED)
        for kind, texts in (("length", sentences), ("joined", longer)):
            (work / f"{kind}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def translate(model: Path, source: Path, out: Path, beam: int) -> None:
    if not out.exists():
        outputs = jumok.load(model).stream(read_lines(source), beam=beam)
        write_outputs(out, [output.text for output in outputs])


def length_conditions(kind: str, band: Band, beam: int) -> str:
    of = f"sentences of {', '.join(TESTS)}"
    longer = f"texts of {JOINED[0]} to {JOINED[-1]} consecutive sentences of {TESTS[0]}"
    interval = f"95% interval {band.score.low:.2f} to {band.score.high:.2f}"
    said = f"{band.sentences} {of if kind == 'length' else longer}; beam {beam}; {interval}"
    return f"{said}; {band.score.signature}"


def gradient(models: Path) -> None:
    rows, folders = [], {name: models / folder for folder, name in SYSTEMS.items()}
    texts = read_joined(*files_of(), (1, 2, 4, 6))
    for kind, weights in (("gradient", "trained models"), ("gradient-fresh", "fresh weights")):
        untrained = weights == "fresh weights"
        found = gradient_by_distance(folders, *texts, shortest=20, sentences=1000, untrained=untrained)
        title = f"Gradient that arrives at a source token, {weights}"
        save_charts(reach_curves(found, title=title), PICTURES / f"claims-{kind}.svg")
        for name, curve in found.items():
            for reach in curve:
                place = f"{kind}/{reach.nearest}–{reach.farthest} tokens"
                interval = f"95% interval {reach.low:.3g} to {reach.high:.3g}"
                said = f"{reach.tokens} tokens in texts of 1, 2, 4 or 6 sentences, 20 tokens or more each; {interval}"
                rows.append(Row(place, name, float(f"{reach.share:.4g}"), "share", said))
    write("claims_gradient", rows, device=cpu())


def speed(device: str, tokens: int) -> None:
    """Length by length, written after each, so that a run that is cut short leaves what it has measured."""
    from jumok.analysis.curves.step_times import StepTime, step_times

    on_gpu = device.startswith("cuda")
    lengths, repeats = (LENGTHS, 3) if on_gpu else (LENGTHS[:-1], 2)
    models = {name: untrained(folder, device) for folder, name in SYSTEMS.items()}
    times: dict[str, list[StepTime]] = {name: [] for name in models}
    for length in lengths:
        for name, model in models.items():
            times[name] += step_times(model, [length], tokens=tokens, repeats=repeats)
            print(name, times[name][-1], file=sys.stderr, flush=True)
        write_speed("gpu" if on_gpu else "cpu", times, tokens, repeats)


def untrained(folder: str, device: str) -> Any:
    from jumok.models.build import build_model
    from jumok.tasks import read_recipe

    recipe = read_recipe(ROOT / f"recipes/multi30k-en-de-{folder}.toml", variables=False)
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "shared_vocabulary": True}
    return build_model(recipe.encoder, recipe.decoder, **sizes).to(device)


def write_speed(where: str, times: dict[str, Any], tokens: int, repeats: int) -> None:
    import torch

    from jumok.analysis.curves.step_times import speed_curves
    from jumok.analysis.draw.chart import charts_bytes

    clock = "" if where == "gpu" else f", {torch.get_num_threads()} thread(s), its own time if one"
    said = f"{tokens} target tokens a batch, vocabulary of {VOCABULARY}, float32, fastest of {repeats}{clock}"
    rows = [
        Row(f"{kind}-{where}/{one.length} tokens", name, float(f"{1000 * getattr(one, part):.4g}"), "ms", said)
        for kind, part in (("train", "training"), ("decode", "decoding"))
        for name, found in times.items()
        for one in found
    ]
    charts = speed_curves(times, tokens=tokens, where=where.upper())
    (PICTURES / f"claims-speed-{where}.svg").write_bytes(charts_bytes(charts, "svg"))
    write(f"claims_speed_{where}", rows, device=gpu() if where == "gpu" else cpu())


def gpu() -> str:
    """The GPU's name, or the processor's where there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else cpu()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["length", "long", "gradient", "speed"])
    parser.add_argument("models", type=Path, nargs="?", default=Path("runs"))
    parser.add_argument("--work", type=Path, default=Path("runs/claims"), help="keeps translations between runs")
    parser.add_argument("--beam", type=int, default=5, help="of the translations; 1 is greedy search")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, help="target tokens of a timed batch; 4096 on a GPU, 512 else")
    asked = parser.parse_args()
    if asked.what == "speed":
        speed(asked.device, asked.tokens or (4096 if asked.device.startswith("cuda") else 512))
    elif asked.what == "gradient":
        gradient(asked.models)
    else:
        {"length": length, "long": long}[asked.what](asked.models, asked.work, asked.beam)
