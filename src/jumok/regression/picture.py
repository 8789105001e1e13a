"""Pictures of kernel regression: each fit, and under it the attention weights of its queries."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jumok.errors import MissingExtraError
from jumok.files import atomic_write, checked_format
from jumok.regression.estimator import KernelRegressor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KERNELS = ("constant", "boxcar", "triangular", "epanechnikov", "gaussian")
"""From the plain mean to Nadaraya-Watson."""
BANDWIDTHS = (0.05, 0.2, 0.6, 2.0)

# Okabe and Ito's colours, told apart by colour-blind eyes too.
FIT, DATA = "#D55E00", "#7A869A"
TRUTH, TEXT, QUIET, LINE = "#0072B2", "#20242C", "#5B6472", "#C9CED6"
WEIGHTS = "Oranges"


class NoisySine(NamedTuple):
    """y = 2 sin x + x + noise, on 0 … 5: training points in order of x, and queries with the true curve."""

    x: np.ndarray
    y: np.ndarray
    queries: np.ndarray
    truth: np.ndarray
    noise: float

    @staticmethod
    def draw(points: int = 50, *, noise: float = 0.5, seed: int = 0) -> "NoisySine":
        """A training set of its own for every seed."""
        random = np.random.default_rng(seed)
        x, queries = np.sort(random.uniform(0, 5, points)), np.linspace(0, 5, 201)
        return NoisySine(x, _curve(x) + random.normal(0, noise, points), queries, _curve(queries), noise)

    def fit(self, regressor: "KernelRegressor") -> "KernelRegressor":
        """The regressor, fitted to the training points."""
        return regressor.fit(self.x[:, None], self.y)

    def error(self, regressor: "KernelRegressor") -> float:
        """Root mean squared distance of a fit from the true curve."""
        return float(np.sqrt(np.mean((regressor.predict(self.queries[:, None]) - self.truth) ** 2)))


def draw_kernels(path: str | Path, data: NoisySine | None = None) -> Path:
    """From the plain mean to Nadaraya-Watson: one column for each kernel, its bandwidth by leave-one-out."""
    data = data or NoisySine.draw()
    fits = [data.fit(KernelRegressor(kernel)) for kernel in KERNELS]
    titles = [_kernel_title(fit) for fit in fits]
    return _save(_figure(data, fits, titles, "From the plain mean to Nadaraya-Watson regression"), path)


def draw_bandwidths(
    path: str | Path,
    data: NoisySine | None = None,
    *,
    kernel: str = "gaussian",
    bandwidths: Sequence[float] = BANDWIDTHS,
) -> Path:
    """From the nearest neighbour to the plain mean: one column for each bandwidth of one kernel."""
    data = data or NoisySine.draw()
    fits = [data.fit(KernelRegressor(kernel, bandwidth)) for bandwidth in bandwidths]
    titles = [f"h = {bandwidth:g}" for bandwidth in bandwidths]
    return _save(_figure(data, fits, titles, f"The bandwidth h of the {_name(kernel)} kernel"), path)


def draw_interval(
    path: str | Path,
    data: Sequence[NoisySine] | None = None,
    *,
    kernel: str = "gaussian",
    level: float = 0.95,
) -> Path:
    """How sure the fit is: the pointwise interval of the smoothed mean, one column for each set of points."""
    return _save(interval_figure(data, kernel=kernel, level=level), path)


def interval_figure(
    data: Sequence[NoisySine] | None = None, *, kernel: str = "gaussian", level: float = 0.95
) -> "Figure":
    """The same picture, not yet saved."""
    data = data or [NoisySine.draw(points) for points in (50, 200, 1000)]
    figure = _new_figure(width=2.9 * len(data) + 0.8, height=3.4)
    grid: Any = figure.subplots(1, len(data), sharex=True, sharey=True, squeeze=False)
    for axes, points in zip(grid[0], data, strict=True):
        _draw_interval(axes, points, points.fit(KernelRegressor(kernel)), level)
    grid[0, 0].set_ylabel("y", fontsize=9, color=QUIET)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    title = f"The {_name(kernel)} fit and its {level:.0%} interval"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=TEXT)
    return figure


def degrees_figure(data: NoisySine | None = None, *, bandwidth: float = 0.5) -> "Figure":
    """The bias at the boundary: a local mean and a local line of the same bandwidth."""
    data = data or NoisySine.draw(120, noise=0.35)
    figure = _new_figure(width=7.2, height=3.4)
    grid: Any = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, degree, name in zip(grid, (0, 1), ("local mean, degree=0", "local line, degree=1"), strict=True):
        fit = data.fit(KernelRegressor("gaussian", bandwidth, degree=degree))
        _draw_fit(axes, data, fit, f"{name}: error {data.error(fit):.2f}")
        axes.set_xlabel("x", fontsize=9, color=QUIET)
    grid[0].set_ylabel("y", fontsize=9, color=QUIET)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    title = f"A local line follows the slope at the boundary (Gaussian, h = {bandwidth:g})"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=TEXT)
    return figure


def _draw_interval(axes: Any, data: NoisySine, fit: "KernelRegressor", level: float) -> None:
    mean, low, high = fit.interval(data.queries[:, None], level)
    many = len(data.x) > 300
    style = {"s": 5, "alpha": 0.35} if many else {"s": 12, "alpha": 0.8}
    axes.scatter(data.x, data.y, color=DATA, linewidths=0, clip_on=False, label="training points", zorder=1, **style)
    axes.fill_between(data.queries, low, high, color=FIT, alpha=0.28, linewidth=0, label="interval", zorder=2)
    axes.plot(data.queries, data.truth, color=TRUTH, linewidth=1.3, linestyle=(0, (4, 2)), label="truth", zorder=3)
    axes.plot(data.queries, mean, color=FIT, linewidth=1.2, label="fit", zorder=4)
    axes.set_title(f"{len(data.x):,} points, h = {fit.bandwidth_:.2g}", fontsize=10, color=TEXT, loc="left")
    axes.set_xlabel("x", fontsize=9, color=QUIET)
    _plain(axes)


def _kernel_title(fit: "KernelRegressor") -> str:
    return "plain mean" if fit.kernel == "constant" else f"{_name(fit.kernel)}, h = {fit.bandwidth_:.2g}"


def _name(kernel: str) -> str:
    return kernel.title() if kernel in ("epanechnikov", "gaussian") else kernel


def _figure(data: NoisySine, fits: list["KernelRegressor"], titles: list[str], title: str) -> "Figure":
    figure = _new_figure(width=2.3 * len(fits) + 1.2, height=5.2)
    grid: Any = figure.subplots(2, len(fits), sharex=True, sharey="row", squeeze=False)
    weights = [fit.weights(data.queries[:, None]) for fit in fits]
    largest = max(matrix.max() for matrix in weights)
    for column, (fit, name) in enumerate(zip(fits, titles, strict=True)):
        _draw_fit(grid[0, column], data, fit, name)
        image = _draw_weights(grid[1, column], data, weights[column], largest)
    for axes, label in zip(grid[:, 0], ("y", "training point, in order of x"), strict=True):
        axes.set_ylabel(label, fontsize=9, color=QUIET)
    bar = figure.colorbar(image, ax=grid[1].tolist(), aspect=18, pad=0.01, format="%.2g", ticks=_ticks(largest))
    bar.set_label("weight α", fontsize=9, color=QUIET)
    _plain(bar.ax)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=TEXT)
    return figure


def _draw_fit(axes: Any, data: NoisySine, fit: "KernelRegressor", title: str) -> None:
    axes.scatter(data.x, data.y, s=12, color=DATA, alpha=0.8, linewidths=0, clip_on=False, label="training points")
    axes.plot(data.queries, data.truth, color=TRUTH, linewidth=1.3, linestyle=(0, (4, 2)), label="truth")
    axes.plot(data.queries, fit.predict(data.queries[:, None]), color=FIT, linewidth=2, label="fit")
    axes.set_title(title, fontsize=10, color=TEXT, loc="left")
    _plain(axes)


def _draw_weights(axes: Any, data: NoisySine, weights: np.ndarray, largest: float) -> Any:
    """A column for each query, under its place in the fit; a row for each training point. All share one scale.

    The scale goes by the square root, or the even weights of the plain mean could not be seen beside a sharp kernel's.
    """
    from matplotlib.colors import PowerNorm

    extent = (data.queries[0], data.queries[-1], 0.5, len(data.x) + 0.5)
    norm = PowerNorm(0.5, vmin=0, vmax=largest)
    image = axes.imshow(weights.T, origin="lower", aspect="auto", extent=extent, cmap=WEIGHTS, norm=norm)
    image.set_interpolation("nearest")
    axes.set_xlabel("query x", fontsize=9, color=QUIET)
    _plain(axes)
    return image


def _ticks(largest: float) -> list[float]:
    return [tick for tick in (0, 0.02, 0.1, 0.3, 0.6, 1.0) if tick <= largest * 1.001]


def _plain(axes: Any) -> None:
    axes.tick_params(labelsize=8, colors=QUIET, length=2)
    axes.spines[:].set_color(LINE)
    axes.spines[:].set_linewidth(0.8)


def _new_figure(*, width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as missing:
        raise MissingExtraError("matplotlib", "plot", "drawing") from missing
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    return Figure(figsize=(width, height), dpi=150, layout=layout, facecolor="white")


def _save(figure: "Figure", path: str | Path) -> Path:
    kind = checked_format(path, sorted(figure.canvas.get_supported_filetypes()))
    with atomic_write(path) as file:
        figure.savefig(file, format=kind)
    return Path(path)


def _curve(x: np.ndarray) -> np.ndarray:
    y: np.ndarray = 2 * np.sin(x) + x
    return y
