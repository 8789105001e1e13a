"""A trained captioner: images in, captions out, and where each word of a caption looked."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.model_map import words_of_tokens
from jumok.analysis.maps.regions import SIDE, Regions
from jumok.data import BOS
from jumok.decoding import Hypothesis, beam_search
from jumok.decoding.config import with_settings
from jumok.errors import ArgumentError
from jumok.images.files import Pixels, kept_part, read_image, reduced
from jumok.images.pairs import model_image
from jumok.images.store import to_tensor
from jumok.tasks.translator import SPECIALS, best_of

if TYPE_CHECKING:
    from jumok.tasks.captioning import TrainedCaptioner

Picture = str | Path | Pixels
"""A file, or the pixels themselves: uint8 [height, width, 3]."""


@dataclass(frozen=True, eq=False)
class Caption:
    """What was found to say of one image."""

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
        """Where the model looks in `image` while it says `caption`, which is given."""
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
        place = self._place(pixels)
        shown = AttentionMap(place.names, tuple(tokenizer.pieces[id] for id in ids), weights, place=place, title=text)
        if not words:
            return shown
        numbers, names = words_of_tokens(ids, tokenizer)
        return replace(shown.merged(range(len(place.names)), numbers), target=tuple(names))

    def seen(self, image: Picture) -> UInt8[np.ndarray, "side side 3"]:
        """An image as the model sees it."""
        return model_image(_pixels(image), self.trained.recipe.images)

    def _place(self, pixels: Pixels) -> Regions:
        """The image itself, and which part of it the model saw."""
        (height, width), (rows, columns) = pixels.shape[:2], self.trained.model.encoder.grid
        top, left, bottom, right = kept_part(height, width, self.trained.recipe.images.fit)
        part = top / height, left / width, bottom / height, right / width
        return Regions(reduced(pixels, SIDE), rows, columns, part)

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
