"""Pictures of the equation, its stages, the weights with their summaries, and blocks of a long sequence."""

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from docs.drawing.style import BLUE, GREY, INK, ORANGE, PALE, SCORES, bare, cells, sheet
from jumok.attention import attend, causal, distribution, mix, score_pairs, whole

KEYS = torch.tensor([[0.9, 0.5], [0.2, 0.9], [-0.8, 0.5], [-0.5, -0.7], [0.7, -0.6]])
QUERY = torch.tensor([[0.35, 0.45]])
VALUES = torch.tensor([[0.9, 0.1, 0.4], [0.2, 0.8, 0.1], [0.5, 0.5, 0.9], [0.1, 0.3, 0.7], [0.7, 0.9, 0.2]])
MIDDLES = [place + 0.5 for place in range(7)]


def equation() -> Figure:
    """A query, its keys, the weights of the values, and the mixture."""
    values, weights = attend(QUERY / 0.6, KEYS / 0.6, VALUES, score="gaussian")
    alpha = weights()[0]
    figure, (plane, bars, table) = sheet(3, width=5.2, height=1.7, ratios=[1.2, 1, 0.9])
    for number, (key, weight) in enumerate(zip(KEYS.tolist(), alpha.tolist(), strict=True), start=1):
        plane.plot([QUERY[0, 0], key[0]], [QUERY[0, 1], key[1]], color=BLUE, lw=9 * weight, alpha=0.6, zorder=1)
        plane.plot(*key, "o", color=INK, ms=4)
        plane.annotate(f"k{_sub(number)}", key, xytext=(4, 2), textcoords="offset points")
    plane.plot(*QUERY[0], "D", color=ORANGE, ms=5)
    plane.annotate("q", QUERY[0], xytext=(5, -9), textcoords="offset points", color=ORANGE)
    plane.set(title="query and keys", xlim=(-1.1, 1.25), ylim=(-1.0, 1.2))
    bare(plane)
    bars.barh(range(5), alpha.tolist(), color=BLUE, height=0.7, clip_on=False)
    bars.set(title="weights α", yticks=range(5), yticklabels=[f"α{_sub(n)}" for n in range(1, 6)], xticks=[])
    bars.spines[:].set_visible(False)
    bars.tick_params(length=0)
    bars.set_ylim(6.4, -0.6)
    cells(table, VALUES, columns="", rows="", high=1)
    for column, number in enumerate(values[0].tolist()):
        table.add_patch(Rectangle((column, 5.6), 1, 1, facecolor=_blue(number), edgecolor=ORANGE, lw=1))
    table.set_facecolor("white")
    table.set(title="values v, and Σ αv", ylim=(7, -0.1), xlim=(-1.1, 3.1), aspect="auto")
    for row in range(5):
        table.text(-0.2, row + 0.55, f"v{_sub(row + 1)}", ha="right", va="center")
    table.text(-0.2, 6.15, "Σ", ha="right", va="center", color=ORANGE)
    return figure


def stages() -> Figure:
    """Scores, mask, weights and values, in this order."""
    query, key, value = _sequences()
    scores, visible = score_pairs(query, key), whole(causal(), queries=7, keys=7)
    weights = distribution(scores.masked_fill(~visible, -torch.inf))
    figure, (first, second, third, fourth) = sheet(4, width=5.6, height=1.55, ratios=[1, 1, 1, 0.62])
    cells(first, scores, colours=SCORES, low=None)
    cells(second, visible.float() * 0.55, hidden=~visible, high=1, rows="")
    cells(third, weights, hidden=~visible, rows="")
    cells(fourth, mix(weights, value), colours=SCORES, low=None, columns="feature", rows="")
    for axes, title in zip((first, second, third, fourth), ("score", "visible", "distribution", "mix"), strict=True):
        axes.set_title(title)
    return figure


def weights() -> Figure:
    """A matrix of weights with the summaries of its rows and columns."""
    query, key, value = _sequences()
    sharpness = torch.tensor([3.0, 0.2, 1.0, 4.0, 0.5, 2.0, 0.1])[:, None]
    found = attend(sharpness * query, key, value).weights
    figure = Figure(figsize=(2.6, 2.1), layout="constrained")
    (plane, side), (below, corner) = figure.subplots(2, 2, width_ratios=[1, 0.4], height_ratios=[1, 0.38])
    cells(plane, found(), columns="")
    plane.set_aspect("auto")
    plane.plot(found.argmax() + 0.5, MIDDLES, "o", color=ORANGE, ms=3.5)
    side.barh(MIDDLES, found.entropy().tolist(), color=GREY, height=0.7)
    side.set(ylim=(7, 0), title="entropy")
    below.bar(MIDDLES, found.column_sums().tolist(), color=BLUE, width=0.7)
    below.set(xlim=(0, 7), xlabel="key; column_sums")
    corner.plot(0.1, 0.5, "o", color=ORANGE, ms=3.5)
    corner.text(0.25, 0.5, "argmax", va="center", color=ORANGE)
    corner.set(xlim=(0, 1), ylim=(0, 1))
    for axes in (side, below, corner):
        bare(axes)
    return figure


def nothing() -> Figure:
    """The weights of a query that sees nothing are zeros, not NaN."""
    query, key, value = _sequences()
    visible = whole(causal(), queries=7, keys=7).clone()
    visible[3] = False
    figure, axes = sheet(width=2.3)
    cells(axes, attend(query, key, value, visible=visible).weights(), hidden=~visible)
    axes.annotate("sees nothing", (7.1, 3.5), color=ORANGE, va="center", annotation_clip=False)
    return figure


def blocks() -> Figure:
    """One block of rows in memory at a time, recomputed for the gradient."""
    figure, axes = sheet(width=2.3)
    axes.add_patch(Rectangle((0, 0), 8, 8, facecolor=PALE))
    axes.add_patch(Rectangle((0, 3), 8, 1, facecolor=BLUE, alpha=0.85))
    for row in range(9):
        axes.plot([0, 8], [row, row], color="white", lw=1)
    axes.set(xlim=(0, 8), ylim=(8, 0), xlabel="key", ylabel="query", aspect="equal")
    axes.annotate("in memory", (8.2, 3.5), color=BLUE, va="center", annotation_clip=False)
    bare(axes)
    return figure


def _sequences() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Seven vectors in which neighbours are similar."""
    turn = torch.arange(7) * 0.7
    noise = torch.randn(7, 3, generator=torch.Generator().manual_seed(3))
    query = torch.stack([turn.cos(), turn.sin(), 0.4 * noise[:, 0]], -1) * 1.6
    key = torch.stack([turn.cos(), turn.sin(), 0.4 * noise[:, 1]], -1) * 1.6
    return query, key, torch.stack([turn.cos(), turn.sin(), noise[:, 2]], -1)


def _blue(amount: float) -> tuple[float, float, float, float]:
    return colormaps["Blues"](amount)


def _sub(number: int) -> str:
    return "₀₁₂₃₄₅₆₇₈₉"[number]


PICTURES = {"equation": equation, "stages": stages, "weights": weights, "nothing": nothing, "blocks": blocks}
