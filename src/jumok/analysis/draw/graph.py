"""The map of a graph: a node, the neighbours it attends to, and the nodes these attend to."""

import math
from typing import NamedTuple

from rich.text import Text

from jumok.analysis.draw.shapes import Anchor, Disc, Drawing, Label, Line, Place, Rectangle
from jumok.analysis.draw.style import LIGHT, Shade, cell_width, fitted, printable, shortened, weight_colour
from jumok.analysis.draw.terminal import one_line
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import GraphLayout

RING, OUTER_RING = 16, 3
"""Most neighbours around the node, and most nodes around each neighbour."""
DISC, SMALL, CENTRE = 21.0, 7.0, 27.0
MARGIN, HEAD, FOOT = 26.0, 62.0, 34.0
BAR, TABLE_ROWS = 24, 30
"""Terminal cells of the longest bar, and most rows of the table."""


class Neighbour(NamedTuple):
    """A node that another one can attend to."""

    source: int
    """Its number among the sources of the map."""
    name: str
    label: str
    """Its class."""
    weight: float


class Row(NamedTuple):
    """The attention of one node: its own weight, if it has one, and its neighbours, largest weight first."""

    name: str
    itself: list[Neighbour]
    others: list[Neighbour]


def row_of(attention: AttentionMap, target: int = 0, *, layer: int = -1) -> Row:
    """Average a row over the heads; the first row includes all neighbours, even those with a weight of 0."""
    layout = attention.layout
    assert isinstance(layout, GraphLayout)
    weights = attention.weights[layer, :, target].mean(0).tolist()
    nodes = [
        Neighbour(number, name, label, weight)
        for number, (name, label, weight) in enumerate(zip(attention.source, layout.classes, weights, strict=True))
        if weight > 0 or (target == 0 < number <= layout.neighbours)
    ]
    others = sorted((node for node in nodes if node.source != target), key=lambda node: -node.weight)
    return Row(attention.target[target], [node for node in nodes if node.source == target], others)


class _Canvas(NamedTuple):
    """Shapes by what covers what: lines lie behind discs, and labels on top."""

    lines: list[Line]
    discs: list[Disc]
    labels: list[Label | Rectangle]


def graph_drawing(attention: AttentionMap) -> Drawing:
    """Lay out the last layer around the node, and around each neighbour the layer before."""
    row = row_of(attention)
    ring, rest = row.others[:RING], row.others[RING:]
    outer_rings = [_outer_ring(attention, node) for node in ring]
    radius = max(138.0, len(ring) * 2.45 * DISC / math.pi)
    outer = radius + (96.0 if any(outer_rings) else 0.0)
    reach = outer + 44
    width, height = max(2 * (reach + MARGIN), 520.0), 2 * reach + HEAD + FOOT
    middle = (width / 2, HEAD + reach)
    canvas = _Canvas([], [], [])
    contrast = _contrast(max((node.weight for node in (*row.others, *row.itself)), default=1.0))
    for number, (node, further) in enumerate(zip(ring, outer_rings, strict=True)):
        angle = 2 * math.pi * number / len(ring) - math.pi / 2
        spread = min(2 * math.pi / len(ring) * 0.78, 0.9)
        _draw_outer_ring(canvas, node, further, middle, (radius, outer), (angle, spread))
        _draw_neighbour(canvas, row, node, middle, radius, angle, contrast)
    _draw_centre(canvas, attention, row, middle, contrast)
    _draw_texts(canvas, attention, rest, height, outer=outer > radius)
    return Drawing(width, height, [*canvas.lines, *canvas.discs, *canvas.labels], attention.title)


def _outer_ring(attention: AttentionMap, node: Neighbour) -> list[Neighbour]:
    """Return what a neighbour attends to in the layer before the last, other than itself."""
    if len(attention.layer_names) < 2 or node.source >= len(attention.target):
        return []
    return row_of(attention, node.source, layer=-2).others[:OUTER_RING]


def _draw_neighbour(
    canvas: _Canvas, row: Row, node: Neighbour, middle: Place, radius: float, angle: float, contrast: float
) -> None:
    x, y = _on_circle(middle, radius, angle)
    share = node.weight * contrast
    hint = f"{row.name} ← {node.name}: {node.weight:.3f}"
    canvas.lines.append(Line([middle, (x, y)], Shade(0.18 + 0.82 * share), 1.2 + 7 * share, hint))
    rim = Shade(0.35 + 0.65 * share)
    canvas.discs.append(Disc(x, y, DISC, Shade(share), rim, f"{hint}, class {node.label}"))
    size, dark = 12.0 if cell_width(node.name) <= 5 else 9.5, share > 0.45
    canvas.labels.append(_centred(x, y + 1, node.name, 7, size, "paper" if dark else "ink", bold=True))
    canvas.labels.append(_centred(x, y + 12, node.label, 8, 8.5, LIGHT[1] if dark else "quiet"))
    digits = 2 if node.weight >= 0.095 or node.weight < 0.0005 else 3
    place = _on_circle(middle, CENTRE + (radius - DISC - CENTRE) * 0.56, angle)
    canvas.labels.extend(_weight(f"{node.weight:.{digits}f}", place))


