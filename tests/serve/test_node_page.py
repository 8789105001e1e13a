"""The page with a graph model, in a real browser: name a node, read its class, see which neighbours it attends to."""

import re

import pytest

from support.serving import serving, visits

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect


@pytest.fixture(scope="module")
def graphs(words, graph_model, named_graph):
    with serving({"words": words, "planted": graph_model, "named": named_graph}) as running:
        yield running


@pytest.fixture
def visit(browser, graphs):
    with visits(browser, graphs, model="planted") as open_page:
        yield open_page


def shown(page, node):
    """Enter a node and wait for its drawing."""
    page.fill("#text", node)
    expect(page.locator("#map .jumok-graph")).to_have_attribute("aria-label", starting(node))


def starting(node, word="node"):
    """The title of the map of a node."""
    return re.compile(rf"^{word} {node}: ")


def edges(page):
    """The neighbours in the drawing with the weights that the table shows."""
    rows = page.locator("#map tbody tr")
    cells = [row.locator("td").all_inner_texts() for row in rows.all()]
    return {name: float(weight) for name, _, weight in cells}


def test_a_node_is_classified_and_announced(visit, graphs):
    page = visit()
    shown(page, "4")
    answer = graphs.post("/api/classify", {"node": 4}).json
    expect(page.locator("#output .line")).to_have_text(answer["class"])
    expect(page.locator("#live")).to_have_text(f"Class: {answer['class']}")
    expect(page.locator("#classes .name")).to_have_text(list(answer["probabilities"]))
    expect(page.locator("#classes li", has=page.locator(".true")).locator(".name")).to_have_text(answer["label"])
    for gone in ("#beam", "#hypotheses", "#glossary", "#kinds", "#image-source"):
        expect(page.locator(gone)).to_be_hidden()


def test_the_map_is_that_of_the_api_and_layers_and_heads_can_be_chosen(visit, graphs):
    page = visit()
    shown(page, "4")
    answer = graphs.post("/api/attention", {"node": 4}).json

    def weights(layer, heads):
        rows = [answer["weights"][layer][head][0] for head in heads]
        means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        neighbours = 1 + answer["layout"]["neighbours"]
        names = [f"{name} (itself)" if not at else name for at, name in enumerate(answer["source"][:neighbours])]
        return {name: pytest.approx(mean, abs=6e-4) for name, mean in zip(names, means, strict=False)}

    assert edges(page) == weights(1, [0, 1])  # the last layer, averaged over its heads
    page.locator("#map select").nth(0).select_option("0")
    page.locator("#map select").nth(1).select_option("1")
    assert edges(page) == weights(0, [1])
    page.hover("#map .jumok-node >> nth=0")
    expect(page.locator("#map .jumok-read")).to_contain_text("attends to")


def test_a_wrong_prediction_is_seen(visit, graphs):
    page = visit()
    wrong, right = (
        next(
            str(node)
            for node in range(200)
            if ((answer := graphs.post("/api/classify", {"node": node}).json)["class"] == answer["label"]) is agrees
        )
        for agrees in (False, True)
    )
    shown(page, wrong)
    accused = page.evaluate("getComputedStyle(document.querySelector('#classes .true')).color")
    shown(page, right)
    assert page.evaluate("getComputedStyle(document.querySelector('#classes .true')).color") != accused


def test_a_node_that_is_not_there_is_said_where_its_class_would_be(browser, graphs):
    # A refused request is an error in the browser's console, so this page may have one.
    page = browser.new_context(locale="en-US").new_page()
    page.goto(f"{graphs.url}/#model=planted&text=4")
    expect(page.locator("#map .jumok-graph")).to_be_visible()
    page.fill("#text", "5000")
    expect(page.locator("#output")).to_have_attribute("data-empty", "The graph has no node “5000”.")
    expect(page.locator("#below")).to_be_hidden()
    expect(page.locator("#classes")).to_be_hidden()
    expect(page.locator("#notice")).to_be_hidden()
    shown(page, "7")
    expect(page.locator("#classes")).to_be_visible()
    page.click("#clear")
    expect(page.locator("#classes")).to_be_hidden()
    expect(page.locator("#output")).to_have_attribute("data-empty", re.compile("^The class of the node appears here"))
    page.context.close()


