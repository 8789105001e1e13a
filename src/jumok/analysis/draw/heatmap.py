"""The map of a text as a matrix: target words down the side, source words along the top."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from jumok.analysis.draw.shapes import Cells, Drawing, Label, Rectangle, Shape
from jumok.analysis.draw.style import Shade, cell_width, largest_weight, printable, upright, wrapped
from jumok.analysis.maps.attention_map import AttentionMap

LARGE_CELL, CELL, GRID_CELL, SMALL_CELL = 46.0, 28.0, 20.0, 15.0
TITLE, TEXT, SMALL_TEXT, TINY_TEXT = 14.0, 14.0, 11.0, 10.0
LETTER = 0.62
"""Width of a letter of size 1; Hangul and Chinese letters are two wide."""
BRACKETS = 0.7
"""How many letters two angle brackets are wider than two letters."""
LONG = 60
"""Beyond this many words on a side, cells and letters are smaller."""
LONGEST_SIDE = 2400.0
"""Units of the matrix; with more words, cells become smaller, and only every second, third, ... word is written."""
MANY = 20_000
"""Beyond this many cells, they are one image; otherwise browsers would be slow."""
MARGIN, LINE = 16.0, 22.0

Matrix = Float[np.ndarray, "target source"]


def heatmap(attention: AttentionMap) -> Drawing:
    """Lay out the average over all layers and heads."""
    weights = attention.mean().detach().float().cpu().numpy()
    largest, words = largest_weight(weights), max(*weights.shape, 1)
    cell = max(CELL, min(LARGE_CELL, 230 / words)) if words <= LONG else min(SMALL_CELL, LONGEST_SIDE / words)
    size = TEXT if words <= LONG else SMALL_TEXT
    left, lean = MARGIN + 8 + _longest(attention.target, size), _lean(attention.source, size)
    width = max(left + cell * len(attention.source) + max(MARGIN, lean - cell / 2), left + 130)
    title = _title(attention.title, width)
    top = 24 + lean + LINE * len(title)
    width = max(width, 2 * MARGIN + _longest(attention.title.split() if len(title) > 1 else title, TITLE) * 1.08)
    height = top + cell * len(attention.target) + 44
    shapes = [
        *_heading(title),
        *_columns(attention.source, left, top - 8, cell, size),
        *_rows(attention.target, left - 8, top, cell, size),
        _cells(weights, largest, left, top, cell, attention if weights.size <= MANY else None),
        *_legend(left, height - 24, largest),
    ]
    return Drawing(width, height, shapes, attention.title)


def heatmap_grid(attention: AttentionMap) -> Drawing:
    """Lay out a small matrix for every layer (down) and head (across), all on one scale."""
    weights = attention.weights.detach().float().cpu().numpy()
    layers, heads, targets, sources = weights.shape
    largest, labelled = largest_weight(weights), max(targets, sources) <= LONG
    cell = GRID_CELL if labelled else max(1.0, 240 / max(targets, sources))
    left = MARGIN + 8 + (_longest(attention.target, SMALL_TEXT) if labelled else 0.0)
    lean = _lean(attention.source, SMALL_TEXT) if labelled else 0.0
    across, down = max(cell * sources + 22, 98), cell * targets + 36
    width = max(left + heads * across + lean, left + 130)
    title = _title(attention.title, width)
    top = 32 + lean + LINE * len(title)
    shapes: list[Shape] = [*_heading(title)]
    for layer, head in np.ndindex(layers, heads):
        x, y = left + head * across, top + layer * down + 16
        if labelled and head == 0:
            shapes += _rows(attention.target, left - 8, y, cell, SMALL_TEXT)
        if labelled and layer == 0:
            shapes += _columns(attention.source, x, y - 6, cell, SMALL_TEXT)
        name = f"layer {attention.layer_names[layer]} · head {attention.head_names[head]}"
        above = y - (lean + 18 if labelled and layer == 0 else 6)
        shapes.append(Label(x, above, printable(name), TINY_TEXT, "quiet"))
        named = attention if weights.size <= MANY else None
        shapes.append(_cells(weights[layer, head], largest, x, y, cell, named))
    height = top + layers * down + 30
    shapes += _legend(left, height - 24, largest)
    return Drawing(width, height, shapes, attention.title)


def _title(title: str, width: float) -> list[str]:
    return wrapped(printable(title), max(24, int((width - 2 * MARGIN) / TITLE / LETTER))) if title else []


def _heading(lines: Sequence[str]) -> list[Label]:
    return [Label(MARGIN, 24 + LINE * row, line, TITLE, bold=True) for row, line in enumerate(lines)]


def _rows(words: Sequence[str], x: float, y: float, cell: float, size: float) -> Iterator[Label]:
    middle = y + cell / 2 + size * 0.36
    for row in range(0, len(words), _every(size, cell)):
        yield Label(x, middle + cell * row, printable(words[row]), size, anchor="end")


def _columns(words: Sequence[str], x: float, y: float, cell: float, size: float) -> Iterator[Label]:
    for column in range(0, len(words), _every(size, cell)):
        place, word = x + cell * (column + 0.5), words[column]
        short = upright(word)
        yield Label(place, y, printable(word), size, anchor="middle" if short else "start", angle=0 if short else 45)


def _every(size: float, cell: float) -> int:
    """Return every how many words one is written, so that they do not touch."""
    return max(1, math.ceil(size * 1.25 / cell)) if cell < SMALL_CELL else 1


def _cells(weights: Matrix, largest: float, x: float, y: float, cell: float, named: AttentionMap | None) -> Cells:
    """Lay out the cells; with `named`, each has its words and weight as a hint."""
    hints = (
        None
        if named is None
        else [
            [f"{target} ← {source}: {weight:.2f}" for source, weight in zip(named.source, row, strict=True)]
            for target, row in zip(named.target, weights.tolist(), strict=True)
        ]
    )
    return Cells(x, y, cell, weights / largest, hints)


def _legend(x: float, y: float, largest: float) -> Iterator[Shape]:
    """Lay out the scale from 0 to the largest weight."""
    steps, step = 35, 2.0
    yield Label(x, y + 8, "0", TINY_TEXT, "quiet")
    for number in range(steps):  # each a little wider than its step, so that no light shines through
        yield Rectangle(x + 10 + step * number, y, step + (number < steps - 1), 8, Shade(number / (steps - 1)))
    yield Label(x + 16 + step * steps, y + 8, f"{largest:.2g}", TINY_TEXT, "quiet")


def _lean(words: Sequence[str], size: float) -> float:
    """Return how far the column labels reach up and to the right."""
    return max(_longest([word for word in words if not upright(word)], size) * 0.71, LETTER * size)


def _longest(words: Sequence[str], size: float) -> float:
    return max((_letters(printable(word)) for word in words), default=0.0) * size * LETTER


def _letters(word: str) -> float:
    """Return the width of a word in letters; the brackets of a tag such as >>kor<< are wider than letters."""
    return cell_width(word) + BRACKETS * (word.count("<<") + word.count(">>"))
