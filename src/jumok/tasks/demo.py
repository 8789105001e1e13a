"""The demonstration: attention before neural networks, and what a fixed context forgets but attention does not."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jumok.analysis import draw
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.scores.metrics import by_length
from jumok.data import Pair, corpus_pairs
from jumok.errors import ArgumentError
from jumok.files import check_file
from jumok.model_folder import COMING, NEW_WEIGHTS
from jumok.recipe import parse_recipe
from jumok.soft_database import Answer, SoftDatabase
from jumok.tasks.recipes import TranslationRecipe
from jumok.tasks.run import Run, train
from jumok.tasks.translator import Translator
from jumok.training.progress import report_to_stderr
from jumok.training.resume import BESIDE, WRITTEN, folder_lock

SURNAMES = [
    ("Zhang", "Aston"),
    ("Lipton", "Zachary"),
    ("Li", "Mu"),
    ("Smola", "Alex"),
    ("Hu", "Rachel"),
    ("Werness", "Brent"),
]
QUERIES = ("Li", "Lipson", "Smol", "허")


@dataclass(frozen=True)
class KernelFit:
    """Bandwidth and error of one kernel."""

    kernel: str
    bandwidth: float | None
    rmse: float


@dataclass(frozen=True)
class RegressionDemo:
    """Kernel regressions of the same points, answers of a soft database, and the pictures drawn."""

    noise: float
    fits: list[KernelFit]
    answers: list[Answer]
    pictures: list[Path]

    def as_plain(self) -> dict[str, Any]:
        """The results for JSON."""
        return {
            "regression": [asdict(fit) for fit in self.fits],
            "database": [
                {
                    "query": answer.query,
                    "value": answer.value,
                    "weights": [
                        {"key": key, "value": value, "weight": weight} for key, value, weight in answer.weights
                    ],
                }
                for answer in self.answers
            ],
            "pictures": [str(picture) for picture in self.pictures],
        }


def demonstrate_regression(out: Path) -> RegressionDemo:
    """Fit every kernel, query the database, and draw the pictures into `out`."""
    # Imported here because scikit-learn and matplotlib are optional.
    from jumok.regression.estimator import KernelRegressor
    from jumok.regression.picture import KERNELS, NoisySine, draw_bandwidths, draw_kernels

    data, fits = NoisySine.draw(), []
    for kernel in KERNELS:
        regressor = data.fit(KernelRegressor(kernel))
        bandwidth = None if kernel == "constant" else regressor.bandwidth_
        fits.append(KernelFit(kernel, bandwidth, data.error(regressor)))
    pictures = [draw_kernels(out / "kernels.png", data), draw_bandwidths(out / "bandwidths.png", data)]
    database = SoftDatabase(SURNAMES)
    return RegressionDemo(data.noise, fits, [database(query) for query in QUERIES], pictures)


TEST_SENTENCES = 1000
TRAINING_PAIRS = 60_000
ENOUGH_STEPS = 400
"""Steps below which neither model has learned enough to be compared."""
BANDS = (4, 8, 12, 16)
EXAMPLE = "Friday, December 23, 1988"
EXAMPLES = (EXAMPLE, "3 hours, 25 minutes", "18 weeks ago")
LIST = "Italy, Kenya, Peru, Japan, Spain, Chile, and India"
FIXED, ATTENTION, PICTURE = "fixed", "attention", "attention.svg"


@dataclass(frozen=True)
class TranslationDemo:
    """Two models trained for as many steps on the same pairs, tested on the same unseen values."""

    exact: dict[str, float]
    """Percent of exact matches of the "fixed" and the "attention" model."""
    bands: list[tuple[str, int, float, float]]
    """For each band of source lengths: its name, number of sentences, and percent of exact matches of both models."""
    examples: list[tuple[str, str, str]]
    """A source and its translations by both models."""
    map: AttentionMap
    picture: Path
    steps: int
    """Training steps of each of the two models."""
    planned: int
    """The same, unless the time limit of the first model came before."""

    def as_plain(self) -> dict[str, Any]:
        """The results for JSON."""
        return {
            "steps": self.steps,
            "exact_match": self.exact,
            "by_length": [
                {"tokens": name, "sentences": count, "fixed": fixed, "attention": attention}
                for name, count, fixed, attention in self.bands
            ],
            "examples": [
                {"source": source, "fixed": fixed, "attention": attention} for source, fixed, attention in self.examples
            ],
            "map": str(self.picture),
        }


def demonstrate_translation(
    out: Path, *, steps: int, minutes: float, say: Callable[[str], None] = lambda message: None
) -> TranslationDemo:
    """Train a model with a fixed context and one with attention into `out`, for as many steps, and compare them.

    The first stops after `minutes`; the second has no time limit, so that it gets every step that the first got.
    """
    say("training the fixed-context model ...")
    first = train_demo_model(demo_recipe("none", steps, minutes), out / FIXED, say)
    reached = first.state.step
    for message in slow_machine_messages(reached, steps, minutes):
        say(message)
    say("training the model with attention ...")
    second = train_demo_model(demo_recipe("additive", reached, minutes=0), out / ATTENTION, say)
    fixed: Translator = first.model
    attention: Translator = second.model
    say(f"translating {TEST_SENTENCES} unseen values with both ...")
    pairs = list(corpus_pairs("cldr", TEST_SENTENCES, split="test"))
    matches = {"fixed": _exact_matches(fixed, pairs), "attention": _exact_matches(attention, pairs)}
    lengths = [len(attention.trained.tokenizers.source.encode(pair.source)) - 2 for pair in pairs]
    fixed_bands, attention_bands = (by_length(lengths, matches[name], BANDS) for name in ("fixed", "attention"))
    forgotten = (
        pair.source
        for pair, fixed_match, attention_match in zip(pairs, *matches.values(), strict=True)
        if attention_match > fixed_match
    )
    examples = (*EXAMPLES, next(forgotten, LIST))
    translations, attention_translations = fixed.translate(examples), attention.translate(examples)
    shown = attention_translations[0].attention()
    draw.save(shown, out / PICTURE, title=f"{EXAMPLE} → {attention_translations[0].text}")
    return TranslationDemo(
        exact={name: 100 * sum(values) / len(values) for name, values in matches.items()},
        bands=[
            (name, count, 100 * share, 100 * attention_share)
            for (name, count, share), (_, _, attention_share) in zip(fixed_bands, attention_bands, strict=True)
        ],
        examples=[
            (text, without.text, with_attention.text)
            for text, without, with_attention in zip(examples, translations, attention_translations, strict=True)
        ],
        map=shown,
        picture=out / PICTURE,
        steps=reached,
        planned=steps,
    )


def demo_recipe(attention: str, steps: int, minutes: float) -> TranslationRecipe:
    """A small recurrent model; the two models of the demo differ only in their attention."""
    half = {"kind": "rnn", "cell": "gru", "width": 192, "embedding": 128, "dropout": 0.1}
    return parse_recipe(
        TranslationRecipe,
        {
            "data": {"corpus": "cldr", "size": TRAINING_PAIRS, "valid_size": 200},
            "tokenizer": {"kind": "unigram", "size": 500},
            "encoder": half,
            "decoder": half | {"attention": attention},
            "batch": {"tokens": 768},
            "training": {
                "minutes": minutes,
                "steps": steps,
                "learning_rate": 0.006,
                "schedule": "inverse_sqrt",
                "warmup": 150,
                "label_smoothing": 0.0,
                "validate_every": 100_000,
                "ema": 0.99,
                "patience": 0,
                "metric": "exact_match",
            },
            "decoding": {"beam": 3},
        },
        origin="the demo",
    )


def train_demo_model(recipe: TranslationRecipe, folder: Path, say: Callable[[str], None]) -> Run:
    """Train a model into `folder`, which keeps an earlier demo's model until the new one is complete."""
    report = report_to_stderr()
    report.resumes = False
    with replacing(folder) as new_folder:
        run = train(recipe, out=new_folder, report=report, draw=False)
        if run.stopped == "interrupted":
            say(f"the demo was stopped: {folder} is unchanged, and the next demo starts from the beginning")
            raise KeyboardInterrupt
    return run


