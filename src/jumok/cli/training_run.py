"""A whole training run: text to tokens to a trained model folder, validated by really translating."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from jumok.analysis.scores import score_outputs
from jumok.config import Recipe
from jumok.data import Batches, Prepared, prepare
from jumok.data.prepare import is_outdated, kept_input
from jumok.errors import ConfigError
from jumok.model_folder import Trained, describe_model, new_model
from jumok.models.build import DecoderConfig, EncoderConfig, build_model
from jumok.models.half import HalfConfig
from jumok.models.room import check_memory
from jumok.training.loop import TrainingResult, train
from jumok.training.loss import held_out_loss
from jumok.training.pretrained import begin_with_vectors, check_vectors
from jumok.training.progress import Report, report_to_stderr
from jumok.training.resume import goes_on
from jumok.training.units import score_name, score_value
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
    where, settings = find_device(device), decisive(recipe)
    check_room(recipe, where)  # whatever the vocabulary will be
    begun = _checked(recipe, folder, settings, resume=resume)  # before its data are made anew
    data = kept_input(folder / "data", recipe.data) if begun else recipe.data
    prepared = prepare(folder / "data", data, recipe.tokenizer, recipe.filter, say=report.say)
    report.say(str(prepared.report))
    check_room(recipe, where, source=prepared.tokenizers.source.size, target=prepared.tokenizers.target.size)
    model = new_model(recipe, prepared.tokenizers)
    if not begun:
        begin_with_vectors(model.encoder, recipe.encoder, prepared.tokenizers.source, "source", report.say)
        begin_with_vectors(model.decoder, recipe.decoder, prepared.tokenizers.target, "target", report.say)
    model.to(where)
    trained = Trained(model, _for_use(recipe, prepared), prepared.tokenizers)
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
        data=prepared.identity,
        settings=settings,
        draw=draw_curve if draw else None,
    )
    best = result.state.best
    scores: dict[str, float] = {} if best is None else {recipe.training.metric: best}
    shown = {score_name(name): f"{score_value(name, value)} (validation)" for name, value in scores.items()}
    describe_model(folder, trained, scores=shown)
    return Run(Translator(trained), result, result.stopped, scores)


def decisive(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The settings that a resumed run must share with the one before, but for what files are called."""
    names = ("data", "tokenizer", "filter", "batch", "encoder", "decoder")
    files = {"source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "dataset", "vectors"}
    sections = {name: asdict(getattr(recipe, name)) for name in names}
    return {name: {key: value for key, value in of.items() if key not in files} for name, of in sections.items()}


def _checked(recipe: Recipe, folder: Path, settings: dict[str, dict[str, Any]], *, resume: bool) -> bool:
    """Whether there is a checkpoint to go on from, once all is found to be as it must be and nothing touched yet."""
    if not goes_on(folder, recipe.training, settings, resume=resume):
        for half in (recipe.encoder, recipe.decoder):
            check_vectors(half)
            _check_positions(half, recipe.filter.max_length)
        return False
    if is_outdated(folder / "data", recipe.data, recipe.tokenizer, recipe.filter):
        raise ConfigError(
            f"{folder / 'data'} was made from other files than the recipe names, or from an earlier state of them; "
            f"put them back, train into another folder, or, if they are only newer copies, delete {folder / 'data'}"
        )
    return True


def check_room(recipe: Recipe, device: torch.device, *, source: int = 1, target: int = 1) -> None:
    """Raise a ConfigError if the model, with vocabularies of these sizes, is larger than memory."""

    def build(encoder: EncoderConfig, decoder: DecoderConfig) -> nn.Module:
        sizes = {"source_vocabulary": source, "target_vocabulary": target}
        return build_model(encoder, decoder, **sizes, shared_vocabulary=recipe.tokenizer.shared)

    check_memory(build, recipe.encoder, recipe.decoder, device=device)


def _for_use(recipe: Recipe, prepared: Prepared) -> Recipe:
    """The recipe that is saved with the model: it knows up to what length inputs were learnt, unless it says one."""
    if recipe.decoding.max_source:
        return recipe
    return replace(recipe, decoding=replace(recipe.decoding, max_source=prepared.longest_source))


def _check_positions(half: HalfConfig, longest: int) -> None:
    """A pair that is not filtered out must find its positions, or training would end at the first that does not."""
    if half.limit is not None and half.limit <= longest:
        raise ConfigError(
            f"{half.section}.longest = {half.limit} positions are too few for filter.max_length = {longest} tokens and "
            f"their end; set {half.section}.longest = {longest + 1} or filter.max_length = {half.limit - 1}"
        )


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


def draw_curve(metrics: Path) -> None:
    """The curve of a run beside its metrics, where there is matplotlib."""
    from jumok.analysis.curves import curve_picture
    from jumok.errors import MissingExtraError

    with suppress(MissingExtraError):  # the numbers are in metrics.jsonl; a picture of them is extra
        curve_picture(metrics, metrics.with_name("curve.png"))
