"""What the training runs of all recipes share: how they begin, and what is shown beside the weights."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jumok.analysis.scores.metrics import References, score_outputs
from jumok.errors import ConfigError, MissingExtraError, NoOutputError
from jumok.models.config import TextModelConfig
from jumok.tasks.translator import find_device
from jumok.training.config import Metric
from jumok.training.progress import Report, report_to_stderr, score_name, score_value
from jumok.training.resume import goes_on

if TYPE_CHECKING:
    from jumok.recipe import Recipe
    from jumok.tasks.caption_model import CaptionRecipe
    from jumok.tasks.graph_model import GraphRecipe

TEXTS = {"source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "alignments", "dataset"}
FILES = TEXTS | {"vectors", "path", "captions", "weights", "nodes", "edges"}
"""Settings that only say what files are called."""


class Begun(NamedTuple):
    """A run that can be: its folder was found fit, and nothing is written yet."""

    folder: Path
    device: torch.device
    report: Report
    settings: dict[str, dict[str, Any]]
    """What a resumed run must share with the one before."""
    goes_on: bool
    """Whether there is a checkpoint to go on from."""


def begin_run(
    recipe: "Recipe | CaptionRecipe | GraphRecipe",
    folder: str | Path,
    *,
    resume: bool,
    device: str,
    report: Report | None,
) -> Begun:
    """Find the device and look at the folder, before any data are made."""
    folder, where, settings = Path(folder), find_device(device), decisive(recipe)
    begun = goes_on(folder, recipe.training, settings, resume=resume)
    return Begun(folder, where, report or report_to_stderr(), settings, begun)


def decisive(recipe: "Recipe | CaptionRecipe | GraphRecipe") -> dict[str, dict[str, Any]]:
    """The settings that a resumed run must share with the one before, but for those of training, which may change."""
    sections = {name: section for name, section in asdict(recipe).items() if name not in ("training", "decoding")}
    return {name: {key: value for key, value in of.items() if key not in FILES} for name, of in sections.items()}


def check_positions(half: TextModelConfig, longest: int, setting: str) -> None:
    """What is not left out for its length must find its positions, or training would end at the first that does not."""
    if half.limit is not None and half.limit <= longest:
        raise ConfigError(
            f"{half.section}.longest = {half.limit} positions are too few for {setting} = {longest} tokens and "
            f"their end; set {half.section}.longest = {longest + 1} or {setting} = {half.limit - 1}"
        )


def score_of(metric: Metric, loss: float, find: Callable[[], Sequence[str]], references: Sequence[References]) -> float:
    """The validation score of what a model finds; not a number for one that is too broken to find anything."""
    if not math.isfinite(loss):
        return math.nan
    try:
        outputs = find()
    except NoOutputError:
        return math.nan
    (score,) = score_outputs(outputs, references, [metric], resamples=1)
    return score.value


def shown(scores: Mapping[str, float]) -> dict[str, str]:
    """Scores of the best validation, for the model's page."""
    return {score_name(name): f"{score_value(name, value)} (validation)" for name, value in scores.items()}


def draw_curve(metrics: Path) -> None:
    """The curve of a run beside its metrics, where there is matplotlib."""
    from jumok.analysis.curves.training import curve_picture

    with suppress(MissingExtraError):  # the numbers are in metrics.jsonl; a picture of them is extra
        curve_picture(metrics, metrics.with_name("curve.png"))
