"""Line charts as a PNG or PDF, drawn by matplotlib with fonts that have their letters."""

import logging
import math
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

from jumok.analysis.draw.fonts import fonts_for
from jumok.analysis.draw.heatmap_svg import FONT, safe
from jumok.analysis.draw.style import INK, QUIET, cells, fitted, wrapped

WIDTH, HEIGHT = 720, 380
NARROW = 360
"""Width of a chart for a telephone, where letters keep their size."""
LEFT, RIGHT, BOTTOM = 66, 26, 66
LETTER = 6.9  # how wide a terminal cell of text is drawn

# The deep blue of the attention maps first, then colours told apart by colour-blind eyes too; shapes differ as well.
STYLE = """<style>
.chart{--ink:#1f2933;--quiet:#5b6472;--line:#dde2ea;--paper:#fff;--s0:#084081;--s1:#d55e00;--s2:#00806a;--s3:#a3508b;
--s4:#8a6d00;--s5:#3b8ec2;max-width:100%;height:auto}
@media (prefers-color-scheme:dark){.chart{--ink:#e6eaf0;--quiet:#9aa5b4;--line:#2f3947;--paper:#161b22;--s0:#7fb2ea;
--s1:#f0924f;--s2:#43c3a5;--s3:#d893c4;--s4:#d5b54a;--s5:#9fd4f5}}
</style>"""
COLOURS = 6


class Point(NamedTuple):
    """A value, and the interval it may lie in."""

    x: float
    y: float
    low: float
    high: float
    hint: str = ""


class Curve(NamedTuple):
    """Points to be joined, from left to right."""

    name: str
    points: Sequence[Point]


class Axis(NamedTuple):
    """What is measured along one side. Ticks are (where, what it says); they are found where none are given."""

    label: str
    ticks: Sequence[tuple[float, str]] = ()
    log: bool = False


class LineChart(NamedTuple):
    """What a line chart shows, whatever it is drawn with."""

    curves: Sequence[Curve]
    x: Axis
    y: Axis
    title: str


def charts_svg(charts: Sequence[LineChart], *, width: int = WIDTH) -> str:
    """One chart, or several one below the other."""
    drawn = [line_chart(one.curves, x=one.x, y=one.y, title=one.title, width=width) for one in charts]
    return drawn[0] if len(drawn) == 1 else stacked(drawn, width=width)


def line_chart(curves: Sequence[Curve], *, x: Axis, y: Axis, title: str, width: int = WIDTH) -> str:
    """One line for each curve, its interval shaded; y begins at 0 unless it is logarithmic."""
    points = [point for curve in curves for point in curve.points]
    legend = list(_legend([curve.name for curve in curves], width))
    first = 50 + 20 * (len(_lines(title, width)) - 1)
    top = first + 8 + 22 * (legend[-1][1] if legend else 0)
    across = _Scale.of([*(point.x for point in points), *(at for at, _ in x.ticks)], LEFT, width - RIGHT, x, pad=0.03)
    heights = [*(point.y for point in points), *(end for point in points for end in point[2:4])]
    up = _Scale.of(heights if y.log else [0.0, *heights], HEIGHT - BOTTOM, top + 8, y)
    parts = [_head(title, width, HEIGHT), *_frame(x, y, across, up, width)]
    parts += [_band(curve, across, up, number % COLOURS) for number, curve in enumerate(curves)]
    parts += [_line(curve, across, up, number % COLOURS) for number, curve in enumerate(curves)]
    parts += [
        _key(name, LEFT + at, first + 22 * row, number % COLOURS) for number, (at, row, name) in enumerate(legend)
    ]
    return "\n".join([*parts, "</svg>"])


