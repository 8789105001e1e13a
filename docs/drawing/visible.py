"""Pictures of masks: visible keys as blue squares."""

from collections.abc import Callable
from functools import partial

import torch
from matplotlib.figure import Figure

from docs.drawing.style import ORANGE, cells, sheet
from jumok.attention import Visible, attend, causal, from_lengths, gaussian_window, whole, window

OPEN = 0.6
CENTRES = torch.tensor([1.2, 1.8, 2.5, 4.1, 4.6, 6.0, 6.3, 7.0])


def plane(mask: Visible, *, centres: torch.Tensor | None = None) -> Figure:
    """Eight queries, eight keys; blue where a query may look."""
    visible = whole(mask, queries=8, keys=8)
    figure, axes = sheet(width=1.5)
    cells(axes, visible * OPEN, hidden=~visible, high=1)
    if centres is not None:
        axes.plot(centres + 0.5, torch.arange(8) + 0.5, ".", color=ORANGE, ms=4)
    return figure


def lengths() -> Figure:
    """Three sequences of a batch, each with its own length."""
    visible = whole(from_lengths([5, 8, 3]), lead=(3,), queries=1, keys=8).squeeze(1)
    figure, axes = sheet(width=1.7, height=0.95)
    cells(axes, visible * OPEN, hidden=~visible, high=1, rows="sequence")
    return figure


def graded() -> Figure:
    """Equal scores under a Gaussian window: the weights fall off around the centre."""
    mask = gaussian_window(CENTRES, reach=2.5)
    nothing = torch.zeros(8, 1)
    weights = attend(nothing, nothing, nothing, visible=mask).weights()
    figure, axes = sheet(width=1.5)
    cells(axes, weights, hidden=~whole(mask, queries=8, keys=8))
    axes.plot(CENTRES + 0.5, torch.arange(8) + 0.5, ".", color=ORANGE, ms=4)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "lengths": lengths,
    "causal": partial(plane, causal()),
    "window": partial(plane, window(2)),
    "window_centre": partial(plane, window(1, centre=CENTRES), centres=CENTRES),
    "gaussian_window": graded,
    "and": partial(plane, causal() & window(2)),
    "or": partial(plane, causal() | from_lengths(torch.tensor(3))),
    "not": partial(plane, ~window(1)),
}
