"""The attention matrix in a terminal: in colour where there is colour, in shades of grey blocks elsewhere."""

import os
from bisect import bisect_right

from rich.text import Text

from jumok.analysis.draw.style import DARK, LIGHT, cells, colour, fitted, readable
from jumok.analysis.maps.attention_map import AttentionMap

SHADES = " ░▒▓█"
BORDERS = (0.075, 0.325, 0.575, 0.825)
"""Shares of the largest weight at which the next shade begins."""
LEAST, LONGEST = 3, 24
"""Columns of a terminal that a column of the map and a word at its side take."""
JOINERS = "\u200c\u200d"
"""Take no room, and letters of Persian, Hindi or emoji mean something else without them."""
SAID = 3
"""Source words named for each target word where there is no room for the matrix."""


def terminal_map(attention: AttentionMap, *, width: int = 100, plain: bool = False) -> Text:
    """Source words along the top, a row for every target word; averaged over layers and heads.

    Columns are as wide as their words where that fits, else numbered, and where even numbers do not fit, each target
    word is followed by the words it looked at most. Below a map in shades stands what they mean.
    """
    sources = [one_line(word) for word in attention.source]
    label = min(LONGEST, max((cells(one_line(word)) for word in attention.target), default=0))
    room = width - label - 2
    columns = [max(LEAST, cells(word)) for word in sources]
    if sum(columns) + len(columns) <= room + 1:
        return _matrix(attention, sources, columns, label, plain)
    numbers = [str(number) for number in range(1, len(columns) + 1)]
    columns = [max(LEAST, len(number)) for number in numbers]
    if sum(columns) + len(columns) > room + 1:
        return _list(attention, label)
    legend = "  ".join(f"{number} {word}" for number, word in zip(numbers, sources, strict=True))
    return _matrix(attention, numbers, columns, label, plain) + Text(f"\n{legend}", style="dim")


def _matrix(attention: AttentionMap, heads: list[str], columns: list[int], label: int, plain: bool) -> Text:
    weights = attention.mean().detach().float()
    most = float(weights.max()) if weights.numel() else 1.0
    lines = [Text(" " * (label + 2) + " ".join(map(fitted, heads, columns)))]
    for word, row in zip(attention.target, weights.tolist(), strict=True):
        shaded = [_cell(weight, most, size, plain) for weight, size in zip(row, columns, strict=True)]
        lines.append(Text(_label(word, label) + "  ") + Text(" ").join(shaded))
    if plain and weights.numel():
        lines.append(Text(" " * (label + 2) + scale_line(most)))
    return Text("\n").join(lines)


def shade(share: float) -> str:
    """The shade of a weight, given as its share of the largest one."""
    return SHADES[bisect_right(BORDERS, share)]


def scale_line(most: float) -> str:
    """What the shades stand for, in percent, where the largest weight is `most`."""
    percents = [100 * most * border for border in (*BORDERS, 1.0)]
    ends = [f"{percent:.2g}" if percent < 9.95 else f"{percent:.0f}" for percent in percents]
    return "  ".join(f"{SHADES[at + 1]} {ends[at]}–{ends[at + 1]}%" for at in range(len(BORDERS)))


def _list(attention: AttentionMap, label: int) -> Text:
    weights = attention.mean().detach().float()
    top = weights.topk(min(SAID, len(attention.source)), -1)
    lines = []
    for word, values, places in zip(attention.target, top.values.tolist(), top.indices.tolist(), strict=True):
        line = Text(_label(word, label) + "  ")
        for value, place in zip(values, places, strict=True):
            line.append(f"{one_line(attention.source[place])} ").append(f"{value:.2f}  ", style="dim")
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def _cell(weight: float, most: float, size: int, plain: bool) -> Text:
    share = weight / (most or 1.0)
    if plain:
        return Text(shade(share) * size)
    stops = DARK if _dark() else LIGHT
    said = f"{100 * weight:.0f}".center(size) if weight >= 0.095 else " " * size
    ink = "#10151d" if (share > 0.6) == _dark() else "#ffffff"
    return Text(said, style=f"{ink} on {colour(share, stops)}")


def _dark() -> bool:
    """Whether the terminal is dark: some say it in COLORFGBG, and most are."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return ground not in ("7", "15")


def _label(word: str, width: int) -> str:
    """Right-aligned, cut with an ellipsis if it is too long."""
    word = one_line(word)
    if cells(word) > width:
        word = fitted(word, width - 1).rstrip() + "…"
    return " " * (width - cells(word)) + word


def one_line(word: str) -> str:
    """The word in letters with a width of their own; what would move the cursor or ring the bell is shown as �."""
    return "".join(
        letter if letter.isprintable() or letter in JOINERS else " " if letter.isspace() else "�"
        for letter in readable(word)
    )
