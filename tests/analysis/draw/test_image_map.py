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

from jumok.analysis import draw
from jumok.analysis.draw.image import DIM, UNSEEN, brightness, image_panels, overlay, seen_box
from jumok.analysis.draw.shapes import Drawing, Label, Photo, image_url
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import IMAGE_SIDE, ImageLayout, png_bytes
from jumok.errors import ArgumentError
from jumok.images.files import kept_part
from support.image_maps import PLACES, WORDS, example


def brightest(pixels: np.ndarray) -> tuple[int, int]:
    """The row and column of the region with the most light."""
    height, width = pixels.shape[:2]
    light = pixels.mean(-1)[: height // 3 * 3, : width // 4 * 4].reshape(3, height // 3, 4, width // 4).mean((1, 3))
    return tuple(map(int, np.unravel_index(light.argmax(), light.shape)))


def panels(shown: AttentionMap) -> tuple[list[Photo], Drawing]:
    """The image and its panels, and the whole picture."""
    sheet = image_panels(shown)
    return [shape for shape in sheet.shapes if isinstance(shape, Photo)], sheet


@pytest.mark.parametrize(("height", "width"), [(60, 80), (700, 500), (3, 4), (480, 480)])
def test_the_brightest_region_is_where_the_word_looked(height, width):
    shown = example(height, width)
    for word, place in enumerate(PLACES):
        lit = overlay(shown.layout, shown.mean()[word])
        assert max(lit.shape) == IMAGE_SIDE
        assert brightest(lit) == place
        row, column = place
        assert shown.source[shown.mean()[word].argmax()] == f"row {row + 1}, column {column + 1}"


def test_the_image_keeps_its_colours_there_and_is_dim_elsewhere():
    shown = example(image=np.full((360, 480, 3), (200, 100, 0), np.uint8))
    lit, grey = overlay(shown.layout, shown.mean()[0]), 0.299 * 200 + 0.587 * 100
    np.testing.assert_allclose(lit[0, 0], (200, 100, 0), atol=6)
    dark = DIM * (np.array([200, 100, 0]) + grey) / 2
    np.testing.assert_allclose(lit[345, 465], dark + 0.0256 * (np.array([200, 100, 0]) - dark), atol=4)


def test_light_changes_smoothly_from_region_to_region():
    shown = example(360, 480)
    light = brightness(shown.layout, shown.mean()[0])
    assert np.abs(np.diff(light, axis=0)).max() < 0.05
    assert light.max() == 1
    assert light.min() >= 0


def test_the_light_of_one_region_is_round_and_brightest_in_its_middle():
    layout = ImageLayout(np.zeros((480, 480, 3), np.uint8), 5, 5)
    light = brightness(layout, torch.eye(25)[12])
    assert light[240, 240] == pytest.approx(1, abs=1e-3)
    for distance in (40, 80, 120):
        beside, aslant = (
            light[240, 240 + distance],
            light[240 + round(distance / 2**0.5), 240 + round(distance / 2**0.5)],
        )
        assert beside == pytest.approx(aslant, abs=0.02)
        assert 0 < beside < 1


def test_light_is_brightest_at_the_centres_that_a_layout_names():
    layout = ImageLayout(np.zeros((480, 480, 3), np.uint8), 8, 8, centres=(0.5 / 64, 8 / 64))
    light = brightness(layout, torch.eye(64)[8 * 3 + 5])
    row, column = np.unravel_index(light.argmax(), light.shape)
    assert (row, column) == (pytest.approx(24.5 * 7.5, abs=1), pytest.approx(40.5 * 7.5, abs=1))
    shown = AttentionMap(layout.names, ("x",), torch.full((1, 1, 1, 64), 1 / 64), layout=layout)
    assert AttentionMap.from_json(shown.to_json()).layout.centres == layout.centres


@pytest.mark.parametrize("centres", [(-0.1, 0.1), (0.1, 0.0), (0.1, float("nan")), (2.0, 0.1)])
def test_centres_that_are_none_are_refused(centres):
    with pytest.raises(ArgumentError, match="first centre, between 0 and 1"):
        ImageLayout(np.zeros((60, 80, 3), np.uint8), 3, 4, centres=centres)


def test_a_word_that_looks_everywhere_dims_nothing():
    image = np.random.default_rng(0).integers(0, 255, (480, 480, 3), np.uint8)
    np.testing.assert_array_equal(overlay(ImageLayout(image, 4, 4), torch.full((16,), 1 / 16)), image)


@pytest.mark.parametrize(("height", "width"), [(200, 400), (500, 300)])
def test_light_lies_on_the_part_of_the_image_that_the_model_saw(height, width):
    top, left, bottom, right = kept_part(height, width, "crop")
    part = (top / height, left / width, bottom / height, right / width)
    layout = ImageLayout(np.full((height, width, 3), 200, np.uint8), 2, 2, part)
    lit = overlay(layout, torch.tensor([1.0, 0.0, 0.0, 0.0])).astype(float)[..., 0]
    up, start, down, end = seen_box(layout)
    high, wide = lit.shape
    assert (high / height, wide / width) == (pytest.approx(IMAGE_SIDE / max(height, width), rel=0.01),) * 2
    assert (down - up, end - start) == (pytest.approx(min(high, wide), abs=1),) * 2
    assert lit[up + 5, start + 5] == pytest.approx(200, abs=4)  # the first of four regions, in its upper left
    assert lit[down - 5, end - 5] == pytest.approx(200 * DIM, abs=2)
    outside = np.ones((high, wide), bool)
    outside[up:down, start:end] = False
    assert outside.any()
    np.testing.assert_allclose(lit[outside], 200 * UNSEEN, atol=1)


def test_the_part_that_the_model_saw_is_written_and_read_again(tmp_path):
    layout = ImageLayout(np.zeros((60, 80, 3), np.uint8), 3, 4, (0.0, 0.125, 1.0, 0.875))
    shown = AttentionMap(layout.names, ("x",), torch.full((1, 1, 1, 12), 1 / 12), layout=layout)
    assert AttentionMap.from_json(shown.to_json()).layout.part == layout.part
    assert "part" not in example().as_plain()["layout"]
    drawn = draw.to_svg(shown)
    assert "cropped" in drawn
    assert "cropped" not in draw.to_svg(example())


@pytest.mark.parametrize(
    "part", [(0, 0, 0, 1), (0, 0.6, 1, 0.5), (-0.1, 0, 1, 1), (0, 0, 1, 1.5), (0, 0, float("nan"), 1)]
)
def test_a_part_that_is_none_is_refused(part):
    with pytest.raises(ArgumentError, match="must be top, left, bottom and right"):
        ImageLayout(np.zeros((60, 80, 3), np.uint8), 3, 4, tuple(map(float, part)))


@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_pictures_are_what_their_name_says(tmp_path, kind):
    content = draw.save(example(), tmp_path / f"look.{kind}").read_bytes()
    assert content.startswith({"png": b"\x89PNG", "pdf": b"%PDF"}[kind])
    assert len(content) > 10_000


def test_the_png_shows_the_image_first_and_then_each_word_bright_where_it_looked(tmp_path):
    shown = example()
    photos, sheet = panels(shown)
    drawn = np.asarray(Image.open(draw.save(shown, tmp_path / "look.png")).convert("RGB"))
    scale = drawn.shape[1] / sheet.width
    for photo, place in zip(photos[1:], PLACES, strict=True):
        x, y, wide, high = (round(scale * side) for side in photo[:4])
        assert brightest(drawn[y : y + high, x : x + wide]) == place
    assert [photo.hint for photo in photos] == ["", *WORDS]


def test_the_svg_holds_every_panel_and_its_words_as_text():
    root = ElementTree.fromstring(draw.to_svg(example()))
    images = [element.attrib["href"] for element in root.iter() if element.tag.endswith("image")]
    assert len(images) == 1 + len(WORDS)
    second = np.asarray(Image.open(BytesIO(b64decode(images[2].partition(",")[2]))))
    assert brightest(second) == PLACES[1]
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert texts[0] == " ".join(WORDS)
    assert set(WORDS) <= set(texts)


def test_a_photo_in_an_svg_takes_a_fraction_of_its_pngs_and_looks_the_same():
    shown = example(360, 480, image=camera_image())
    root = ElementTree.fromstring(draw.to_svg(shown))
    images = [element.attrib["href"] for element in root.iter("{http://www.w3.org/2000/svg}image")]
    photos, _ = panels(shown)
    assert sum(map(len, images)) < sum(len(png_bytes(photo.pixels)) for photo in photos) / 3
    for href, photo in zip(images, photos, strict=True):
        assert href.startswith("data:image/jpeg;base64,")
        found = np.asarray(Image.open(BytesIO(b64decode(href.partition(",")[2]))))
        assert found.shape == photo.pixels.shape
        assert np.abs(found.astype(float) - photo.pixels).mean() < 3


def test_a_drawing_in_an_svg_stays_exact_and_so_does_a_photo_without_pillow(monkeypatch):
    flat = np.full((60, 80, 3), 255, np.uint8)
    flat[20:40, 30:50] = (200, 30, 30)
    monkeypatch.setitem(sys.modules, "PIL", None)
    texts = image_url(flat), image_url(camera_image())
    monkeypatch.undo()
    assert image_url(flat) == texts[0]
    for text, pixels in zip(texts, (flat, camera_image()), strict=True):
        assert text.startswith("data:image/png;base64,")
        assert np.array_equal(np.asarray(Image.open(BytesIO(b64decode(text.partition(",")[2])))), pixels)


def camera_image():
    """Smooth colours with the noise of a camera."""
    down, across = np.mgrid[:360, :480] / 60
    colours = np.stack([np.sin(down + across), np.cos(down), np.sin(2 * across)], -1)
    noise = np.random.default_rng(1).normal(0, 3, colours.shape)
    return (128 + 90 * colours + noise).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("count", [0, 1, 5, 30])
def test_panels_lie_inside_the_picture_and_not_on_each_other(count):
    words = tuple("아주 긴 단어" * 9 for _ in range(count))
    layout = ImageLayout(np.zeros((50, 90, 3), np.uint8), 2, 2)
    photos, sheet = panels(AttentionMap(layout.names, words, torch.ones(1, 1, count, 4), layout=layout))
    assert all(photo.x + photo.width < sheet.width for photo in photos)
    assert all(photo.y + photo.height < sheet.height - 20 for photo in photos)
    assert len({(photo.x, photo.y) for photo in photos}) == 1 + count
    assert all(photo.hint.endswith("…") for photo in photos[1:])
    heading = [shape for shape in sheet.shapes if isinstance(shape, Label) and shape.bold]
    assert min(photo.y for photo in photos) > 20 * len(heading)


def test_the_json_brings_back_words_weights_and_the_image(tmp_path):
    shown = example(layers=2, heads=2)
    text = draw.save(shown, tmp_path / "look.json").read_text(encoding="utf-8")
    again = AttentionMap.from_json(text)
    assert (again.target, again.source, again.title) == (WORDS, shown.source, " ".join(WORDS))
    torch.testing.assert_close(again.weights, shown.weights, atol=1e-6, rtol=0)
    np.testing.assert_array_equal(again.layout.image, shown.layout.image)
    assert (again.layout.rows, again.layout.columns) == (3, 4)
    assert json.loads(text)["layout"]["kind"] == "image"


def test_pictures_show_the_layer_and_head_that_are_chosen():
    shown = example(layers=2, heads=2).select(layer=1, head=0)  # the third, which looks two columns further
    row, column = PLACES[0]
    assert brightest(panels(shown)[0][1].pixels) == (row, column + 2)


def test_a_terminal_without_colour_shows_the_regions_in_shades():
    lines = draw.to_terminal(example(), width=60, plain=True).plain.splitlines()
    assert lines[0].split() == list(WORDS)
    assert lines[1].startswith("██")
    assert lines[2].count("█") == 2
    assert "█" in lines[3]
    assert lines[-1] == "░ 7.5–32%  ▒ 32–57%  ▓ 57–82%  █ 82–100% of a word's largest weight"


def test_a_terminal_with_colour_shows_two_pixels_a_letter():
    shown = draw.to_terminal(example(), width=200)
    assert "▀" in shown.plain
    lines = shown.plain.splitlines()
    assert len(lines) == 1 + 8  # 22 × 16 pixels, two a line
    assert all(word in lines[0] for word in WORDS)
    narrow = draw.to_terminal(example(), width=30).plain.splitlines()
    assert len(narrow) == 4 * 9 + 3


def test_control_characters_do_not_reach_the_terminal_or_the_picture(tmp_path):
    shown = example(words=("a\x1b[2J", "b\nc", "d\x00"))
    assert not {"\x1b", "\x00"} & set(draw.to_terminal(shown, plain=True).plain)
    ElementTree.parse(draw.save(shown, tmp_path / "look.svg"))
    draw.save(shown, tmp_path / "look.png")
