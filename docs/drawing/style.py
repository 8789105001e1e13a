"""The style of all pictures: white background, dark lines, blue for weights."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

INK, GREY, PALE, BLUE, ORANGE = "#333333", "#8a8a8a", "#ececec", "#0072b2", "#d55e00"  # tell apart without red-green
WEIGHTS, SCORES = "Blues", "cividis"

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so pictures are the same everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "lines.linewidth": 1.4,
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 7,
    "ytick.color": INK,
    "ytick.labelsize": 7,
    "svg.hashsalt": "jumok",  # the same picture is the same file
}


def styled() -> AbstractContextManager[None]:
    """Context with our matplotlib settings; restores the previous settings on exit."""
    return rc_context(STYLE)


def sheet(
    columns: int = 1, *, width: float = 1.9, height: float = 1.45, ratios: Iterable[float] | None = None
) -> tuple[Figure, Any]:
    """A figure with its axes side by side; sizes are in inches on the page."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.06)
    axes = figure.subplots(1, columns, width_ratios=None if ratios is None else list(ratios), squeeze=False)[0]
    return figure, (axes[0] if columns == 1 else axes)


def cells(
    axes: Axes,
    matrix: Tensor,
    *,
    hidden: Tensor | None = None,
    colours: str = WEIGHTS,
    low: float | None = 0.0,
    high: float | None = None,
    columns: str = "key",
    rows: str = "query",
) -> None:
    """Draw a matrix as squares, row 0 on top; hidden entries are pale grey to tell them from 0."""
    shown = np.ma.array(matrix.detach().numpy(), mask=None if hidden is None else hidden.numpy())
    axes.set_facecolor(PALE)
    axes.pcolormesh(shown, cmap=colours, vmin=low, vmax=high, edgecolors="white", linewidth=0.6)
    axes.set(xlabel=columns, ylabel=rows, aspect="equal")
    axes.invert_yaxis()
    bare(axes)


def bare(axes: Axes) -> None:
    """Remove ticks and frame."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
