"""The page of a captioned image in a real browser, offline: words as text, and pointing at one lights up its place."""

from base64 import b64decode
from dataclasses import replace
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from jumok.analysis.draw.image import overlay
from jumok.analysis.maps.source_layout import WHOLE, ImageLayout
from support.image_maps import PLACES, WORDS, example

pytestmark = pytest.mark.slow

BRIGHTEST = """canvas => {
  const { width, height } = canvas, pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const sums = Array.from({ length: 12 }, () => 0);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++)
    sums[Math.floor(3 * y / height) * 4 + Math.floor(4 * x / width)] += pixels[4 * (y * width + x)];
  const best = sums.indexOf(Math.max(...sums));
  return [Math.floor(best / 4), best % 4];
}"""


def brightest(page) -> tuple[int, int]:
    return tuple(page.locator(".jumok-image").evaluate(BRIGHTEST))


def read(page) -> str:
    return page.locator(".jumok-read").inner_text()


def word(page, at: int):
    return page.locator(".jumok-word").nth(at)


def test_pointing_at_a_word_lights_up_where_it_looked(shown):
    attention = example()
    page = shown(attention)
    for at, place in enumerate(PLACES):
        word(page, at).hover()
        assert brightest(page) == place
        assert read(page).startswith(f"{WORDS[at]} attends most ")
        assert "78% in one of 12 regions" in read(page)
        assert f"entropy {float(attention.entropy()[0, 0, at]):.2f}" in read(page)
        assert tuple(page.locator(".jumok-panel canvas").nth(at).evaluate(BRIGHTEST)) == place
    page.mouse.move(990, 790)
    assert read(page).startswith("Point at a word")


def test_pointing_at_the_image_tells_which_words_looked_there(shown):
    page = shown(example())
    box = page.locator(".jumok-image").bounding_box()
    row, column = PLACES[1]
    page.mouse.move(box["x"] + (column + 0.5) * box["width"] / 4, box["y"] + (row + 0.5) * box["height"] / 3)
    assert read(page).startswith(f"row {row + 1}, column {column + 1} is attended to by {WORDS[1]} 78%")


LEGEND = """() => {
  const bar = document.querySelector(".jumok-ramp");
  return [...bar.getContext("2d").getImageData(0, 0, bar.width, 1).data].filter((_, at) => at % 4 < 3);
}"""


def test_the_legend_is_in_the_colours_of_what_is_shown(shown):
    page = shown(example())
    legend = page.locator(".jumok-legend")

    def ends() -> tuple[list[int], list[int]]:
        colours = page.evaluate(LEGEND)
        return colours[:3], colours[-3:]

    dark = [77] * 3  # DIM of 255, what becomes of white where no word looked
    assert (*ends(), legend.inner_text().split("\n")) == (dark, [255] * 3, ["0", "largest of each word"])
    word(page, 1).hover()
    assert (*ends(), legend.inner_text().split("\n")) == (dark, [255] * 3, ["0", "78%"])
    box = page.locator(".jumok-image").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)  # now words are coloured, by how much they looked there
    assert ends() == ([0xF3, 0xF6, 0xFB], [0x0A, 0x3A, 0x78])


def test_no_region_is_pointed_at_outside_of_what_the_model_saw(shown):
    image = np.full((100, 200, 3), 230, np.uint8)
    page = shown(replace(example(image=image), layout=ImageLayout(image, 3, 4, (0.0, 0.25, 1.0, 0.75))))
    assert "darkest edges were cropped" in read(page)
    box = page.locator(".jumok-image").bounding_box()
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 5)
    assert read(page).startswith("Point at a word")
    page.mouse.move(box["x"] + 0.27 * box["width"], box["y"] + 5)
    assert read(page).startswith("row 1, column 1 is attended to")


def test_choosing_a_layer_and_head_moves_the_light(shown):
    page = shown(example(layers=2, heads=2))
    page.get_by_label("Layer", exact=True).select_option("1")
    page.get_by_label("Head", exact=True).select_option("0")
    word(page, 0).hover()
    assert brightest(page) == (PLACES[0][0], PLACES[0][1] + 2)
    assert page.locator(".jumok-thumb").count() == 4
    assert page.locator('.jumok-thumb[aria-pressed="true"]').get_attribute("title") == "layer 1, head 0"
    page.locator(".jumok-thumb").nth(1).click()
    word(page, 0).hover()
    assert brightest(page) == (PLACES[0][0], PLACES[0][1] + 1)


