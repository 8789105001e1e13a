"""An image as a place to look at: divided into regions, lit where a word looked (Xu et al., Show, Attend and Tell)."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from jumok.analysis.draw.style import png_bytes
from jumok.errors import ArgumentError

SIDE = 480
"""Pixels of the longer side of a picture; smaller images are enlarged to it, larger ones reduced."""
DIM, UNSEEN = 0.3, 0.14
"""How bright the image stays where a word did not look, its colours halfway to grey, and where the model never does."""
WHOLE = (0.0, 0.0, 1.0, 1.0)
LUMINANCE = np.array([0.299, 0.587, 0.114])
"""What red, green and blue add to the brightness of a grey."""
PNG = "data:image/png;base64,"


@dataclass(frozen=True, eq=False)
class Regions:
    """An image, and the part of it that `rows` and `columns` divide evenly; its regions are sources, row by row."""

    image: UInt8[np.ndarray, "height width 3"]
    rows: int
    columns: int
    part: tuple[float, float, float, float] = WHOLE
    """The part that the model saw: its top, left, bottom and right edge, as shares of the image's height and width."""

    kind = "image"

    def __post_init__(self) -> None:
        image = self.image
        pixels = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3
        if not pixels or image.shape[2] != 3 or not image.size:
            seen = f"{list(image.shape)} of {image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
            raise ArgumentError(f"image must be an array of bytes [height, width, 3], but it is {seen}")
        top, left, bottom, right = self.part
        if not (0 <= top < bottom <= 1 and 0 <= left < right <= 1):
            raise ArgumentError(
                f"part = {self.part} must be top, left, bottom and right, each from 0 to 1, top less than bottom and "
                "left less than right"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """What to call the regions, counted from 1."""
        return tuple(f"row {row + 1}, column {column + 1}" for row, column in np.ndindex(self.rows, self.columns))

    def check(self, sources: int, targets: int) -> None:
        """Refuse another number of sources than there are regions."""
        if self.rows < 1 or self.columns < 1 or sources != self.rows * self.columns:
            raise ArgumentError(
                f"an image of {self.rows} × {self.columns} regions has as many sources, but there are {sources}"
            )

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the picture."""
        height, width = self.image.shape[:2]
        scale = SIDE / max(height, width)
        return max(1, round(height * scale)), max(1, round(width * scale))

    def picture(self) -> UInt8[np.ndarray, "high wide 3"]:
        """The image as it is drawn, SIDE pixels along its longer side."""
        size = self.size
        if size == self.image.shape[:2]:
            return self.image
        pixels = torch.from_numpy(self.image.copy()).permute(2, 0, 1)[None].float()
        resized = F.interpolate(pixels, size, mode="bicubic", antialias=True)[0].clamp(0, 255).round()
        return resized.permute(1, 2, 0).to(torch.uint8).numpy()

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Where the part that the model saw lies in the picture: top, left, bottom and right, in pixels."""
        top, left, bottom, right = (
            round(side * share) for side, share in zip((*self.size, *self.size), self.part, strict=True)
        )
        return top, left, max(bottom, top + 1), max(right, left + 1)

    def light(self, weights: Float[Tensor, " source"]) -> Float[np.ndarray, "high wide"]:
        """How much a word with these weights looked at each pixel of the picture, from 0 to 1 where it looked most.

        Regions blend into each other smoothly, as a smooth curve through their middles.
        """
        top, left, bottom, right = self.box
        grid = weights.detach().float().cpu().view(1, 1, self.rows, self.columns)
        smooth = F.interpolate(grid, (bottom - top, right - left), mode="bicubic", align_corners=False)[0, 0].clamp(
            min=0
        )
        light = np.zeros(self.size, np.float32)
        light[top:bottom, left:right] = (smooth / smooth.max().clamp(min=1e-12)).clamp(max=1).numpy()
        return light

    def overlay(self, weights: Float[Tensor, " source"]) -> UInt8[np.ndarray, "high wide 3"]:
        """The picture in its colours where the word looked, dark and greyer elsewhere, darkest where none looks."""
        picture, light = self.picture().astype(float), self.light(weights)[..., None]
        top, left, bottom, right = self.box
        dim = np.full_like(light, UNSEEN)
        dim[top:bottom, left:right] = DIM
        dark = dim * (picture + (picture @ LUMINANCE)[..., None]) / 2
        mixed: np.ndarray = light * picture + (1 - light) * dark
        return mixed.round().astype(np.uint8)

    def as_plain(self) -> dict[str, Any]:
        """The image as a PNG, how it is divided, and which part of it is, where that is not all."""
        image = PNG + b64encode(png_bytes(self.image)).decode()
        part = {} if self.part == WHOLE else {"part": list(self.part)}
        return {"kind": self.kind, "rows": self.rows, "columns": self.columns, "image": image, **part}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Regions":
        """What `as_plain` described."""
        from jumok.images.files import decode_image

        content = b64decode(str(plain["image"]).removeprefix(PNG), validate=True)
        top, left, bottom, right = map(float, plain.get("part", WHOLE))
        image = decode_image(content, "of the map")
        return cls(image, int(plain["rows"]), int(plain["columns"]), (top, left, bottom, right))
