"""Where each word looked, in a terminal: small pictures in colour, or the regions in shades of grey blocks."""

import logging
import unicodedata
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from rich.text import Text
from torch import Tensor

from jumok.analysis.draw.fonts import fonts_for
from jumok.analysis.draw.heatmap_svg import FONT, safe
from jumok.analysis.draw.style import INK, QUIET, cells, fitted, png_bytes, readable, wrapped
from jumok.analysis.draw.terminal import one_line, scale_line, shade
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.regions import PNG, WHOLE, Regions
from jumok.errors import ArgumentError

PANEL = 168
"""Units of the longer side of a panel; 100 are an inch."""
GAP, MARGIN, LABEL = 16, 20, 24
HEADING, WORD, NOTE = 17, 14, 11
"""Sizes of letters."""
LETTER = 0.58
"""Width of a letter of size 1; Hangul and Chinese letters are two wide."""
COLUMNS = (4, 5, 6)
"""Panels beside each other: whichever leaves the fewest places of the last row empty."""
TALLEST = 20_000
QUALITY = 88
"""Of a JPEG: no loss is seen at the size of a panel, even enlarged twice."""
NOTED = "bright where a word looked; each word by its own largest weight"
CUT = "; the darkest edges were cut off before the model saw the image"


class Panel(NamedTuple):
    """A picture, what is written above it, and where it is."""

    pixels: np.ndarray
    word: str
    x: float
    y: float


class Sheet(NamedTuple):
    """All panels, the lines above them, and the size of the whole."""

    panels: list[Panel]
    heading: list[str]
    width: float
    height: float
    panel: tuple[float, float]
    """Width and height of a panel."""
    note: list[str]


