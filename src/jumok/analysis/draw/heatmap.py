"""The attention matrix as a PNG or PDF, drawn by matplotlib with fonts that have its letters."""

import logging
import unicodedata
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from jumok.analysis.draw.fonts import fonts_for
from jumok.analysis.draw.heatmap_svg import LONG
from jumok.analysis.draw.style import INK, LIGHT, QUIET, cells, darkest, readable, upright, wrapped
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.errors import ArgumentError, FontError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160
LARGE_CELL, CELL, SMALL_CELL = 0.48, 0.30, 0.14  # inches
TITLE, LINE = 10.0, 0.24
"""Size of the letters of a title in points, and from one of its lines to the next in inches."""
LONGEST_SIDE = 24.0
"""Inches of the matrix; with more words its cells become smaller, and only every second, third, ... word is written."""
LABEL, SMALL_LABEL = 9.0, 6.5
LETTER = 0.62 / 72
"""Width of a letter of one point, in inches; Hangul and Chinese letters are two wide."""
LABELLED = 40
"""Words a side up to which the small maps of a grid say their words."""


def heatmap_picture(attention: AttentionMap, kind: str, *, title: str = "", grid: bool = False) -> bytes:
    """The bytes of a "png" or "pdf": the average of all layers and heads, or with `grid` each of them by itself."""
    fonts = _fonts(attention, title)
    from matplotlib import rc_context

    logging.getLogger("fontTools.subset").setLevel(logging.ERROR)  # it tells of every table it leaves out

    with rc_context({"font.family": fonts, "svg.hashsalt": "jumok", "pdf.fonttype": 42}):
        figure = _grid(attention, title) if grid else _single(attention, title)
        content = BytesIO()
        figure.savefig(content, format=kind, dpi=DPI, metadata={"CreationDate": None} if kind == "pdf" else None)
    return content.getvalue()


def _fonts(attention: AttentionMap, title: str) -> list[str]:
    texts = [*attention.source, *attention.target, title, *attention.layer_names, *attention.head_names]
    fonts = fonts_for([*map(readable, texts), "0123456789."])
    from matplotlib import __version__, ft2font

    runs_left = any(unicodedata.bidirectional(letter) in ("R", "AL") for text in texts for letter in text)
    if runs_left and not hasattr(ft2font, "__libraqm_version__"):
        raise FontError(
            f"matplotlib {__version__} cannot join Arabic letters or write from right to left; install matplotlib 3.11 "
            "or newer, or save as .svg or .html, whose letters the browser draws"
        )
    return fonts


def _single(attention: AttentionMap, title: str) -> "Figure":
    weights = attention.mean().detach().float().cpu().numpy()
    rows, columns = weights.shape
    cell = min(_cell(max(rows, columns, 1)), LONGEST_SIDE / max(rows, columns, 1))
    text = LABEL if cell > 0.2 else SMALL_LABEL
    left = _longest(attention.target, text) + 0.25
    lean = _leaning(attention.source, text)
    width = max(left + cell * columns + max(0.25, lean - cell / 2), left + 1.25)
    heading = wrapped(title, max(12, int((width - 0.32) / (TITLE * LETTER)))) if title else []
    width = max(width, *(_longest((line,), TITLE) + 0.32 for line in heading), 0)
    top = lean + 0.25 + (0.1 + LINE * len(heading) if heading else 0.0)
    height = top + cell * rows + 0.5
    figure = _new_figure(width, height)
    most = darkest(weights)
    panel = _panel(figure, weights, most, (left, top, cell))
    _columns(panel, attention.source, text, cell)
    _rows(panel, attention.target, text, cell)
    _title(figure, heading)
    _legend(figure, left, most)
    return figure


def _cell(words: int) -> float:
    """Inches of a cell: few words have larger ones, so that a short text is not lost on its paper."""
    return max(CELL, min(LARGE_CELL, 2.4 / words)) if words <= LONG else SMALL_CELL


def _grid(attention: AttentionMap, title: str) -> "Figure":
    weights = attention.weights.detach().float().cpu().numpy()
    layers, heads, rows, columns = weights.shape
    labelled = max(rows, columns) <= LABELLED
    cell = SMALL_CELL if labelled else 2.2 / max(rows, columns)
    left = 0.25 + (_longest(attention.target, SMALL_LABEL) if labelled else 0.0)
    lean = _leaning(attention.source, SMALL_LABEL) if labelled else 0.0
    top = 0.4 + lean + (0.35 if title else 0.0)
    across, down = max(cell * columns + 0.22, 0.95), cell * rows + 0.36
    width = max(left + heads * across + lean, _longest((title,), TITLE) * 1.1 + 0.4, left + 1.6)
    figure = _new_figure(width, top + layers * down + 0.35)
    most = darkest(weights)
    for (layer, head), _ in np.ndenumerate(np.empty((layers, heads))):
        place = (left + head * across, top + layer * down, cell)
        panel = _panel(figure, weights[layer, head], most, place)
        name = f"layer {attention.layer_names[layer]} · head {attention.head_names[head]}"
        panel.annotate(name, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=6.5, color=QUIET)
        if labelled and layer == 0:
            _columns(panel, attention.source, SMALL_LABEL, cell, above=13)
        if labelled and head == 0:
            _rows(panel, attention.target, SMALL_LABEL, cell)
    _title(figure, [title] if title else [])
    _legend(figure, left, most)
    return figure


