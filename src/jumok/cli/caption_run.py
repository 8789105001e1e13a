"""A whole training run on images: from a recipe to a trained captioner, validated by really captioning."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from jumok.caption_model import CaptionRecipe, TrainedCaptioner, new_captioner, publish_captioner
from jumok.captioner import Captioner
from jumok.cli.any_run import begin_run, check_positions, draw_curve, score_of, shown
from jumok.cli.output import progress
from jumok.data.image_inputs import why_outdated
from jumok.data.image_store import ImageBatches, PreparedImages, prepare_images
from jumok.errors import ConfigError
from jumok.models.build import DecoderConfig
from jumok.models.captioner import EncoderConfig, build_captioner
from jumok.models.image_encoder import GridEncoder
from jumok.models.resnet_weights import begin_with_weights
from jumok.models.room import check_memory
from jumok.sealed_folder import is_whole
from jumok.training.caption_task import CaptionTask, caption_loss
from jumok.training.loop import train
from jumok.training.loss import held_out_loss
from jumok.training.progress import Report
from jumok.training.state import TrainingState


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
    if recipe.decoder.kind == "transformer":  # the limit of another is one of regions, not of captions
        check_positions(recipe.decoder, recipe.images.max_length, "images.max_length")
    begun = begin_run(recipe, folder, resume=resume, device=device, report=report)
    check_room(recipe, begun.device)  # whatever the vocabulary will be
    say = begun.report.say
    if begun.goes_on and (why := why_outdated(begun.folder / "data", recipe.images, recipe.tokenizer)):
        raise ConfigError(why)  # before its images are made anew
    prepared = prepare_images(begun.folder / "data", recipe.images, recipe.tokenizer, say=say, watch=_watched)
    check_room(recipe, begun.device, vocabulary=prepared.tokenizer.size)
    model = new_captioner(recipe, prepared.tokenizer)
    if isinstance(model.encoder, GridEncoder) and model.encoder.config.weights and not begun.goes_on:
        begin_with_weights(model.encoder.network, model.encoder.config.weights)
    trained = TrainedCaptioner(model.to(begun.device), recipe, prepared.tokenizer)

    def publish(weights: Path, state: TrainingState) -> None:
        publish_captioner(begun.folder, trained, weights, scores=shown(state.best_scores or {}))

    result = train(
        model,
        ImageBatches(prepared.train, recipe.batch, seed=recipe.training.seed, changes=recipe.augment),
        recipe.training,
        folder=begun.folder,
        validate=make_validator(trained, prepared),
        report=begun.report,
        resume=resume,
        data=prepared.identity,
        settings=begun.settings,
        draw=draw_curve if draw else None,
        task=CaptionTask(),
        publish=publish,
        is_published=is_whole,
    )
    return CaptionRun(Captioner(trained), result.stopped, dict(result.state.best_scores or {}))


def make_validator(trained: TrainedCaptioner, prepared: PreparedImages) -> Callable[[nn.Module], dict[str, float]]:
    """A function from a model to its scores: loss, and the recipe's metric of captions found by beam search."""
    recipe = trained.recipe
    held_out = ImageBatches(prepared.valid, recipe.batch)
    rewritten = prepared.tokenizer.normaliser.rewritten
    references = [[rewritten(right) for right in rights] for rights in prepared.references]

    def validate(model: nn.Module) -> dict[str, float]:
        scores = held_out_loss(model, held_out, caption_loss)
        if recipe.training.metric != "loss":
            captioner = Captioner(trained._replace(model=model))  # type: ignore[arg-type]

            def outputs() -> list[str]:
                return [found.text for found in captioner.caption(list(prepared.valid.images))]

            scores[recipe.training.metric] = score_of(recipe.training.metric, scores["loss"], outputs, references)
        return scores

    return validate


def check_room(recipe: CaptionRecipe, device: torch.device, *, vocabulary: int = 1) -> None:
    """Raise a ConfigError if the captioner, with a vocabulary of this size, is larger than memory."""

    def build(encoder: EncoderConfig, decoder: DecoderConfig) -> nn.Module:
        return build_captioner(encoder, decoder, side=recipe.images.size, vocabulary=vocabulary)

    check_memory(build, recipe.encoder, recipe.decoder, device=device)


def _watched(rows: Sequence[Any]) -> Iterable[Any]:
    return progress(rows, "reading", "images", len(rows))
