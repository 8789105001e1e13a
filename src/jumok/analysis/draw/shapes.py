"""A picture as a list of shapes: each kind of picture is laid out once, then written as SVG, PNG or PDF.

Matplotlib writes PNG and PDF; SVG needs no package, and its letters are drawn by whoever shows it. One unit is 1/100
inch, and y grows downwards.
"""

import logging
import re
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from html import escape
from io import BytesIO
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from jumok.analysis.draw.fonts import fonts_for
from jumok.analysis.draw.style import (
    DARK,
    LIGHT,
    LIGHT_COLOURS,
    Colour,
    Shade,
    css_colour,
    css_variables,
    light_hex,
    weight_pixels,
)
from jumok.analysis.maps.source_layout import PNG_URL, png_bytes
from jumok.errors import ArgumentError, FontError, MissingExtraError

UNITS = 100  # to an inch
DPI = 200
POINTS = 72 / UNITS
JPEG_QUALITY = 88
"""No loss is visible at the size of a panel, even enlarged twice."""
KOREAN = "Pretendard, 'Noto Sans KR', 'Noto Sans CJK KR', 'Apple SD Gothic Neo', 'Malgun Gothic'"
FONT = f"{KOREAN}, 'Noto Sans Arabic', sans-serif"

Place = tuple[float, float]
Anchor = Literal["start", "middle", "end"]


class Rectangle(NamedTuple):
    """A rectangle; `hint` appears when a reader points at it in an SVG."""

    x: float
    y: float
    width: float
    height: float
    fill: Colour
    radius: float = 0.0
    hint: str = ""


class Cells(NamedTuple):
    """Square cells in the colours of their weights, given as shares of the largest; without hints, one image."""

    x: float
    y: float
    size: float
    shares: Float[np.ndarray, "row column"]
    hints: Sequence[Sequence[str]] | None


class Photo(NamedTuple):
    """An image with a thin frame."""

    x: float
    y: float
    width: float
    height: float
    pixels: UInt8[np.ndarray, "high wide 3"]
    hint: str = ""


class Line(NamedTuple):
    """Points joined by straight lines."""

    points: Sequence[Place]
    colour: Colour
    width: float = 1.0
    hint: str = ""


class Area(NamedTuple):
    """A polygon."""

    points: Sequence[Place]
    fill: Colour
    opacity: float = 1.0
    rim: Colour = "none"
    hint: str = ""


class Disc(NamedTuple):
    """A circle with a rim."""

    x: float
    y: float
    radius: float
    fill: Colour
    rim: Colour
    hint: str = ""


class Label(NamedTuple):
    """A text on its baseline, turned counterclockwise by `angle` degrees."""

    x: float
    y: float
    text: str
    size: float
    colour: Colour = "ink"
    anchor: Anchor = "start"
    bold: bool = False
    angle: int = 0


Shape = Rectangle | Cells | Photo | Line | Area | Disc | Label


class Drawing(NamedTuple):
    """Shapes on paper, in the order they are drawn."""

    width: float
    height: float
    shapes: Sequence[Shape]
    name: str = ""
    """For readers who hear a page instead of seeing it."""


def svg_text(drawings: Sequence[Drawing], *, style: Literal["light", "page", "both"] = "light") -> str:
    """Write pictures one below the other as SVG.

    Colours are "light", or follow the variables of the "page" the picture is part of, or with "both" the picture
    itself brings variables for light and dark screens.
    """
    colour = light_hex if style == "light" else css_colour
    width, height = max(drawing.width for drawing in drawings), sum(drawing.height for drawing in drawings)
    size = f'width="{width:.0f}" height="{height:.0f}"'
    name = f' role="img" aria-label="{safe(drawings[0].name)}"' if drawings[0].name else ""
    sheet = f"<style>{css_variables('.jumok-picture')}</style>" if style == "both" else ""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg"{name} class="jumok-picture" {size} '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" fill="{colour("ink")}">{sheet}',
        f'<rect {size} fill="{colour("paper")}"/>',
    ]
    for number, drawing in enumerate(drawings):
        top = sum(above.height for above in drawings[:number])
        parts += [f'<g transform="translate(0 {top:.0f})">'] if number else []
        parts += [element for shape in drawing.shapes for element in _elements(shape, colour, both=style == "page")]
        parts += ["</g>"] if number else []
    return "\n".join([*parts, "</svg>", ""])