def sheet_of(attention: AttentionMap) -> Sheet:
    """Where everything goes."""
    place, weights = attention.place, attention.mean()
    assert isinstance(place, Regions)
    picture = place.picture()
    scale = PANEL / max(picture.shape[:2])
    high, wide = (scale * side for side in picture.shape[:2])
    count = 1 + len(attention.target)
    columns = min(count, min(COLUMNS, key=lambda columns: (-count % columns, -columns)))
    width = max(2 * MARGIN + columns * (wide + GAP) - GAP, 360)
    heading = wrapped(
        _one_line(attention.title or " ".join(attention.target)), int((width - 2 * MARGIN) / HEADING / LETTER)
    )
    top = MARGIN + 1.4 * HEADING * len(heading) + 4
    note = wrapped(NOTED + (CUT if place.part != WHOLE else ""), int((width - 2 * MARGIN) / NOTE / LETTER))
    height = top + -(-count // columns) * (high + LABEL + GAP) + 1.4 * NOTE * len(note) + MARGIN - 8
    if height > TALLEST:
        raise ArgumentError(f"{count - 1} words are too many for one picture; save as .html or .json")
    places = [
        (MARGIN + (at % columns) * (wide + GAP), top + LABEL + (at // columns) * (high + LABEL + GAP))
        for at in range(count)
    ]
    pixels = [picture, *map(place.overlay, weights)]
    words = ["", *(_cut(_one_line(word), wide, WORD) for word in attention.target)]
    panels = [Panel(drawn, word, x, y) for drawn, word, (x, y) in zip(pixels, words, places, strict=True)]
    return Sheet(panels, heading, width, height, (wide, high), note)


def panels_svg(attention: AttentionMap) -> str:
    """The panels as an SVG picture, which needs no font here."""
    sheet = sheet_of(attention)
    size = f'width="{sheet.width:.0f}" height="{sheet.height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {sheet.width:.0f} {sheet.height:.0f}" '
        f'font-family="{FONT}" fill="{INK}"><rect {size} fill="white"/>',
        *(
            f'<text x="{MARGIN}" y="{y:.1f}" font-size="{HEADING}" font-weight="600">{safe(line)}</text>'
            for line, y in _heading(sheet)
        ),
    ]
    for panel in sheet.panels:
        parts.append(
            f'<image x="{panel.x:.1f}" y="{panel.y:.1f}" width="{sheet.panel[0]:.1f}" height="{sheet.panel[1]:.1f}" '
            f'href="{embedded(panel.pixels)}"><title>{safe(panel.word)}</title></image>'
            f'<rect x="{panel.x:.1f}" y="{panel.y:.1f}" width="{sheet.panel[0]:.1f}" height="{sheet.panel[1]:.1f}" '
            f'fill="none" stroke="{INK}" stroke-opacity="0.2"/>'
            f'<text x="{panel.x:.1f}" y="{panel.y - 7:.1f}" font-size="{WORD}">{safe(panel.word)}</text>'
        )
    parts += [
        f'<text x="{MARGIN}" y="{y:.1f}" font-size="{NOTE}" fill="{QUIET}">{line}</text>' for line, y in _note(sheet)
    ]
    return "\n".join([*parts, "</svg>", ""])


def embedded(pixels: UInt8[np.ndarray, "high wide 3"]) -> str:
    """A picture as text that stands for its file: a PNG, or where that takes more and Pillow is there, a JPEG.

    A photo is a tenth of its PNG as a JPEG, and a drawing less than half of its JPEG as a PNG.
    """
    png = png_bytes(pixels)
    jpeg = _jpeg_bytes(pixels)
    if jpeg is None or len(png) <= len(jpeg):
        return PNG + b64encode(png).decode()
    return "data:image/jpeg;base64," + b64encode(jpeg).decode()


def _jpeg_bytes(pixels: UInt8[np.ndarray, "high wide 3"]) -> bytes | None:
    try:
        from PIL import Image
    except ImportError:
        return None
    content = BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=QUALITY, subsampling=0, optimize=True)
    return content.getvalue()


def panels_picture(attention: AttentionMap, kind: str) -> bytes:
    """The bytes of a "png" or "pdf", with fonts that have the letters."""
    sheet = sheet_of(attention)
    fonts = fonts_for([*sheet.heading, *(panel.word for panel in sheet.panels), *sheet.note])
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    for name in ("fontTools.subset", "matplotlib.font_manager"):  # they tell of tables left out, of faces not found
        logging.getLogger(name).setLevel(logging.ERROR)
    with rc_context({"font.family": fonts, "pdf.fonttype": 42}):
        figure = Figure(figsize=(sheet.width / 100, sheet.height / 100), dpi=200, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, sheet.width), ylim=(sheet.height, 0))
        axes.axis("off")

        def write(x: float, y: float, text: str, size: int, **style: Any) -> None:
            axes.text(x, y, text, fontsize=0.72 * size, va="baseline", parse_math=False, **{"color": INK, **style})

        for line, y in _heading(sheet):
            write(MARGIN, y, line, HEADING, fontweight="bold")
        for panel in sheet.panels:
            wide, high = sheet.panel
            extent = (panel.x, panel.x + wide, panel.y + high, panel.y)
            axes.imshow(panel.pixels, extent=extent, interpolation="antialiased", aspect="auto")
            axes.add_patch(Rectangle((panel.x, panel.y), wide, high, fill=False, ec=INK, alpha=0.2, lw=0.7))
            write(panel.x, panel.y - 7, panel.word, WORD)
        for line, y in _note(sheet):
            write(MARGIN, y, line, NOTE, color=QUIET)
        axes.set(xlim=(0, sheet.width), ylim=(sheet.height, 0))
        content = BytesIO()
        figure.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    return content.getvalue()


def _heading(sheet: Sheet) -> Iterator[tuple[str, float]]:
    return ((line, MARGIN + HEADING * (0.9 + 1.4 * at)) for at, line in enumerate(sheet.heading))


def _note(sheet: Sheet) -> Iterator[tuple[str, float]]:
    last = len(sheet.note) - 1
    return ((line, sheet.height - MARGIN + 2 - 1.4 * NOTE * (last - at)) for at, line in enumerate(sheet.note))


def _cut(word: str, width: float, size: float) -> str:
    room = max(2, int(width / size / LETTER))
    return word if cells(word) <= room else fitted(word, room - 1).rstrip() + "…"


def _one_line(text: str) -> str:
    """In letters that stand alone, without what fonts have no picture of: line ends and other controls."""
    return "".join("�" if unicodedata.category(letter) == "Cc" else letter for letter in readable(text))


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
