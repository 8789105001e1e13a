"""The chart of scores by source length."""

from jumok.analysis.curves.score_by_length import length_curves
from jumok.analysis.draw.chart import charts_bytes
from jumok.analysis.scores.length_bands import score_bands

SOURCES = ["a b c", "a b c d e f", "a b"]
OUTPUTS = ["the cat sat on the mat", "a big dog barks at night", "this is a yes"]


def test_the_chart_says_what_each_point_is():
    bands = {"<one>": score_bands("bleu", SOURCES, OUTPUTS, OUTPUTS, edges=[5])}
    drawn = charts_bytes(length_curves(bands), "svg").decode()
    assert "n = 2" in drawn
    assert "&lt;one&gt;: 1-5 words, 2 sentences," in drawn
    assert "<one>" not in drawn