def _panel(figure: "Figure", weights: np.ndarray, most: float, place: tuple[float, float, float]) -> Any:
    """The cells, their upper left corner at (left, top) inches and each `cell` wide."""
    from matplotlib.colors import LinearSegmentedColormap

    left, top, cell = place
    rows, columns = weights.shape
    width, height = figure.get_size_inches()
    box = (left / width, 1 - (top + cell * rows) / height, cell * columns / width, cell * rows / height)
    panel = figure.add_axes(box)
    ramp = LinearSegmentedColormap.from_list("weights", LIGHT)
    if weights.size:
        panel.imshow(weights, cmap=ramp, vmin=0, vmax=most, aspect="auto", interpolation="nearest")
    panel.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    if cell > 0.1:  # white lines between the cells, thin enough to leave them whole
        lines: dict[str, Any] = {"color": "white", "linewidth": 1.6 if cell > 0.2 else 0.8}
        panel.vlines(np.arange(-0.5, columns), -0.5, rows - 0.5, **lines)
        panel.hlines(np.arange(-0.5, rows), -0.5, columns - 0.5, **lines)
    return panel


def _columns(panel: Any, words: tuple[str, ...], text: float, cell: float, above: float = 4) -> None:
    for place in range(0, len(words), _every(text, cell)):
        straight = upright(words[place])
        panel.annotate(
            _shown(words[place]),
            (place, -0.5),
            (0, above),
            textcoords="offset points",
            rotation=0 if straight else 45,
            rotation_mode="anchor",
            ha="center" if straight else "left",
            fontsize=text,
            color=INK,
            annotation_clip=False,
            parse_math=False,
        )


def _rows(panel: Any, words: tuple[str, ...], text: float, cell: float) -> None:
    for place in range(0, len(words), _every(text, cell)):
        panel.annotate(
            _shown(words[place]),
            (-0.5, place),
            (-5, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=text,
            color=INK,
            annotation_clip=False,
            parse_math=False,
        )


def _title(figure: "Figure", lines: Sequence[str]) -> None:
    width, height = figure.get_size_inches()
    for number, line in enumerate(lines):
        y = 1 - (0.28 + LINE * number) / height
        figure.text(0.16 / width, y, line, fontsize=TITLE, color=INK, parse_math=False)


def _legend(figure: "Figure", left: float, most: float) -> None:
    """From no weight to the largest there is."""
    from matplotlib.colors import LinearSegmentedColormap

    width, height = figure.get_size_inches()
    bar = figure.add_axes(((left + 0.12) / width, 0.18 / height, 0.7 / width, 0.08 / height))
    bar.imshow(np.linspace(0, 1, 64)[None], cmap=LinearSegmentedColormap.from_list("weights", LIGHT), aspect="auto")
    bar.set(xticks=[], yticks=[])
    bar.spines[:].set_visible(False)
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 7, "color": QUIET}
    bar.annotate("0", (0, 0.5), (-4, 0), "axes fraction", ha="right", **style)
    bar.annotate(f"{most:.2g}", (1, 0.5), (4, 0), "axes fraction", ha="left", **style)


def _every(text: float, cell: float) -> int:
    """Every how many words one is written, so that they do not touch."""
    return max(1, int(np.ceil(text * 1.25 / 72 / cell)))


def _new_figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise MissingExtraError("matplotlib", "plot", "drawing") from missing
    if max(width, height) * DPI >= 2**16:
        raise ArgumentError(
            f"a picture of {width:.0f} × {height:.0f} inches is too large; "
            "choose fewer layers or heads, or save as .html"
        )
    return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def _shown(word: str) -> str:
    """In letters that stand alone, without what fonts have no picture of: line ends and other controls."""
    return "".join("�" if unicodedata.category(letter) == "Cc" else letter for letter in readable(word))


def _leaning(words: tuple[str, ...], text: float) -> float:
    """Inches that the words above the columns reach up and to the right, those that lean."""
    return max(_longest(tuple(word for word in words if not upright(word)), text) * 0.71, text * LETTER)


def _longest(words: tuple[str, ...], text: float) -> float:
    return max((cells(readable(word)) for word in words), default=0) * text * LETTER
