"""Curves of a training run: training and validation loss, then the scores, with the best values in the titles."""

from pathlib import Path
from typing import Any

from jumok.analysis.draw.chart import CHART_FORMATS, Axis, Curve, LineChart, Point, charts_bytes
from jumok.errors import DataError
from jumok.files import atomic_write, checked_format, parse_json, read_lines
from jumok.training.score_names import lower_is_better, score_name, score_unit

Series = tuple[list[int], list[float]]
"""Steps, and a value at each."""


def curve_picture(metrics: str | Path, out: str | Path) -> Path:
    """Draw the metrics.jsonl of a run into `out` (.png, .svg, .pdf), with a chart for the loss and one per score."""
    path = Path(out)
    kind = checked_format(path, CHART_FORMATS)
    picture = charts_bytes(_charts(read_curves(metrics)), kind)
    with atomic_write(path) as file:
        file.write(picture)
    return path


def _charts(curves: dict[str, Series]) -> list[LineChart]:
    losses = {"training": curves.get("training"), "validation": curves.get("loss")}
    known = [_curve(name, series) for name, series in losses.items() if series]
    best = _best(curves["loss"], "loss") if "loss" in curves else ""
    charts = [LineChart(known, Axis("step"), Axis("nats per token"), f"Loss{best}")] if known else []
    for name in (name for name in curves if name not in ("training", "loss", "perplexity")):
        title = f"{score_name(name)}{_best(curves[name], name)}"
        charts.append(LineChart([_curve("validation", curves[name])], Axis("step"), Axis(score_unit(name)), title))
    return charts


def _curve(name: str, series: Series) -> Curve:
    return Curve(name, [Point(step, value, value, value) for step, value in zip(*series, strict=True)])


def _best(series: Series, name: str) -> str:
    steps, values = series
    best = min(values) if lower_is_better(name) else max(values)
    return f", best: {best:.4g} at step {steps[values.index(best)]:,}"


def read_curves(metrics: str | Path) -> dict[str, Series]:
    """Read the curves of a run: the "training" loss and the validation scores by name."""
    curves: dict[str, Series] = {}
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