def test_a_region_is_pointed_at_around_its_centre(shown):
    image = np.full((200, 200, 3), 230, np.uint8)
    page = shown(replace(example(image=image), layout=ImageLayout(image, 3, 4, centres=(0.05, 0.25))))
    box = page.locator(".jumok-image").bounding_box()
    for share, column in ((0.16, 1), (0.19, 2), (0.41, 2), (0.44, 3), (0.99, 4)):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 5)
        assert read(page).startswith(f"row 1, column {column} is attended to")


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("centres", [None, (0.02, 0.24)])
def test_the_page_draws_what_the_pictures_draw(shown, cut, centres):
    image = np.full((360, 480, 3), 230, np.uint8)
    image[100:200, 50:400] = (200, 30, 30)
    place = ImageLayout(image, 3, 4, (0.0, 0.125, 1.0, 0.875) if cut else WHOLE, centres)
    attention = replace(example(image=image), layout=place)
    page = shown(attention)
    word(page, 1).hover()
    drawn = page.locator(".jumok-image").evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )
    pixels = torch.tensor(drawn).view(360, 480, 4)[..., :3].float()
    wanted = torch.from_numpy(overlay(attention.layout, attention.mean()[1]).copy()).float()
    assert (pixels - wanted).abs().max() <= 2


def test_the_copied_picture_has_the_image_and_a_panel_for_every_word(shown):
    root = ElementTree.fromstring(shown(example()).evaluate("map.svg()"))
    images = [element.attrib["href"] for element in root.iter() if element.tag.endswith("image")]
    assert len(images) == 1 + len(WORDS)
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert texts == [" ".join(WORDS), *WORDS]
    pixels = np.asarray(Image.open(BytesIO(b64decode(images[3].partition(",")[2]))).convert("RGB")).astype(float)
    light = pixels.mean(-1)[:360, :480].reshape(3, 120, 4, 120).mean((1, 3))
    assert np.unravel_index(light.argmax(), light.shape) == PLACES[2]


def test_the_keyboard_walks_through_the_words_and_escape_ends_it(shown):
    page = shown(example())
    word(page, 0).focus()
    page.keyboard.press("ArrowRight")
    assert brightest(page) == PLACES[1]
    page.keyboard.press("ArrowLeft")
    assert brightest(page) == PLACES[0]
    assert page.locator(".jumok-panel").nth(0).get_attribute("aria-pressed") == "true"
    page.keyboard.press("Escape")
    assert page.locator('.jumok-panel[aria-pressed="true"]').count() == 0


def test_a_tap_keeps_a_word_and_another_lets_it_go(shown):
    page = shown(example(layers=2, heads=3), has_touch=True, viewport={"width": 390, "height": 800})
    page.locator(".jumok-panel").nth(2).tap()
    page.get_by_label("Layer", exact=True).select_option("0")
    page.get_by_label("Head", exact=True).select_option("0")
    assert brightest(page) == PLACES[2]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    word(page, 0).tap()
    assert brightest(page) == PLACES[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ground_follows_the_system_and_the_button(shown, scheme):
    page = shown(example(), color_scheme=scheme)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    before = page.evaluate(ground)
    assert (before == "rgb(255, 255, 255)") == (scheme == "light")
    page.get_by_label("Switch between light and dark").click()
    assert (page.evaluate(ground) == "rgb(255, 255, 255)") == (scheme == "dark")


def test_words_are_text_and_never_markup(shown):
    hostile = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\u2028&amp;")
    page = shown(example(words=hostile))
    assert page.locator(".jumok-word").all_text_contents() == list(hostile)
    assert page.locator("main img, main script").count() == 0
    assert page.title() == " ".join(hostile)


def test_an_empty_caption_shows_the_image(shown):
    page = shown(example(words=()))
    assert read(page) == "The caption is empty."
    page.keyboard.press("ArrowRight")