def test_enter_looks_the_node_up_instead_of_beginning_a_line(visit):
    page = visit()
    shown(page, "4")
    page.focus("#text")
    page.keyboard.press("End")
    page.keyboard.press("2")
    page.keyboard.press("Enter")
    expect(page.locator("#map .jumok-graph")).to_have_attribute("aria-label", starting("42"))
    assert page.input_value("#text") == "42"


def test_examples_are_nodes_and_a_link_shows_the_same_one(visit, graphs):
    page = visit(model="named")
    example = graphs.get("/api/models").json["models"][2]["examples"][0]
    page.locator("#examples button").first.click()
    expect(page.locator("#map .jumok-graph")).to_have_attribute("aria-label", starting(example))
    other = visit(model="words")
    other.goto("about:blank")
    other.goto(page.url)
    expect(other.locator("#map .jumok-graph")).to_have_attribute("aria-label", starting(example))


def test_the_map_of_a_node_can_be_saved(visit):
    page = visit(locale="ko-KR")
    page.fill("#text", "4")
    expect(page.locator("#map .jumok-graph")).to_have_attribute("aria-label", starting("4", "노드"))
    for button, inside in (("#map-svg", "노드 4: 클래스"), ("#map-html", '<html lang="ko">')):
        with page.expect_download() as download:
            page.click(button)
        assert inside in download.value.path().read_text(encoding="utf-8")


def test_the_page_follows_the_model(visit, graphs):
    page = visit()
    shown(page, "4")
    page.select_option("#model", "words")
    expect(page.locator("#classes")).to_be_hidden()
    page.fill("#text", "the old house")
    (translation,) = graphs.post("/api/translate", {"text": "the old house"}).json["translations"]
    expect(page.locator("#output .line")).to_have_text(translation["text"])
    page.wait_for_selector(".jumok-cell")
    for back in ("#beam", "#hypotheses", "#glossary"):
        expect(page.locator(back)).to_be_visible()
    page.select_option("#model", "planted")  # the node is still there, and the text is that of the translator
    expect(page.locator("#map .jumok-graph")).to_have_attribute("aria-label", starting("4"))
    expect(page.locator("#beam")).to_be_hidden()
    page.select_option("#model", "words")
    expect(page.locator("#output .line")).to_have_text(translation["text"])


def test_it_is_in_korean_and_fits_a_phone(visit):
    page = visit(width=375, height=740, has_touch=True, is_mobile=True, locale="ko-KR")
    expect(page.locator("#text")).to_have_attribute("placeholder", "노드의 번호나 이름…")
    page.fill("#text", "4")
    expect(page.locator("#classes .true")).to_have_text("실제 클래스")
    expect(page.locator("#target-name")).to_have_text("클래스")
    expect(page.locator("#map th").first).to_have_text("노드")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.click('[data-lang="en"]')
    expect(page.locator("#classes .true")).to_have_text("true class")


def test_the_maps_of_a_task_of_your_own_are_shown(browser, tagger):
    folder, task = tagger
    with serving({"tagger": folder}, task=task) as live, visits(browser, live, model="tagger") as visit:
        page = visit()
        page.locator("#examples button").first.click()
        expect(page.locator("#output .line")).to_have_text("vowel consonant vowel")
        page.wait_for_selector("#map .jumok-cell")
        expect(page.locator("#beam")).to_be_hidden()
        expect(page.locator("#target-name")).to_have_text("Output")
        expect(page.locator("#classes .name")).to_have_text(["short", "long"])
        page.hover('#output .word[data-target="1"]')
        assert page.locator("#mirror .word.lit").count() == 3
