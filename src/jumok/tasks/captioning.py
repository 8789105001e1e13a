"""Captioning: recipes with a section [images], trained on images with captions and validated by captioning."""

from collections.abc import Mapping, Sequence
from functools import partial
from os.path import exists
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from jumok.data.tokenizer import Tokenizer, TokenizerConfig
from jumok.data.tokenizer_pair import SHARED, TokenizerPair
from jumok.decoding.config import DecodingConfig
from jumok.images.encoder import GridEncoder, build_captioner
from jumok.images.files import Pixels
from jumok.images.resnet import begin_with_weights
from jumok.images.store import ImageBatch, ImageBatches, PreparedImages, prepare_images
from jumok.model_folder import TOKENIZERS, ModelFolder
from jumok.models.build import DECODERS
from jumok.models.encoder_decoder import EncoderDecoder, HeadWeights
from jumok.models.memory_check import check_memory
from jumok.progress import Watch, progress, unwatched
from jumok.recipe import sections
from jumok.settings import Settings, field_types
from jumok.tasks.captioner import Captioner, TrainedCaptioner
from jumok.tasks.captioning_scores import CAPTIONING_OPTIONS, score_captioner
from jumok.tasks.describe import part_kind, parts_in_words, tokenizer_in_words
from jumok.tasks.map_source import MapSource
from jumok.tasks.recipes import CaptionRecipe, CaptionTraining
from jumok.tasks.results import EvaluationOptions, EvaluationResult, MapOptions, MappedOutput
from jumok.tasks.task import RunContext, Task, TaskData, parameters
from jumok.tasks.text_generator import with_metric
from jumok.training.loss import Loss, TargetTokens, hidden_loss
from jumok.training.objective import TargetObjective
from jumok.training.processes import current_processes
from jumok.training.validation import held_out_loss


class HeldOutImages(NamedTuple):
    """What a validation captions."""

    batches: ImageBatches
    images: UInt8[np.ndarray, "image side side 3"]
    """Their pixels, one array for each."""
    references: list[list[str]]