def bar_chart(bars: Sequence[tuple[str, float]], *, x: str, y: str, title: str, width: int = WIDTH) -> str:
    """A bar for each (name, value), from 0."""
    height = 260
    up = _Scale.of([0.0, *(value for _, value in bars)], height - BOTTOM, 52, Axis(y))
    step = (width - LEFT - RIGHT) / max(len(bars), 1)
    parts = [_head(title, width, height), *_sideways(up, width), _text(y, 16, 44, quiet=True)]
    every = _every([name for name, _ in bars], step)
    for number, (name, value) in enumerate(bars):
        left, top = LEFT + step * number, up(value)
        parts.append(
            f'<rect x="{left + step * 0.1:.1f}" y="{top:.1f}" width="{step * 0.8:.1f}" rx="2" '
            f'height="{height - BOTTOM - top:.1f}" fill="var(--s0)"><title>{safe(name)}: {value:g}</title></rect>'
        )
        if number % every == 0:
            parts.append(_text(name, left + step / 2, height - BOTTOM + 18, anchor="middle", quiet=True))
    for row, line in enumerate(wrapped(x, int((width - LEFT - RIGHT) / LETTER))):
        parts.append(
            _text(line, LEFT + (width - LEFT - RIGHT) / 2, height - 24 + 16 * row, anchor="middle", quiet=True)
        )
    return "\n".join([*parts, "</svg>"])


