"""Line charts and bar charts."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from jumok.analysis.draw.shapes import (
    Anchor,
    Area,
    Disc,
    Drawing,
    Label,
    Line,
    Rectangle,
    Shape,
    picture_bytes,
    svg_text,
)
from jumok.analysis.draw.style import LIGHT_SERIES, cell_width, printable, shortened, wrapped

CHART_FORMATS = ("svg", "png", "pdf")
WIDTH, HEIGHT, BAR_HEIGHT = 720, 380, 260
NARROW = 360
"""Width of a chart for a phone; letters keep their size."""
LEFT, RIGHT, BOTTOM = 66, 26, 66
TITLE, TEXT, SMALL_TEXT = 15, 13, 11
LETTER = 6.9
"""Width of a terminal cell of text."""
MOST_MARKED = 60
"""Points of a curve that have markers; those of longer ones would touch."""


class Point(NamedTuple):
    """A value with its confidence interval."""

    x: float
    y: float
    low: float
    high: float
    hint: str = ""


class Curve(NamedTuple):
    """Points joined from left to right."""

    name: str
    points: Sequence[Point]


class Axis(NamedTuple):
    """An axis; ticks are (value, text) and are chosen automatically if there are none."""

    label: str
    ticks: Sequence[tuple[float, str]] = ()
    log: bool = False


class LineChart(NamedTuple):
    """The content of a line chart."""

    curves: Sequence[Curve]
    x: Axis
    y: Axis
    title: str


def charts_bytes(charts: Sequence[LineChart], kind: str) -> bytes:
    """Draw charts one below the other as "svg", "png" or "pdf"; an SVG has colours for light and dark screens."""
    drawings = [line_chart(chart) for chart in charts]
    if kind == "svg":
        return svg_text(drawings, style="both").encode(errors="replace")
    return picture_bytes(drawings, kind)


def line_chart(chart: LineChart, *, width: int = WIDTH) -> Drawing:
    """Lay out one line per curve with its interval shaded; y begins at 0 unless it is logarithmic."""
    curves, x, y, title = chart
    points = [point for curve in curves for point in curve.points]
    legend = list(_legend([curve.name for curve in curves], width))
    heading = _heading(title, width)
    first = 30 + 20 * len(heading)
    top = first + 8 + 22 * (legend[-1][1] if legend else 0)
    across_values = [*(point.x for point in points), *(tick for tick, _ in x.ticks)]
    across = _Scale.of(across_values, LEFT, width - RIGHT, x, pad=0.03)
    values = [*(point.y for point in points), *(end for point in points for end in (point.low, point.high))]
    up = _Scale.of(values if y.log else [0.0, *values], HEIGHT - BOTTOM, top + 8, y)
    shapes = [*heading, *_grid(up, width, y.ticks), *_axes(x, y, across, up, width)]
    for number, curve in enumerate(curves):
        shapes += _interval(curve, across, up, _series(number))
    for number, curve in enumerate(curves):
        shapes += _curve(curve, across, up, number)
    for number, (along, row, name) in enumerate(legend):
        shapes += _key(name, LEFT + along, first + 22 * row, number)
    return Drawing(width, HEIGHT, shapes, title)


def bar_chart(bars: Sequence[tuple[str, float]], *, x: str, y: str, title: str, width: int = WIDTH) -> Drawing:
    """Lay out a bar from 0 for each (name, value)."""
    floor = BAR_HEIGHT - BOTTOM
    up = _Scale.of([0.0, *(value for _, value in bars)], floor, 52, Axis(y))
    step = (width - LEFT - RIGHT) / max(len(bars), 1)
    middle = (LEFT + width - RIGHT) / 2
    shapes: list[Shape] = [*_heading(title, width), *_grid(up, width), _text(y, 16, 44)]
    every = _every([name for name, _ in bars], step)
    for number, (name, value) in enumerate(bars):
        left, top = LEFT + step * number, up(value)
        hint = f"{name}: {value:g}"
        shapes.append(Rectangle(left + step * 0.1, top, step * 0.8, floor - top, "series0", 2, hint))
        if number % every == 0:
            shapes.append(_text(name, left + step / 2, floor + 18, "middle"))
    for row, line in enumerate(wrapped(printable(x), int((width - LEFT - RIGHT) / LETTER))):
        shapes.append(_text(line, middle, BAR_HEIGHT - 24 + 16 * row, "middle"))
    return Drawing(width, BAR_HEIGHT, shapes, title)


class _Scale(NamedTuple):
    """Maps values to places on the paper."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float, axis: Axis, pad: float = 0.0) -> "_Scale":
        known = [value for value in values if math.isfinite(value) and (value > 0 or not axis.log)] or [0.1, 1.0]
        low, high = min(known), max(known)
        if axis.log:
            low, high = math.log10(low), math.log10(high)
        if axis.log and not axis.ticks:
            low = max(log for log in LOGS if log <= low + 1e-9)
            high = min(log for log in LOGS if log >= high - 1e-9)
        room = pad * (high - low) or (0.5 if low == high else 0.0)
        return cls(low - room, high + (room or 0.04 * (high - low)), start, end, axis.log)

    def __call__(self, value: float) -> float:
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        if self.log:
            inside = [log for log in LOGS if self.low <= log + 1e-9 and log - 1e-9 <= self.high]
            shown = inside if len(inside) <= 8 else [log for log in inside if log == round(log)]
            return [(10**log, _power(log)) for log in shown]
        step = _nice((self.high - self.low) / 5)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [(number * step, f"{number * step:.10g}") for number in range(first, last + 1)]


