"""Maps saved and read again: the ending of the name says how."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.analysis import draw
from jumok.analysis.draw.page import MOST, attention_page, widget
from jumok.analysis.draw.style import DARK, LIGHT, weight_pixels
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import png_bytes
from jumok.errors import ArgumentError, DataError

SVG = "{http://www.w3.org/2000/svg}"
NASTY = ("<script>", "</script>", "&", '"', "'", "\u2028", "\x00", "", " ", "주목", "]]>", "<!--")


def example(layers=2, heads=3, source=("On", "Friday", "</s>"), target=("금요일", "에")) -> AttentionMap:
    shape = (layers, heads, len(target), len(source))
    return AttentionMap(tuple(source), tuple(target), torch.randn(shape).softmax(-1))


@pytest.mark.parametrize("kind", draw.FORMATS)
def test_a_map_is_saved_by_the_ending_of_its_name(kind, tmp_path):
    if kind in ("png", "pdf"):
        pytest.importorskip("matplotlib")
    shown = example(source=("a", "b"), target=("x", "y"))
    path = draw.save(shown, tmp_path / "new folder" / f"map.{kind.upper()}", title="a & b")
    begins = {
        "png": b"\x89PNG",
        "svg": b"<svg",
        "pdf": b"%PDF",
        "html": b"<!doctype html>",
        "json": b'{"source"',
        "txt": b"a & b\n",
    }
    assert path.read_bytes().startswith(begins[kind])


@pytest.mark.parametrize("name", ["map.gif", "map", "map.svg.gz", ".png"])
def test_another_ending_is_refused_and_the_known_ones_named(name, tmp_path):
    with pytest.raises(ArgumentError, match=r"should end in one of \.png, \.svg, \.pdf, \.html, \.json, \.txt"):
        draw.save(example(), tmp_path / name)
    assert not list(tmp_path.iterdir())


@given(st.lists(st.text(max_size=4), min_size=1, max_size=4), st.lists(st.text(max_size=4), min_size=1, max_size=4))
def test_json_brings_back_the_map(source, target):
    shown = example(1, 2, source, target)
    again = AttentionMap.from_json(shown.to_json())
    assert (again.source, again.target) == (shown.source, shown.target)
    torch.testing.assert_close(again.weights, shown.weights, atol=1e-6, rtol=0)
    assert (again.layer_names, again.head_names) == (shown.layer_names, shown.head_names)
    titled = replace(again, title="한 줄")
    assert AttentionMap.from_json(titled.to_json()).to_json() == titled.to_json()


def test_the_json_is_what_the_documentation_says():
    found = json.loads(example().to_json())
    assert found["source"] == ["On", "Friday", "</s>"]
    assert len(found["weights"][1][2][0]) == 3
    assert found["names"] == {"layers": ["0", "1"], "heads": ["0", "1", "2"]}
    without = AttentionMap.from_json('{"source": ["a"], "target": ["x"], "weights": [[[[1]]]]}')
    assert without.layer_names == ("0",)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"source": 1}', '{"source":[],"target":[],"weights":[["x"]]}'])
def test_json_of_something_else_is_refused(text):
    with pytest.raises(DataError, match="not the JSON of an attention map"):
        AttentionMap.from_json(text)


def test_weights_of_another_shape_are_refused():
    for weights, error in (("[[1]]", DataError), ("[[[[1, 0]]]]", ArgumentError)):
        with pytest.raises(error, match="expected"):
            AttentionMap.from_json(f'{{"source": ["a"], "target": ["x"], "weights": {weights}}}')


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_svg_is_valid_whatever_the_words(grid, shape):
    shown = replace(example(*shape, source=NASTY, target=NASTY), title="a < b")
    texts = {element.text for element in ET.fromstring(draw.to_svg(shown, grid=grid)).iter(f"{SVG}text")}
    assert {"<script>", "]]>", "주목", "a < b"} <= texts


def test_a_grid_has_a_panel_for_every_layer_and_head():
    root = ET.fromstring(draw.to_svg(example(2, 3), grid=True))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert [text for text in texts if text and text.startswith("layer")] == [
        f"layer {layer} · head {head}" for layer in range(2) for head in range(3)
    ]
    assert len(list(root.iter(f"{SVG}title"))) == 2 * 3 * 2 * 3


@pytest.mark.parametrize("grid", [False, True])
def test_a_very_long_map_stays_a_small_svg(grid):
    words = [f"word{at}" for at in range(400)]
    text = draw.to_svg(example(1, 1, words, words), grid=grid)
    assert len(text) < 1_500_000
    assert len(list(ET.fromstring(text).iter(f"{SVG}image"))) == 1


def test_our_png_is_what_others_read(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    pixels = weight_pixels(torch.rand(5, 7).numpy())
    (tmp_path / "a.png").write_bytes(png_bytes(pixels))
    read = image.imread(tmp_path / "a.png")
    torch.testing.assert_close(torch.tensor(read[..., :3] * 255).round().byte(), torch.tensor(pixels))


def test_an_empty_map_can_be_drawn():
    for source, target in (((), ()), (("a",), ()), ((), ("x",))):
        shown = AttentionMap(source, target, torch.zeros(1, 1, len(target), len(source)))
        assert ET.fromstring(draw.to_svg(shown)).tag.endswith("svg")
        assert attention_page(shown).rstrip().endswith("</html>")
        again = AttentionMap.from_json(shown.to_json())
        assert (again.source, again.target, again.weights.shape) == (source, target, shown.weights.shape)


def test_a_page_asks_for_nothing_and_its_words_cannot_end_its_script():
    page = attention_page(replace(example(source=NASTY, target=NASTY), title="</title><script>alert(1)</script>"))
    assert page.count("<script") == page.count("</script>") == 3
    assert "alert(1)</script>" not in page
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["source"] == list(NASTY)
    fetched = [
        word for word in ("http:", "https:", "src=", "@import", "url(") if word in page.replace("http://www.w3.org", "")
    ]
    assert fetched == []


def test_a_page_of_too_many_numbers_holds_averages_and_says_so(monkeypatch):
    monkeypatch.setattr("jumok.analysis.draw.page.MOST", 20)
    shown = example(3, 4)  # 72 numbers, 18 by layer
    page = attention_page(shown)
    data = AttentionMap.from_json(page.partition('id="data">')[2].partition("</script>")[0])
    torch.testing.assert_close(data.weights, shown.weights.mean(1, keepdim=True), atol=1e-6, rtol=0)
    assert "3 layers of 4 heads, which is too much for one page: the heads are averaged." in page
    monkeypatch.setattr("jumok.analysis.draw.page.MOST", 6)
    assert "layers and heads are averaged." in attention_page(shown)
    assert "레이어와 헤드를 모두 평균했습니다." in attention_page(shown, "ko")
    assert MOST >= 2_000_000  # a map of 1,000 × 1,000 words, and then some


def test_the_colours_of_the_page_are_those_of_the_pictures():
    script = widget("parts.js")
    for stops in (LIGHT, DARK):
        assert json.dumps(list(stops)) in script


def test_layers_and_heads_are_chosen_and_keep_their_names():
    shown = example(3, 4)
    one = shown.select(layer=-1, head=[0, 2])
    torch.testing.assert_close(one.weights, shown.weights[2:, [0, 2]])
    assert (one.layer_names, one.head_names) == (("2",), ("0", "2"))
    mean = shown.select(layer="mean", head=slice(1, 3))
    torch.testing.assert_close(mean.weights, shown.weights[:, 1:3].mean(0, keepdim=True))
    assert (mean.layer_names, mean.head_names) == (("mean",), ("1", "2"))
    assert shown.select().weights is shown.weights


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"layer": 3}, "layer = 3 does not exist; there are 3, counted from 0"),
        ({"head": [0, -5]}, "head = -5 does not exist; there are 4"),
    ],
)
def test_a_layer_that_is_not_there_is_named(choice, message):
    with pytest.raises(ArgumentError, match=message):
        example(3, 4).select(**choice)


def test_entropy_is_that_of_a_distribution():
    shown = example(2, 2, source="abcdef")
    wanted = torch.distributions.Categorical(probs=shown.weights).entropy()
    torch.testing.assert_close(shown.entropy(), wanted)
    even = AttentionMap(("a", "b"), ("x",), torch.tensor([[[[0.5, 0.5]]], [[[1.0, 0.0]]]]))
    torch.testing.assert_close(even.entropy().flatten(), torch.tensor([0.5, 0.0]).mul(2).mul(torch.tensor(2.0).log()))
