"""The page of a node in a real browser, offline: nodes, edges and rows say their weight, in every layer and head."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch

from support.graph_maps import example

pytestmark = pytest.mark.slow


def read(page) -> str:
    return page.locator(".jumok-read").inner_text()


def edge(page, target: int, source: int):
    return page.locator(f'.jumok-edge[data-target="{target}"][data-source="{source}"]')


def node(page, target: int, source: int):
    return page.locator(f'.jumok-node[data-target="{target}"][data-source="{source}"]').last


def rows(page) -> list[list[str]]:
    return page.eval_on_selector_all("tbody tr", "rows => rows.map(row => [...row.cells].map(c => c.textContent))")


def test_the_page_begins_with_the_last_layer_and_its_heads_averaged(shown):
    page = shown(example())
    assert page.get_by_label("Layer", exact=True).input_value() == "1"
    assert rows(page) == [["나", "b", "0.700"], ["<b>다</b>", "c", "0.200"], ["가 (itself)", "a", "0.100"]]
    assert page.locator(".jumok-title").inner_text() == "node 가: class a, predicted b (75%) · wrong"
    weights = torch.tensor([0.1, 0.7, 0.2])
    assert f"entropy {float(torch.special.entr(weights).sum()):.2f}" in read(page)


def test_pointing_at_a_node_an_edge_or_a_row_says_the_weight(shown):
    page = shown(example())
    node(page, 0, 1).hover()
    assert read(page).startswith("가 attends to 나 with 70%")
    assert page.locator("tbody tr.jumok-on").count() == 1
    edge(page, 0, 2).hover(force=True)
    assert read(page).startswith("가 attends to <b>다</b> with 20%")
    page.locator("tbody tr").nth(2).hover()
    assert read(page).startswith("가 attends to 가 with 10%")
    assert "jumok-on" in node(page, 0, 0).get_attribute("class")
    page.mouse.move(2, 2)
    assert page.locator(".jumok-on").count() == 0


def test_further_out_is_what_neighbours_looked_at_in_the_layer_before(shown):
    page = shown(example())
    node(page, 2, 3).hover()
    assert read(page) == "<b>다</b> attends to 라 with 60% in layer 0"
    page.get_by_label("Layer", exact=True).select_option("0")
    assert node(page, 2, 3).count() == 0


def test_choosing_a_layer_and_head_shows_its_weights(shown):
    page = shown(example())
    page.get_by_label("Layer", exact=True).select_option("0")
    page.get_by_label("Head", exact=True).select_option("1")
    assert [row[2] for row in rows(page)] == ["0.500", "0.300", "0.200"]
    node(page, 0, 2).hover()
    assert read(page).startswith("가 attends to <b>다</b> with 50%")
    page.locator(".jumok-thumb").nth(2).click()
    assert [row[2] for row in rows(page)] == ["0.800", "0.100", "0.100"]
    page.get_by_label("Layer", exact=True).select_option("mean")
    page.get_by_label("Head", exact=True).select_option("mean")
    assert float(rows(page)[0][2]) == pytest.approx(float(example().mean()[0, 1]), abs=1e-3)


def test_heads_that_a_layer_lacks_have_no_small_picture(shown):
    weights = example().weights.clone()
    weights[1] = weights[1].mean(0)
    page = shown(example(weights=weights))
    assert page.eval_on_selector_all(".jumok-thumb", "all => all.map(one => one.title)") == [
        "layer 0, head 0",
        "layer 0, head 1",
        "layer 1, head 0",
    ]


def test_arrow_keys_go_from_row_to_row_and_a_click_keeps_one(shown):
    page = shown(example())
    page.locator("tbody tr").first.focus()
    page.keyboard.press("ArrowDown")
    assert read(page).startswith("가 attends to <b>다</b> with 20%")
    page.keyboard.press("Escape")
    node(page, 0, 1).click()
    page.mouse.move(2, 2)
    assert read(page).startswith("가 attends to 나")


def test_the_copied_picture_is_valid_svg_of_every_node_and_weight(shown):
    root = ElementTree.fromstring(shown(example(), color_scheme="dark").evaluate("map.svg()"))
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"가", "나", "라", "70%", "20%", "itself 10%"} <= set(texts)
    assert texts[-1].startswith("node 가: class a")
    assert len([element for element in root.iter() if element.tag.endswith("line")]) == 6


@pytest.mark.parametrize(("width", "scheme"), [(1000, "light"), (360, "dark")])
def test_a_node_with_many_neighbours_fits_the_page(shown, width, scheme):
    names = tuple(f"neighbour {number}" for number in range(300))
    weights = torch.rand(2, 4, 1, 300).softmax(-1).expand(2, 4, 17, 300).clone()
    attention = example(names, weights=weights, classes=["class"] * 300)
    page = shown(attention, viewport={"width": width, "height": 740}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator('.jumok-edge[data-target="0"]').count() == (16 if width == 1000 else 8)


def test_a_node_without_neighbours_is_shown(shown):
    page = shown(example(("alone",), weights=torch.ones(1, 1, 1, 1), classes="a"))
    assert rows(page) == [["alone (itself)", "a", "1.000"]]


def test_names_and_classes_are_text_and_never_markup(shown):
    hostile = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "<!--", "]]>")
    page = shown(example(hostile, classes=["<b>x</b>"] * 4, predicted="<i>"))
    assert rows(page)[0][:2] == [hostile[1], "<b>x</b>"]
    assert page.locator("main img, main script, main b").count() == 0


def test_the_title_of_a_node_is_in_the_language_of_the_page_and_a_given_one_stays(shown):
    page = shown(example(), language="ko")
    assert page.inner_text(".jumok-title") == "노드 가: 클래스 a, 예측 b (75%) · 틀림"
    assert page.title().startswith("노드의 어텐션: 가")
    page = shown(replace(example(), title="논문 가"), language="ko")
    assert page.inner_text(".jumok-title") == "논문 가 · 틀림"
