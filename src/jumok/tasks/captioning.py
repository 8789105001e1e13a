"""Captioning: recipes with a section [images], trained on images with captions and validated by captioning."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.data.batches import BatchConfig
from jumok.data.tokenizer import SHARED, Tokenizer, TokenizerConfig, TokenizerPair
from jumok.decoding.config import DecodingConfig
from jumok.errors import ConfigError, TrainingError
from jumok.images.augment import AugmentConfig
from jumok.images.build import EncoderConfig, ImageCaptioner, build_captioner
from jumok.images.encoder import GridEncoder
from jumok.images.pairs import ImagesConfig
from jumok.images.resnet import begin_with_weights
from jumok.images.store import ImageBatch, ImageBatches, PreparedImages, prepare_images, why_outdated
from jumok.model_folder import TOKENIZERS, ModelFolder
from jumok.models.build import DecoderConfig
from jumok.models.encoder_decoder import HeadWeights
from jumok.models.memory_check import check_memory
from jumok.screen import progress
from jumok.tasks.captioner import Captioner
from jumok.tasks.describe import half_in_words, tokenizer_in_words
from jumok.tasks.task import RunContext, Task, TaskData, TextMetric, check_positions, parameters, text_score
from jumok.training.config import TrainingConfig
from jumok.training.loss import Loss, TargetTokens, held_out_loss, hidden_loss

ONE_SIDE = TokenizerConfig(shared=False)
SHORT = DecodingConfig(max_length=60)
"""Defaults of captions where they differ from those of translations."""


@dataclass(frozen=True, kw_only=True)
class CaptionTraining(TrainingConfig):
    """Training of a captioner."""

    metric: TextMetric = "bleu"
    """The score that finds the best checkpoint: "bleu", "chrf", "exact_match", or (less is better) "loss", "wer".

    Of equal ones, the lower loss.
    """
    doubly_stochastic: float = 0.0
    """Weight of the doubly stochastic attention loss (Xu et al. 2015)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("doubly_stochastic", 0)


@dataclass(frozen=True, kw_only=True)
class CaptionRecipe:
    """Everything that decides the result of a run: images and captions, the model, how it is trained and used."""

    images: ImagesConfig
    tokenizer: TokenizerConfig = ONE_SIDE
    augment: AugmentConfig
    batch: BatchConfig
    encoder: EncoderConfig
    decoder: DecoderConfig
    training: CaptionTraining
    decoding: DecodingConfig = SHORT

    def __post_init__(self) -> None:
        if self.augment.flip and self.images.scenes:
            raise ConfigError("augment.flip = true would turn left into right, and the captions of scenes say which")
        if self.decoder.vectors:
            raise ConfigError("decoder.vectors is for texts; leave it out")


class TrainedCaptioner(NamedTuple):
    """A captioner and what is needed to use it."""

    model: ImageCaptioner
    recipe: CaptionRecipe
    tokenizer: Tokenizer


class HeldOut(NamedTuple):
    """What a validation captions."""

    batches: ImageBatches
    images: Any
    """Their pixels, one array for each."""
    references: list[list[str]]


