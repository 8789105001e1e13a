"""A whole training run: text to tokens to a trained model folder, validated by really translating."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torch import nn

from jumok.analysis.scores import score_outputs
from jumok.config import Recipe
from jumok.data import Batches, Prepared, prepare
from jumok.model_folder import Trained, describe_model, new_model
from jumok.training.loop import TrainingResult, train
from jumok.training.loss import held_out_loss
from jumok.training.progress import Report, report_to_stderr
from jumok.training.resume import check_folder
from jumok.translator import Translator, find_device

VALIDATED = 1000
"""Sentences translated at a validation, at most."""


class Run(NamedTuple):
    """What a run gave."""

    translator: Translator
    result: TrainingResult
    stopped: str
    scores: dict[str, float]


def run_recipe(
    recipe: Recipe,
    folder: str | Path,
    *,
    resume: bool = False,
    device: str = "auto",
    report: Report | None = None,
    draw: bool = True,
) -> Run:
    """Prepare the data, train, and write the model folder."""
    folder, report = Path(folder), report or report_to_stderr()
    where = find_device(device)
    check_folder(folder, resume=resume)  # before its data are made anew
    prepared = prepare(folder / "data", recipe.data, recipe.tokenizer, recipe.filter, say=report.say)
    report.say(str(prepared.report))
    model = new_model(recipe, prepared.tokenizers).to(where)
    trained = Trained(model, recipe, prepared.tokenizers)
    batches = Batches(
        prepared.train,
        recipe.batch,
        seed=recipe.training.seed,
        tokenizers=prepared.tokenizers,
        sampling=recipe.tokenizer.sampling,
    )
    result = train(
        model,
        batches,
        recipe.training,
        folder=folder,
        validate=make_validator(trained, prepared),
        report=report,
        resume=resume,
        data=prepared.train.fingerprint,
        draw=_curve if draw else None,
    )
    best = result.state.best
    scores: dict[str, float] = {} if best is None else {recipe.training.metric: best}
    describe_model(folder, trained, scores={name: f"{value:.4g} (validation)" for name, value in scores.items()})
    return Run(Translator(trained), result, result.stopped, scores)


def make_validator(trained: Trained, prepared: Prepared) -> Callable[[nn.Module], dict[str, float]]:
    """A function from a model to its scores on the validation pairs: loss, and the recipe's metric by beam search."""
    recipe = trained.recipe
    held_out = Batches(prepared.valid, recipe.batch)
    pairs = prepared.valid_pairs[:VALIDATED]

    def validate(model: nn.Module) -> dict[str, float]:
        scores = held_out_loss(model, held_out)
        if recipe.training.metric != "loss":
            translator = Translator(trained._replace(model=model))  # type: ignore[arg-type]
            outputs = [found.text for found in translator.translate([pair.source for pair in pairs])]
            references = [pair.target for pair in pairs]
            (score,) = score_outputs(outputs, references, [recipe.training.metric], resamples=1)
            scores[recipe.training.metric] = score.value
        return scores

    return validate


def _curve(metrics: Path) -> None:
    from jumok.analysis.curves import curve_picture
    from jumok.errors import MissingExtraError

    with suppress(MissingExtraError):  # the numbers are in metrics.jsonl; a picture of them is extra
        curve_picture(metrics, metrics.with_name("curve.png"))