class CaptioningTask(
    TargetObjective[ImageBatch, CaptionTraining], Task[CaptionRecipe, Tokenizer, TrainedCaptioner, Captioner]
):
    """Learns to caption images; its models are used through a `Captioner`."""

    name = "captioning"
    does = "captions images"
    generates_text = True
    recipe = CaptionRecipe
    own_sections = frozenset({"images", "augment"})
    model_sections: ClassVar = ("encoder", "decoder")
    trained = TrainedCaptioner
    row = "image"
    remedy = "set a smaller images.size"
    map_example = "image.jpg"
    evaluation_options = frozenset(
        {"source", "reference", "metrics", "tokenize", "lowercase", *CAPTIONING_OPTIONS, "save"}
    )
    map_options = frozenset({"target", "kind", "layer", "head", "tokens", "beam"})

    def check(self, recipe: CaptionRecipe, run: RunContext) -> None:
        """Training needs enough memory."""
        build = partial(build_captioner, side=recipe.images.size, vocabulary=1)  # at least; its size is not known yet
        check_memory(build, recipe.encoder, recipe.decoder, device=run.device)

    def prepare(self, recipe: CaptionRecipe, run: RunContext) -> TaskData[CaptionRecipe, Tokenizer]:
        """Bring the images to one size and tokenise the captions."""
        prepared = prepare_images(
            run.data, recipe.images, recipe.tokenizer, resumed=run.resumed, say=run.say, watch=progress
        )
        return TaskData(
            recipe=recipe,
            assets=prepared.tokenizer,
            train=ImageBatches(prepared.train, recipe.batch, seed=recipe.training.seed, changes=recipe.augment),
            held_out=held_out_images(recipe, prepared),
            fingerprint=prepared.identity,
        )

    def build(self, recipe: CaptionRecipe, assets: Tokenizer) -> EncoderDecoder:
        """An image encoder, and a decoder for this vocabulary."""
        return build_captioner(recipe.encoder, recipe.decoder, side=recipe.images.size, vocabulary=assets.size)

    def begin(self, model: EncoderDecoder, data: TaskData[CaptionRecipe, Tokenizer], run: RunContext) -> None:
        """Start from pretrained weights of the image encoder where the recipe names some."""
        if isinstance(model.encoder, GridEncoder) and model.encoder.config.weights:
            begin_with_weights(model.encoder.network, model.encoder.config.weights)

    def loss(self, model: EncoderDecoder, batch: ImageBatch, device: torch.device, config: CaptionTraining) -> Loss:
        """Cross-entropy of the caption tokens."""
        on_device = batch.to(device)
        return caption_loss(
            model,
            on_device,
            TargetTokens.moved(batch, on_device),
            smoothing=config.label_smoothing,
            doubly_stochastic=config.doubly_stochastic,
        )

    def size(self, batch: ImageBatch) -> str:
        """In images and tokens."""
        count, _, side, _ = batch.images.shape
        return f"{count} images of {side} × {side} pixels, {batch.target_in.shape[1]} tokens long"

    def cut(self, batch: ImageBatch, start: int, end: int) -> ImageBatch:
        """Some images, with captions padded only as far as their own need."""
        rows = batch.each(lambda part: part[start:end])
        longest = int(rows.target_visible.any(0).sum())
        captions = (part[:, :longest] for part in (rows.target_in, rows.target_out, rows.target_visible))
        return ImageBatch(rows.images, *captions)

    def validate(self, trained: TrainedCaptioner, held_out: HeldOutImages) -> dict[str, float]:
        """Loss and perplexity, and the recipe's metric of captions by beam search."""

        def caption(images: Sequence[Pixels]) -> list[str]:
            return [output.text for output in Captioner(trained).caption(images)]

        def outputs() -> list[str]:
            return current_processes().map(caption, list(held_out.images))

        losses = held_out_loss(trained.model, held_out.batches, caption_loss)
        return with_metric(losses, trained.recipe.training, outputs, held_out.references)

    def predictor(self, trained: TrainedCaptioner, folder: str | Path | None = None) -> Captioner:
        """A Captioner."""
        return Captioner(trained)

    def files(self, assets: Tokenizer) -> dict[str, bytes]:
        """The tokenizer."""
        return {SHARED: assets.model}

    def read(self, folder: ModelFolder, tables: Mapping[str, Any]) -> TrainedCaptioner:
        """The captioner of a folder, also where its recipe lists settings of translation at their defaults."""
        return super().read(folder, without_translation(tables))

    def read_assets(self, folder: ModelFolder, recipe: CaptionRecipe) -> Tokenizer:
        """The tokenizer."""
        return TokenizerPair.of_files(folder.files(TOKENIZERS), folder.path).target

    def describe(self, trained: TrainedCaptioner) -> dict[str, Any]:
        """Encoder, decoder, regions, vocabulary and data."""
        recipe, (rows, columns) = trained.recipe, trained.encoder.grid
        return {
            "does": self.does,
            "encoder": part_kind(trained.model.encoder, recipe.encoder),
            "decoder": part_kind(trained.model.decoder, recipe.decoder),
            "in words": parts_in_words(trained.model.encoder, trained.model.decoder, recipe),
            "parameters": parameters(trained.model),
            "image": f"{recipe.images.size} × {recipe.images.size} pixels",
            "regions": f"{rows} × {columns}",
            "tokenizer": tokenizer_in_words(recipe.tokenizer, trained.tokenizer),
            "vocabulary": trained.tokenizer.size,
            "trained on": recipe.images.origin,
        }

    def commands(self, folder: str, trained: TrainedCaptioner | None = None) -> tuple[str, ...]:
        """`jumok caption` and `jumok look`."""
        return f"jumok caption {folder} image.jpg", f"jumok look {folder} image.jpg"

    def difference(self, first: TrainedCaptioner, second: TrainedCaptioner) -> str:
        """The weights of two models must stand for the same tokens."""
        return "" if first.tokenizer.pieces == second.tokenizer.pieces else "has another vocabulary than"

    def evaluate(
        self, predictor: Captioner, options: EvaluationOptions, *, name: str = "model", watch: Watch = unwatched
    ) -> EvaluationResult:
        """Caption the test images of the recipe, or others, and score the captions."""
        return score_captioner(predictor, options, watch=watch).result()

    def input_files(self, recipe: CaptionRecipe) -> list[str]:
        """Images and captions."""
        return [path for path in (recipe.images.path, recipe.images.captions) if path]

    def map_source(self, given: MapSource) -> str:
        """The path of an image."""
        image = super().map_source(given)
        if not exists(image):
            self.refuse_source(given, f"there is no image {image}")
        return image

    def map(self, predictor: Captioner, source: str, options: MapOptions) -> MappedOutput:
        """The model's own caption of an image, or the given one, and its map."""
        words, kind = not options.tokens, options.kind
        if options.target is not None:
            shown = predictor.attention(source, options.target, words=words, kind=kind)
            output = MappedOutput({"image": source, "text": options.target}, [shown])
        else:
            (caption,) = predictor.caption([source], beam=options.beam)
            facts = {"image": source, "text": caption.text, "score": round(caption.score, 4)}
            output = MappedOutput(facts, [caption.attention(words=words, kind=kind)])
        return output.select(options.layer, options.head)


