"""A trained captioner: images in, captions out, and where each word of a caption looked."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from jumok.analysis.model_map import words_of_tokens
from jumok.caption_model import TrainedCaptioner, load_captioner
from jumok.data import BOS
from jumok.data.image_pairs import prepared_image
from jumok.data.image_store import to_tensor
from jumok.data.images import Pixels, read_image
from jumok.decoding import Hypothesis, beam_search
from jumok.decoding.config import with_settings
from jumok.errors import ArgumentError
from jumok.translator import SPECIALS, find_device

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


class CaptionLook(NamedTuple):
    """Where each word of a caption looked."""

    words: tuple[str, ...]
    weights: Float[Tensor, "word row column"]
    """The attention of every word over the grid, summing to 1; that of its tokens on average."""
    image: UInt8[np.ndarray, "side side 3"]
    """What the model saw: the image cut and scaled. The grid divides it evenly."""
    caption: Caption


class Captioner:
    """Captions images with one loaded model."""

    def __init__(self, trained: TrainedCaptioner, *, batch: int = 64) -> None:
        self.trained, self.batch = trained, batch
        self.trained.model.eval()

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> "Captioner":
        """Load a model folder, onto a GPU if there is one."""
        return cls(load_captioner(folder, find_device(device)))

    def caption(self, images: Iterable[Picture], *, n_best: int = 1, **settings: Any) -> list[Caption]:
        """A caption for every image, in their order; `settings` are those of DecodingConfig, such as beam=5."""
        return list(self.stream(images, n_best=n_best, **settings))

    def stream(self, images: Iterable[Picture], *, n_best: int = 1, **settings: Any) -> Iterator[Caption]:
        """Like `caption`, a batch of images at a time."""
        if isinstance(images, str | Path | np.ndarray):
            raise ArgumentError("images must be a list of images, but it is one; write [image]")
        config = with_settings(self.trained.recipe.decoding, n_best, **settings)
        images = iter(images)
        while some := list(islice(images, self.batch)):
            with torch.no_grad():
                encoding = self.trained.model.encoder(self._tensor([self.seen(image) for image in some]))
                found = beam_search(self.trained.model.decoder, encoding, SPECIALS, config)
            for image, hypotheses in zip(some, found, strict=True):
                yield self._caption(image, hypotheses, n_best)

    def look(
        self,
        image: Picture,
        *,
        caption: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        **settings: Any,
    ) -> CaptionLook:
        """Where the words of the model's caption, or of one that is given, looked.

        Of one layer and head, counted from 0, or of the mean of them; `settings` are those of DecodingConfig.
        """
        if caption is None:
            (found,) = self.caption([image], **settings)
        else:
            ids = self.trained.tokenizer.encode(caption)[1:-1]
            found = Caption(str(image) if isinstance(image, str | Path) else "", caption, 0.0, ids=tuple(ids))
        if not found.ids:
            raise ArgumentError("there is no attention to show: the caption is empty")
        seen = self.seen(image)
        weights = _chosen(_chosen(self._weights(seen, found.ids), layer, "layer"), head, "head")
        numbers, words = words_of_tokens(found.ids, self.trained.tokenizer)
        merged = _merged(weights[: len(found.ids)], numbers)
        return CaptionLook(tuple(words), merged.view(-1, *self.trained.model.encoder.grid), seen, found)

    def seen(self, image: Picture) -> UInt8[np.ndarray, "side side 3"]:
        """An image as the model sees it."""
        pixels = image if isinstance(image, np.ndarray) else read_image(image)
        return prepared_image(pixels, self.trained.recipe.images)

    @torch.no_grad()
    def _weights(self, seen: Pixels, ids: Sequence[int]) -> Float[Tensor, "layer head token region"]:
        """One teacher-forced pass over the caption."""
        images = self._tensor([seen])
        prediction = self.trained.model(images, torch.tensor([[BOS, *ids]], device=images.device))
        if not prediction.attention:
            raise ArgumentError("this model has no attention to show: its decoder sees only a fixed context")
        return torch.stack([layer()[0] for layer in prediction.attention]).float().cpu()

    def _tensor(self, images: Sequence[Pixels]) -> UInt8[Tensor, "batch 3 side side"]:
        return to_tensor(images).to(next(self.trained.model.parameters()).device)

    def _caption(self, image: Picture, hypotheses: list[Hypothesis], n_best: int) -> Caption:
        if not hypotheses:
            raise ArgumentError("no caption keeps to decoding.min_length and decoding.no_repeat; lower one of them")
        name = str(image) if isinstance(image, str | Path) else ""
        ranked: dict[str, Caption] = {}
        for ids, score in hypotheses:
            text = self.trained.tokenizer.decode(ids)
            ranked.setdefault(text, Caption(name, text, score, ids=tuple(ids)))
        best = tuple(ranked.values())[:n_best]
        return replace(best[0], n_best=best) if n_best > 1 else best[0]


def _chosen(weights: Tensor, number: int | None, name: str) -> Tensor:
    """One of the first axis, or its mean."""
    if number is None:
        return weights.mean(0)
    if not -len(weights) <= number < len(weights):
        raise ArgumentError(f"there is no {name} {number}; they are counted from 0, and there are {len(weights)}")
    return weights[number]


def _merged(weights: Float[Tensor, "token region"], words: Sequence[int]) -> Float[Tensor, "word region"]:
    """A word looks where its tokens look on average."""
    numbers = torch.tensor(words)
    sums = torch.zeros(max(words) + 1, weights.shape[1]).index_add_(0, numbers, weights)
    return sums / numbers.bincount()[:, None]
