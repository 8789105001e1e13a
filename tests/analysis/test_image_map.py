"""Where each word looked in an image: the brightest place is where the weight is, in every form it is written."""

import json
import sys
from base64 import b64decode
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from jumok.analysis.draw.image import embedded, panels_svg, sheet_of
from jumok.analysis.draw.style import png_bytes
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.regions import DIM, SIDE, UNSEEN, Regions
from jumok.errors import ArgumentError
from jumok.images.files import kept_part
from support.image_maps import PLACES, WORDS, example


def brightest(pixels: np.ndarray) -> tuple[int, int]:
    """The row and column of the region with the most light."""
    height, width = pixels.shape[:2]
    light = pixels.mean(-1)[: height // 3 * 3, : width // 4 * 4].reshape(3, height // 3, 4, width // 4).mean((1, 3))
    return tuple(map(int, np.unravel_index(light.argmax(), light.shape)))


@pytest.mark.parametrize(("height", "width"), [(60, 80), (700, 500), (3, 4), (480, 480)])
def test_the_brightest_region_is_where_the_word_looked(height, width):
    shown = example(height, width)
    for word, place in enumerate(PLACES):
        overlay = shown.place.overlay(shown.mean()[word])
        assert max(overlay.shape) == SIDE
        assert brightest(overlay) == place
        row, column = place
        assert shown.source[shown.mean()[word].argmax()] == f"row {row + 1}, column {column + 1}"


def test_the_image_keeps_its_colours_there_and_is_dim_elsewhere():
    shown = example(image=np.full((360, 480, 3), (200, 100, 0), np.uint8))
    overlay, grey = shown.place.overlay(shown.mean()[0]), 0.299 * 200 + 0.587 * 100
    np.testing.assert_allclose(overlay[0, 0], (200, 100, 0), atol=6)
    dark = DIM * (np.array([200, 100, 0]) + grey) / 2
    np.testing.assert_allclose(overlay[345, 465], dark + 0.0256 * (np.array([200, 100, 0]) - dark), atol=4)


def test_light_changes_smoothly_from_region_to_region():
    shown = example(360, 480)
    light = shown.place.light(shown.mean()[0])
    assert np.abs(np.diff(light, axis=0)).max() < 0.05
    assert light.max() == 1
    assert light.min() >= 0


def test_a_word_that_looks_everywhere_dims_nothing():
    image = np.random.default_rng(0).integers(0, 255, (480, 480, 3), np.uint8)
    np.testing.assert_array_equal(Regions(image, 4, 4).overlay(torch.full((16,), 1 / 16)), image)


@pytest.mark.parametrize(("height", "width"), [(200, 400), (500, 300)])
def test_light_lies_on_the_part_of_the_image_that_the_model_saw(height, width):
    top, left, bottom, right = kept_part(height, width, "crop")
    part = (top / height, left / width, bottom / height, right / width)
    place = Regions(np.full((height, width, 3), 200, np.uint8), 2, 2, part)
    overlay = place.overlay(torch.tensor([1.0, 0.0, 0.0, 0.0])).astype(float)[..., 0]
    up, start, down, end = place.box
    high, wide = overlay.shape
    assert (high / height, wide / width) == (pytest.approx(SIDE / max(height, width), rel=0.01),) * 2
    assert (down - up, end - start) == (pytest.approx(min(high, wide), abs=1),) * 2
    assert overlay[up + 5, start + 5] == pytest.approx(200, abs=4)  # the first of four regions, in its upper left
    assert overlay[down - 5, end - 5] == pytest.approx(200 * DIM, abs=2)
    outside = np.ones((high, wide), bool)
    outside[up:down, start:end] = False
    assert outside.any()
    np.testing.assert_allclose(overlay[outside], 200 * UNSEEN, atol=1)


def test_the_part_that_the_model_saw_is_written_and_read_again(tmp_path):
    place = Regions(np.zeros((60, 80, 3), np.uint8), 3, 4, (0.0, 0.125, 1.0, 0.875))
    shown = AttentionMap(place.names, ("x",), torch.full((1, 1, 1, 12), 1 / 12), place=place)
    assert AttentionMap.from_json(shown.to_json()).place.part == place.part
    assert "part" not in example().as_plain()["place"]
    drawn = panels_svg(shown)
    assert "cut off" in drawn
    assert "cut off" not in panels_svg(example())


@pytest.mark.parametrize(
    "part", [(0, 0, 0, 1), (0, 0.6, 1, 0.5), (-0.1, 0, 1, 1), (0, 0, 1, 1.5), (0, 0, float("nan"), 1)]
)
def test_a_part_that_is_none_is_refused(part):
    with pytest.raises(ArgumentError, match="must be top, left, bottom and right"):
        Regions(np.zeros((60, 80, 3), np.uint8), 3, 4, tuple(map(float, part)))


@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_pictures_are_what_their_name_says(tmp_path, kind):
    content = example().save(tmp_path / f"look.{kind}").read_bytes()
    assert content.startswith({"png": b"\x89PNG", "pdf": b"%PDF"}[kind])
    assert len(content) > 10_000


def test_the_png_shows_the_image_first_and_then_each_word_bright_where_it_looked(tmp_path):
    shown = example()
    sheet = sheet_of(shown)
    drawn = np.asarray(Image.open(shown.save(tmp_path / "look.png")).convert("RGB"))
    scale = drawn.shape[1] / sheet.width
    for panel, place in zip(sheet.panels[1:], PLACES, strict=True):
        x, y, wide, high = (round(scale * side) for side in (panel.x, panel.y, *sheet.panel))
        assert brightest(drawn[y : y + high, x : x + wide]) == place
    assert [panel.word for panel in sheet.panels] == ["", *WORDS]


def test_the_svg_holds_every_panel_and_its_words_as_text():
    root = ElementTree.fromstring(panels_svg(example()))
    images = [element.attrib["href"] for element in root.iter() if element.tag.endswith("image")]
    assert len(images) == 1 + len(WORDS)
    second = np.asarray(Image.open(BytesIO(b64decode(images[2].partition(",")[2]))))
    assert brightest(second) == PLACES[1]
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert texts[0] == " ".join(WORDS)
    assert set(WORDS) <= set(texts)


def test_a_photo_in_an_svg_takes_a_fraction_of_its_pngs_and_looks_the_same():
    shown = example(360, 480, image=photo())
    root = ElementTree.fromstring(panels_svg(shown))
    images = [element.attrib["href"] for element in root.iter("{http://www.w3.org/2000/svg}image")]
    panels = sheet_of(shown).panels
    assert sum(map(len, images)) < sum(len(png_bytes(panel.pixels)) for panel in panels) / 3
    for href, panel in zip(images, panels, strict=True):
        assert href.startswith("data:image/jpeg;base64,")
        found = np.asarray(Image.open(BytesIO(b64decode(href.partition(",")[2]))))
        assert found.shape == panel.pixels.shape
        assert np.abs(found.astype(float) - panel.pixels).mean() < 3


def test_a_drawing_in_an_svg_stays_exact_and_so_does_a_photo_without_pillow(monkeypatch):
    flat = np.full((60, 80, 3), 255, np.uint8)
    flat[20:40, 30:50] = (200, 30, 30)
    monkeypatch.setitem(sys.modules, "PIL", None)
    texts = embedded(flat), embedded(photo())
    monkeypatch.undo()
    assert embedded(flat) == texts[0]
    for text, pixels in zip(texts, (flat, photo()), strict=True):
        assert text.startswith("data:image/png;base64,")
        assert np.array_equal(np.asarray(Image.open(BytesIO(b64decode(text.partition(",")[2])))), pixels)


def photo():
    """Smooth colours with the noise of a camera."""
    down, across = np.mgrid[:360, :480] / 60
    colours = np.stack([np.sin(down + across), np.cos(down), np.sin(2 * across)], -1)
    noise = np.random.default_rng(1).normal(0, 3, colours.shape)
    return (128 + 90 * colours + noise).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("count", [0, 1, 5, 30])
def test_panels_lie_inside_the_picture_and_not_on_each_other(count):
    words = tuple("아주 긴 단어" * 9 for _ in range(count))
    place = Regions(np.zeros((50, 90, 3), np.uint8), 2, 2)
    sheet = sheet_of(AttentionMap(place.names, words, torch.ones(1, 1, count, 4), place=place))
    wide, high = sheet.panel
    assert all(panel.x + wide < sheet.width and panel.y + high < sheet.height - 20 for panel in sheet.panels)
    assert len({(panel.x, panel.y) for panel in sheet.panels}) == 1 + count
    assert all(panel.word.endswith("…") for panel in sheet.panels[1:])
    assert min(panel.y for panel in sheet.panels) > 20 * len(sheet.heading)


def test_the_json_brings_back_words_weights_and_the_image(tmp_path):
    shown = example(layers=2, heads=2)
    text = shown.save(tmp_path / "look.json").read_text(encoding="utf-8")
    again = AttentionMap.from_json(text)
    assert (again.target, again.source, again.title) == (WORDS, shown.source, " ".join(WORDS))
    torch.testing.assert_close(again.weights, shown.weights, atol=1e-6, rtol=0)
    np.testing.assert_array_equal(again.place.image, shown.place.image)
    assert (again.place.rows, again.place.columns) == (3, 4)
    assert json.loads(text)["place"]["kind"] == "image"


def test_pictures_show_the_layer_and_head_that_are_chosen():
    shown = example(layers=2, heads=2).select(layer=1, head=0)  # the third, which looks two columns further
    row, column = PLACES[0]
    assert brightest(sheet_of(shown).panels[1].pixels) == (row, column + 2)


def test_a_terminal_without_colour_shows_the_regions_in_shades():
    lines = example().terminal(width=60, plain=True).plain.splitlines()
    assert lines[0].split() == list(WORDS)
    assert lines[1].startswith("██")
    assert lines[2].count("█") == 2
    assert "█" in lines[3]
    assert lines[-1] == "░ 7.5–32%  ▒ 32–57%  ▓ 57–82%  █ 82–100% of a word's largest weight"


def test_a_terminal_with_colour_shows_two_pixels_a_letter():
    shown = example().terminal(width=200)
    assert "▀" in shown.plain
    lines = shown.plain.splitlines()
    assert len(lines) == 1 + 8  # 22 × 16 pixels, two a line
    assert all(word in lines[0] for word in WORDS)
    narrow = example().terminal(width=30).plain.splitlines()
    assert len(narrow) == 4 * 9 + 3


def test_control_characters_do_not_reach_the_terminal_or_the_picture(tmp_path):
    shown = example(words=("a\x1b[2J", "b\nc", "d\x00"))
    assert not {"\x1b", "\x00"} & set(shown.terminal(plain=True).plain)
    ElementTree.parse(shown.save(tmp_path / "look.svg"))
    shown.save(tmp_path / "look.png")
