"""Pictures of scores, kernels and normalisers."""

from collections.abc import Callable
from functools import partial

import torch
from matplotlib.figure import Figure

from docs.drawing.style import BLUE, GREY, INK, ORANGE, SCORES, bare, cells, sheet
from jumok.attention import additive, attend, concat, distribution, general, location, score_pairs
from jumok.regression.picture import degrees_figure, interval_figure

KEY = torch.tensor([[1.1, 0.6]])
QUARTER_TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]])


def field(score: object, *, arrow: torch.Tensor | None = None) -> Figure:
    """The score of one key (the dot) for a query at every point of the plane."""
    side = torch.linspace(-2, 2, 81)
    queries = torch.cartesian_prod(side, side)
    scores = score_pairs(queries, KEY, score).reshape(81, 81).T
    figure, axes = sheet(width=1.5)
    axes.imshow(scores.numpy(), origin="lower", extent=(-2, 2, -2, 2), cmap=SCORES, interpolation="bilinear")
    axes.contour(
        side.numpy(),
        side.numpy(),
        scores.numpy(),
        levels=7,
        colors="white",
        linewidths=0.5,
        linestyles="solid",
        alpha=0.7,
    )
    if arrow is not None:
        axes.annotate("", arrow, KEY[0], arrowprops={"arrowstyle": "->", "color": "white", "lw": 1.2})
        axes.text(*(arrow + torch.tensor([-0.15, 0.2])), "Wk", color="white", ha="right")
    axes.plot(*KEY[0], "o", color=ORANGE, mec="white", ms=5)
    axes.text(*(KEY[0] + torch.tensor([0.2, 0.15])), "k", color="white")
    axes.set(xlabel="query")
    bare(axes)
    return figure


def scaled_dot() -> Figure:
    """Without the scale, one key gets nearly all the weight when vectors are wide."""
    draw = torch.Generator().manual_seed(0)
    widths = [2**power for power in range(1, 11)]
    figure, axes = sheet(width=2.1)
    for name, colour, place in (("dot", ORANGE, (90, 0.68)), ("scaled", BLUE, (90, 0.32))):
        largest = []
        for width in widths:
            query, key = torch.randn(64, 8, width, generator=draw), torch.randn(64, 16, width, generator=draw)
            scores = score_pairs(query, key, "dot" if name == "dot" else "scaled_dot")
            largest.append(float(distribution(scores).amax(-1).mean()))
        axes.plot(widths, largest, color=colour)
        axes.text(*place, name, color=colour, ha="center")
    axes.set(xscale="log", xlabel="width of the vectors", ylabel="largest weight", ylim=(0, 1.05))
    axes.set(xticks=[2, 32, 1024], xticklabels=["2", "32", "1024"], yticks=[0, 1])
    axes.minorticks_off()
    return figure


def location_weights() -> Figure:
    """The query alone determines the position; the keys have no influence."""
    angle = torch.linspace(0, torch.pi, 9)
    compass = torch.stack([angle.cos(), angle.sin()], -1)
    figure, axes = sheet(width=1.6)
    cells(axes, distribution(score_pairs(6 * compass, torch.zeros(9, 2), location(compass))), columns="position")
    return figure


def kernel(name: str, bandwidth: float) -> Figure:
    """A kernel and the regression it fits to a few points."""
    x = torch.linspace(0, 6, 28)[:, None]
    y = (1.3 * x).sin() + 0.3 * x + 0.25 * torch.randn(28, 1, generator=torch.Generator().manual_seed(4))
    at = torch.linspace(0, 6, 200)[:, None]
    u = torch.linspace(-2.5, 2.5, 301)[:, None]
    figure, (curve, fit) = sheet(2, width=2.7, ratios=[1, 1.35])
    curve.plot(u, score_pairs(u, torch.zeros(1, 1), name).exp(), color=ORANGE)
    curve.set(xticks=[-1, 0, 1], yticks=[0, 1], ylim=(-0.05, 1.1), xlabel="u", title="K(u)")
    fit.plot(x, y, "o", color=GREY, ms=2.2)
    fit.plot(at, attend(at / bandwidth, x / bandwidth, y, score=name).values, color=BLUE)
    fit.set(xticks=[], yticks=[], xlabel="x", title="regression")
    return figure


def normaliser(name: str) -> Figure:
    """The weights of five scores as bars, and the weight of the first of two keys as its score grows."""
    scores = torch.tensor([1.6, 1.3, 0.5, 0.1, -0.9])
    gap = torch.linspace(-3, 3, 241)
    figure, (bars, curve) = sheet(2, width=2.7, ratios=[1, 1])
    weights = distribution(scores, name)
    bars.bar(range(5), weights.tolist(), color=BLUE, width=0.7)
    bars.plot(torch.arange(5)[weights == 0], [0.015] * int((weights == 0).sum()), "x", color=ORANGE, ms=4)
    bars.set(ylim=(0, 0.75), yticks=[0, 0.5], yticklabels=["0", "½"], xticks=range(5), xlabel="score", title="weights")
    bars.set_xticklabels([f"{score:g}".replace("-", "−") for score in [1.6, 1.3, 0.5, 0.1, -0.9]], fontsize=6)
    curve.plot(gap, distribution(torch.stack([gap, torch.zeros_like(gap)], -1), name)[:, 0], color=INK)
    curve.set(yticks=[0, 1], xticks=[-2, 0, 2], ylim=(-0.05, 1.05), xlabel="s₁ − s₂", title="α₁ of two")
    return figure


def _weights(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


PICTURES: dict[str, Callable[[], Figure]] = {
    "dot": partial(field, "dot"),
    "scaled_dot": scaled_dot,
    "cosine": partial(field, "cosine"),
    "general": partial(field, general(QUARTER_TURN), arrow=(QUARTER_TURN @ KEY[0])),
    "additive": partial(field, additive(torch.tensor([1.0, 0.7]))),
    "concat": partial(field, concat(_weights(6, seed=8), 1.3 * _weights(6, 4, seed=9))),
    "location": location_weights,
    "gaussian": partial(kernel, "gaussian", 0.3),
    "boxcar": partial(kernel, "boxcar", 0.6),
    "epanechnikov": partial(kernel, "epanechnikov", 0.7),
    "triangular": partial(kernel, "triangular", 0.7),
    "interval": interval_figure,
    "degrees": degrees_figure,
    "softmax": partial(normaliser, "softmax"),
    "sparsemax": partial(normaliser, "sparsemax"),
    "entmax15": partial(normaliser, "entmax15"),
    "mean": partial(normaliser, "mean"),
}
