"""Captioning: recipes with a section [images], trained on images with captions and validated by captioning."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.model_map import words_of_tokens
from jumok.analysis.maps.source_layout import IMAGE_SIDE, ImageLayout
from jumok.data import BOS
from jumok.data.batches import BatchConfig
from jumok.data.tokenizer import SHARED, Tokenizer, TokenizerConfig, TokenizerPair
from jumok.decoding import Hypothesis, beam_search
from jumok.decoding.config import DecodingConfig, with_settings
from jumok.errors import ArgumentError, ConfigError, TrainingError
from jumok.images.encoder import EncoderConfig, GridEncoder, ImageCaptioner, build_captioner
from jumok.images.files import Pixels, kept_part, read_image, reduced
from jumok.images.pairs import ImagesConfig, model_image
from jumok.images.resnet import begin_with_weights
from jumok.images.store import (
    AugmentConfig,
    ImageBatch,
    ImageBatches,
    PreparedImages,
    prepare_images,
    to_tensor,
    why_outdated,
)
from jumok.model_folder import TOKENIZERS, ModelFolder
from jumok.models.build import DecoderConfig
from jumok.models.encoder_decoder import HeadWeights
from jumok.models.memory_check import check_memory
from jumok.progress import progress
from jumok.settings import NonNegativeFloat
from jumok.tasks.describe import half_in_words, tokenizer_in_words
from jumok.tasks.task import RunContext, Task, TaskData, TextMetric, check_positions, parameters, text_score
from jumok.tasks.translator import SPECIALS, best_of
from jumok.training.config import TrainingConfig
from jumok.training.loss import Loss, TargetTokens, held_out_loss, hidden_loss
from jumok.training.processes import here

Picture = str | Path | Pixels
"""A file, or the pixels themselves: uint8 [height, width, 3]."""


@dataclass(frozen=True, eq=False)
class Caption:
    """The caption of one image."""

    image: str
    """The file it was read from, "" if pixels were given."""
    text: str
    score: float
    """Log-probability over length to the length penalty."""
    n_best: tuple["Caption", ...] = ()
    """The best captions, best first, where more than one was asked for."""
    ids: tuple[int, ...] = field(default=(), repr=False)
    """The tokens of `text`."""
    picture: "Picture | None" = field(default=None, repr=False)
    captioner: "Captioner | None" = field(default=None, repr=False)

    def attention(self, *, words: bool = True) -> AttentionMap:
        """Where each word of the caption looked in the image, or each token with `words=False`."""
        if self.captioner is None or self.picture is None:
            raise ArgumentError("there is no attention map of a caption without its image")
        return self.captioner.map_of(self.picture, self.ids, self.text, words=words)


class Captioner:
    """Captions images with one loaded model."""

    def __init__(self, trained: "TrainedCaptioner", *, batch: int = 64) -> None:
        self.trained, self.batch = trained, batch
        self.trained.model.eval()

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> "Captioner":
        """Load a model folder, onto a GPU if there is one."""
        from jumok.tasks import CAPTIONING, load  # which use this class

        captioner: Captioner = load(folder, device=device, task=CAPTIONING)
        return captioner

    def caption(self, images: Iterable[Picture], *, n_best: int = 1, **settings: Any) -> list[Caption]:
        """A caption for every image, in their order; `settings` are those of DecodingConfig, such as beam=5."""
        return list(self.stream(images, n_best=n_best, **settings))

    def stream(self, images: Iterable[Picture], *, n_best: int = 1, **settings: Any) -> Iterator[Caption]:
        """Like `caption`, a batch of images at a time."""
        if isinstance(images, str | Path | np.ndarray):
            raise ArgumentError("images must be a list of images, but it is one; write [image]")
        if not isinstance(images, Iterable):
            raise ArgumentError(f"images must be a list of images, but it is {type(images).__name__}")
        config = with_settings(self.trained.recipe.decoding, n_best, **settings)
        images = iter(images)
        while some := list(islice(images, self.batch)):
            with torch.no_grad():
                encoding = self.trained.model.encoder(self._tensor([self.seen(image) for image in some]))
                found = beam_search(self.trained.model.decoder, encoding, SPECIALS, config)
            for image, hypotheses in zip(some, found, strict=True):
                yield self._caption(image, hypotheses, n_best)

    def attention(self, image: Picture, caption: str, *, words: bool = True) -> AttentionMap:
        """The attention map of a given caption of an image."""
        return self.map_of(image, self.trained.tokenizer.encode(caption)[1:-1], caption, words=words)

    @torch.no_grad()
    def map_of(self, image: Picture, ids: Sequence[int], text: str, *, words: bool = True) -> AttentionMap:
        """The map of a caption by its tokens, from one teacher-forced pass over it."""
        if not ids:
            raise ArgumentError("there is no attention to show: the caption is empty")
        pixels, model, tokenizer = _pixels(image), self.trained.model, self.trained.tokenizer
        images = self._tensor([self.seen(pixels)])
        target_in = torch.tensor([[BOS, *ids]], device=images.device)
        attention = model.decoder.source_attention(model.encoder(images), target_in)
        weights = torch.stack([layer()[0, :, : len(ids)] for layer in attention]).float().cpu()
        layout = self._layout(pixels)
        pieces = tuple(tokenizer.pieces[id] for id in ids)
        shown = AttentionMap(layout.names, pieces, weights, layout=layout, title=text)
        if not words:
            return shown
        numbers, names = words_of_tokens(ids, tokenizer)
        return replace(shown.merged(range(len(layout.names)), numbers), target=tuple(names))

    def seen(self, image: Picture) -> UInt8[np.ndarray, "side side 3"]:
        """An image as the model sees it."""
        return model_image(_pixels(image), self.trained.recipe.images)

    def _layout(self, pixels: Pixels) -> ImageLayout:
        """The image itself, and which part of it the model saw."""
        (height, width), (rows, columns) = pixels.shape[:2], self.trained.model.encoder.grid
        top, left, bottom, right = kept_part(height, width, self.trained.recipe.images.fit)
        part = top / height, left / width, bottom / height, right / width
        return ImageLayout(reduced(pixels, IMAGE_SIDE), rows, columns, part)

    def _tensor(self, images: Sequence[Pixels]) -> UInt8[Tensor, "batch 3 side side"]:
        return to_tensor(images).to(next(self.trained.model.parameters()).device)

    def _caption(self, image: Picture, hypotheses: list[Hypothesis], n_best: int) -> Caption:
        if not hypotheses:
            raise ArgumentError("no caption keeps to decoding.min_length and decoding.no_repeat; lower one of them")
        name = str(image) if isinstance(image, str | Path) else ""
        decode = self.trained.tokenizer.decode
        found = (Caption(name, decode(ids), score, (), tuple(ids), image, self) for ids, score in hypotheses)
        return best_of(found, n_best)


def _pixels(image: Picture) -> Pixels:
    if not isinstance(image, str | Path | np.ndarray):
        raise ArgumentError(f"an image must be a path or pixels, but it is {type(image).__name__}")
    return image if isinstance(image, np.ndarray) else read_image(image)


ONE_SIDE = TokenizerConfig(shared=False)
SHORT = DecodingConfig(max_length=60)
"""Defaults of captions where they differ from those of translations."""


@dataclass(frozen=True, kw_only=True)
class CaptionTraining(TrainingConfig):
    """Training of a captioner."""

    metric: TextMetric = "bleu"
    """Score that selects the best checkpoint: "bleu", "chrf", "exact_match", or (lower is better) "loss", "wer".

    The lower loss decides between equal scores.
    """
    doubly_stochastic: NonNegativeFloat = 0.0
    """Weight of the doubly stochastic attention loss (Xu et al. 2015)."""


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
        """Cross-entropy of the caption tokens."""
        there = batch.to(device)
        return caption_loss(
            model,
            there,
            TargetTokens.moved(batch, there),
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

            def caption(images: Sequence[Pixels]) -> list[str]:
                return [output.text for output in captioner.caption(images)]

            def outputs() -> list[str]:
                return here().map(caption, list(held_out.images))

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
    look = model.decoder.hidden if doubly_stochastic else model.decoder.hidden_in_training
    hidden = look(model.encoder(batch.images), batch.target_in)
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
    return progress(rows, "reading images", len(rows))
