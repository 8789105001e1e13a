"""Curves of a training run: training and validation loss, then the scores, with the best values marked."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.errors import ArgumentError, DataError, MissingExtraError
from jumok.files import atomic_write, parse_json, read_lines
from jumok.training.score_names import lower_is_better, score_name, score_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart.
TRAINING, VALIDATION = "#0072B2", "#D55E00"
SCORES = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9")
TEXT, QUIET, LINE = "#20242C", "#5B6472", "#C9CED6"

Curve = tuple[list[int], list[float]]
"""Steps, and a value at each."""


def curve_picture(metrics: str | Path, out: str | Path) -> Path:
    """Draw the metrics.jsonl of a run into `out` (.png, .svg, .pdf), with a panel for the loss and one per score."""
    curves = read_curves(metrics)
    scores = [name for name in curves if name not in ("training", "loss", "perplexity")]
    figure = _new_figure(panels=1 + len(scores))
    panels: Any = figure.subplots(
        1 + len(scores), 1, sharex=True, squeeze=False, height_ratios=[1.6] + [1.0] * len(scores)
    )[:, 0]
    _draw_loss(panels[0], curves)
    for panel, name, colour in zip(panels[1:], scores, SCORES * len(scores), strict=False):
        _draw_score(panel, name, curves[name], colour)
    panels[-1].set_xlim(left=0)
    panels[-1].set_xlabel("step", fontsize=9, color=QUIET)
    panels[-1].xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    return _save(figure, Path(out))


def read_curves(metrics: str | Path) -> dict[str, Curve]:
    """Read the curves of a run: the "training" loss and the validation scores by name."""
    curves: dict[str, Curve] = {}
    for record in _records(metrics):
        scores = record.get("validation") or {"training": record.get("loss")}
        for name, value in scores.items():
            if value is not None:
                steps, values = curves.setdefault(name, ([], []))
                steps.append(record["step"])
                values.append(value)
    if not curves:
        raise DataError(f"{metrics} holds no numbers yet, so there is nothing to draw")
    return curves


def _records(metrics: str | Path) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(read_lines(metrics), start=1):
        try:
            records.append(_record(parse_json(line)))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise DataError(f"{metrics}, line {number}: not a JSON object of metrics; delete the line") from None
    return records


def _record(record: dict[str, Any]) -> dict[str, Any]:
    """Read a line of metrics; raises ValueError, TypeError, KeyError or AttributeError if it is none."""
    if not all(isinstance(value, float | int | None) for value in (record.get("validation") or {}).values()):
        raise TypeError("a score must be a number")
    return {**record, "step": int(record["step"]), "loss": record.get("loss") and float(record["loss"])}


def _draw_loss(panel: Any, curves: dict[str, Curve]) -> None:
    _plain(panel, "loss per token")
    if "training" in curves:
        panel.plot(*curves["training"], color=TRAINING, linewidth=1.3, label="training", zorder=2)
    if "loss" in curves:
        steps, values = curves["loss"]
        panel.plot(
            steps, values, color=VALIDATION, linewidth=1.6, marker="o", markersize=3.5, label="validation", zorder=3
        )
        _mark(panel, steps, values, min(values), VALIDATION)
    panel.legend(loc="upper right", frameon=False, fontsize=9, labelcolor=TEXT)


def _draw_score(panel: Any, name: str, curve: Curve, colour: str) -> None:
    steps, values = curve
    better = min if lower_is_better(name) else max
    _plain(panel, f"{score_name(name)} {score_unit(name)}".strip())
    panel.plot(steps, values, color=colour, linewidth=1.6, marker="o", markersize=3.5, zorder=3, clip_on=False)
    _mark(panel, steps, values, better(values), colour)
    panel.set_ylim(0, 1.15 * max(values) or 1)  # room for the ring


def _mark(panel: Any, steps: list[int], values: list[float], best: float, colour: str) -> None:
    """Draw a ring around the best value, and write the value above the panel, where no line crosses it."""
    step = steps[values.index(best)]
    ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "markeredgecolor": colour}
    panel.plot([step], [best], **ring, zorder=4, clip_on=False)
    text = f"best: {best:.4g} at step {step:,}"
    panel.set_title(text, fontsize=9, fontweight="bold", color=colour, loc="right")


def _plain(panel: Any, title: str) -> None:
    panel.set_title(title, fontsize=10, color=TEXT, loc="left")
    panel.tick_params(labelsize=8, colors=QUIET, length=2)
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(LINE)
    panel.grid(axis="y", color=LINE, linewidth=0.6, alpha=0.6)
    panel.set_axisbelow(True)
    panel.margins(y=0.15)


def _new_figure(*, panels: int) -> "Figure":
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as missing:
        raise MissingExtraError("matplotlib", "plot", "drawing") from missing
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    return Figure(figsize=(8, 1.8 + 1.9 * panels), dpi=150, layout=layout, facecolor="white")


def _save(figure: "Figure", path: Path) -> Path:
    kind = path.suffix.lstrip(".").lower()
    known = sorted(figure.canvas.get_supported_filetypes())
    if kind not in known:
        raise ArgumentError(f"{path} should end in one of .{', .'.join(known)}")
    picture = BytesIO()
    figure.savefig(picture, format=kind)
    with atomic_write(path) as file:
        file.write(picture.getvalue())
    return path
