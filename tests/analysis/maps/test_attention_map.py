"""From token weights to word maps, and to pictures that can be read."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.analysis import draw
from jumok.analysis.draw.page import attention_page
from jumok.analysis.draw.style import cell_width, weight_colour
from jumok.analysis.draw.terminal import terminal_map
from jumok.analysis.maps.attention_map import AttentionMap, word_numbers
from jumok.errors import ArgumentError


def example(source=("On", "Friday", "</s>"), target=("금요일", "에", "</s>")) -> AttentionMap:
    torch.manual_seed(0)
    return AttentionMap(tuple(source), tuple(target), torch.randn(2, 3, len(target), len(source)).softmax(-1))


def test_a_map_is_shown_by_its_size():
    shown = example(target=("금요일", "에"))
    assert repr(shown) == "AttentionMap(3 sources × 2 targets, 2 layers × 3 heads, kind='cross')"
    assert repr(replace(shown, title="On Friday")).endswith(", title='On Friday')")


def test_pieces_are_numbered_by_the_word_they_lie_in():
    assert word_numbers("금요일에 만나요", [(0, 2), (2, 4), (5, 7), (7, 8)]) == [0, 0, 1, 1]
    assert word_numbers("a  b", [(0, 1), (3, 4)]) == [0, 1]
    assert word_numbers("", []) == []


def test_a_word_is_looked_at_as_much_as_its_pieces_and_looks_where_they_look():
    attention = example(source="abcd", target="xyz")
    merged = attention.merged([0, 0, 1, 1], [0, 1, 1])
    torch.testing.assert_close(merged.weights[1, 2, 0, 1], attention.weights[1, 2, 0, 2:].sum())
    torch.testing.assert_close(merged.weights[0, 0, 1, 0], attention.weights[0, 0, 1:, :2].sum() / 2)
    assert merged.source == ("ab", "cd")
    assert merged.target == ("x", "yz")


@given(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.lists(st.integers(0, 1), min_size=1, max_size=8))
def test_rows_still_sum_to_one_after_merging(source_breaks, target_breaks):
    words = [[sum(breaks[1 : at + 1]) for at in range(len(breaks))] for breaks in (source_breaks, target_breaks)]
    merged = example(["s"] * len(words[0]), ["t"] * len(words[1])).merged(*words)
    torch.testing.assert_close(merged.weights.sum(-1), torch.ones(merged.weights.shape[:-1]))


def test_crossings_count_the_pairs_that_change_places():
    weights = torch.eye(3).flip(0)[None, None]
    assert AttentionMap(("a", "b", "c"), ("x", "y", "z"), weights).crossings() == 3
    assert AttentionMap(("a", "b", "c"), ("x", "y", "z"), torch.eye(3)[None, None]).crossings() == 0


def test_the_end_of_a_sentence_changes_places_with_no_word():
    weights = torch.tensor([[0.1, 0.7, 0.2], [0.4, 0.0, 0.6], [0.9, 0.1, 0.0]])[None, None]
    assert AttentionMap(("a", "b", "</s>"), ("x", "y", "</s>"), weights).crossings() == 1
    assert AttentionMap(("</s>",), ("x", "</s>"), torch.ones(1, 1, 2, 1)).crossings() == 0


def test_the_picture_is_valid_svg_with_every_word_and_cell():
    attention = example(source=("<script>", "&", "날짜"), target=("금요일", "에"))
    root = ET.fromstring(draw.to_svg(replace(attention, title="a < b")))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<script>", "&", "날짜", "금요일", "에", "a < b"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}title"))) == 6


def test_more_weight_is_darker():
    def lightness(weight: float) -> int:
        return sum(int(weight_colour(weight)[at : at + 2], 16) for at in (1, 3, 5))

    assert lightness(0) > lightness(0.3) > lightness(0.7) > lightness(1)
    assert weight_colour(2) == weight_colour(1)


def test_terminal_rows_line_up_with_hangul_labels():
    lines = terminal_map(example(), plain=True).plain.split("\n")
    assert lines[0].split() == ["On", "Friday", "</s>"]
    assert len({cell_width(line) for line in lines[:-1]}) == 1


def test_a_map_without_colours_says_once_what_its_shades_stand_for():
    weights = torch.tensor([[0.8, 0.2, 0.0], [0.1, 0.4, 0.5]])
    shown = AttentionMap(("one", "two", "end"), ("하나", "둘"), weights[None, None])
    lines = terminal_map(shown, plain=True).plain.split("\n")
    assert lines[1:3] == ["하나  ███ ░░░    ", "  둘  ░░░ ▒▒▒ ▓▓▓"]
    assert lines[3].split("  ")[3:] == ["░ 6–26%", "▒ 26–46%", "▓ 46–66%", "█ 66–80%"]
    assert "–" not in terminal_map(shown).plain  # colours have their numbers in the cells
    faint = terminal_map(AttentionMap(("a",), ("b",), torch.full((1, 1, 1, 1), 0.004)), plain=True)
    assert faint.plain.endswith("░ 0.03–0.13%  ▒ 0.13–0.23%  ▓ 0.23–0.33%  █ 0.33–0.4%")


def test_jamo_and_ipa_labels_have_a_width_and_stay_aligned_in_a_terminal():
    tokens = ("ᄒ", "ᅡ", "ᆫ", "▁ᄀ", "tʰ", "ː", "t\u0361s", "\u0303", "Ａ", "ힰ", "a\u0303", "각")
    shown = AttentionMap(tokens, tokens, torch.eye(12)[None, None])
    head, *rows, _ = terminal_map(shown, plain=True).plain.split("\n")
    assert head.split()[:9] == ["ㅎ", "ㅏ", "ㄴ", "▁ㄱ", "tʰ", "ː", "t\u0361s", "◌\u0303", "Ａ"]
    assert {cell_width(line) for line in (head, *rows)} == {cell_width(head)}
    assert {cell_width(row.split()[0]) for row in rows} <= {1, 2, 3}
    for at, row in enumerate(rows):  # each token looks at itself, below its own label
        where = row.index("█")
        assert cell_width(row[:where]) == cell_width(head[: head.index(head.split()[at])])


def test_short_labels_of_columns_stand_upright_and_long_ones_lean():
    source = ("ㄱ", "▁ㅏ", "한", "at", "tʰ", "ᅡ", "words", "</s>")
    root = ET.fromstring(draw.to_svg(example(source=source, target=("x",))))
    texts = {element.text: element for element in root.iter("{http://www.w3.org/2000/svg}text")}
    leaning = {word for word in texts if "rotate" in texts[word].get("transform", "")}
    assert leaning == {"words", "</s>"}
    assert {"ㄱ", "▁ㅏ", "한", "at", "tʰ", "ㅏ"} <= set(texts)


def test_a_map_too_wide_for_the_terminal_numbers_its_columns():
    source = tuple(f"word{n}" for n in range(20))
    text = terminal_map(example(source=source), width=90, plain=True).plain
    assert "word19" in text.split("\n")[-1]
    assert all(cell_width(line) <= 90 for line in text.split("\n")[:-1])


def test_a_terminal_shows_joined_letters_joined_and_controls_as_a_sign():
    words = ("می\u200cخواهم", "👩\u200d👧", "a\x1bb")
    shown = AttentionMap(words, ("x",), torch.full((1, 1, 1, 3), 1 / 3))
    assert terminal_map(shown, plain=True).plain.split("\n")[0].split() == [*words[:2], "a�b"]


def in_words() -> AttentionMap:
    """Three words of the source and two of the target, of five and four tokens; two layers of three heads."""
    shown = example(source=("▁Fri", "day", ",", "▁2", "3"), target=("▁2", "3일", "▁금", "요일"))
    return shown.merged([0, 0, 0, 1, 1], [0, 0, 1, 1])


def test_a_map_in_words_keeps_the_one_in_tokens_through_choices_and_json():
    shown = in_words()
    assert (shown.source, shown.tokens.source) == (("▁Friday,", "▁23"), ("▁Fri", "day", ",", "▁2", "3"))
    chosen = shown.select(layer=1, head=[0, 2])
    torch.testing.assert_close(chosen.tokens.weights, shown.tokens.weights[1:, [0, 2]])
    torch.testing.assert_close(chosen.tokens.merged([0, 0, 0, 1, 1], [0, 0, 1, 1]).weights, chosen.weights)
    again = AttentionMap.from_json(chosen.to_json())
    assert again.tokens.target == ("▁2", "3일", "▁금", "요일")
    torch.testing.assert_close(again.tokens.weights, chosen.tokens.weights, atol=1e-6, rtol=0)
    assert again.tokens.tokens is None
    assert example().merged([0, 1, 2], [0, 1, 2]).tokens is None  # every word is one token
    with pytest.raises(ArgumentError, match=r"tokens has \[2, 3\] layers and heads, but weights have \[1, 2\]"):
        replace(chosen, tokens=shown.tokens)


def test_a_page_with_too_many_numbers_leaves_tokens_out_first_and_says_so(monkeypatch):
    shown = in_words()
    assert '"tokens":{' in attention_page(shown)
    monkeypatch.setattr("jumok.analysis.draw.page.MOST", shown.weights.numel())
    assert '"tokens":{' not in attention_page(shown)
    assert "The map between tokens is too large for one page; only words are shown." in attention_page(shown)


def test_the_map_that_readme_prints_is_the_one_of_its_picture():
    root = Path(__file__).parents[3]
    svg = ET.parse(root / "docs/demo/attention.svg").getroot()
    cells_of = [title.text.rsplit(": ", 1) for title in svg.iter("{http://www.w3.org/2000/svg}title")]
    target, source = (tuple(dict.fromkeys(pair.split(" ← ")[side] for pair, _ in cells_of)) for side in (0, 1))
    weights = torch.tensor([float(weight) for _, weight in cells_of]).view(1, 1, len(target), len(source))
    lines = terminal_map(AttentionMap(source, target, weights), plain=True).plain.split("\n")
    printed = (root / "README.md").read_text(encoding="utf-8")
    assert "\n".join(line.rstrip() for line in lines) in printed
