"""On the page, a click on a word offers others, and a glossary is kept to."""

import pytest

from jumok.model_folder import BUNDLED
from support.serving import serving, visits

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect

FRIDAY = "Friday, December 23, 1988"


@pytest.fixture(scope="module")
def dates():
    with serving({"en-ko": BUNDLED}) as running:
        yield running


@pytest.fixture
def page(browser, dates):
    with visits(browser, dates, model="en-ko") as visit:
        page = visit()
        page.fill("#text", FRIDAY)
        expect(page.locator("#output .word")).to_have_count(4)
        yield page


def test_another_word_can_be_chosen_and_given_up_again(page, dates):
    page.locator("#output .word").nth(3).click()
    asked = {"text": FRIDAY, "prefix": "1988년 12월 23일 ", "count": 6, "beam": 2}
    found = dates.post("/api/alternatives", asked).json["alternatives"]
    others = [one["word"] for one in found if one["word"] != "금요일"]
    expect(page.locator("#choices-list b")).to_have_text(others)
    page.locator("#choices-list button").nth(1).click()
    expect(page.locator("#choices")).to_be_hidden()
    expect(page.locator("#output .line")).to_have_text(f"1988년 12월 23일 {others[1]}")
    expect(page.locator("#output .pinned-word")).to_have_count(4)
    expect(page.locator("#unpin")).to_be_focused()
    page.locator("#unpin").click()
    expect(page.locator("#output .line")).to_have_text("1988년 12월 23일 금요일")
    expect(page.locator("#pinned")).to_be_hidden()


def test_words_show_their_probability_and_improbable_ones_stand_out(page, dates):
    shares = dates.post("/api/attention", {"text": FRIDAY}).json["probabilities"]
    words = page.locator("#output .word")
    for number, share in enumerate(shares[:4]):
        said = f"probability {float(f'{share:.2g}'):.0%}"
        expect(words.nth(number)).to_have_attribute("title", said)
        words.nth(number).hover()
        expect(page.locator(".jumok-read")).to_contain_text(said)
    expect(page.locator("#output .word[data-unsure]")).to_have_count(0)
    page.fill("#text", "Xyz")
    asked = dates.post("/api/attention", {"text": "Xyz"}).json
    improbable = sum(share < 0.5 for share in asked["probabilities"][:-1])  # without the end
    assert improbable
    expect(page.locator("#output .word[data-unsure]")).to_have_count(improbable)


def test_a_word_can_be_typed_with_the_keyboard_alone(page):
    page.focus('#output .word[data-target="0"]')
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#choices-list button").first).to_be_focused()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.target") == "1"
    page.keyboard.press("Enter")
    page.locator("#own-word").fill("3월")
    page.keyboard.press("Enter")
    expect(page.locator("#output .line")).to_contain_text("1988년 3월")


def test_terms_of_the_glossary_are_in_translations_and_are_kept(page):
    page.locator("#glossary summary").click()
    page.fill("#terms", "Friday = (금)\nnothing")
    expect(page.locator("#glossary-count")).to_have_text("1 term")
    expect(page.locator("#output .line")).to_contain_text("(금)")
    page.reload()
    expect(page.locator("#terms")).to_have_value("Friday = (금)\nnothing")
    expect(page.locator("#output .line")).to_contain_text("(금)")


def test_editing_the_text_frees_the_translation(page):
    page.locator("#output .word").nth(3).click()
    page.locator("#choices-list button").first.click()
    expect(page.locator("#pinned")).to_be_visible()
    page.fill("#text", "Monday, December 24, 1988")
    expect(page.locator("#pinned")).to_be_hidden()
    expect(page.locator("#output .line")).to_have_text("1988년 12월 24일 월요일")