def without_translation(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a saved recipe less the settings of translation that have their defaults.

    Recipes of captions listed them before they had sections of their own, and do if Python code gives them such
    sections.
    """
    former: dict[str, Settings] = {"tokenizer": TokenizerConfig(shared=False), "decoding": DecodingConfig()}
    kept = {name: dict(table) for name, table in tables.items() if isinstance(table, Mapping)}
    if (kind := kept.get("decoder", {}).get("kind")) in DECODERS:
        former["decoder"] = DECODERS[kind].config()
    for name, config in former.items():
        own = {key for kind in sections(CaptionRecipe)[name].values() for key in field_types(kind)}
        for key, value in list(kept.get(name, {}).items()):
            if key not in own and value == getattr(config, key, None):
                del kept[name][key]
    return {**tables, **kept}


def held_out_images(recipe: CaptionRecipe, prepared: PreparedImages) -> HeldOutImages:
    """The validation images and their captions."""
    rewritten = prepared.tokenizer.normaliser.rewritten
    references = [[rewritten(right) for right in rights] for rights in prepared.references]
    return HeldOutImages(ImageBatches(prepared.valid, recipe.batch), prepared.valid.images, references)


def caption_loss(
    model: EncoderDecoder,
    batch: ImageBatch,
    tokens: TargetTokens,
    *,
    smoothing: float = 0.0,
    doubly_stochastic: float = 0.0,
) -> Loss:
    """The loss of a captioner on one batch, with doubly stochastic attention (Xu et al. 2015) of this weight."""
    decode = model.decoder.hidden if doubly_stochastic else model.decoder.hidden_in_training
    hidden = decode(model.encoder(batch.images), batch.target_in)
    loss = hidden_loss(model.decoder, hidden, tokens, smoothing=smoothing)
    if not doubly_stochastic:
        return loss
    uneven = unevenness(hidden.attention, batch.target_visible)
    return loss._replace(total=loss.total + doubly_stochastic * uneven)


def unevenness(attention: Sequence[HeadWeights], words: Bool[Tensor, "batch target"]) -> Float[Tensor, ""]:
    """Σᵢ (1 − Σ_t α_ti)² of the attention averaged over heads, summed over the captions and averaged over layers."""
    per_layer = []
    for layer in attention:
        weights = layer().float().mean(1) * words[..., None]
        per_layer.append(((1 - weights.sum(1)) ** 2).sum())
    return torch.stack(per_layer).mean()


CAPTIONING = CaptioningTask()
