"""A trained captioner: the object behind `jumok caption`, evaluation and the server."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from jumok.analysis.draw.shapes import image_url
from jumok.analysis.maps.attention_map import AttentionMap, MapKind, checked_kind
from jumok.analysis.maps.model_map import map_of_layers, target_side
from jumok.analysis.maps.source_layout import IMAGE_SIDE, ImageLayout
from jumok.analysis.scores.word_probabilities import OutputProbabilities, WordProbability, output_probabilities
from jumok.data import BOS
from jumok.data.tokenizer import Tokenizer
from jumok.decoding import Hypothesis
from jumok.decoding.config import with_settings
from jumok.decoding.half_precision_search import search_in_precision
from jumok.errors import ArgumentError, DataError
from jumok.images.encoder import ImageEncoder
from jumok.images.files import Pixels, kept_part, read_image, reduced
from jumok.images.pairs import model_image
from jumok.images.scenes import scene
from jumok.images.store import to_tensor
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.tasks.recipes import CaptionRecipe
from jumok.tasks.text_generator import SPECIALS, TextGenerator, best_outputs

Picture = str | Path | Pixels
"""A file, or the pixels themselves: uint8 [height, width, 3]."""
EXAMPLE_SIDE = 160
"""Pixels of an example image."""


@dataclass(frozen=True, eq=False)
class Caption:
    """The caption of one image."""

    image: str
    """The file it was read from, "" if pixels were given."""
    text: str
    score: float
    """Log-probability over length to the length penalty."""
    n_best: tuple["Caption", ...] = ()
    """The best captions, best first, if more than one was requested."""
    ids: tuple[int, ...] = field(default=(), repr=False)
    """The tokens of `text`."""
    picture: "Picture | None" = field(default=None, repr=False)
    captioner: "Captioner | None" = field(default=None, repr=False)

    def attention(self, *, words: bool = True, kind: MapKind = "cross") -> AttentionMap:
        """The attention of each word of the caption over the image, or of each token with `words=False`.

        With kind="decoder", the self-attention of a Transformer decoder: of each word to those before it.
        """
        if self.captioner is None or self.picture is None:
            raise ArgumentError("there is no attention map of a caption without its image")
        return self.captioner.map_of(self.picture, self.ids, words=words, kind=kind)

    def probabilities(self, *, words: bool = True) -> list[WordProbability]:
        """The probability of each word given the image and the words before it, or of each token; then of the end."""
        if self.captioner is None or self.picture is None:
            raise ArgumentError("there are no probabilities of a caption without its image")
        probabilities = self.captioner.probabilities_of(self.picture, self.ids)
        return probabilities.words if words else probabilities.tokens


class TrainedCaptioner(NamedTuple):
    """A captioner and what is needed to use it."""

    model: EncoderDecoder
    recipe: CaptionRecipe
    tokenizer: Tokenizer

    @property
    def assets(self) -> Tokenizer:
        """The tokenizer."""
        return self.tokenizer

    @property
    def encoder(self) -> ImageEncoder:
        """The encoder of the images."""
        assert isinstance(self.model.encoder, ImageEncoder)
        return self.model.encoder


class Captioner(TextGenerator[TrainedCaptioner]):
    """Captions images with one loaded model."""

    reads = "image"

    def __init__(self, trained: TrainedCaptioner, *, batch: int = 64) -> None:
        super().__init__(trained)
        self.batch = batch

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of captions."""
        return self.trained.tokenizer

    def caption(self, images: Iterable[Picture], *, n_best: int = 1, **settings: Any) -> list[Caption]:
        """A caption for every image, in their order.

        `settings` are those of SearchConfig, such as beam=5; captions are not sampled.
        """
        return list(self.stream(images, n_best=n_best, **settings))

    def stream(
        self,
        images: Iterable[Picture],
        *,
        n_best: int = 1,
        skip: Callable[[DataError], object] | None = None,
        **settings: Any,
    ) -> Iterator[Caption]:
        """Like `caption`, a batch of images at a time.

        With `skip`, images that cannot be read are left out, and `skip` gets the error of each.
        """
        if isinstance(images, str | Path | np.ndarray):
            raise ArgumentError("images must be a list of images, but it is one; write [image]")
        if not isinstance(images, Iterable):
            raise ArgumentError(f"images must be a list of images, but it is {type(images).__name__}")
        config = with_settings(self.decoding, n_best, **settings)
        images = iter(images)
        while batch := list(islice(images, self.batch)):
            read = [(image, pixels) for image in batch if (pixels := self._read(image, skip)) is not None]
            if not read:
                continue
            inputs = self._tensor([pixels for _, pixels in read])
            wanted = 1 if n_best == 1 else None
            results = search_in_precision(self.trained.model, (inputs,), SPECIALS, config, n_best=wanted)
            for (image, _), hypotheses in zip(read, results, strict=True):
                yield self._caption(image, hypotheses, n_best)

    def attention(self, image: Picture, caption: str, *, words: bool = True, kind: MapKind = "cross") -> AttentionMap:
        """The attention map of a given caption of an image; `kind` as in `Caption.attention`."""
        ids = self.tokenizer.encode(caption)[1:-1]
        self.check_target(ids)
        return replace(self.map_of(image, ids, words=words, kind=kind), title=caption)

    @torch.no_grad()
    def probabilities_of(self, source: Picture, ids: Sequence[int]) -> OutputProbabilities:
        """The probability of every word and token of a caption, and of its end."""
        encoding = self.trained.model.encoder(self._tensor([self.model_image(_pixels(source))]))
        return output_probabilities(self.trained.model.decoder, encoding, ids, self.tokenizer)

    @torch.no_grad()
    def map_of(
        self, source: Picture, ids: Sequence[int], *, words: bool | None = None, kind: MapKind = "cross"
    ) -> AttentionMap:
        """The map of a caption by its tokens, from one teacher-forced pass over it; between words by default."""
        words = words is not False
        if not ids:
            raise ArgumentError("there is no attention to show: the caption is empty")
        pixels, model = _pixels(source), self.trained.model
        images = self._tensor([self.model_image(pixels)])
        target_in = torch.tensor([[BOS, *ids]], device=images.device)
        if checked_kind(kind) == "encoder":
            model.encoder.self_attention(images)
        encoding, title = model.encoder(images), self.tokenizer.decode(ids)
        written = target_side(ids, self.tokenizer)
        if kind == "decoder":
            attention = model.decoder.self_attention(encoding, target_in)
            own = map_of_layers(attention, written.with_beginning(), written.with_end(), kind, words=words)
            return replace(own, title=title)
        attention = model.decoder.source_attention(encoding, target_in)
        weights = torch.stack([layer()[0, :, : len(ids)] for layer in attention]).float().cpu()
        layout = self._layout(pixels)
        shown = AttentionMap(layout.names, written.tokens, weights, layout=layout, title=title)
        return (
            replace(shown.merged(range(len(layout.names)), written.numbers), target=written.words) if words else shown
        )

    def model_image(self, image: Picture) -> UInt8[np.ndarray, "side side 3"]:
        """An image in the size and shape that the model reads."""
        return model_image(_pixels(image), self.trained.recipe.images)

    def size(self, source: Picture) -> int:
        """The number of regions, the same for every image."""
        rows, columns = self.trained.encoder.grid
        return rows * columns

    def check_source(self, source: Picture) -> None:
        """Accept every image: each has an attention map."""

    def smallest_source(self) -> tuple[Tensor]:
        """A black image."""
        side = self.trained.recipe.images.size
        return (torch.zeros(1, 3, side, side, dtype=torch.uint8, device=self.device),)

    @property
    def languages(self) -> tuple[None, str | None]:
        """The language of captions of the built-in scenes."""
        return None, self.trained.recipe.images.scenes or None

    @property
    def corpus(self) -> str:
        """ "scenes" for a model trained on the built-in scenes."""
        return "scenes" if self.trained.recipe.images.scenes else ""

    def examples(self, count: int) -> list[str]:
        """Test images of the built-in scenes, as data URLs."""
        shown = range(count if self.trained.recipe.images.scenes else 0)
        return [image_url(scene(number, split="test").picture(EXAMPLE_SIDE)) for number in shown]

    def _layout(self, pixels: Pixels) -> ImageLayout:
        """The image, and the part of it that the model saw."""
        (height, width), encoder = pixels.shape[:2], self.trained.encoder
        top, left, bottom, right = kept_part(height, width, self.trained.recipe.images.fit)
        part = top / height, left / width, bottom / height, right / width
        return ImageLayout(reduced(pixels, IMAGE_SIDE), *encoder.grid, part, encoder.centres)

    def _read(
        self, image: Picture, skip: Callable[[DataError], object] | None
    ) -> UInt8[np.ndarray, "side side 3"] | None:
        """The image as the model reads it; None if it cannot be read and `skip` has got the error."""
        try:
            return self.model_image(image)
        except DataError as error:
            if skip is None:
                raise
            skip(error)
            return None

    def _tensor(self, images: Sequence[Pixels]) -> UInt8[Tensor, "batch 3 side side"]:
        return to_tensor(images).to(self.device)

    def _caption(self, image: Picture, hypotheses: list[Hypothesis], n_best: int) -> Caption:
        if not hypotheses:
            raise ArgumentError("no caption keeps to decoding.min_length and decoding.no_repeat; lower one of them")
        name = str(image) if isinstance(image, str | Path) else ""
        decode = self.tokenizer.decode
        ranked = (Caption(name, decode(ids), score, (), tuple(ids), image, self) for ids, score, _ in hypotheses)
        return best_outputs(ranked, n_best)


def _pixels(image: Picture) -> Pixels:
    if not isinstance(image, str | Path | np.ndarray):
        raise ArgumentError(f"an image must be a path or pixels, but it is {type(image).__name__}")
    return image if isinstance(image, np.ndarray) else read_image(image)
