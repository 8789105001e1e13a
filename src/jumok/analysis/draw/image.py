"""The map of an image: the image once per word, bright where the word attends (Xu et al., Show, Attend and Tell)."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from rich.text import Text
from torch import Tensor

from jumok.analysis.draw.shapes import Drawing, Label, Photo
from jumok.analysis.draw.style import cell_width, fitted, printable, shortened, wrapped
from jumok.analysis.draw.terminal import one_line, scale_line, shade
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import IMAGE_SIDE, WHOLE, ImageLayout
from jumok.errors import ArgumentError

DIM, UNSEEN = 0.3, 0.14
"""Brightness of the image, halfway to grey, where a word does not attend, and outside the part the model saw."""
LUMINANCE = np.array([0.299, 0.587, 0.114])
"""How much red, green and blue contribute to the brightness of a grey."""
SHARP = 2
"""An image that is enlarged at least so much keeps its pixels; a smooth enlargement would look blurred."""
PANEL = 168.0
"""Longer side of a panel."""
GAP, MARGIN, LABEL = 16.0, 20.0, 24.0
HEADING, WORD, NOTE = 17.0, 14.0, 11.0
"""Sizes of letters."""
LETTER = 0.58
"""Width of a letter of size 1; Hangul and Chinese letters are two wide."""
COLUMNS = (4, 5, 6)
"""Panels in a row: whichever leaves the fewest empty places in the last row."""
TALLEST = 20_000
EXPLAINED = "bright where a word attends, relative to its largest weight"
CROPPED = "; the darkest edges were cropped before the model saw the image"


def resized_image(layout: ImageLayout) -> UInt8[np.ndarray, "high wide 3"]:
    """Resize the image to IMAGE_SIDE pixels along its longer side; pixels of a small image stay sharp."""
    size = _size(layout)
    if size == layout.image.shape[:2]:
        return layout.image
    pixels = torch.from_numpy(layout.image.copy()).permute(2, 0, 1)[None].float()
    sharp = size[0] >= SHARP * layout.image.shape[0]
    if sharp:
        resized = F.interpolate(pixels, size, mode="nearest-exact")[0]
    else:
        resized = F.interpolate(pixels, size, mode="bicubic", antialias=True)[0].clamp(0, 255).round()
    return resized.permute(1, 2, 0).to(torch.uint8).numpy()


def _size(layout: ImageLayout) -> tuple[int, int]:
    height, width = layout.image.shape[:2]
    scale = IMAGE_SIDE / max(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def seen_box(layout: ImageLayout) -> tuple[int, int, int, int]:
    """Return top, left, bottom and right of the part the model saw, in pixels of the resized image."""
    top, left, bottom, right = (round(side * edge) for side, edge in zip(2 * _size(layout), layout.part, strict=True))
    return top, left, max(bottom, top + 1), max(right, left + 1)


def brightness(layout: ImageLayout, weights: Float[Tensor, " source"]) -> Float[np.ndarray, "high wide"]:
    """Return how much a word attends to each pixel, from 0 to 1 at its largest weight.

    Regions blend smoothly into each other by cubic B-splines. A curve through their weights would fall below 0 around a
    bright region; cut off there, its light would end in the edges of a square.
    """
    top, left, bottom, right = seen_box(layout)
    grid = weights.detach().float().cpu().view(layout.rows, layout.columns)
    down, across = (
        _splines(regions, length, layout.centres or (0.5 / regions, 1 / regions))
        for regions, length in ((layout.rows, bottom - top), (layout.columns, right - left))
    )
    smooth = down @ grid @ across.T
    light = np.zeros(_size(layout), np.float32)
    light[top:bottom, left:right] = (smooth / smooth.max().clamp(min=1e-12)).numpy()
    return light


def _splines(regions: int, length: int, centres: tuple[float, float]) -> Float[Tensor, "length regions"]:
    """For each pixel along an axis, the share of each region: none is negative, and they sum to 1."""
    centre, step = centres
    place = ((torch.arange(length) + 0.5) / length - centre) / step
    first = place.floor()
    t = place - first
    parts = torch.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, 3 * (1 - t) ** 3 - 6 * (1 - t) ** 2 + 4, t**3], 1) / 6
    number = (first[:, None].long() + torch.arange(-1, 3)).clamp(0, regions - 1)  # what is outside is as at the edge
    return torch.zeros(length, regions).scatter_add_(1, number, parts)


def overlay(layout: ImageLayout, weights: Float[Tensor, " source"]) -> UInt8[np.ndarray, "high wide 3"]:
    """Draw the image in its colours where the word attends, and dark and greyer elsewhere."""
    picture, light = resized_image(layout).astype(float), brightness(layout, weights)[..., None]
    top, left, bottom, right = seen_box(layout)
    dim = np.full_like(light, UNSEEN)
    dim[top:bottom, left:right] = DIM
    dark = dim * (picture + (picture @ LUMINANCE)[..., None]) / 2
    mixed: np.ndarray = light * picture + (1 - light) * dark
    return mixed.round().astype(np.uint8)


def image_panels(attention: AttentionMap) -> Drawing:
    """Lay out the image and then a panel for every word, averaged over layers and heads."""
    layout, weights = attention.layout, attention.mean()
    assert isinstance(layout, ImageLayout)
    picture = resized_image(layout)
    high, wide = (PANEL * side / max(picture.shape[:2]) for side in picture.shape[:2])
    count = 1 + len(attention.target)
    columns = min(count, min(COLUMNS, key=lambda columns: (-count % columns, -columns)))
    width = max(2 * MARGIN + columns * (wide + GAP) - GAP, 360)
    heading = _lines(printable(attention.title or " ".join(attention.target)), width, HEADING)
    note = _lines(EXPLAINED + (CROPPED if layout.part != WHOLE else ""), width, NOTE)
    top = MARGIN + 1.4 * HEADING * len(heading) + 4
    height = top + -(-count // columns) * (high + LABEL + GAP) + 1.4 * NOTE * len(note) + MARGIN - 8
    if height > TALLEST:
        raise ArgumentError(f"{count - 1} words are too many for one picture; save as .html or .json")
    shapes: list[Label | Photo] = [
        Label(MARGIN, MARGIN + HEADING * (0.9 + 1.4 * row), line, HEADING, bold=True)
        for row, line in enumerate(heading)
    ]
    words = ["", *(shortened(printable(word), max(2, int(wide / WORD / LETTER))) for word in attention.target)]
    for number, (word, pixels) in enumerate(
        zip(words, [picture, *(overlay(layout, row) for row in weights)], strict=True)
    ):
        x = MARGIN + (number % columns) * (wide + GAP)
        y = top + LABEL + (number // columns) * (high + LABEL + GAP)
        shapes += [Photo(x, y, wide, high, pixels, word), Label(x, y - 7, word, WORD)]
    first = height - MARGIN + 2 - 1.4 * NOTE * (len(note) - 1)
    shapes += [Label(MARGIN, first + 1.4 * NOTE * row, line, NOTE, "quiet") for row, line in enumerate(note)]
    return Drawing(width, height, shapes, attention.title)


def _lines(text: str, width: float, size: float) -> list[str]:
    return wrapped(text, int((width - 2 * MARGIN) / size / LETTER))


TERMINAL_SIDE = 22
"""Terminal columns of a picture; it has half as many lines, of two pixels each."""
LEAST = 12
"""Minimum columns of a word."""
APART = "  "


def terminal_image(attention: AttentionMap, *, width: int = 100, plain: bool = False) -> Text:
    """Draw the image and then one picture per word for a terminal, as many in a row as fit."""
    layout, words, weights = attention.layout, attention.target, attention.mean().detach().float()
    assert isinstance(layout, ImageLayout)
    if plain:
        panels = [_shaded(word, row.view(layout.rows, -1)) for word, row in zip(words, weights, strict=True)]
    else:
        overlays = (overlay(layout, row) for row in weights)
        pictures = [("", resized_image(layout)), *zip(words, overlays, strict=True)]
        panels = [_coloured(word, picture) for word, picture in pictures]
    wide = max((cell_width(panel[0].plain) for panel in panels), default=1)
    columns = max(1, (width + len(APART)) // (wide + len(APART)))
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    scale = [Text(f"{scale_line(1.0)} of a word's largest weight")] if plain and panels else []
    return Text("\n\n").join([*(Text("\n").join(_beside(row)) for row in rows), *scale])


def _beside(panels: Sequence[list[Text]]) -> list[Text]:
    return [Text(APART).join(line) for line in zip(*panels, strict=True)]


def _coloured(word: str, picture: np.ndarray) -> list[Text]:
    """Draw two pixels per character: an upper half block in one colour on a background of the other."""
    high, wide = picture.shape[:2]
    scale = TERMINAL_SIDE / max(high, wide)
    size = max(2, 2 * round(high * scale / 2)), max(1, round(wide * scale))
    pixels = torch.from_numpy(picture.copy()).permute(2, 0, 1)[None].float()
    small = F.interpolate(pixels, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0).round().int().tolist()
    lines = [Text(_label(word, size[1]))]
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        line = Text()
        for above, below in zip(upper, lower, strict=True):
            line.append("▀", style=f"rgb({_triple(above)}) on rgb({_triple(below)})")
        lines.append(line)
    return lines


def _shaded(word: str, weights: Float[Tensor, "row column"]) -> list[Text]:
    """Draw a line per row of regions, two characters per region."""
    shares = (weights / weights.max().clamp(min=1e-12)).tolist()
    wide = max(LEAST, 2 * len(shares[0]))
    rows = ["".join(2 * shade(share) for share in row) for row in shares]
    return [Text(_label(word, wide)), *(Text(row.ljust(wide)) for row in rows)]


def _label(word: str, width: int) -> str:
    return fitted(shortened(one_line(word), width), width)


def _triple(colour: list[int]) -> str:
    return ",".join(str(min(255, max(0, part))) for part in colour)
