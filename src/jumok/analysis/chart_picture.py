"""Line charts as a PNG or PDF, drawn by matplotlib with fonts that have their letters."""

import logging
import math
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from jumok.analysis.chart_svg import HEIGHT, LOGS, WIDTH, Axis, LineChart
from jumok.analysis.colours import INK, QUIET
from jumok.analysis.fonts import fonts_for

COLOURS = ("#084081", "#d55e00", "#00806a", "#a3508b", "#8a6d00", "#3b8ec2")
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
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
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
