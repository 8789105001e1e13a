"""Line charts as pictures: everything said is on them, and Korean names need no special care."""

import math

import pytest

from jumok.analysis.draw.chart import Axis, Curve, LineChart, Point, charts_bytes

POINTS = [Point(x, y, 0.8 * y, 1.2 * y) for x, y in ((8, 0.5), (64, 40.0), (256, 3000.0))]


def chart(**changes) -> LineChart:
    curves = [Curve("트랜스포머 $x$", POINTS), Curve("<rnn>", POINTS[:1]), Curve("nothing", [])]
    axes = {"x": Axis("tokens", [(8, "8\nn = 2"), (256, "256")], log=True), "y": Axis("ms", log=True)}
    return LineChart(**{"curves": curves, "title": "속도 by $length$", **axes, **changes})


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
@pytest.mark.parametrize("y", [Axis("ms"), Axis("ms", log=True)])
def test_a_chart_is_drawn_as_what_its_name_says(kind, y, recwarn):
    content = charts_bytes([chart(y=y), chart(title="below")], kind)
    assert content.startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<svg"}[kind])
    assert not [str(one.message) for one in recwarn if "Glyph" in str(one.message)]


def test_two_charts_are_twice_as_high():
    image = pytest.importorskip("PIL.Image")
    from io import BytesIO

    one, two = (image.open(BytesIO(charts_bytes([chart()] * count, "png"))).size for count in (1, 2))
    assert two == (one[0], 2 * one[1])


def test_values_that_are_not_positive_do_not_break_a_logarithmic_axis():
    flat = [Curve("a", [Point(1, 0.0, 0.0, 0.0)]), Curve("b", [Point(1, 5.0, math.nan, 5.0)])]
    assert charts_bytes([chart(curves=flat)], "png").startswith(b"\x89PNG")


def test_an_svg_holds_all_charts():
    alone, both = (charts_bytes([chart()] * count, "svg").decode() for count in (1, 2))
    assert both.count("<polyline") == 2 * alone.count("<polyline")
