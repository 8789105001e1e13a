"""Drawings of a graph's map: which nodes a node attends to, as SVG, PNG, PDF and text."""

import math
from io import BytesIO
from typing import NamedTuple

from rich.text import Text

from jumok.analysis.draw.fonts import fonts_for
from jumok.analysis.draw.heatmap_svg import FONT, safe
from jumok.analysis.draw.style import INK, LIGHT, QUIET, cells, colour, fitted
from jumok.analysis.draw.terminal import one_line
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.nodes import Nodes


class Seen(NamedTuple):
    """A node that was looked at, and how much."""

    place: int
    """Which of the sources it is."""
    name: str
    label: str
    """Its class."""
    weight: float


class Row(NamedTuple):
    """What a node looked at."""

    name: str
    itself: list[Seen]
    """Its look at itself; empty where it has none."""
    others: list[Seen]


def row_of(attention: AttentionMap, target: int = 0, *, layer: int = -1) -> Row:
    """Averaged over heads; of the first node its neighbours are in it even if their weight is 0."""
    nodes = attention.place
    assert isinstance(nodes, Nodes)
    weights = attention.weights[layer, :, target].mean(0).tolist()
    seen = [
        Seen(at, name, label, weight)
        for at, (name, label, weight) in enumerate(zip(attention.source, nodes.classes, weights, strict=True))
        if weight > 0 or (target == 0 < at <= nodes.neighbours)
    ]
    others = sorted((one for one in seen if one.place != target), key=lambda one: -one.weight)
    return Row(attention.target[target], [one for one in seen if one.place == target], others)


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


POINTS = 0.72
"""Points to a unit of the drawing."""


def graph_picture(attention: AttentionMap, kind: str) -> bytes:
    """The content of a .png or .pdf file."""
    scene = scene_of(attention)
    fonts = fonts_for([words.text for words in scene.words])
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    with rc_context({"font.family": fonts}):
        figure = Figure(figsize=(scene.width / 100, scene.height / 100), dpi=200, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, scene.width), ylim=(scene.height, 0))
        axes.axis("off")
        for line in scene.lines:
            axes.plot(
                [line.x1, line.x2],
                [line.y1, line.y2],
                color=line.colour,
                lw=line.width * POINTS,
                solid_capstyle="round",
                zorder=1,
            )
        for disc in scene.discs:
            axes.add_patch(Circle((disc.x, disc.y), disc.radius, fc=disc.fill, ec=disc.rim, lw=1.5 * POINTS, zorder=2))
        for words in scene.words:
            axes.text(
                words.x,
                words.y,
                words.text,
                fontsize=words.size * POINTS,
                color=words.colour,
                zorder=3,
                ha={"start": "left", "middle": "center", "end": "right"}[words.anchor],
                va="baseline",
                fontweight="bold" if words.bold else "normal",
                parse_math=False,
                bbox={"boxstyle": "round,pad=0.25,rounding_size=0.8", "fc": "white", "ec": "none"}
                if words.patch
                else None,
            )
        content = BytesIO()
        figure.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    return content.getvalue()


def graph_svg(attention: AttentionMap) -> str:
    """A picture of its own."""
    scene = scene_of(attention)
    width, height = scene.width, scene.height
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}">',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            *drawn(scene),
            "</svg>",
            "",
        ]
    )


def drawn(scene: Scene) -> list[str]:
    """The elements of a scene, what is drawn first at the back."""
    return [*map(_line, scene.lines), *map(_disc, scene.discs), *map(_words, scene.words)]


def _line(line: Line) -> str:
    return (
        f'<line x1="{line.x1:.1f}" y1="{line.y1:.1f}" x2="{line.x2:.1f}" y2="{line.y2:.1f}" stroke="{line.colour}" '
        f'stroke-width="{line.width:.2f}" stroke-linecap="round"><title>{safe(line.hint)}</title></line>'
    )


def _disc(disc: Disc) -> str:
    return (
        f'<circle cx="{disc.x:.1f}" cy="{disc.y:.1f}" r="{disc.radius:.1f}" fill="{disc.fill}" stroke="{disc.rim}" '
        f'stroke-width="1.5"><title>{safe(disc.hint)}</title></circle>'
    )


def _words(words: Words) -> str:
    bold = ' font-weight="600"' if words.bold else ""
    wide, high = 0.58 * words.size * len(words.text) + 6, words.size * 1.3
    patch = (
        f'<rect x="{words.x - wide / 2:.1f}" y="{words.y - high * 0.76:.1f}" width="{wide:.1f}" height="{high:.1f}" '
        f'rx="{high / 2:.1f}" fill="white" pointer-events="none"/>'
    )
    return (patch if words.patch else "") + (
        f'<text x="{words.x:.1f}" y="{words.y:.1f}" font-size="{words.size:g}" fill="{words.colour}" '
        f'text-anchor="{words.anchor}"{bold} pointer-events="none">{safe(words.text)}</text>'
    )


BAR = 24
"""Cells of the longest bar."""
SHOWN = 30
"""Rows of the table."""


def terminal_graph(attention: AttentionMap, *, plain: bool = False) -> Text:
    """What the node looked at in the last layer of the map, averaged over heads."""
    row = row_of(attention)
    every = sorted((*row.others, *row.itself), key=lambda one: -one.weight)
    if not every:
        return Text("it has no neighbour and looked at nothing")
    seen, rest = every[:SHOWN], every[SHOWN:]
    names = [one_line(one.name) + (" (itself)" if one.place == 0 else "") for one in seen]
    labels = [one_line(one.label) for one in seen]
    wide, label = (max(map(cells, column)) for column in (["node", *names], ["class", *labels]))
    top = seen[0].weight or 1.0
    lines = [Text(f"{fitted('node', wide)}  {fitted('class', label)}  weight")]
    for name, said, one in zip(names, labels, seen, strict=True):
        bar = round(BAR * one.weight / top)
        shade = Text("█" * bar) if plain else Text(" " * bar, style=f"on {colour(0.25 + 0.75 * one.weight / top)}")
        lines.append(Text(f"{fitted(name, wide)}  {fitted(said, label)}   {one.weight:.3f}  ") + shade)
    if rest:
        lines.append(Text(f"and {len(rest)} more, together {sum(one.weight for one in rest):.3f}; --json has all"))
    return Text("\n").join(lines)
