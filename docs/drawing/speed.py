"""Plots of benchmark results."""

import json
from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from benchmarks.results import FOLDER
from docs.drawing.style import BLUE, GREY, ORANGE, sheet

COLOURS = {"jumok": BLUE, "torch.compile": ORANGE, "PyTorch": GREY}


def additive_gpu() -> Figure:
    """Time and memory of additive attention (forward and backward) by sequence length."""
    rows = json.loads((FOLDER / "additive_gpu.json").read_text(encoding="utf-8"))["rows"]
    figure, (left, right) = sheet(2, width=5.6, height=2.1)
    _lines(left, rows, "long-train-time/", lambda value: value, "ms")
    _lines(right, rows, "long-train-memory/", lambda value: value / 1024, "GiB")
    left.set(title="time, forward and backward", ylim=(0.5, 200))
    right.set_title("peak memory")
    left.legend(frameon=False, fontsize=7)
    return figure


def _lines(axes: Axes, rows: list[dict[str, Any]], prefix: str, scale: Callable[[float], float], unit: str) -> None:
    for system, colour in COLOURS.items():
        found = [row for row in rows if row["id"].startswith(prefix) and row["system"] == system and row["value"]]
        lengths = [int(row["id"].split(" T")[1].split()[0]) for row in found]
        axes.loglog(lengths, [scale(row["value"]) for row in found], "o-", ms=3, color=colour, label=system)
    lengths = sorted({int(row["id"].split(" T")[1].split()[0]) for row in rows if row["id"].startswith(prefix)})
    axes.set(xlabel="queries and keys", ylabel=unit, xticks=lengths, xticklabels=[_short(n) for n in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _short(length: int) -> str:
    return f"{length // 1024}k" if length >= 1024 else f"{length}"


PICTURES = {"additive_gpu": additive_gpu}
