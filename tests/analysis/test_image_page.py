"""The page of a captioned image in a real browser, offline: words as text, and pointing at one lights up its place."""

import pytest
import torch

from browser import chromium
from image_maps import PLACES, WORDS, example
from jumok.analysis.image_page import image_page

pytestmark = pytest.mark.slow

BRIGHTEST = """canvas => {
  const { width, height } = canvas, pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const sums = Array.from({ length: 12 }, () => 0);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++)
    sums[Math.floor(3 * y / height) * 4 + Math.floor(4 * x / width)] += pixels[4 * (y * width + x)];
  const best = sums.indexOf(Math.max(...sums));
  return [Math.floor(best / 4), best % 4];
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def shown(browser, tmp_path):
    """Open a map without a network; whatever it complains of or asks for fails the test."""
    wrong, contexts = [], []

    def open_page(attention, **settings):
        path = tmp_path / "look.html"
        path.write_text(image_page(attention), encoding="utf-8")
        contexts.append(browser.new_context(offline=True, **{"viewport": {"width": 1000, "height": 800}} | settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or wrong.append(asked.url))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def brightest(page) -> tuple[int, int]:
    return tuple(page.locator("#image").evaluate(BRIGHTEST))


def test_pointing_at_a_word_lights_up_where_it_looked(shown):
    page = shown(example())
    for word, place in enumerate(PLACES):
        page.locator(".caption button").nth(word).hover()
        assert brightest(page) == place
        assert page.locator("#read").inner_text().startswith(f"{WORDS[word]} looked most ")
        assert tuple(page.locator(".all canvas").nth(word).evaluate(BRIGHTEST)) == place
    page.mouse.move(990, 790)
    assert page.locator("#read").inner_text() == ""


def test_the_page_draws_what_the_pictures_draw(shown):
    page = shown(example(240, 320))
    page.locator(".caption button").nth(1).hover()
    drawn = page.locator("#image").evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )
    pixels = torch.tensor(drawn).view(240, 320, 4)[..., :3].float()
    wanted = torch.from_numpy(example(240, 320).overlay(1).copy()).float()
    assert (pixels - wanted).abs().max() <= 2


def test_the_keyboard_walks_through_the_words_and_escape_ends_it(shown):
    page = shown(example())
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert brightest(page) == PLACES[1]
    page.keyboard.press("ArrowLeft")
    assert brightest(page) == PLACES[0]
    assert page.locator(".caption button").nth(0).get_attribute("aria-pressed") == "true"
    page.keyboard.press("Escape")
    assert page.locator('[aria-pressed="true"]').count() == 0


def test_a_tap_keeps_a_word_and_another_lets_it_go(shown):
    page = shown(example(), has_touch=True, viewport={"width": 390, "height": 800})
    page.locator(".all button").nth(2).tap()
    assert brightest(page) == PLACES[2]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".caption button").nth(0).tap()
    assert brightest(page) == PLACES[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ground_follows_the_system_and_the_button(shown, scheme):
    page = shown(example(), color_scheme=scheme)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    before = page.evaluate(ground)
    assert (before == "rgb(255, 255, 255)") == (scheme == "light")
    page.locator("#theme").click()
    assert (page.evaluate(ground) == "rgb(255, 255, 255)") == (scheme == "dark")


def test_words_are_text_and_never_markup(shown):
    hostile = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\u2028&amp;")
    page = shown(example(words=hostile))
    assert page.locator(".caption button").all_text_contents() == list(hostile)
    assert page.locator("img").count() == 0


def test_an_empty_caption_shows_the_image(shown):
    page = shown(example(words=()))
    assert page.locator("#read").inner_text() == "The caption is empty."
    page.keyboard.press("ArrowRight")
