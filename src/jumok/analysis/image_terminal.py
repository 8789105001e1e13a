"""Where each word looked, in a terminal: small pictures in colour, or the regions in shades of grey blocks."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from rich.text import Text
from torch import Tensor

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.regions import Regions
from jumok.analysis.terminal import one_line, scale_line, shade
from jumok.analysis.width import cells, fitted

SIDE = 22
"""Columns of a terminal that a picture takes; it has half as many lines, of two pixels each."""
LEAST = 12
"""Columns that a word has at least."""
APART = "  "


def terminal_image(attention: AttentionMap, *, width: int = 100, plain: bool = False) -> Text:
    """The image, then a picture for every word under its word, as many beside each other as fit."""
    place, words, weights = attention.place, attention.target, attention.mean().detach().float()
    assert isinstance(place, Regions)
    if plain:
        panels = [_shaded(word, row.view(place.rows, -1)) for word, row in zip(words, weights, strict=True)]
    else:
        pictures = [("", place.picture()), *zip(words, map(place.overlay, weights), strict=True)]
        panels = [_coloured(word, picture) for word, picture in pictures]
    wide = max((cells(panel[0].plain) for panel in panels), default=1)
    columns = max(1, (width + len(APART)) // (wide + len(APART)))
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    scale = [Text(f"{scale_line(1.0)} of a word's largest weight")] if plain and panels else []
    return Text("\n\n").join([*(Text("\n").join(_beside(row)) for row in rows), *scale])


def _beside(panels: list[list[Text]]) -> list[Text]:
    return [Text(APART).join(line) for line in zip(*panels, strict=True)]


def _coloured(word: str, picture: np.ndarray) -> list[Text]:
    """Two pixels a letter: the upper half block in the colour of the one, on the ground of the other."""
    high, wide = picture.shape[:2]
    scale = SIDE / max(high, wide)
    size = max(2, 2 * round(high * scale / 2)), max(1, round(wide * scale))
    pixels = torch.from_numpy(picture.copy()).permute(2, 0, 1)[None].float()
    small = F.interpolate(pixels, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0).round().int().tolist()
    lines = [Text(_label(word, size[1]))]
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        line = Text()
        for one, other in zip(upper, lower, strict=True):
            line.append("▀", style=f"rgb({_triple(one)}) on rgb({_triple(other)})")
        lines.append(line)
    return lines


def _shaded(word: str, weights: Float[Tensor, "row column"]) -> list[Text]:
    """A row of the grid a line, two letters a region."""
    shares = (weights / weights.max().clamp(min=1e-12)).tolist()
    wide = max(LEAST, 2 * len(shares[0]))
    rows = ["".join(2 * shade(share) for share in row) for row in shares]
    return [Text(_label(word, wide)), *(Text(row.ljust(wide)) for row in rows)]


def _label(word: str, width: int) -> str:
    word = one_line(word)
    return fitted(word, width) if cells(word) <= width else fitted(word, width - 1) + "…"


def _triple(colour: list[int]) -> str:
    return ",".join(str(min(255, max(0, part))) for part in colour)
