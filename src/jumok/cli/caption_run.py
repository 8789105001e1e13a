"""A whole training run on images: from a recipe to a trained captioner, validated by really captioning."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from jumok.analysis.scores import score_outputs
from jumok.caption_model import CaptionRecipe, TrainedCaptioner, describe_captioner, new_captioner
from jumok.captioner import Captioner
from jumok.cli.output import progress
from jumok.cli.training_run import draw_curve
from jumok.data.image_store import ImageBatches, PreparedImages, prepare_images
from jumok.errors import ConfigError
from jumok.models.build import DecoderConfig
from jumok.models.captioner import EncoderConfig, build_captioner
from jumok.models.image_encoder import GridEncoder
from jumok.models.resnet_weights import begin_with_weights
from jumok.models.room import check_memory
from jumok.training.caption_task import CaptionTask, caption_loss
from jumok.training.loop import train
from jumok.training.loss import held_out_loss
from jumok.training.progress import Report, report_to_stderr
from jumok.training.resume import goes_on
from jumok.training.units import score_name, score_value
from jumok.translator import find_device


class CaptionRun(NamedTuple):
    """What a run gave."""

    captioner: Captioner
    stopped: str
    scores: dict[str, float]


def run_caption_recipe(
    recipe: CaptionRecipe,
    folder: str | Path,
    *,
    resume: bool = False,
    device: str = "auto",
    report: Report | None = None,
    draw: bool = True,
) -> CaptionRun:
    """Bring the images to one size, train on them, and write the model folder."""
    folder, report = Path(folder), report or report_to_stderr()
    where, settings = find_device(device), decisive(recipe)
    _check_positions(recipe)
    check_room(recipe, where)  # whatever the vocabulary will be
    begun = goes_on(folder, recipe.training, settings, resume=resume)
    prepared = prepare_images(folder / "data", recipe.images, recipe.tokenizer, say=report.say, watch=_watched)
    check_room(recipe, where, vocabulary=prepared.tokenizer.size)
    model = new_captioner(recipe, prepared.tokenizer)
    if isinstance(model.encoder, GridEncoder) and model.encoder.config.weights and not begun:
        begin_with_weights(model.encoder.network, model.encoder.config.weights)
    trained = TrainedCaptioner(model.to(where), recipe, prepared.tokenizer)
    result = train(
        model,
        ImageBatches(prepared.train, recipe.batch, seed=recipe.training.seed, changes=recipe.augment),
        recipe.training,
        folder=folder,
        validate=make_validator(trained, prepared),
        report=report,
        resume=resume,
        data=prepared.identity,
        settings=settings,
        draw=draw_curve if draw else None,
        task=CaptionTask(),
    )
    scores = dict(result.state.best_scores or {})
    shown = {score_name(name): f"{score_value(name, value)} (validation)" for name, value in scores.items()}
    describe_captioner(folder, trained, scores=shown)
    return CaptionRun(Captioner(trained), result.stopped, scores)


def decisive(recipe: CaptionRecipe) -> dict[str, dict[str, Any]]:
    """The settings that a resumed run must share with the one before, but for what files are called."""
    names = ("images", "tokenizer", "augment", "batch", "encoder", "decoder")
    sections = {name: asdict(getattr(recipe, name)) for name in names}
    files = {"path", "captions", "weights", "vectors"}
    return {name: {key: value for key, value in of.items() if key not in files} for name, of in sections.items()}


def make_validator(trained: TrainedCaptioner, prepared: PreparedImages) -> Callable[[nn.Module], dict[str, float]]:
    """A function from a model to its scores: loss, and the recipe's metric of captions found by beam search."""
    recipe = trained.recipe
    held_out = ImageBatches(prepared.valid, recipe.batch)

    def validate(model: nn.Module) -> dict[str, float]:
        scores = held_out_loss(model, held_out, caption_loss)
        if recipe.training.metric != "loss":
            captioner = Captioner(trained._replace(model=model))  # type: ignore[arg-type]
            outputs = [found.text for found in captioner.caption(list(prepared.valid.images))]
            (score,) = score_outputs(
                outputs,
                prepared.references,
                [recipe.training.metric],
                lowercase=recipe.tokenizer.lowercase,
                resamples=1,
            )
            scores[recipe.training.metric] = score.value
        return scores

    return validate


def check_room(recipe: CaptionRecipe, device: torch.device, *, vocabulary: int = 1) -> None:
    """Raise a ConfigError if the captioner, with a vocabulary of this size, is larger than memory."""

    def build(encoder: EncoderConfig, decoder: DecoderConfig) -> nn.Module:
        return build_captioner(encoder, decoder, side=recipe.images.size, vocabulary=vocabulary)

    check_memory(build, recipe.encoder, recipe.decoder, device=device)


def _check_positions(recipe: CaptionRecipe) -> None:
    """A caption that is not left out must find its positions."""
    limit, longest = recipe.decoder.limit, recipe.images.max_length
    if recipe.decoder.kind == "transformer" and limit is not None and limit <= longest:
        raise ConfigError(
            f"decoder.longest = {limit} positions are too few for images.max_length = {longest} tokens and their end; "
            f"set decoder.longest = {longest + 1} or images.max_length = {limit - 1}"
        )


def _watched(rows: Sequence[Any]) -> Iterable[Any]:
    return progress(rows, "reading", "images", len(rows))
