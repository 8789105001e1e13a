"""Charts: well-formed, to scale, and safe with any name."""

import re
from xml.etree import ElementTree

import pytest

from jumok.analysis.draw.chart import Axis, Curve, LineChart, Point, bar_chart, charts_bytes
from jumok.analysis.draw.shapes import Rectangle, svg_text

NASTY = "<script>alert(1)</script>&\"'\x00\x1b\ud800"


def chart(curves, **axes):
    content = LineChart(curves, axes.get("x", Axis("x")), axes.get("y", Axis("y")), axes.get("title", "t"))
    return charts_bytes([content], "svg").decode()


def places(svg: str) -> list[list[tuple[float, float]]]:
    """Where each line goes."""
    lines = re.findall(r'<polyline points="([^"]*)" fill="none" stroke="var\(--series\d\)" stroke-width="2.20"', svg)
    lines = [line for line in lines if line.count(",") != 2 or not re.match(r"\S+,(\S+) \S+,\1$", line)]  # no keys
    return [[tuple(map(float, place.split(","))) for place in line.split()] for line in lines]


def flat(name, *values):
    return Curve(name, [Point(x, y, y, y) for x, y in enumerate(values)])


def test_lines_keep_the_proportions_of_their_values_with_zero_at_the_bottom():
    ((_, zero), (_, half), (_, whole)) = places(chart([flat("a", 0, 5, 10)]))[0]
    assert zero > half > whole
    assert half == pytest.approx((zero + whole) / 2, abs=0.1)


def test_on_a_logarithmic_axis_equal_factors_are_equal_steps():
    ((_, one), (_, ten), (_, hundred)) = places(chart([flat("a", 0.001, 0.01, 0.1)], y=Axis("y", log=True)))[0]
    assert one - ten == pytest.approx(ten - hundred, abs=0.2)


@pytest.mark.parametrize("values", [(0,), (3, 3, 3), (0, 0), (1e-9, 1e9), (-1, 2)])
def test_odd_values_are_drawn_within_the_paper(values):
    for log in (False, True):
        drawn = chart([flat("a", *values)], y=Axis("y", log=log))
        ElementTree.fromstring(drawn)
        assert all(0 <= x <= 720 and 0 <= y <= 380 for line in places(drawn) for x, y in line)
        assert "nan" not in drawn


def test_names_titles_and_labels_are_text_whatever_they_hold():
    drawn = [
        chart([flat(NASTY, 1, 2)], x=Axis(NASTY, [(0, NASTY)]), y=Axis(NASTY), title=NASTY),
        svg_text([bar_chart([(NASTY, 1.0)], x=NASTY, y=NASTY, title=NASTY)] * 2),
    ]
    for svg in drawn:
        ElementTree.fromstring(svg)
        assert "<script" not in svg


def test_many_long_names_get_rows_of_their_own():
    drawn = chart([flat("한국어 이름이 아주 길다 " * 3 + str(number), 1, 2) for number in range(6)])
    rows = set(re.findall(r'<text x="[\d.]+" y="([\d.]+)" [^>]*>한국어', drawn))
    assert len(rows) > 1
    assert "…" in drawn


def test_every_bar_is_as_high_as_its_value():
    shapes = bar_chart([("a", 1), ("b", 4)], x="", y="", title="").shapes
    heights = [shape.height for shape in shapes if isinstance(shape, Rectangle)]
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.01)
