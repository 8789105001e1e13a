"""The page in a real browser: what is typed is translated, what is pointed at lights up as much as the API says."""

import re
from xml.etree import ElementTree

import pytest
import torch

from support.serving import busy, serving, until, visits

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect


@pytest.fixture
def visit(browser, live):
    with visits(browser, live, model="reverser") as open_page:
        yield open_page


HOUSE = "the old house"


def looked(live):
    """What the API says of the old house: the map, and its weights averaged over layers and heads."""
    api = live.post("/api/attention", {"text": HOUSE, "model": "words"}).json
    return api, torch.tensor(api["weights"]).mean((0, 1)).tolist()


def asked(live):
    """The texts that wait."""
    tickets = [ticket for submission in live.service.batcher._queues for ticket in list(submission.tickets)]
    return [ticket.item.text for ticket in tickets if not ticket.done]


def typed(page, text):
    """Type a text and wait until its map is there."""
    page.fill("#text", text)
    page.wait_for_function(
        """([text]) => document.querySelectorAll("#output .word").length > 0
            && document.querySelector("#mirror").textContent.startsWith(text)
            && document.querySelectorAll("#mirror .word").length > 0
            && document.querySelectorAll(".jumok-cell").length > 0""",
        arg=[text],
    )


def shares(page, side):
    """The weights that the words of a side are lit up with."""
    return page.eval_on_selector_all(f"{side} .word.lit", "words => words.map(word => Number(word.dataset.weight))")


def colours(page):
    """How strongly each word of the source is painted: the opacity of its background."""
    found = page.eval_on_selector_all(
        "#mirror .word", "words => words.map(word => getComputedStyle(word).backgroundColor)"
    )
    return [
        float(re.search(r"[\d.]+(?=\)$)", colour)[0]) if "rgba" in colour or "/" in colour else 1.0 for colour in found
    ]


def test_what_is_typed_is_translated_and_announced(visit, live):
    page = visit()
    page.focus("#text")
    page.keyboard.type("12345", delay=15)
    expect(page.locator("#output .line")).to_have_text("54321")
    expect(page.locator("#live")).to_have_text("Translation: 54321")
    assert page.locator("#live").get_attribute("aria-live") == "polite"
    page.keyboard.press("End")
    page.keyboard.type("\n21", delay=15)
    expect(page.locator("#output .line").nth(1)).to_have_text("12")
    expect(page.locator("#output .line").first).to_have_text("54321")


def test_tokens_light_up_in_both_texts_and_come_first_for_a_model_of_letters(visit, live):
    page = visit()
    typed(page, "12 34")
    api = live.post("/api/attention", {"text": "12 34", "words": True, "tokens": True}).json
    texts = [page.locator(f"{side} .word") for side in ("#mirror", "#output")]
    expect(texts[0]).to_have_text(["1", "2", "3", "4"])
    page.get_by_role("button", name="Words").click()
    assert texts[0].all_text_contents() == ["12", "34"]
    page.get_by_role("button", name="Tokens").click()
    assert texts[0].all_text_contents() == ["1", "2", "3", "4"]
    assert texts[1].all_text_contents() == [token.strip("▁") for token in api["tokens"]["target"][:-1] if token != "▁"]
    texts[1].first.hover()
    first = next(at for at, token in enumerate(api["tokens"]["target"]) if token.strip("▁"))
    row = torch.tensor(api["tokens"]["weights"]).mean((0, 1))[first].tolist()
    kept = [weight for weight, token in zip(row[:-1], api["tokens"]["source"][:-1], strict=True) if token != "▁"]
    assert shares(page, "#mirror") == pytest.approx(kept, abs=1e-4)
    typed(page, "12 35")  # the choice is kept
    expect(texts[0]).to_have_text(["1", "2", "3", "5"])
    page.get_by_role("button", name="Words").click()
    assert texts[0].all_text_contents() == ["12", "35"]


def test_pointing_at_a_word_lights_up_what_it_looked_at_as_much_as_the_api_says(visit, live):
    page = visit(model="words")
    typed(page, HOUSE)
    api, weights = looked(live)
    for target, word in enumerate(api["target"][:-1]):
        page.hover(f'#output .word[data-target="{target}"]')
        expect(page.locator(f'#output .word[data-target="{target}"]')).to_have_class(re.compile("chosen"))
        assert page.locator(f'#output .word[data-target="{target}"]').text_content() == word
        assert shares(page, "#mirror") == pytest.approx(weights[target][:-1], abs=1e-4)
        page.wait_for_timeout(150)  # colours fade in
        top = max(map(max, weights))
        assert colours(page) == pytest.approx([0.85 * weight / top for weight in weights[target][:-1]], abs=0.02)
        lit = page.locator(f'.jumok-cell.jumok-on[data-target="{target}"]')
        assert lit.count() == len(api["source"])


