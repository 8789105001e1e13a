"""The page of a map in a real browser, offline: no errors, words as text, and hovering lights up the right cells."""

import pytest
import torch

from jumok.analysis.maps.attention_map import AttentionMap
from support import graph_maps, image_maps

pytestmark = pytest.mark.slow

SOURCE, TARGET = ("Friday,", "December", "23", "</s>"), ("12월", "23일", "금요일", "</s>", "끝")
ORDER = [1, 2, 0, 3, 3]


def example(layers=2, heads=2) -> AttentionMap:
    scores = (
        torch.nn.functional.one_hot(torch.tensor(ORDER), 4).float()
        * torch.linspace(1, 4, layers * heads)[:, None, None]
    )
    return AttentionMap(SOURCE, TARGET, scores.softmax(-1).view(layers, heads, 5, 4))


def lit(page) -> set[tuple[int, int]]:
    """The cells that are lit, as (target, source)."""
    return set(
        map(
            tuple,
            page.eval_on_selector_all(
                ".jumok-cell.jumok-on", "cells => cells.map(c => [+c.dataset.target, +c.dataset.source])"
            ),
        )
    )


def word(page, side: str, at: int):
    return page.locator(f'.jumok-sentence[aria-label="{side}"] .jumok-word').nth(at)


def test_hovering_a_target_word_lights_its_row_and_tells_where_it_looked(shown):
    page = shown(example())
    word(page, "target", 2).hover()
    assert lit(page) == {(2, source) for source in range(4)}
    assert page.locator(".jumok-read").inner_text().startswith("금요일 attends to Friday, ")
    colours = [word(page, "source", at).evaluate("e => e.style.backgroundColor") for at in range(4)]
    assert colours[0] not in colours[1:]
    page.mouse.move(990, 790)
    assert lit(page) == set()


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        (example(), ["단어별 어텐션", "원문", "번역문", "단어에 마우스를 올리거나", "SVG로 복사"]),
        (image_maps.example(), ["단어별 어텐션", "단어나 이미지에 마우스를 올리거나", "SVG로 복사"]),
        (graph_maps.example(), ["노드의 어텐션", "노드, 간선", "클래스", "자신", "SVG로 복사"]),
    ],
    ids=["line", "image", "graph"],
)
def test_every_kind_of_map_can_speak_korean(shown, attention, said):
    page = shown(attention, language="ko")
    text = page.locator("body").inner_text()
    assert [words for words in said if words not in text] == []
    assert page.evaluate("document.documentElement.lang") == "ko"
    assert page.locator("header button").get_attribute("aria-label") == "밝은 화면과 어두운 화면 전환"


def test_hovering_a_source_word_lights_its_column(shown):
    page = shown(example())
    word(page, "source", 1).hover()
    assert lit(page) == {(target, 1) for target in range(5)}
    assert page.locator(".jumok-read").inner_text().startswith("December is attended to by 12월 ")


def test_hovering_a_cell_lights_it_and_says_its_weight(shown):
    attention = example()
    page = shown(attention)
    page.locator('.jumok-cell[data-target="2"][data-source="0"]').hover()
    assert lit(page) == {(2, 0)}
    percent = round(100 * float(attention.mean()[2, 0]))
    assert f"금요일 attends to Friday, with {percent}%" in page.locator(".jumok-read").inner_text()


def test_the_darkest_cells_are_where_each_word_looked(shown):
    page = shown(example())
    fills = page.eval_on_selector_all(
        ".jumok-cell", "cells => cells.map(c => c.getAttribute('fill').match(/\\d+/g).map(Number))"
    )
    darkness = -torch.tensor(fills).sum(-1).view(5, 4)
    assert darkness.argmax(-1).tolist() == ORDER


def test_choosing_a_layer_and_head_shows_its_weights(shown):
    attention = example()
    page = shown(attention)
    page.get_by_label("Layer", exact=True).select_option("1")
    page.get_by_label("Head", exact=True).select_option("0")
    page.locator('.jumok-cell[data-target="0"][data-source="1"]').hover()
    percent = round(100 * float(attention.weights[1, 0, 0, 1]))
    assert f"with {percent}%" in page.locator(".jumok-read").inner_text()
    pressed = page.locator('.jumok-thumb[aria-pressed="true"]')
    assert pressed.get_attribute("title") == "layer 1, head 0"
    page.locator(".jumok-thumb").nth(1).click()
    assert (
        page.get_by_label("Layer", exact=True).input_value(),
        page.get_by_label("Head", exact=True).input_value(),
    ) == ("0", "1")


