"""A whole training run on images: from a recipe to a trained captioner, validated by really captioning."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.cli.output import progress
from jumok.errors import ConfigError, TrainingError
from jumok.images.build import EncoderConfig, ImageCaptioner, build_captioner
from jumok.images.encoder import GridEncoder
from jumok.images.resnet import begin_with_weights
from jumok.images.store import ImageBatch, ImageBatches, PreparedImages, prepare_images, why_outdated
from jumok.models.build import DecoderConfig
from jumok.models.encoder_decoder import HeadWeights
from jumok.models.memory_check import check_memory
from jumok.sealed_folder import is_whole
from jumok.tasks.caption_model import CaptionRecipe, TrainedCaptioner, new_captioner, publish_captioner
from jumok.tasks.captioner import Captioner
from jumok.tasks.run import begin_run, check_positions, draw_curve, score_of, shown
from jumok.training.config import TrainingConfig
from jumok.training.loop import train
from jumok.training.loss import Loss, TargetTokens, held_out_loss, hidden_loss
from jumok.training.progress import Report
from jumok.training.state import TrainingState


class CaptionTask:
    """A captioner that says the captions of its images, token by token."""

    unit = "tok"

    def items(self, batch: ImageBatch) -> int:
        """Caption tokens."""
        return int(batch.target_visible.sum())

    def loss(self, model: nn.Module, batch: ImageBatch, device: torch.device, config: TrainingConfig) -> Loss:
        """Summed over the caption tokens, which are found before the batch leaves the CPU."""
        return caption_loss(
            cast(ImageCaptioner, model),
            batch.to(device),
            TargetTokens.of(batch).to(device),
            smoothing=config.label_smoothing,
            doubly_stochastic=config.doubly_stochastic,
        )

    def size(self, batch: ImageBatch) -> str:
        """In images and tokens."""
        count, _, side, _ = batch.images.shape
        return f"{count} images of {side} × {side} pixels, {batch.target_in.shape[1]} tokens long"

    def halves(self, batch: ImageBatch) -> list[ImageBatch]:
        """Each half without the padding only the other needed."""
        count = len(batch.images)
        if count < 2:
            raise TrainingError(
                f"out of memory with a single image ({self.size(batch)}); train a smaller model, or set a smaller "
                "images.size"
            )
        return [_cut(batch, 0, count // 2), _cut(batch, count // 2, count)]


def caption_loss(
    model: ImageCaptioner,
    batch: ImageBatch,
    tokens: TargetTokens,
    *,
    smoothing: float = 0.0,
    doubly_stochastic: float = 0.0,
) -> Loss:
    """The loss of a captioner on one batch."""
    hidden = model.decoder.hidden(model.encoder(batch.images), batch.target_in)
    loss = hidden_loss(model.decoder, hidden, tokens, smoothing=smoothing)
    if not doubly_stochastic:
        return loss
    uneven = unevenness(hidden.attention, batch.target_visible)
    return loss._replace(total=loss.total + doubly_stochastic * uneven)


def unevenness(attention: Sequence[HeadWeights], words: Bool[Tensor, "batch target"]) -> Float[Tensor, ""]:
    """Σᵢ (1 − Σ_t α_ti)², summed over the captions; of the mean over heads, and the mean over layers of that."""
    if not attention:
        raise ConfigError("training.doubly_stochastic needs a decoder with attention, but this one has none")
    per_layer = []
    for layer in attention:
        weights = layer().float().mean(1) * words[..., None]
        per_layer.append(((1 - weights.sum(1)) ** 2).sum())
    return torch.stack(per_layer).mean()


def _cut(batch: ImageBatch, start: int, end: int) -> ImageBatch:
    rows = batch.each(lambda part: part[start:end])
    longest = int(rows.target_visible.any(0).sum())
    captions = (part[:, :longest] for part in (rows.target_in, rows.target_out, rows.target_visible))
    return ImageBatch(rows.images, *captions)


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