def test_pointing_at_a_word_of_the_source_lights_up_who_looked_at_it(visit, live):
    page = visit(model="words")
    typed(page, HOUSE)
    _, weights = looked(live)
    for source in range(3):
        box = page.locator(f'#mirror .word[data-source="{source}"]').bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator(f'#mirror .word[data-source="{source}"]')).to_have_class(re.compile("chosen"))
        wanted = [row[source] for row in weights[:-1]]
        assert shares(page, "#output") == pytest.approx(wanted, abs=1e-4)


def test_the_keyboard_does_all_of_it(visit):
    page = visit(model="words")
    typed(page, HOUSE)
    page.focus('#output .word[data-target="0"]')
    assert shares(page, "#mirror")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.target") == "1"
    expect(page.locator('#output .word[data-target="1"]')).to_have_class(re.compile("chosen"))
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.focus("#text")
    page.keyboard.press("Home")  # the caret, too, points at a word
    expect(page.locator('#mirror .word[data-source="0"]')).to_have_class(re.compile("chosen"))
    page.focus(".tree .node")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.place").startswith("1.")
    second = page.locator("#best button").nth(1)
    second.focus()
    page.keyboard.press("Enter")
    expect(second).to_have_attribute("aria-pressed", "true")
    expect(second).to_be_focused()


def test_self_attention_can_be_chosen_and_lights_up_within_one_text(visit, live):
    page = visit(model="words")
    typed(page, HOUSE)
    for kind, side, hidden in (("encoder", "#mirror", "#output"), ("decoder", "#output", "#mirror")):
        api = live.post("/api/attention", {"text": HOUSE, "model": "words", "kind": kind}).json
        page.select_option("#kind", kind)
        expect(page.locator(f"{side} .word")).to_have_count(len(api["target"]) - 1)
        expect(page.locator(f"{hidden} .word")).to_have_count(0)
        expect(page.locator(".jumok-cell")).to_have_count(len(api["source"]) * len(api["target"]))
        box = page.locator(f"{side} .word").nth(1).bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator(f"{side} .word").nth(1)).to_have_class(re.compile("chosen"))
        row = torch.tensor(api["weights"]).mean((0, 1))[1].tolist()
        wanted = row[:-1] if kind == "encoder" else row[1:]  # without </s>, or without <s>
        assert shares(page, side) == pytest.approx(wanted, abs=1e-4)
        assert page.locator(".jumok-bar select").count() == 2  # layer and head
    typed_again = visit(model="reverser")
    typed(typed_again, "12 34")
    expect(typed_again.locator("#kinds")).to_be_hidden()  # a recurrent model has one kind


def test_heads_and_layers_can_be_chosen(visit, live):
    page = visit(model="words")
    typed(page, HOUSE)
    weights = live.post("/api/attention", {"text": HOUSE, "model": "words"}).json["weights"]
    layers, heads = page.locator(".jumok-bar select").all()
    layers.select_option("1")
    heads.select_option("0")
    page.hover('#output .word[data-target="0"]')
    assert shares(page, "#mirror") == pytest.approx(weights[1][0][0][:-1], abs=1e-4)
    page.mouse.move(0, 0)
    page.locator(".jumok-thumb").first.click()  # layer 0, head 0
    page.hover('#output .word[data-target="0"]')
    assert shares(page, "#mirror") == pytest.approx(weights[0][0][0][:-1], abs=1e-4)


def test_another_model_translates_anew(visit, live):
    page = visit()
    typed(page, "12 34")
    page.select_option("#model", "words")
    (found,) = live.post("/api/translate", {"text": "12 34", "model": "words"}).json["translations"]
    expect(page.locator("#output .line")).to_have_text(found["text"])


def test_an_example_a_hypothesis_and_the_tree(visit, live):
    page = visit()
    page.locator("#examples button").first.click()
    text = page.locator("#examples button").first.text_content()
    expect(page.locator("#text")).to_have_value(text)
    (found,) = live.post("/api/translate", {"text": text, "beam": 5, "n_best": 5}).json["translations"]
    best = page.locator("#best button")
    expect(best).to_have_count(len(found["n_best"]))
    second = found["n_best"][1]["text"]
    best.nth(1).click()
    expect(page.locator("#output .line")).to_have_text(second)
    expect(page.locator("#best button").nth(1)).to_have_attribute("aria-pressed", "true")
    page.locator("#beam").scroll_into_view_if_needed()
    expect(page.locator(".node.end.best")).to_have_count(1)
    steps = live.post("/api/beam", {"text": text, "beam": 5, "n_best": 5}).json["steps"]
    last = max(at for at, step in enumerate(steps) if any(node["rank"] is not None for node in step))
    ended = sum(node["ended"] for node in steps[last])  # what the last one opened was never looked at
    expect(page.locator(".node")).to_have_count(sum(map(len, steps[:last])) + ended)
    page.locator(".node.end.best").hover()
    expect(page.locator("#tree-said b")).to_have_text(found["text"])


