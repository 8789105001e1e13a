"""From token weights to word maps, and to pictures that can be read."""

import xml.etree.ElementTree as ET

import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.analysis.attention_map import AttentionMap, word_numbers
from jumok.analysis.heatmap_svg import colour, heatmap_svg
from jumok.analysis.terminal import terminal_map
from jumok.analysis.width import cells


def example(source=("On", "Friday", "</s>"), target=("금요일", "에", "</s>")) -> AttentionMap:
    torch.manual_seed(0)
    return AttentionMap(tuple(source), tuple(target), torch.randn(2, 3, len(target), len(source)).softmax(-1))


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


def test_the_picture_is_valid_svg_with_every_word_and_cell():
    attention = example(source=("<script>", "&", "날짜"), target=("금요일", "에"))
    root = ET.fromstring(heatmap_svg(attention, title="a < b"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<script>", "&", "날짜", "금요일", "에", "a < b"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}title"))) == 6


def test_more_weight_is_darker():
    def lightness(weight: float) -> int:
        return sum(int(colour(weight)[at : at + 2], 16) for at in (1, 3, 5))

    assert lightness(0) > lightness(0.3) > lightness(0.7) > lightness(1)
    assert colour(2) == colour(1)


def test_terminal_rows_line_up_with_hangul_labels():
    lines = terminal_map(example(), plain=True).plain.split("\n")
    assert lines[0].split() == ["On", "Friday", "</s>"]
    assert len({cells(line) for line in lines}) == 1


def test_a_map_too_wide_for_the_terminal_numbers_its_columns():
    source = tuple(f"word{n}" for n in range(20))
    text = terminal_map(example(source=source), width=90, plain=True).plain
    assert "word19" in text.split("\n")[-1]
    assert all(cells(line) <= 90 for line in text.split("\n")[:-1])


def test_a_terminal_shows_joined_letters_joined_and_controls_as_a_sign():
    words = ("می\u200cخواهم", "👩\u200d👧", "a\x1bb")
    shown = AttentionMap(words, ("x",), torch.full((1, 1, 1, 3), 1 / 3))
    assert terminal_map(shown, plain=True).plain.split("\n")[0].split() == [*words[:2], "a�b"]