def test_arrow_keys_move_from_cell_to_cell_and_from_word_to_word(shown):
    page = shown(example(1, 1))
    page.locator(".jumok-scroll").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert lit(page) == {(1, 1)}
    page.keyboard.press("Escape")
    assert lit(page) == set()
    word(page, "target", 0).focus()
    page.keyboard.press("ArrowRight")
    assert lit(page) == {(1, source) for source in range(4)}


def test_a_click_keeps_a_word_another_click_another_and_a_second_one_lets_it_go(shown):
    page = shown(example(1, 1))
    for at in (2, 1):
        word(page, "target", at).click()
        page.mouse.move(990, 790)
        assert lit(page) == {(at, source) for source in range(4)}
    word(page, "target", 1).click()
    word(page, "target", 1).blur()
    page.mouse.move(990, 790)
    assert lit(page) == set()


def test_markup_in_words_is_shown_as_text(shown):
    words = ("<script>alert(1)</script>", "</script>", "<img src=x onerror=alert(1)>", "<!--")
    page = shown(AttentionMap(words, words, torch.eye(4)[None, None]))
    assert word(page, "source", 0).inner_text() == words[0]
    assert word(page, "target", 2).inner_text() == words[2]
    assert page.locator("main img, main script").count() == 0


def test_short_labels_of_columns_stand_upright_and_can_be_pointed_at(shown):
    tokens = ("ᄀ", "▁ㅏ", "한", "words", "at", "</s>")
    page = shown(AttentionMap(tokens, ("x",), torch.full((1, 1, 1, 6), 1 / 6)))
    labels = page.locator(".jumok-label[data-source]")
    assert labels.all_text_contents() == ["ㄱ", "▁ㅏ", "한", "words", "at", "</s>"]
    assert [bool(label.get_attribute("transform")) for label in labels.all()] == [
        False,
        False,
        False,
        True,
        False,
        True,
    ]
    for at in (0, 4):
        labels.nth(at).hover()
        assert lit(page) == {(0, at)}


def test_a_switch_shows_tokens_instead_of_words_and_words_again(shown):
    source, target = ("▁Fri", "day", ",", "▁2", "3"), ("▁2", "3일", "▁금", "요일")
    tokens = AttentionMap(source, target, torch.rand(2, 2, 4, 5).softmax(-1))
    page = shown(tokens.merged([0, 0, 0, 1, 1], [0, 0, 1, 1]))
    words, other = page.get_by_role("button", name="Words"), page.get_by_role("button", name="Tokens")
    assert (words.get_attribute("aria-pressed"), page.locator(".jumok-cell").count()) == ("true", 4)
    page.get_by_label("Layer", exact=True).select_option("1")
    other.click()
    assert (other.get_attribute("aria-pressed"), page.locator(".jumok-cell").count()) == ("true", 20)
    assert page.locator(".jumok-label[data-source]").all_text_contents() == list(source)
    assert page.locator('.jumok-sentence[aria-label="target"] .jumok-word').all_text_contents() == list(target)
    page.locator('.jumok-cell[data-target="2"][data-source="4"]').hover()
    percent = round(100 * float(tokens.weights[1].mean(0)[2, 4]))
    assert f"▁금 attends to 3 with {percent}%" in page.locator(".jumok-read").inner_text()
    assert "tokens" in page.locator(".jumok-read").inner_text()
    words.click()
    assert page.locator(".jumok-label[data-source]").all_text_contents() == ["▁Friday,", "▁23"]
    assert not shown(example()).locator(".jumok-unit").is_visible()  # there is nothing to switch to


def test_a_thousand_by_a_thousand_words_are_seen_through_a_window(shown):
    words = tuple(f"w{at}" for at in range(1000))
    page = shown(AttentionMap(words, words, torch.eye(1000)[None, None]))
    assert page.locator(".jumok-cell").count() < 5000
    assert page.locator(".jumok-overview").is_visible()
    word(page, "target", 900).hover()
    page.locator('.jumok-cell[data-target="900"][data-source="900"].jumok-on').wait_for()


def test_the_copied_picture_is_valid_svg_of_every_cell(shown):
    import xml.etree.ElementTree as ET

    page = shown(example())
    root = ET.fromstring(page.evaluate("map.svg()"))
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert set(SOURCE) | set(TARGET) <= texts
    assert len([node for node in root.iter() if node.get("data-target") and node.get("data-source")]) == 20