def _elements(shape: Shape, colour: Callable[[Colour], str], *, both: bool) -> Iterator[str]:
    match shape:
        case Rectangle(x, y, width, height, fill, radius, hint):
            corner = f' rx="{radius:g}"' if radius else ""
            box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{corner}'
            yield _with_hint(f'rect {box} fill="{colour(fill)}"', hint)
        case Cells():
            yield from _cell_elements(shape, colour, both=both)
        case Photo(x, y, width, height, pixels, hint):
            box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
            yield _with_hint(f'image {box} href="{image_url(pixels)}"', hint)
            yield f'<rect {box} fill="none" stroke="{colour("ink")}" stroke-opacity="0.2"/>'
        case Line(points, stroke, width, hint):
            drawn = f'stroke="{colour(stroke)}" stroke-width="{width:.2f}" stroke-linecap="round"'
            yield _with_hint(f'polyline points="{_svg_points(points)}" fill="none" {drawn}', hint)
        case Area(points, fill, opacity, rim, hint):
            drawn = f'fill="{colour(fill)}" opacity="{opacity:g}" stroke="{colour(rim)}"'
            yield _with_hint(f'polygon points="{_svg_points(points)}" {drawn}', hint)
        case Disc(x, y, radius, fill, rim, hint):
            drawn = f'fill="{colour(fill)}" stroke="{colour(rim)}" stroke-width="1.5"'
            yield _with_hint(f'circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {drawn}', hint)
        case Label(x, y, text, size, fill, anchor, bold, angle):
            turn = f' transform="rotate({-angle} {x:.1f} {y:.1f})"' if angle else ""
            weight = ' font-weight="600"' if bold else ""
            drawn = f'font-size="{size:g}" fill="{colour(fill)}" text-anchor="{anchor}" pointer-events="none"'
            yield f'<text x="{x:.1f}" y="{y:.1f}" {drawn}{weight}{turn}>{safe(text)}</text>'


def _cell_elements(cells: Cells, colour: Callable[[Colour], str], *, both: bool) -> Iterator[str]:
    rows, columns = cells.shares.shape
    if cells.hints is None:
        box = f'x="{cells.x:.1f}" y="{cells.y:.1f}" width="{cells.size * columns:.1f}"'
        box += f' height="{cells.size * rows:.1f}" preserveAspectRatio="none" style="image-rendering: pixelated"'
        ramps = (('class="on-light" ', LIGHT), ('class="on-dark" ', DARK)) if both else (("", LIGHT),)
        for name, stops in ramps if cells.shares.size else ():
            image = b64encode(png_bytes(weight_pixels(cells.shares, stops))).decode()
            yield f'<image {name}{box} href="{PNG_URL}{image}"/>'
        return
    gap, corner = (2, 3) if cells.size > 20 else (1, 2)
    box = f'width="{cells.size - gap:.1f}" height="{cells.size - gap:.1f}" rx="{corner}"'
    for row, column in np.ndindex(rows, columns):
        place = f'x="{cells.x + cells.size * column:.1f}" y="{cells.y + cells.size * row:.1f}"'
        fill = colour(Shade(float(cells.shares[row, column])))
        yield _with_hint(f'rect {place} {box} fill="{fill}"', cells.hints[row][column])


def _with_hint(opening: str, hint: str) -> str:
    name = opening.partition(" ")[0]
    return f"<{opening}><title>{safe(hint)}</title></{name}>" if hint else f"<{opening}/>"


def _svg_points(points: Sequence[Place]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def safe(text: str) -> str:
    """Escape a text for XML; characters that XML cannot hold become �."""
    return escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text))


def image_url(pixels: UInt8[np.ndarray, "high wide 3"]) -> str:
    """Encode an image as a data URL: PNG, or JPEG if that is smaller and Pillow is installed.

    A photo takes a tenth as a JPEG, a drawing less than half as a PNG.
    """
    png, jpeg = png_bytes(pixels), _jpeg_bytes(pixels)
    if jpeg is None or len(png) <= len(jpeg):
        return PNG_URL + b64encode(png).decode()
    return "data:image/jpeg;base64," + b64encode(jpeg).decode()


def _jpeg_bytes(pixels: UInt8[np.ndarray, "high wide 3"]) -> bytes | None:
    try:
        from PIL import Image
    except ImportError:
        return None
    content = BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=JPEG_QUALITY, subsampling=0, optimize=True)
    return content.getvalue()