def stacked(charts: Sequence[str], *, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Several charts of one size as one picture, one below the other."""
    whole = height * len(charts)
    inner = [f'<svg y="{height * number}" {chart[5:]}' for number, chart in enumerate(charts)]
    return "\n".join([_open(width, whole), *inner, "</svg>"])


class _Scale(NamedTuple):
    """From values to places on the paper."""

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
            low, high = max(one for one in LOGS if one <= low + 1e-9), min(one for one in LOGS if one >= high - 1e-9)
        room = pad * (high - low) or (0.5 if low == high else 0.0)
        return cls(low - room, high + (room or 0.04 * (high - low)), start, end, axis.log)

    def __call__(self, value: float) -> float:
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        if self.log:
            inside = [at for at in LOGS if self.low <= at + 1e-9 and at - 1e-9 <= self.high]
            shown = inside if len(inside) <= 8 else [at for at in inside if at == round(at)]
            return [(10**at, _power(at)) for at in shown]
        step = _nice((self.high - self.low) / 5)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [(number * step, f"{number * step:.10g}") for number in range(first, last + 1)]


LOGS = [power + math.log10(factor) for power in range(-30, 31) for factor in (1, 2, 5)]
"""Where a logarithmic axis may have ticks: 1, 2, 5, 10 …"""


def _power(at: float) -> str:
    """A number given by its logarithm, as people write it."""
    if -2 <= at < 5:
        return f"{10**at:,.3g}" if at < 3 else f"{round(10**at):,}"
    return f"{10 ** (at % 1):.0f}·10".removeprefix("1·") + str(math.floor(at)).translate(RAISED)


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _nice(step: float) -> float:
    """A step near this one that people count in."""
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.7)


def _open(width: int, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{FONT}" font-size="13" fill="var(--ink)">{STYLE}'
    )


def _head(title: str, width: int, height: int) -> str:
    opened = _open(width, height).replace(" class=", f' role="img" aria-label="{safe(title)}" class=', 1)
    paper = f'<rect width="{width}" height="{height}" fill="var(--paper)"/>'
    lines = [
        f'<text x="16" y="{26 + 20 * row}" font-size="15" font-weight="600">{safe(line)}</text>'
        for row, line in enumerate(_lines(title, width))
    ]
    return "\n".join([opened, paper, *lines])


def _lines(title: str, width: int) -> list[str]:
    return wrapped(title, int((width - 32) / (1.3 * LETTER)))  # its letters are larger, and bold


def _frame(x: Axis, y: Axis, across: _Scale, up: _Scale, width: int) -> Iterator[str]:
    yield from _sideways(up, width, y.ticks)
    floor = HEIGHT - BOTTOM
    for at, said in _apart(x.ticks or across.ticks(), across):
        for row, line in enumerate(said.split("\n")):
            yield _text(line, across(at), floor + 19 + 16 * row, anchor="middle", quiet=True, small=row > 0)
    yield _text(x.label, (LEFT + width - RIGHT) / 2, HEIGHT - 10, anchor="middle", quiet=True)
    middle = (up.start + up.end) / 2
    yield (
        f'<text x="16" y="{middle:.0f}" transform="rotate(-90 16 {middle:.0f})" text-anchor="middle" '
        f'fill="var(--quiet)">{safe(y.label)}</text>'
    )


def _apart(ticks: Sequence[tuple[float, str]], across: _Scale) -> Sequence[tuple[float, str]]:
    """All of them, or every second, third, ... where their texts would touch."""
    closest = min((across(after) - across(before) for (before, _), (after, _) in pairwise(ticks)), default=math.inf)
    return ticks[:: _every([line for _, said in ticks for line in said.split("\n")], max(closest, 1.0))]


def _every(texts: Sequence[str], step: float) -> int:
    """Every how many of texts that stand `step` apart are written, so that they do not touch."""
    return max(1, math.ceil(max((LETTER * cells(text) + 6 for text in texts), default=0.0) / step))


def _sideways(up: _Scale, width: int, ticks: Sequence[tuple[float, str]] = ()) -> Iterator[str]:
    for at, said in ticks or up.ticks():
        height = up(at)
        yield f'<path d="M{LEFT} {height:.1f}H{width - RIGHT}" stroke="var(--line)"/>'
        yield _text(said, LEFT - 8, height + 4.5, anchor="end", quiet=True)


def _band(curve: Curve, across: _Scale, up: _Scale, colour: int) -> str:
    if len(curve.points) < 2:
        return "".join(
            f'<path d="M{across(point.x):.1f} {up(point.low):.1f}V{up(point.high):.1f}" stroke="var(--s{colour})"/>'
            for point in curve.points
        )
    above = [f"{across(point.x):.1f},{up(point.high):.1f}" for point in curve.points]
    below = [f"{across(point.x):.1f},{up(point.low):.1f}" for point in reversed(curve.points)]
    return f'<polygon points="{" ".join(above + below)}" fill="var(--s{colour})" opacity="0.13"/>'


def _line(curve: Curve, across: _Scale, up: _Scale, colour: int) -> str:
    places = [(across(point.x), up(point.y)) for point in curve.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = [f'<polyline points="{path}" fill="none" stroke="var(--s{colour})" stroke-width="2.2"/>']
    for (x, y), point in zip(places, curve.points, strict=True):
        drawn.append(_marker(x, y, colour, f"{curve.name}: {point.hint or f'{point.y:.4g}'}"))
    return "\n".join(drawn)


def _marker(x: float, y: float, colour: int, hint: str) -> str:
    shapes = (
        f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5:.1f}l5 9h-10z",
        f"M{x:.1f} {y - 5.5:.1f}l5 5.5l-5 5.5l-5 -5.5z",
    )
    path = shapes[colour % len(shapes)]
    outline = 'stroke="var(--paper)" stroke-width="1.2"'
    return f'<path d="{path}" fill="var(--s{colour})" {outline}><title>{safe(hint)}</title></path>'


def _legend(names: Sequence[str], width: int) -> Iterator[tuple[float, int, str]]:
    """Where each name goes: how far along its row, and which row."""
    at, row = 0.0, 0
    longest = min(40, int((width - LEFT - RIGHT - 46) / LETTER))
    for name in names:
        shown = name if cells(name) <= longest else fitted(name, longest - 1).rstrip() + "…"
        room = 46 + LETTER * cells(shown)
        if at and at + room > width - LEFT - RIGHT:
            at, row = 0.0, row + 1
        yield at, row, shown
        at += room


def _key(name: str, x: float, y: float, colour: int) -> str:
    line = f'<path d="M{x:.1f} {y - 4:.1f}h20" stroke="var(--s{colour})" stroke-width="2.2"/>'
    return line + _marker(x + 10, y - 4, colour, name) + _text(name, x + 26, y)


def _text(said: str, x: float, y: float, *, anchor: str = "start", quiet: bool = False, small: bool = False) -> str:
    fill = ' fill="var(--quiet)"' if quiet else ""
    size = ' font-size="11"' if small else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}{size}>{safe(said)}</text>'


PICTURE_COLOURS = ("#084081", "#d55e00", "#00806a", "#a3508b", "#8a6d00", "#3b8ec2")
"""As in an SVG on a light ground."""
MARKERS = ("o", "s", "^", "D")


def charts_picture(charts: Sequence[LineChart], kind: str) -> bytes:
    """The bytes of a "png" or "pdf": the charts one below the other."""
    fonts = fonts_for([text for chart in charts for text in _texts(chart)])
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    logging.getLogger("fontTools.subset").setLevel(logging.ERROR)  # it tells of every table it leaves out
    with rc_context({"font.family": fonts, "font.size": 9, "pdf.fonttype": 42, "axes.unicode_minus": False}):
        size = (WIDTH / 100, HEIGHT / 100 * len(charts))
        layout = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.14)
        figure = Figure(figsize=size, dpi=200, facecolor="white", layout=layout)
        for chart, panel in zip(charts, figure.subplots(len(charts), squeeze=False)[:, 0], strict=True):
            _draw(chart, panel)
        content = BytesIO()
        figure.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    return content.getvalue()


def _draw(chart: LineChart, panel: Any) -> None:
    for number, curve in enumerate(chart.curves):
        colour, marker = PICTURE_COLOURS[number % len(PICTURE_COLOURS)], MARKERS[number % len(MARKERS)]
        x, y, low, high = ([getattr(point, part) for point in curve.points] for part in ("x", "y", "low", "high"))
        panel.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
        panel.plot(x, y, color=colour, marker=marker, markersize=5, lw=1.6, label=curve.name.replace("$", r"\$"))
    panel.set_title(chart.title, loc="left", fontsize=11, color=INK, fontweight="bold", parse_math=False)
    _scale(panel, "x", chart.x, [point.x for curve in chart.curves for point in curve.points])
    _scale(panel, "y", chart.y, [value for curve in chart.curves for point in curve.points for value in point[1:4]])
    panel.grid(axis="y", color="#dde2ea", linewidth=0.7)
    panel.spines[:].set_visible(False)
    panel.tick_params(colors=QUIET, length=0)
    panel.legend(frameon=False, fontsize=9, labelcolor=INK)


def _scale(panel: Any, side: str, said: Axis, values: Sequence[float]) -> None:
    """Ticks where the axis has some; else from 0, or of a logarithmic axis at 1, 2, 5, 10 …"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = getattr(panel, f"{side}axis")
    if said.log:
        getattr(panel, f"set_{side}scale")("log")
    if said.ticks:
        axis.set_ticks([at for at, _ in said.ticks], [name for _, name in said.ticks])
    elif said.log:
        known = [math.log10(value) for value in values if value > 0] or [0.0]
        low, high = max(at for at in LOGS if at <= min(known)), min(at for at in LOGS if at >= max(known))
        room = 0.3 if low == high else 0.0
        getattr(panel, f"set_{side}lim")(10 ** (low - room), 10 ** (high + room))
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.3g}" if value < 1e3 else f"{value:,.0f}"))
    elif side == "y":
        panel.set_ylim(bottom=0)
    axis.set_minor_locator(NullLocator())
    axis.set_label_text(said.label, color=QUIET, parse_math=False)


def _texts(chart: LineChart) -> list[str]:
    ticks = [name for axis in (chart.x, chart.y) for _, name in axis.ticks]
    return [chart.title, chart.x.label, chart.y.label, *ticks, *(curve.name for curve in chart.curves), "0123456789.-"]
