"""The map of a text in a terminal: in colours, or in shades of block characters."""

import os
from bisect import bisect_right

from rich.text import Text

from jumok.analysis.draw.style import DARK, LIGHT, cell_width, fitted, readable, shortened, weight_colour
from jumok.analysis.maps.attention_map import AttentionMap

SHADES = " ░▒▓█"
BORDERS = (0.075, 0.325, 0.575, 0.825)
"""Shares of the largest weight where the next shade begins."""
LEAST, LONGEST = 3, 24
"""Minimum terminal columns of a column of the map, and maximum of a target word."""
JOINERS = "\u200c\u200d"
"""Characters without width that change the meaning of Persian, Hindi and emoji."""
LISTED = 3
"""Source words listed for each target word if the matrix does not fit."""


def terminal_map(attention: AttentionMap, *, width: int = 100, plain: bool = False) -> Text:
    """Draw the average over layers and heads: source words along the top, a row per target word.

    Columns are as wide as their words if that fits, otherwise numbered. If even numbers do not fit, each target word
    is followed by the source words with the largest weights. A map in shades ends with their legend.
    """
    sources = [one_line(word) for word in attention.source]
    label = min(LONGEST, max((cell_width(one_line(word)) for word in attention.target), default=0))
    room = width - label - 2
    columns = [max(LEAST, cell_width(word)) for word in sources]
    if sum(columns) + len(columns) <= room + 1:
        return _matrix(attention, sources, columns, label, plain)
    numbers = [str(number) for number in range(1, len(columns) + 1)]
    columns = [max(LEAST, len(number)) for number in numbers]
    if sum(columns) + len(columns) > room + 1:
        return _list(attention, label)
    legend = "  ".join(f"{number} {word}" for number, word in zip(numbers, sources, strict=True))
    return _matrix(attention, numbers, columns, label, plain) + Text(f"\n{legend}", style="dim")


def _matrix(attention: AttentionMap, headings: list[str], columns: list[int], label: int, plain: bool) -> Text:
    weights = attention.mean().detach().float()
    most = float(weights.max()) if weights.numel() else 1.0
    lines = [Text(" " * (label + 2) + " ".join(map(fitted, headings, columns)))]
    for word, row in zip(attention.target, weights.tolist(), strict=True):
        shaded = [_cell(weight, most, size, plain) for weight, size in zip(row, columns, strict=True)]
        lines.append(Text(_label(word, label) + "  ") + Text(" ").join(shaded))
    if plain and weights.numel():
        lines.append(Text(" " * (label + 2) + scale_line(most)))
    return Text("\n").join(lines)


def shade(share: float) -> str:
    """Return the shade of a weight, given as its share of the largest one."""
    return SHADES[bisect_right(BORDERS, share)]


def scale_line(most: float) -> str:
    """Return the legend of the shades in percent, if the largest weight is `most`."""
    percents = [100 * most * border for border in (*BORDERS, 1.0)]
    ends = [f"{percent:.2g}" if percent < 9.95 else f"{percent:.0f}" for percent in percents]
    return "  ".join(f"{SHADES[number + 1]} {ends[number]}–{ends[number + 1]}%" for number in range(len(BORDERS)))


def _list(attention: AttentionMap, label: int) -> Text:
    weights = attention.mean().detach().float()
    top = weights.topk(min(LISTED, len(attention.source)), -1)
    lines = []
    for word, values, sources in zip(attention.target, top.values.tolist(), top.indices.tolist(), strict=True):
        line = Text(_label(word, label) + "  ")
        for value, source in zip(values, sources, strict=True):
            line.append(f"{one_line(attention.source[source])} ").append(f"{value:.2f}  ", style="dim")
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def _cell(weight: float, most: float, size: int, plain: bool) -> Text:
    share = weight / (most or 1.0)
    if plain:
        return Text(shade(share) * size)
    stops = DARK if _dark() else LIGHT
    percent = f"{100 * weight:.0f}".center(size) if weight >= 0.095 else " " * size
    ink = "#10151d" if (share > 0.6) == _dark() else "#ffffff"
    return Text(percent, style=f"{ink} on {weight_colour(share, stops)}")


def _dark() -> bool:
    """Whether the terminal is dark: most are, and some set COLORFGBG."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return background not in ("7", "15")


def _label(word: str, width: int) -> str:
    """Align a word to the right, cut if it is too long."""
    word = shortened(one_line(word), width)
    return " " * (width - cell_width(word)) + word


def one_line(word: str) -> str:
    """Make a word readable on one line; characters that control the terminal become �."""
    return "".join(
        letter if letter.isprintable() or letter in JOINERS else " " if letter.isspace() else "�"
        for letter in readable(word)
    )
