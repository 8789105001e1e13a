"""The attention matrix as an SVG picture: target words down the side, source words along the top.

Letters are left to whoever shows the picture, so Hangul needs no font here and Arabic runs from right to left.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from html import escape
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jumok.analysis.draw.style import (
    DARK,
    INK,
    LIGHT,
    QUIET,
    cells,
    colour,
    darkest,
    mixed,
    png_bytes,
    readable,
    shades,
    upright,
)
from jumok.analysis.maps.attention_map import AttentionMap

CELL, GRID_CELL, SMALL_CELL = 28, 20, 15
TEXT, SMALL_TEXT = 14, 11
KOREAN = "Pretendard, 'Noto Sans KR', 'Noto Sans CJK KR', 'Apple SD Gothic Neo', 'Malgun Gothic'"
FONT = f"{KOREAN}, 'Noto Sans Arabic', sans-serif"
LONG = 60
"""Words a side beyond which cells and letters are smaller."""
MANY = 20_000
"""Cells beyond which they are one image, or browsers would be slow."""

Matrix = Float[np.ndarray, "target source"]


class Paint(NamedTuple):
    """The colours of a picture: hexadecimal, or the variables of a page that is light or dark."""

    ink: str
    quiet: str
    paper: str
    stops: tuple[str, ...]
    cell: Callable[[float], str]
    ramps: tuple[tuple[str, tuple[str, ...]], ...]
    """Of a matrix that is one image: attributes of each image that there is, and its stops."""


FIXED = Paint(INK, QUIET, "white", LIGHT, colour, (("", LIGHT),))
STOPS = tuple(f"var(--w{number})" for number in range(len(LIGHT)))
PAGE = Paint(
    "var(--ink)",
    "var(--quiet)",
    "var(--paper)",
    STOPS,
    lambda share: mixed(share, STOPS),
    (('class="on-light" ', LIGHT), ('class="on-dark" ', DARK)),
)
"""Of a page whose style sets --ink, --quiet, --paper and the colours of weights from --w0 to --w4."""


def heatmap_svg(attention: AttentionMap, title: str = "", paint: Paint = FIXED) -> str:
    """One rectangle for every pair, darker where the target word looked; averaged over layers and heads."""
    weights = attention.mean().detach().float().cpu().numpy()
    most = darkest(weights)
    short = max(weights.shape, default=0) <= LONG
    cell, text = (CELL, TEXT) if short else (SMALL_CELL, SMALL_TEXT)
    left = 16 + _longest(attention.target, text)
    leaning = _leaning(attention.source, text)
    top = 24 + leaning + (30 if title else 0)
    width = max(left + cell * len(attention.source) + leaning, 32 + _longest((title,), TEXT) * 1.08, left + 130)
    height = top + cell * len(attention.target) + 44
    parts = [
        *_names(attention.source, left, top - 8, cell, columns=True),
        *_names(attention.target, left - 8, top, cell, columns=False),
        _matrix(weights, most, left, top, cell, attention, paint),
        _legend(left, height - 24, most, paint),
    ]
    return _picture(width, height, text, title, parts, paint)


def grid_svg(attention: AttentionMap, title: str = "") -> str:
    """A small map for every layer (down) and head (across), all on one scale; words once a row and a column."""
    weights = attention.weights.detach().float().cpu().numpy()
    layers, heads, targets, sources = weights.shape
    most, labelled = darkest(weights), max(targets, sources) <= LONG
    cell = GRID_CELL if labelled else max(1.0, 240 / max(targets, sources))
    left = 16 + (_longest(attention.target, SMALL_TEXT) if labelled else 0)
    leaning = _leaning(attention.source, SMALL_TEXT) if labelled else 0.0
    top = 28 + leaning + (30 if title else 0)
    across, down = max(cell * sources + 22, 98), cell * targets + 36
    parts = []
    for layer, of_layer in enumerate(weights):
        y = top + layer * down + 16
        parts += _names(attention.target, left - 8, y, cell, columns=False) if labelled else []
        for head, one in enumerate(of_layer):
            x = left + head * across
            words = labelled and layer == 0
            parts += _names(attention.source, x, y - 6, cell, columns=True) if words else []
            name = f"layer {attention.layer_names[layer]} · head {attention.head_names[head]}"
            above = y - (leaning + 18 if words else 6)
            parts.append(f'<text x="{x:.1f}" y="{above:.1f}" fill="{QUIET}" font-size="10">{safe(name)}</text>')
            parts.append(_matrix(one, most, x, y, cell, attention if weights.size <= MANY else None))
    width = max(left + heads * across + leaning, 32 + _longest((title,), TEXT) * 1.08, left + 130)
    height = top + layers * down + 30
    parts.append(_legend(left, height - 24, most))
    return _picture(width, height, SMALL_TEXT, title, parts)


def _picture(width: float, height: float, text: int, title: str, parts: list[str], paint: Paint = FIXED) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}"'
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="{FONT}" font-size="{text}" fill="{paint.ink}">'
    )
    heading = f'<text x="16" y="24" font-weight="600" font-size="{TEXT}">{safe(title)}</text>' if title else ""
    body = [f'<rect {size} fill="{paint.paper}"/>', heading, *parts]
    return "\n".join([opening, *(part for part in body if part), "</svg>", ""])


def _names(words: tuple[str, ...], x: float, y: float, cell: float, *, columns: bool) -> list[str]:
    if not columns:
        middle = y + cell / 2 + cell * 0.18
        return [
            f'<text x="{x:.1f}" y="{middle + cell * row:.1f}" text-anchor="end">{safe(readable(word))}</text>'
            for row, word in enumerate(words)
        ]
    places = [x + cell * (column + 0.5) for column in range(len(words))]
    return [
        f'<text x="{place:.1f}" y="{y:.1f}" {_turn(word, place, y)}>{safe(readable(word))}</text>'
        for place, word in zip(places, words, strict=True)
    ]


def _turn(word: str, x: float, y: float) -> str:
    return 'text-anchor="middle"' if upright(word) else f'transform="rotate(-45 {x:.1f} {y:.1f})"'


def _matrix(
    weights: Matrix,
    most: float,
    left: float,
    top: float,
    cell: float,
    attention: AttentionMap | None = None,
    paint: Paint = FIXED,
) -> str:
    """The cells; with `attention`, each says its words and weight when pointed at."""
    if weights.size > MANY or attention is None:
        height, width = (cell * size for size in weights.shape)
        box = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none"'
        return "\n".join(
            f'<image {kind}{box} style="image-rendering: pixelated" '
            f'href="data:image/png;base64,{b64encode(png_bytes(shades(weights / most, stops))).decode()}"/>'
            for kind, stops in paint.ramps
        )
    gap, corner = (2, 3) if cell > 20 else (1, 2)
    box = f'width="{cell - gap:.0f}" height="{cell - gap:.0f}" rx="{corner}"'
    return "\n".join(
        f'<rect x="{left + cell * column:.1f}" y="{top + cell * row:.1f}" {box} fill="{paint.cell(weight / most)}">'
        f"<title>{safe(attention.target[row])} ← {safe(attention.source[column])}: {weight:.2f}</title></rect>"
        for row, line in enumerate(weights.tolist())
        for column, weight in enumerate(line)
    )


def _legend(x: float, y: float, most: float, paint: Paint = FIXED) -> str:
    """From no weight to the largest there is."""
    last = len(paint.stops) - 1
    stops = "".join(f'<stop offset="{at / last}" stop-color="{stop}"/>' for at, stop in enumerate(paint.stops))
    return (
        f'<defs><linearGradient id="weights">{stops}</linearGradient></defs>'
        f'<g font-size="10" fill="{paint.quiet}"><text x="{x:.1f}" y="{y + 8:.1f}">0</text>'
        f'<rect x="{x + 10:.1f}" y="{y:.1f}" width="70" height="8" rx="4" fill="url(#weights)"/>'
        f'<text x="{x + 86:.1f}" y="{y + 8:.1f}">{most:.2g}</text></g>'
    )


def _leaning(words: tuple[str, ...], text: int) -> float:
    """How high and how far to the right the words above the columns reach, those that lean at 45 degrees."""
    return max(_longest(tuple(word for word in words if not upright(word)), text) * 0.71, 0.62 * text)


def _longest(words: tuple[str, ...], text: int) -> float:
    return max((cells(readable(word)) for word in words), default=0) * text * 0.62


def safe(text: str) -> str:
    """As XML wants it; what XML cannot hold, such as control characters, becomes �."""
    return escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text))
