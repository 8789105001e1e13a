"""Where each word of a caption looked in its image (Xu et al., Show, Attend and Tell, 2015)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from jumok.errors import ArgumentError

SIDE = 320
"""Pixels of the longer side of a picture; smaller images are enlarged to it, larger ones reduced."""
DIM = 0.3
"""How bright the image stays where a word did not look, its colours halfway to grey."""
DIGITS = 6
LUMINANCE = np.array([0.299, 0.587, 0.114])
"""What red, green and blue add to the brightness of a grey."""


@dataclass(frozen=True, eq=False)
class ImageMap:
    """An image, the words said of it, and how much each word looked at each region."""

    image: UInt8[np.ndarray, "height width 3"]
    words: tuple[str, ...]
    weights: Float[Tensor, "word rows cols"]
    caption: str = ""
    """The words as a sentence; joined by spaces unless told."""

    def __post_init__(self) -> None:
        _check(self.image, self.words, self.weights)
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "caption", self.caption or " ".join(self.words))

    def picture(self) -> UInt8[np.ndarray, "high wide 3"]:
        """The image as it is drawn, SIDE pixels along its longer side."""
        height, width = self.image.shape[:2]
        scale = SIDE / max(height, width)
        size = max(1, round(height * scale)), max(1, round(width * scale))
        if size == (height, width):
            return self.image
        pixels = torch.from_numpy(self.image.copy()).permute(2, 0, 1)[None].float()
        resized = F.interpolate(pixels, size, mode="bicubic", antialias=True)[0].clamp(0, 255).round()
        return resized.permute(1, 2, 0).to(torch.uint8).numpy()

    def light(self, word: int) -> Float[np.ndarray, "high wide"]:
        """How much a word looked at each pixel of the picture, from 0 to 1 where it looked most.

        Regions blend into each other smoothly, as a smooth curve through their middles.
        """
        weights = self.weights[word].detach().float().cpu()
        size = self.picture().shape[:2]
        smooth = F.interpolate(weights[None, None], size, mode="bicubic", align_corners=False)[0, 0].clamp(min=0)
        share: np.ndarray = (smooth / smooth.max().clamp(min=1e-12)).clamp(max=1).numpy()
        return share

    def overlay(self, word: int) -> UInt8[np.ndarray, "high wide 3"]:
        """The picture in its colours where the word looked, dark and greyer elsewhere."""
        picture, light = self.picture().astype(float), self.light(word)[..., None]
        dark = DIM * (picture + (picture @ LUMINANCE)[..., None]) / 2
        mixed: np.ndarray = light * picture + (1 - light) * dark
        return mixed.round().astype(np.uint8)

    def where(self, word: int) -> tuple[int, int, float]:
        """The row and column of the region a word looked at most, counted from 0, and its weight."""
        weights = self.weights[word]
        place = int(weights.argmax())
        return place // weights.shape[1], place % weights.shape[1], float(weights.max())

    def as_plain(self) -> dict[str, Any]:
        """Numbers, texts and lists only; the image is left out."""
        return {
            "caption": self.caption,
            "words": list(self.words),
            "weights": self.weights.detach().double().cpu().numpy().round(DIGITS).tolist(),
            "image": {"height": self.image.shape[0], "width": self.image.shape[1]},
        }

    def save(self, path: str | Path) -> Path:
        """Write it to a file; the ending of the name says how: .png .svg .pdf .html .json."""
        from jumok.analysis.saving import save_as

        return save_as(path, self._content)

    def _content(self, kind: str) -> bytes:
        if kind == "json":
            return (json.dumps(self.as_plain(), ensure_ascii=False) + "\n").encode(errors="replace")
        if kind == "html":
            from jumok.analysis.image_page import image_page

            return image_page(self).encode(errors="replace")
        if kind == "svg":
            from jumok.analysis.image_panels import panels_svg

            return panels_svg(self).encode(errors="replace")
        from jumok.analysis.image_panels import panels_picture

        return panels_picture(self, kind)


def _check(image: Any, words: Sequence[str], weights: Any) -> None:
    pixels = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3
    if not pixels or image.shape[2] != 3 or not image.size:
        seen = f"{list(image.shape)} of {image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ArgumentError(f"image must be an array of bytes [height, width, 3], but it is {seen}")
    if not isinstance(weights, Tensor) or weights.dim() != 3 or len(weights) != len(words) or 0 in weights.shape[1:]:
        seen = f"{list(weights.shape)}" if isinstance(weights, Tensor) else type(weights).__name__
        raise ArgumentError(
            f"weights are {seen}, but there are {len(words)} words; wanted [{len(words)}, rows, columns]"
        )
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ArgumentError("weights must be finite and not negative")
