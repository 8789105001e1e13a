"""The drawing of a graph's map: where every line, disc and word goes, before it is an svg or a picture.

The node stands in the middle, those it looked at in the last layer around it from the top clockwise, the most first;
further out, small, what these looked at in the layer before. Lines are as thick and dark as their weight is against the
largest, and all are paler where even that is small.
"""

import math
from typing import NamedTuple

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.colours import INK, LIGHT, QUIET, colour
from jumok.analysis.graph_rows import Row, Seen, row_of
from jumok.analysis.nodes import Nodes
from jumok.analysis.width import cells

PAPER = "#ffffff"
MOST, MOST_BELOW = 16, 3
"""Nodes drawn around the middle, and around each of these."""
DISC, SMALL, CENTRE = 21.0, 7.0, 27.0
MARGIN, HEAD, FOOT = 26.0, 62.0, 34.0


class Line(NamedTuple):
    """From one point to another."""

    x1: float
    y1: float
    x2: float
    y2: float
    width: float
    colour: str
    hint: str


class Disc(NamedTuple):
    """A node; with a `rim` where it is one."""

    x: float
    y: float
    radius: float
    fill: str
    rim: str
    hint: str


class Words(NamedTuple):
    """A text, anchored at its start, middle or end; on a `patch` of paper it can be read on a line."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: str = "middle"
    bold: bool = False
    patch: bool = False


class Scene(NamedTuple):
    """Everything to draw, lines first."""

    width: float
    height: float
    lines: list[Line]
    discs: list[Disc]
    words: list[Words]


def scene_of(attention: AttentionMap) -> Scene:
    """Lay out the nodes and write at each what it is."""
    row = row_of(attention)
    ring, rest = row.others[:MOST], row.others[MOST:]
    below = [_below(attention, one) for one in ring]
    radius = max(138.0, len(ring) * 2.45 * DISC / math.pi)
    outer = 96.0 if any(below) else 0.0
    reach = radius + outer + 44
    width, height = max(2 * (reach + MARGIN), 520.0), 2 * reach + HEAD + FOOT
    middle = (width / 2, HEAD + reach)
    scene = Scene(width, height, [], [], [])
    ink = _strength(max((one.weight for one in (*row.others, *row.itself)), default=1.0))
    for number, (one, further) in enumerate(zip(ring, below, strict=True)):
        angle = 2 * math.pi * number / len(ring) - math.pi / 2
        spread = min(2 * math.pi / len(ring) * 0.78, 0.9)
        at = _at(middle, radius, angle)
        _small(scene, one, further, middle, radius + outer, angle, spread, at)
        _neighbour(scene, row, one, middle, radius, angle, ink)
    _centre(scene, attention, row, middle, ink)
    _title(scene, attention, rest, small=bool(outer))
    return scene


def _below(attention: AttentionMap, one: Seen) -> list[Seen]:
    """What a neighbour looked at in the layer before the last, itself left out."""
    if len(attention.layer_names) < 2 or one.place >= len(attention.target):
        return []
    return row_of(attention, one.place, layer=-2).others[:MOST_BELOW]


def _neighbour(
    scene: Scene, row: Row, one: Seen, middle: tuple[float, float], radius: float, angle: float, ink: float
) -> None:
    x, y = _at(middle, radius, angle)
    share = one.weight * ink
    hint = f"{row.name} ← {one.name}: {one.weight:.3f}"
    scene.lines.append(Line(*middle, x, y, 1.2 + 7 * share, colour(0.18 + 0.82 * share), hint))
    scene.discs.append(Disc(x, y, DISC, colour(share), colour(0.35 + 0.65 * share), f"{hint}, class {one.label}"))
    scene.words.extend(_inside(x, y, one, dark=share > 0.45))
    wx, wy = _at(middle, CENTRE + (radius - DISC - CENTRE) * 0.56, angle)
    digits = 2 if one.weight >= 0.095 or one.weight < 0.0005 else 3
    scene.words.append(Words(wx, wy + 4, f"{one.weight:.{digits}f}", 11.5, INK, patch=True))


def _small(
    scene: Scene,
    one: Seen,
    further: list[Seen],
    middle: tuple[float, float],
    radius: float,
    angle: float,
    spread: float,
    at: tuple[float, float],
) -> None:
    """What a neighbour looked at."""
    top = max((other.weight for other in further), default=1.0) or 1.0
    for number, other in enumerate(further):
        turn = 0.0 if len(further) == 1 else spread * (number / (len(further) - 1) - 0.5)
        x, y = _at(middle, radius, angle + turn)
        share = other.weight / top
        hint = f"{one.name} ← {other.name}: {other.weight:.3f}, class {other.label}"
        scene.lines.append(Line(*at, x, y, 0.7 + 2.6 * other.weight, colour(0.12 + 0.6 * share), hint))
        scene.discs.append(Disc(x, y, SMALL, colour(other.weight), colour(0.2 + 0.5 * share), hint))
        side = math.cos(angle + turn)
        anchor = "start" if side > 0.4 else "end" if side < -0.4 else "middle"
        nx, ny = _at(middle, radius + SMALL + (4 if anchor != "middle" else 10), angle + turn)
        scene.words.append(Words(nx, ny + 3.5, _short(other.name, 8), 9, QUIET, anchor))


def _centre(scene: Scene, attention: AttentionMap, row: Row, middle: tuple[float, float], ink: float) -> None:
    x, y = middle
    own = sum(one.weight for one in row.itself)
    rim = colour(0.18 + 0.82 * own * ink)
    scene.discs.append(Disc(x, y, CENTRE + 5, PAPER, rim, attention.title))
    scene.discs.append(Disc(x, y, CENTRE, INK, INK, attention.title))
    scene.words.append(Words(x, y + (1 if row.itself else 5), _short(row.name, 6), 14, PAPER, bold=True))
    if row.itself:
        scene.words.append(Words(x, y + 14, f"itself {own:.2f}", 8.5, LIGHT[1]))


def _title(scene: Scene, attention: AttentionMap, rest: list[Seen], *, small: bool) -> None:
    names = attention.layer_names
    outer = f"; small: what these looked at in layer {names[-2]}" if small else ""
    verdict = " · wrong" if isinstance(attention.place, Nodes) and attention.place.wrong else ""
    said = f"whom it looked at in layer {names[-1]}{outer}{verdict}"
    scene.words.append(Words(MARGIN, 32, attention.title, 16, INK, "start", bold=True))
    scene.words.append(Words(MARGIN, 51, said, 12, QUIET, "start"))
    if rest:
        more = f"and {len(rest)} more, together {sum(one.weight for one in rest):.2f}"
        scene.words.append(Words(MARGIN, scene.height - 18, more, 12, QUIET, "start"))


def _inside(x: float, y: float, one: Seen, *, dark: bool) -> list[Words]:
    """Name and class of a node, as much of them as fits into its disc."""
    size = 12.0 if cells(one.name) <= 5 else 9.5
    return [
        Words(x, y + 1, _short(one.name, 7), size, PAPER if dark else INK, bold=True),
        Words(x, y + 12, _short(one.label, 8), 8.5, LIGHT[1] if dark else QUIET),
    ]


def _strength(largest: float) -> float:
    """What to multiply weights by for a shade: the largest is dark, but pale where all are looked at a little."""
    return (0.35 + 0.65 * math.sqrt(largest)) / largest if largest else 1.0


def _short(name: str, most: int) -> str:
    if cells(name) <= most:
        return name
    while name and cells(name) > most - 1:
        name = name[:-1]
    return f"{name}…"


def _at(middle: tuple[float, float], radius: float, angle: float) -> tuple[float, float]:
    return middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)