LOGS = [power + math.log10(factor) for power in range(-30, 31) for factor in (1, 2, 5)]
"""Logarithms of the possible ticks of a logarithmic axis: 1, 2, 5, 10 …"""


def _power(log: float) -> str:
    """Write 10 to the power `log`."""
    if -2 <= log < 5:
        return f"{10**log:,.3g}" if log < 3 else f"{round(10**log):,}"
    return f"{10 ** (log % 1):.0f}·10".removeprefix("1·") + str(math.floor(log)).translate(RAISED)


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _nice(step: float) -> float:
    """Return a round number near a step: 1, 2 or 5 times a power of 10."""
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.7)


def _heading(title: str, width: int) -> list[Label]:
    lines = wrapped(printable(title), int((width - 32) / (1.3 * LETTER)))  # its letters are larger and bold
    return [Label(16, 26 + 20 * row, line, TITLE, bold=True) for row, line in enumerate(lines)]


def _axes(x: Axis, y: Axis, across: _Scale, up: _Scale, width: int) -> Iterator[Label]:
    floor = HEIGHT - BOTTOM
    for value, text in _apart(x.ticks or across.ticks(), across):
        for row, line in enumerate(text.split("\n")):
            size = SMALL_TEXT if row else TEXT
            yield _text(line, across(value), floor + 19 + 16 * row, "middle", size)
    yield _text(x.label, (LEFT + width - RIGHT) / 2, HEIGHT - 10, "middle")
    yield Label(16, (up.start + up.end) / 2, printable(y.label), TEXT, "quiet", "middle", angle=90)


def _apart(ticks: Sequence[tuple[float, str]], across: _Scale) -> Sequence[tuple[float, str]]:
    """Return all ticks, or every second, third, ... if their texts would touch."""
    closest = min((across(after) - across(before) for (before, _), (after, _) in pairwise(ticks)), default=math.inf)
    return ticks[:: _every([line for _, text in ticks for line in text.split("\n")], max(closest, 1.0))]


def _every(texts: Sequence[str], step: float) -> int:
    """Return every how many of the texts one is written if they are `step` apart."""
    return max(1, math.ceil(max((LETTER * cell_width(text) + 6 for text in texts), default=0.0) / step))


def _grid(up: _Scale, width: int, ticks: Sequence[tuple[float, str]] = ()) -> Iterator[Shape]:
    for value, text in ticks or up.ticks():
        height = up(value)
        yield Line([(LEFT, height), (width - RIGHT, height)], "line")
        yield _text(text, LEFT - 8, height + 4.5, "end")


def _interval(curve: Curve, across: _Scale, up: _Scale, colour: str) -> Iterator[Shape]:
    if len(curve.points) == 1:
        x, (_, _, low, high, _) = across(curve.points[0].x), curve.points[0]
        yield Line([(x, up(low)), (x, up(high))], colour)
    elif curve.points:
        above = [(across(point.x), up(point.high)) for point in curve.points]
        below = [(across(point.x), up(point.low)) for point in reversed(curve.points)]
        yield Area([*above, *below], colour, 0.13)


def _curve(curve: Curve, across: _Scale, up: _Scale, number: int) -> Iterator[Shape]:
    places = [(across(point.x), up(point.y)) for point in curve.points]
    yield Line(places, _series(number), 2.2)
    if len(places) > MOST_MARKED:
        return
    for (x, y), point in zip(places, curve.points, strict=True):
        yield _marker(x, y, number, f"{curve.name}: {point.hint or f'{point.y:.4g}'}")


def _series(number: int) -> str:
    return f"series{number % len(LIGHT_SERIES)}"


CORNERS = (
    [(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)],
    [(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)],
    [(0.0, -5.5), (5.0, 0.0), (0.0, 5.5), (-5.0, 0.0)],
)
"""Square, triangle and diamond; the first curve has discs."""


def _marker(x: float, y: float, number: int, hint: str) -> Shape:
    shape = number % (1 + len(CORNERS))
    if shape == 0:
        return Disc(x, y, 4, _series(number), "paper", hint)
    corners = [(x + right, y + down) for right, down in CORNERS[shape - 1]]
    return Area(corners, _series(number), 1.0, "paper", hint)


def _legend(names: Sequence[str], width: int) -> Iterator[tuple[float, int, str]]:
    """Yield for each name how far along its row it goes, the row, and the name."""
    along, row = 0.0, 0
    longest = min(40, int((width - LEFT - RIGHT - 46) / LETTER))
    for name in names:
        shown = shortened(printable(name), longest)
        room = 46 + LETTER * cell_width(shown)
        if along and along + room > width - LEFT - RIGHT:
            along, row = 0.0, row + 1
        yield along, row, shown
        along += room


def _key(name: str, x: float, y: float, number: int) -> list[Shape]:
    line = Line([(x, y - 4), (x + 20, y - 4)], _series(number), 2.2)
    return [line, _marker(x + 10, y - 4, number, name), Label(x + 26, y, name, TEXT)]


def _text(text: str, x: float, y: float, anchor: Anchor = "start", size: float = TEXT) -> Label:
    return Label(x, y, printable(text), size, "quiet", anchor)