def test_maps_and_trees_can_be_saved(visit):
    page = visit()
    typed(page, "12 34")
    for button, ending, inside in (("#map-svg", "svg", "<svg"), ("#map-html", "html", "<!doctype html>")):
        with page.expect_download() as download:
            page.click(button)
        assert download.value.suggested_filename == f"12-34.{ending}"
        assert inside in download.value.path().read_text(encoding="utf-8")
    page.locator("#beam").scroll_into_view_if_needed()
    page.wait_for_selector(".tree svg")
    with page.expect_download() as download:
        page.click("#tree-svg")
    assert download.value.suggested_filename == "12-34.tree.svg"
    root = ElementTree.fromstring(download.value.path().read_text(encoding="utf-8"))
    assert len(root.findall(".//{http://www.w3.org/2000/svg}text")) == page.locator(".tree .node").count()


def test_markup_in_a_text_is_only_text(visit):
    page = visit(model="words")
    evil = "<img src=x onerror=console.error(1)><b>"
    typed(page, evil)
    expect(page.locator("#mirror")).to_contain_text(evil)
    expect(page.locator(".jumok-label").first).to_have_text("<img")
    assert page.locator("main img, main b:not(#tree-said b)").count() == 0


def test_on_a_phone_nothing_is_wider_than_the_screen(visit):
    page = visit(width=375, height=740, has_touch=True, is_mobile=True, model="words")
    typed(page, "the old house dog boat tree")
    page.locator("#beam").scroll_into_view_if_needed()
    page.wait_for_selector(".tree svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.tap('#output .word[data-target="0"]')
    assert shares(page, "#mirror")


def test_it_speaks_korean_to_a_korean_browser_and_when_asked(visit):
    page = visit(locale="ko-KR")
    assert page.evaluate("document.documentElement.lang") == "ko"
    expect(page.locator("#clear")).to_have_text("지우기")
    typed(page, "12 34")
    expect(page.locator("#look-title")).to_have_text("모델이 본 곳")
    expect(page.locator(".jumok-read")).to_contain_text("단어에 마우스를 올리거나")
    page.click('[data-lang="en"]')
    expect(page.locator("#look-title")).to_have_text("Where the model looked")
    page.reload()
    expect(page.locator("#clear")).to_have_text("Clear")


def test_a_page_saved_from_the_korean_page_is_in_korean(visit, tmp_path):
    page = visit(locale="ko-KR")
    typed(page, "12 34")
    with page.expect_download() as download:
        page.click("#map-html")
    download.value.save_as(tmp_path / "map.html")
    kept = page.context.browser.new_page(locale="en-US")  # its reader's browser does not matter
    kept.goto((tmp_path / "map.html").as_uri())
    assert kept.evaluate("document.documentElement.lang") == "ko"
    expect(kept.locator("header")).to_contain_text("단어별 어텐션")
    expect(kept.locator(".jumok-read")).to_contain_text("단어에 마우스를 올리거나")
    expect(kept.locator(".jumok-side")).to_have_text(["원문", "번역문"])
    expect(kept.locator(".jumok-copy")).to_have_text("SVG로 복사")
    english = re.findall(r"[a-z]{4,}", kept.locator("body").inner_text())
    assert set(english) <= {"jumok"}
    kept.close()


def test_it_says_what_little_a_small_model_knows(visit):
    page = visit()
    expect(page.locator("#domain")).to_have_text("This small model only reverses digits.")
    page.click('[data-lang="ko"]')
    expect(page.locator("#domain")).to_have_text("이 작은 모델은 숫자의 순서를 뒤집기만 합니다.")
    page.select_option("#model", "words")
    expect(page.locator("#domain")).to_be_hidden()


@pytest.mark.parametrize("size", [(1200, 900), (390, 844)])
def test_a_long_text_leaves_what_is_said_of_it_in_sight(visit, size):
    page = visit(*size)
    page.fill("#text", 3000 * "👍")  # of two halves each
    expect(page.locator("#count")).to_have_text("3,000 / 5,000")
    page.fill("#text", 700 * "1234567 ")
    message = page.locator("#split")
    expect(message).to_have_text("A line may have at most 5,000 characters.")
    expect(page.locator("#count")).to_be_in_viewport()
    expect(message).to_be_in_viewport()
    page.fill("#text", "\n".join(map(str, range(40))))
    expect(page.locator("#output .line.done")).to_have_count(40)
    page.focus("#text")
    page.keyboard.press("Control+End")
    expect(page.locator("#output .line.active")).to_have_text("93")
    assert page.evaluate("""() => {
        const inside = document.querySelector(".line.active").getBoundingClientRect();
        return inside.bottom <= document.querySelector("#output").getBoundingClientRect().bottom + 1 }""")


def test_the_map_of_a_long_sentence_has_the_whole_width(visit):
    page = visit(model="words")
    cards = "cards => cards.map(card => card.offsetWidth)"
    typed(page, HOUSE)
    narrow, _, wide = page.eval_on_selector_all("#below .card", cards)
    assert narrow < wide
    long = {"source": [f"word{at}" for at in range(30)], "target": ["x"], "weights": [[[[1 / 30] * 30]]]}
    page.route("**/api/attention", lambda route: route.fulfill(json=long))
    page.fill("#text", "the red boat")
    expect(page.locator(".jumok-label")).to_have_count(31)
    assert set(page.eval_on_selector_all("#below .card", cards)) == {wide}


def test_every_part_of_a_long_text_has_its_map(visit):
    page = visit()
    page.fill("#text", "123456 654321 121212")
    expect(page.locator("#part-now")).to_have_text("Part 1 of 3")
    expect(page.locator("#map")).to_contain_text("123456")
    expect(page.locator("#part-before")).to_be_disabled()
    page.click("#part-after")
    expect(page.locator("#part-now")).to_have_text("Part 2 of 3")
    expect(page.locator("#map")).to_contain_text("654321")
    page.fill("#text", "123456 654321")
    expect(page.locator("#split")).to_contain_text("longer than those in the training data")
    expect(page.locator("#parts")).to_be_hidden()
    expect(page.locator("#map")).to_contain_text("654321")


def test_on_a_phone_every_card_has_the_whole_width(visit):
    page = visit(390, 844)
    typed(page, "12 34")
    widths = page.eval_on_selector_all("main .card", "cards => cards.map(card => card.offsetWidth)")
    assert set(widths) == {366}


def test_dark_and_light_follow_the_system_and_the_button(visit):
    page = visit(color_scheme="dark")
    back = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(back)
    page.click("#theme")
    light = page.evaluate(back)
    assert dark != light
    page.reload()
    assert page.evaluate(back) == light


def test_an_answer_to_what_is_no_longer_asked_is_dropped(visit, live):
    page = visit()
    with busy(live) as blocker:
        for text in ("123", "45"):
            page.fill("#text", text)
            # The first one leaves the queue when the second is typed.
            until(lambda text=text: asked(live) == [text], wait=lambda: page.wait_for_timeout(20))
        blocker.go_on.set()
    expect(page.locator("#output .line")).to_have_text("54")


def test_a_link_shows_the_same_text(visit, live):
    page = visit()
    typed(page, "987")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#text")).to_have_value("987")
    expect(page.locator("#output .line")).to_have_text("789")


def test_what_goes_wrong_is_said_kindly_and_mended(browser, live):
    # Failed requests are errors in a browser's console, so this page is not held to an empty one.
    context = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-US")
    page = context.new_page()
    page.goto(live.url)
    page.wait_for_selector("#examples button")
    full = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"error": "many are waiting"}}
    page.route("**/api/stream", lambda route: route.fulfill(**full))
    page.fill("#text", "123")
    expect(page.locator("#notice")).to_contain_text("The server is busy")
    page.unroute("**/api/stream")
    expect(page.locator("#output .line")).to_have_text("321")
    expect(page.locator("#notice")).to_be_hidden()
    page.route("**/api/stream", lambda route: route.abort())
    page.fill("#text", "456")
    expect(page.locator("#notice")).to_contain_text("does not respond")
    page.unroute("**/api/stream")
    expect(page.locator("#output .line")).to_have_text("654")
    late = {"status": 504, "json": {"error": "no answer within 30 seconds"}}
    page.route("**/api/stream", lambda route: route.fulfill(**late))
    page.fill("#text", "789")
    expect(page.locator("#notice")).to_contain_text("took too long")
    context.close()


def test_a_key_is_asked_for_once(browser, reverser):
    with serving({"reverser": reverser}, key="sesame") as locked:
        context = browser.new_context(locale="en-US")
        page = context.new_page()
        page.goto(locked.url)
        page.fill("#key", "sesame")
        page.click("#key-form button")
        page.fill("#text", "123")
        expect(page.locator("#output .line")).to_have_text("321")
        context.close()