def picture_bytes(drawings: Sequence[Drawing], kind: str) -> bytes:
    """Write pictures one below the other as a "png" or "pdf", with fonts that have all of their letters."""
    width, height = max(drawing.width for drawing in drawings), sum(drawing.height for drawing in drawings)
    labels = [shape.text for drawing in drawings for shape in drawing.shapes if isinstance(shape, Label)]
    fonts = _fonts(labels)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if max(width, height) * DPI / UNITS >= 2**16:
        raise ArgumentError(
            f"a picture of {width / UNITS:.0f} × {height / UNITS:.0f} inches is too large; "
            "choose fewer layers or heads, or save as .html"
        )
    with rc_context({"font.family": fonts, "pdf.fonttype": 42}):
        figure = Figure(figsize=(width / UNITS, height / UNITS), dpi=DPI, facecolor="white")
        top = 0.0
        for drawing in drawings:
            box = (0, 1 - (top + drawing.height) / height, drawing.width / width, drawing.height / height)
            axes = figure.add_axes(box)
            axes.axis("off")
            for order, shape in enumerate(drawing.shapes):
                _plot(axes, shape, order + 1)
            axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
            top += drawing.height
        content = BytesIO()
        figure.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    return content.getvalue()


def _fonts(texts: Sequence[str]) -> list[str]:
    try:
        from matplotlib import __version__, ft2font
    except ImportError as missing:
        raise MissingExtraError("matplotlib", "plot", "drawing") from missing
    for name in ("fontTools.subset", "matplotlib.font_manager"):  # they report tables left out and faces not found
        logging.getLogger(name).setLevel(logging.ERROR)
    fonts = fonts_for(texts)
    right_to_left = any(unicodedata.bidirectional(letter) in ("R", "AL") for text in texts for letter in text)
    if right_to_left and not hasattr(ft2font, "__libraqm_version__"):
        raise FontError(
            f"matplotlib {__version__} cannot join Arabic letters or write from right to left; install matplotlib 3.11 "
            "or newer, or save as .svg or .html, whose letters the browser draws"
        )
    return fonts


def _plot(axes: Any, shape: Shape, order: int) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch, Polygon

    drawn: dict[str, Any]
    match shape:
        case Rectangle(x, y, width, height, fill, radius):
            corners = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
            box = FancyBboxPatch((x, y), width, height, boxstyle=corners, fc=light_hex(fill), ec="none", zorder=order)
            axes.add_patch(box)
        case Cells():
            _plot_cells(axes, shape, order)
        case Photo(x, y, width, height, pixels):
            extent = (x, x + width, y + height, y)
            axes.imshow(pixels, extent=extent, interpolation="antialiased", aspect="auto", zorder=order)
            frame = {"color": LIGHT_COLOURS["ink"], "alpha": 0.2, "lw": 0.7, "zorder": order}
            axes.plot([x, x + width, x + width, x, x], [y, y, y + height, y + height, y], **frame)
        case Line(points, colour, width):
            drawn = {"color": light_hex(colour), "lw": width * POINTS, "solid_capstyle": "round", "zorder": order}
            axes.plot(*zip(*points, strict=True) if points else ([], []), **drawn)
        case Area(points, fill, opacity, rim):
            drawn = {"fc": light_hex(fill), "ec": light_hex(rim), "alpha": opacity, "lw": POINTS, "zorder": order}
            axes.add_patch(Polygon(points, **drawn))
        case Disc(x, y, radius, fill, rim):
            drawn = {"fc": light_hex(fill), "ec": light_hex(rim), "lw": 1.5 * POINTS, "zorder": order}
            axes.add_patch(Circle((x, y), radius, **drawn))
        case Label(x, y, text, size, colour, anchor, bold, angle):
            axes.text(
                x,
                y,
                text,
                fontsize=size * POINTS,
                color=light_hex(colour),
                ha={"start": "left", "middle": "center", "end": "right"}[anchor],
                va="baseline",
                fontweight="bold" if bold else "normal",
                rotation=angle,
                rotation_mode="anchor",
                parse_math=False,
                zorder=order,
            )


def _plot_cells(axes: Any, cells: Cells, order: int) -> None:
    rows, columns = cells.shares.shape
    right, bottom = cells.x + cells.size * columns, cells.y + cells.size * rows
    if cells.shares.size:
        extent = (cells.x, right, bottom, cells.y)
        pixels = weight_pixels(cells.shares)
        axes.imshow(pixels, extent=extent, interpolation="nearest", aspect="auto", zorder=order)
    if cells.size > 10:  # white lines between the cells, thin enough not to hide them
        lines: dict[str, Any] = {"color": "white", "linewidth": 1.6 if cells.size > 20 else 0.8, "zorder": order}
        axes.vlines(cells.x + cells.size * np.arange(columns + 1), cells.y, bottom, **lines)
        axes.hlines(cells.y + cells.size * np.arange(rows + 1), cells.x, right, **lines)
