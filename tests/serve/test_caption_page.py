"""The page with a captioner, in a real browser: drop an image, read the caption, see where each word looks."""

import io
import re
from base64 import b64encode

import numpy as np
import pytest
import torch
from PIL import Image

from jumok.images.scenes import scene
from support.serving import visits

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect

PIXELS = scene(3, split="test").picture(64)


def image_file(pixels):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


FILE = {"name": "shapes.png", "mimeType": "image/png", "buffer": image_file(PIXELS)}
ENCODED = b64encode(FILE["buffer"]).decode()
DROP = """([encoded]) => {
    const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0)), data = new DataTransfer();
    data.items.add(new File([bytes], "shapes.png", { type: "image/png" }));
    for (const name of ["dragover", "drop"]) {
        document.querySelector("#image-source").dispatchEvent(
            new DragEvent(name, { dataTransfer: data, bubbles: true, cancelable: true }));
    }
}"""


@pytest.fixture
def visit(browser, both):
    with visits(browser, both, model="scenes") as open_page:
        yield open_page


def described(page):
    """Wait for the caption and the attention of the image."""
    page.wait_for_selector("#output .word")
    page.wait_for_selector(".jumok-map[data-ready]")


def painted(page):
    """The pixels of the image as it is shown."""
    return np.array(
        page.evaluate("""() => {
            const canvas = document.querySelector("#picture canvas");
            return [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data];
        }""")
    )


def test_a_chosen_file_is_described_and_announced(visit, both):
    page = visit()
    page.set_input_files("#file", FILE)
    described(page)
    caption = both.post("/api/caption", {"image": ENCODED}).json
    expect(page.locator("#output .line")).to_have_text(caption["text"])
    expect(page.locator("#live")).to_have_text(f"Caption: {caption['text']}")
    expect(page.locator("#best-title")).to_have_text("Best captions")
    expect(page.locator("#beam")).to_be_hidden()


def test_an_image_can_be_dropped_and_cleared(visit):
    page = visit()
    expect(page.locator(".drop-hint")).to_be_visible()
    page.evaluate(DROP, [ENCODED])
    described(page)
    expect(page.locator(".drop-hint")).to_be_hidden()
    page.click("#clear")
    expect(page.locator(".drop-hint")).to_be_visible()
    expect(page.locator("#picture canvas")).to_have_count(0)
    expect(page.locator("#below")).to_be_hidden()


def test_hovering_over_a_word_lights_up_where_it_looked(visit, both):
    page = visit()
    page.set_input_files("#file", FILE)
    described(page)
    attention = both.post("/api/attention", {"image": ENCODED}).json
    plain = painted(page)
    weights = torch.tensor(attention["weights"]).mean((0, 1))
    rows, columns = attention["layout"]["rows"], attention["layout"]["columns"]
    page.hover('#output .word[data-target="1"]')
    expect(page.locator('#output .word[data-target="1"]')).to_have_class(re.compile("chosen"))
    lit = painted(page)
    width, height = attention["layout"]["width"], attention["layout"]["height"]
    kept = (lit.reshape(height, width, 4)[..., :3].sum(-1) + 1) / (plain.reshape(height, width, 4)[..., :3].sum(-1) + 1)
    row, column = divmod(int(weights[1].argmax()), columns)
    middle = int((row + 0.5) * height / rows), int((column + 0.5) * width / columns)
    assert kept[middle] > 0.9 * kept.max()
    assert kept.min() < 0.8 * kept.max()
    page.mouse.move(0, 0)
    expect(page.locator("#output .word.chosen")).to_have_count(0)
    assert (painted(page) == plain).all()


def test_pointing_at_the_image_lights_up_the_words_that_looked_there(visit):
    page = visit()
    page.set_input_files("#file", FILE)
    described(page)
    page.hover("#picture canvas")
    assert page.locator("#output .word.lit").count() == page.locator("#output .word").count()


def test_examples_are_images_and_hypotheses_have_their_own_attention(visit, both):
    page = visit()
    page.locator("#examples button").first.click()
    described(page)
    example = both.get("/api/models").json["models"][1]["examples"][0]
    best = both.post("/api/caption", {"image": example, "beam": 2, "n_best": 2}).json["n_best"]
    expect(page.locator("#best button")).to_have_count(len(best))
    page.locator("#best button").nth(1).click()
    expect(page.locator("#output .line")).to_have_text(best[1]["text"])


def test_attention_over_an_image_can_be_saved(visit):
    page = visit()
    page.set_input_files("#file", FILE)
    described(page)
    for button, inside in (("#map-svg", "<svg"), ("#map-html", "<!doctype html>")):
        with page.expect_download() as download:
            page.click(button)
        assert inside in download.value.path().read_text(encoding="utf-8")


def test_the_page_follows_the_model(visit, both):
    page = visit()
    page.set_input_files("#file", FILE)
    described(page)
    page.select_option("#model", "words")
    expect(page.locator("#image-source")).to_be_hidden()
    expect(page.locator("#text")).to_be_visible()
    page.fill("#text", "the old house")
    (translation,) = both.post("/api/translate", {"text": "the old house"}).json["translations"]
    expect(page.locator("#output .line")).to_have_text(translation["text"])
    page.wait_for_selector(".jumok-cell")
    page.select_option("#model", "scenes")  # the image is still there
    described(page)
    expect(page.locator("#text")).to_be_hidden()


def test_an_image_too_large_for_the_server_is_reduced_in_the_browser(visit, both):
    page = visit()
    noise = np.random.default_rng(0).integers(0, 256, (1500, 1500, 3), np.uint8)
    content = image_file(noise)
    assert len(content) > both.service.limits.image_bytes
    page.set_input_files("#file", {**FILE, "buffer": content})
    described(page)


def test_what_is_no_image_is_reported(browser, both):
    # A failed request is an error in the browser's console, so this page may have one.
    page = browser.new_context(locale="en-US").new_page()
    page.goto(both.url)
    page.wait_for_selector("#model option", state="attached")
    page.select_option("#model", "scenes")
    page.set_input_files("#file", {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"not an image"})
    expect(page.locator("#notice")).to_contain_text("not an image")
    page.set_input_files("#file", FILE)
    described(page)
    expect(page.locator("#notice")).to_be_hidden()
    page.context.close()


def test_it_is_in_korean_and_fits_a_phone(visit):
    page = visit(width=375, height=740, has_touch=True, is_mobile=True, locale="ko-KR")
    expect(page.locator("#choose")).to_have_text("파일 선택")
    page.set_input_files("#file", FILE)
    described(page)
    expect(page.locator("#target-name")).to_have_text("캡션")
    expect(page.locator(".jumok-read")).to_contain_text("단어나 이미지에 마우스를 올리거나")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.tap('#output .word[data-target="0"]')
    expect(page.locator('#output .word[data-target="0"]')).to_have_class(re.compile("chosen"))