def _weight(text: str, place: Place) -> list[Label | Rectangle]:
    """Write a weight on its line, with paper behind it."""
    x, y, size = place[0], place[1] + 4, 11.5
    wide, high = 0.58 * size * len(text) + 6, size * 1.3
    paper = Rectangle(x - wide / 2, y - high * 0.76, wide, high, "paper", high / 2)
    return [paper, Label(x, y, text, size, anchor="middle")]


def _draw_outer_ring(
    canvas: _Canvas, node: Neighbour, further: list[Neighbour], middle: Place, radii: Place, turn: Place
) -> None:
    """Draw what a neighbour attends to; `turn` is its angle and the angle its own neighbours spread over."""
    (radius, outer), (angle, spread) = radii, turn
    start = _on_circle(middle, radius, angle)
    largest = max((other.weight for other in further), default=1.0) or 1.0
    for number, other in enumerate(further):
        offset = 0.0 if len(further) == 1 else spread * (number / (len(further) - 1) - 0.5)
        x, y = _on_circle(middle, outer, angle + offset)
        share = other.weight / largest
        hint = f"{node.name} ← {other.name}: {other.weight:.3f}, class {other.label}"
        canvas.lines.append(Line([start, (x, y)], Shade(0.12 + 0.6 * share), 0.7 + 2.6 * other.weight, hint))
        canvas.discs.append(Disc(x, y, SMALL, Shade(other.weight), Shade(0.2 + 0.5 * share), hint))
        side = math.cos(angle + offset)
        anchor: Anchor = "start" if side > 0.4 else "end" if side < -0.4 else "middle"
        name_x, name_y = _on_circle(middle, outer + SMALL + (4 if anchor != "middle" else 10), angle + offset)
        canvas.labels.append(Label(name_x, name_y + 3.5, shortened(printable(other.name), 8), 9, "quiet", anchor))


def _draw_centre(canvas: _Canvas, attention: AttentionMap, row: Row, middle: Place, contrast: float) -> None:
    x, y = middle
    own = sum(node.weight for node in row.itself)
    canvas.discs.append(Disc(x, y, CENTRE + 5, "paper", Shade(0.18 + 0.82 * own * contrast), attention.title))
    canvas.discs.append(Disc(x, y, CENTRE, "ink", "ink", attention.title))
    canvas.labels.append(_centred(x, y + (1 if row.itself else 5), row.name, 6, 14, "paper", bold=True))
    if row.itself:
        canvas.labels.append(_centred(x, y + 14, f"itself {own:.2f}", 12, 8.5, LIGHT[1]))


def _draw_texts(canvas: _Canvas, attention: AttentionMap, rest: list[Neighbour], height: float, *, outer: bool) -> None:
    names = attention.layer_names
    small = f"; small: attention of these in layer {names[-2]}" if outer else ""
    verdict = " · wrong" if isinstance(attention.layout, GraphLayout) and attention.layout.wrong else ""
    below = printable(f"attention of the node in layer {names[-1]}{small}{verdict}")
    canvas.labels.append(Label(MARGIN, 32, printable(attention.title), 16, bold=True))
    canvas.labels.append(Label(MARGIN, 51, below, 12, "quiet"))
    if rest:
        more = f"and {len(rest)} more, together {sum(node.weight for node in rest):.2f}"
        canvas.labels.append(Label(MARGIN, height - 18, more, 12, "quiet"))


def _centred(x: float, y: float, text: str, most: int, size: float, colour: str, *, bold: bool = False) -> Label:
    return Label(x, y, shortened(printable(text), most), size, colour, "middle", bold)


def _contrast(largest: float) -> float:
    """Return the factor from weights to shades: the largest is dark, but paler if all weights are small."""
    return (0.35 + 0.65 * math.sqrt(largest)) / largest if largest else 1.0


def _on_circle(middle: Place, radius: float, angle: float) -> Place:
    return middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)


def terminal_graph(attention: AttentionMap, *, plain: bool = False) -> Text:
    """Draw a table of the last layer, averaged over heads, for a terminal."""
    row = row_of(attention)
    nodes = sorted((*row.others, *row.itself), key=lambda node: -node.weight)
    if not nodes:
        return Text("the node has no neighbours and attends to nothing")
    shown, rest = nodes[:TABLE_ROWS], nodes[TABLE_ROWS:]
    names = [one_line(node.name) + (" (itself)" if node.source == 0 else "") for node in shown]
    labels = [one_line(node.label) for node in shown]
    name_width, label_width = (max(map(cell_width, column)) for column in (["node", *names], ["class", *labels]))
    largest = shown[0].weight or 1.0
    lines = [Text(f"{fitted('node', name_width)}  {fitted('class', label_width)}  weight")]
    for name, label, node in zip(names, labels, shown, strict=True):
        share = node.weight / largest
        length = round(BAR * share)
        bar = Text("█" * length) if plain else Text(" " * length, style=f"on {weight_colour(0.25 + 0.75 * share)}")
        lines.append(Text(f"{fitted(name, name_width)}  {fitted(label, label_width)}   {node.weight:.3f}  ") + bar)
    if rest:
        lines.append(Text(f"and {len(rest)} more, together {sum(node.weight for node in rest):.3f}; --json has all"))
    return Text("\n").join(lines)