def test_the_button_copies_that_picture_and_says_so(shown):
    page = shown(example())
    page.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    page.get_by_role("button", name="Copy as SVG").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("copied") == page.evaluate("map.svg()")


def test_the_line_beside_a_word_is_as_long_as_its_look_is_spread(shown):
    attention = example(1, 1)
    page = shown(attention)
    widths = page.eval_on_selector_all(".jumok-entropy", "lines => lines.map(line => +line.getAttribute('width'))")
    whole = page.locator(".jumok-track").first.get_attribute("width")
    wanted = attention.entropy()[0, 0] / torch.tensor(4.0).log() * float(whole)
    assert widths == pytest.approx(wanted.tolist(), abs=0.1)
    word(page, "target", 2).hover()
    assert f"entropy {float(attention.entropy()[0, 0, 2]):.2f}" in page.locator(".jumok-read").inner_text()


def test_light_and_dark_follow_the_system_and_the_button(shown):
    page = shown(example(), color_scheme="dark")
    ground = "e => getComputedStyle(e).backgroundColor"
    dark = page.locator(".jumok-map").evaluate(ground)
    page.get_by_label("Switch between light and dark").click()
    assert page.locator(".jumok-map").evaluate(ground) == "rgb(255, 255, 255)" != dark


def test_a_telephone_shows_it_without_scrolling_the_page_sideways(shown):
    words = tuple(f"fairlylongword{at}" for at in range(30))
    page = shown(AttentionMap(words, words, torch.eye(30)[None, None]), viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_matrix_fades_where_it_goes_on_beyond_its_window(shown):
    words = tuple(f"w{at}" for at in range(30))
    page = shown(AttentionMap(words, words[:5], torch.eye(30)[None, None, :5]), viewport={"width": 360, "height": 740})
    beyond = "getComputedStyle(document.querySelector('.jumok-matrix')).getPropertyValue('--jumok-{}') !== '0px'".format
    assert (page.evaluate(beyond("right")), page.evaluate(beyond("below"))) == (True, False)
    page.evaluate("document.querySelector('.jumok-scroll').scrollTo(10000, 0)")
    page.wait_for_function("!(" + beyond("right") + ")")


def test_a_word_that_another_page_lights_up_comes_into_the_window(shown):
    words = tuple(f"w{at}" for at in range(30))
    page = shown(AttentionMap(words, words, torch.eye(30)[None, None]), viewport={"width": 360, "height": 740})
    page.evaluate("map.highlight({target: 29})")
    page.locator('.jumok-cell[data-target="29"][data-source="29"].jumok-on').wait_for()
    page.evaluate("map.highlight({source: 0})")
    page.locator('.jumok-cell[data-target="0"][data-source="0"].jumok-on').wait_for()
    page.evaluate("map.highlight(null)")
    assert lit(page) == set()


def test_arabic_runs_from_right_to_left(shown):
    page = shown(AttentionMap(("a", "b"), ("كتاب", "جديد", "</s>"), torch.full((1, 1, 3, 2), 0.5)))
    first, second = (word(page, "target", at).bounding_box()["x"] for at in (0, 1))
    assert first > second
    assert page.locator('.jumok-sentence[aria-label="source"]').get_attribute("dir") == "ltr"


def test_another_page_can_update_select_highlight_and_listen(shown):
    page = shown(example())
    page.evaluate(
        """() => {
        window.heard = [];
        const place = document.body.appendChild(document.createElement("div"));
        place.id = "other";
        const map = {source: ["a"], target: ["x", "y"], weights: [[[[1], [1]]]]};
        window.other = Jumok.attentionMap(place, map, {onHover: place => heard.push(place), sentences: false});
        other.highlight({target: 1});
        }"""
    )
    assert page.evaluate("heard") == [{"target": 1, "source": None}]
    assert page.locator("#other .jumok-on.jumok-cell").count() == 1
    page.evaluate("other.update({source: ['a', 'b'], target: ['z'], weights: [[[[0.5, 0.5]]]]})")
    assert page.locator("#other .jumok-cell").count() == 2
    page.evaluate("other.destroy()")
    assert page.locator("#other *").count() == 0


def test_letters_that_no_font_has_are_named_and_others_are_not(shown):
    page = shown(example())
    assert not page.locator(".jumok-note").is_visible()
    page = shown(AttentionMap(("a", "\u0379\U000e0fff"), ("x",), torch.full((1, 1, 1, 2), 0.5)))
    assert page.locator(".jumok-note").inner_text().startswith("No installed font has \u0379 (U+379)")
