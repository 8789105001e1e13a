"""Minimum Bayes risk: chrF is sacrebleu's, and the output closest to all is chosen; and votes of several models."""

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from jumok.decoding.consensus import by_expected_chrf, by_mean_reciprocal_rank, chrf_matrix

TEXTS = ["the cat sat", "a cat sat down", "파일을 열 수 없습니다", "x", "", "the  cat sat"]


def test_chrf_is_sacrebleus():
    scores = chrf_matrix(TEXTS)
    for row, text in enumerate(TEXTS):
        for column, reference in enumerate(TEXTS):
            want = sacrebleu.sentence_chrf(text, [reference]).score
            assert abs(scores[row, column] - want) < 1e-6, (text, reference)


@given(st.lists(st.text("ab ", max_size=9), min_size=1, max_size=5))
def test_chrf_is_sacrebleus_for_any_texts(texts):
    scores = chrf_matrix(texts)
    assert abs(scores[0, -1] - sacrebleu.sentence_chrf(texts[0], [texts[-1]]).score) < 1e-6


def test_the_text_closest_to_all_comes_first():
    assert by_expected_chrf(["a dog", "the cat sat", "the cat sits", "the cat sat on"], [0.0] * 4)[0][0] in (1, 2, 3)


def test_likely_texts_count_for_more():
    assert by_expected_chrf(["a dog", "the cat sat", "the cat sits"], [5.0, 0.0, 0.0])[0][0] == 0


def test_the_first_place_of_two_models_beats_that_of_one():
    assert by_mean_reciprocal_rank([["a", "b"], ["b", "c"], ["b", "a"]])[0] == ("b", pytest.approx(5 / 6))


def test_an_output_that_all_models_rank_second_beats_those_that_one_ranks_first():
    ranked = by_mean_reciprocal_rank([["a", "x"], ["b", "x"], ["c", "x"]])
    assert ranked == [("x", 0.5), *((text, pytest.approx(1 / 3)) for text in "abc")]


def test_an_output_written_twice_by_one_model_has_its_best_rank_and_takes_no_place():
    assert by_mean_reciprocal_rank([["a", "a", "b"]]) == [("a", 1.0), ("b", 0.5)]


def test_of_equally_good_outputs_that_of_the_earlier_model_wins():
    assert [text for text, _ in by_mean_reciprocal_rank([["b", "a"], ["a", "b"]])] == ["b", "a"]