class CaptioningTask(Task[CaptionRecipe, Tokenizer]):
    """Learns to caption images; its models are used through a `Captioner`."""

    name = "captioning"
    does = "captions images"
    recipe = CaptionRecipe
    own_sections = frozenset({"images", "augment"})
    model_sections: ClassVar = ("encoder", "decoder")
    trained = TrainedCaptioner

    def check(self, recipe: CaptionRecipe, run: RunContext) -> None:
        """A new run needs enough positions and memory, a resumed one the images it began with."""
        if recipe.decoder.kind == "transformer":  # the limit of another is one of regions, not of captions
            check_positions(recipe.decoder, recipe.images.max_length, "images.max_length")
        check_vocabulary(recipe, run.device)  # whatever its size will be
        if run.resumed and (why := why_outdated(run.data, recipe.images, recipe.tokenizer)):
            raise ConfigError(why)

    def prepare(self, recipe: CaptionRecipe, run: RunContext) -> TaskData[CaptionRecipe, Tokenizer]:
        """Bring the images to one size and tokenise the captions."""
        prepared = prepare_images(run.data, recipe.images, recipe.tokenizer, say=run.say, watch=_with_progress)
        return TaskData(
            recipe=recipe,
            assets=prepared.tokenizer,
            train=ImageBatches(prepared.train, recipe.batch, seed=recipe.training.seed, changes=recipe.augment),
            held_out=held_out_images(recipe, prepared),
            fingerprint=prepared.identity,
        )

    def build(self, recipe: CaptionRecipe, assets: Tokenizer) -> ImageCaptioner:
        """An image encoder, and a decoder for this vocabulary."""
        return build_captioner(recipe.encoder, recipe.decoder, side=recipe.images.size, vocabulary=assets.size)

    def begin(self, model: ImageCaptioner, data: TaskData[CaptionRecipe, Tokenizer], run: RunContext) -> None:
        """Start from pretrained weights of the image encoder where the recipe names some."""
        if isinstance(model.encoder, GridEncoder) and model.encoder.config.weights:
            begin_with_weights(model.encoder.network, model.encoder.config.weights)

    def items(self, batch: ImageBatch) -> int:
        """Caption tokens."""
        return int(batch.target_visible.sum())

    def loss(self, model: ImageCaptioner, batch: ImageBatch, device: torch.device, config: CaptionTraining) -> Loss:
        """Cross-entropy of the caption tokens, which are found before the batch leaves the CPU."""
        return caption_loss(
            model,
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

    def validate(self, trained: TrainedCaptioner, held_out: HeldOut) -> dict[str, float]:
        """Loss and perplexity, and the recipe's metric of captions by beam search."""
        metric = trained.recipe.training.metric
        scores = held_out_loss(trained.model, held_out.batches, caption_loss)
        if metric != "loss":
            captioner = Captioner(trained)

            def outputs() -> list[str]:
                return [output.text for output in captioner.caption(list(held_out.images))]

            scores[metric] = text_score(metric, scores["loss"], outputs, held_out.references)
        return scores

    def predictor(self, trained: TrainedCaptioner) -> Captioner:
        """A Captioner."""
        return Captioner(trained)

    def files(self, assets: Tokenizer) -> dict[str, bytes]:
        """The tokenizer."""
        return {SHARED: assets.model}

    def read_assets(self, folder: ModelFolder, recipe: CaptionRecipe) -> Tokenizer:
        """The tokenizer."""
        return TokenizerPair.of_files(folder.files(TOKENIZERS), folder.path).target

    def describe(self, trained: TrainedCaptioner) -> dict[str, Any]:
        """Encoder, decoder, regions, vocabulary and data."""
        recipe, (rows, columns) = trained.recipe, trained.model.encoder.grid
        return {
            "does": self.does,
            "encoder": recipe.encoder.kind,
            "decoder": recipe.decoder.kind,
            "in words": {"encoder": half_in_words(recipe.encoder), "decoder": half_in_words(recipe.decoder)},
            "parameters": parameters(trained.model),
            "image": f"{recipe.images.size} × {recipe.images.size} pixels",
            "regions": f"{rows} × {columns}",
            "tokenizer": tokenizer_in_words(recipe.tokenizer),
            "vocabulary": trained.tokenizer.size,
            "trained on": recipe.images.origin,
        }

    def commands(self, folder: str, trained: TrainedCaptioner | None = None) -> tuple[str, ...]:
        """`jumok caption` and `jumok look`."""
        return f"jumok caption {folder} image.jpg", f"jumok look {folder} image.jpg"

    def difference(self, one: TrainedCaptioner, other: TrainedCaptioner) -> str:
        """The weights of two models must stand for the same tokens."""
        return "" if one.tokenizer.pieces == other.tokenizer.pieces else "has another vocabulary than"


def held_out_images(recipe: CaptionRecipe, prepared: PreparedImages) -> HeldOut:
    """The validation images and their captions."""
    rewritten = prepared.tokenizer.normaliser.rewritten
    references = [[rewritten(right) for right in rights] for rights in prepared.references]
    return HeldOut(ImageBatches(prepared.valid, recipe.batch), prepared.valid.images, references)


def check_vocabulary(recipe: CaptionRecipe, device: torch.device, *, vocabulary: int = 1) -> None:
    """Raise a ConfigError if the captioner, with a vocabulary of this size, is larger than memory."""

    def build(encoder: EncoderConfig, decoder: DecoderConfig) -> nn.Module:
        return build_captioner(encoder, decoder, side=recipe.images.size, vocabulary=vocabulary)

    check_memory(build, recipe.encoder, recipe.decoder, device=device)


def caption_loss(
    model: ImageCaptioner,
    batch: ImageBatch,
    tokens: TargetTokens,
    *,
    smoothing: float = 0.0,
    doubly_stochastic: float = 0.0,
) -> Loss:
    """The loss of a captioner on one batch, with doubly stochastic attention (Xu et al. 2015) of this weight."""
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


def _with_progress(rows: Sequence[Any]) -> Iterable[Any]:
    return progress(rows, "reading", "images", len(rows))
