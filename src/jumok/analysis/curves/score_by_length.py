"""Curves of scores by source length, as in figure 2 of Bahdanau et al. (2015)."""

from jumok.analysis.draw.chart import Axis, Curve, LineChart, Point
from jumok.analysis.scores.length_bands import Band


def length_curves(bands: dict[str, list[Band]]) -> list[LineChart]:
    """Return a chart with one curve per system."""
    first = next(iter(bands.values()))
    ticks = [
        (float(place), f"{band.words.replace('-', '–')}\nn = {band.sentences}") for place, band in enumerate(first)
    ]
    curves = [Curve(name, [_point(place, band) for place, band in enumerate(curve)]) for name, curve in bands.items()]
    score = first[0].score.name
    title = f"{score} by source length, with 95% intervals"
    return [LineChart(curves, Axis("words in the source", ticks), Axis(score), title)]


def _point(at: int, band: Band) -> Point:
    score = band.score
    hint = f"{band.words} words, {band.sentences} sentences, {score.value:.1f} [{score.low:.1f}, {score.high:.1f}]"
    return Point(at, score.value, max(score.low, 0.0), max(score.high, 0.0), hint)