def slow_machine_messages(steps: int, wanted: int, minutes: float) -> Iterator[str]:
    """What it means for the results if a slow machine did not reach the wanted number of steps."""
    if steps < wanted:
        yield (
            f"only {steps:,} of {wanted:,} steps in {minutes:g} minutes: the machine is slow or busy; the model with "
            "attention will be trained for the same number, and "
            f"`jumok demo --minutes {max(5.0, 4 * minutes):g}` gives both more time"
        )
    if steps < ENOUGH_STEPS:
        yield f"{steps:,} steps are too few to learn much: the results below mean little"


def _exact_matches(translator: Translator, pairs: Sequence[Pair]) -> list[float]:
    outputs = translator.translate([pair.source for pair in pairs])
    return [float(output.text == pair.target) for output, pair in zip(outputs, pairs, strict=True)]


MARK = ".jumok-demo"
"""A file that marks a folder as made by a demo."""
DEMO_FILES = {MARK, *WRITTEN, *BESIDE, "data", "tensorboard", COMING, NEW_WEIGHTS}


def check_folders(out: Path) -> None:
    """Refuse, before any work, folders that the demo cannot write or that hold files no demo made."""
    for folder in (out / FIXED, out / ATTENTION):
        _check_folder(folder)
        _check_folder(_unfinished(folder))
    check_file(out / PICTURE)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to train into, which replaces `folder` once the block ends without an error."""
    new_folder = _unfinished(folder)
    _remove(new_folder)  # left by a demo that was killed
    new_folder.mkdir(parents=True)
    (new_folder / MARK).write_text(
        "This folder was made by `jumok demo`; the next demo replaces it.\n", encoding="utf-8"
    )
    try:
        yield new_folder
        _remove(folder)
        os.replace(new_folder, folder)
    finally:
        shutil.rmtree(new_folder, ignore_errors=True)


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.unfinished")


def _remove(folder: Path) -> None:
    _check_folder(folder)
    if folder.exists():
        shutil.rmtree(folder)


def _check_folder(folder: Path) -> None:
    """Raise an ArgumentError unless the folder is missing, empty, or holds only what a demo wrote."""
    advice = "choose another folder with --out, or move it away"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        kind = "link" if folder.is_symlink() else "file"
        raise ArgumentError(f"{folder} is a {kind}, but the demo writes a model there; {advice}")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in names if not _is_demo_file(name)] if MARK in names else names
    if foreign:
        listed = ", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else "")
        raise ArgumentError(f"{folder} holds files that no demo made ({listed}), and the demo replaces it; {advice}")
    with folder_lock(folder):
        pass


def _is_demo_file(name: str) -> bool:
    return name in DEMO_FILES or name.endswith(".unfinished")
