"""Minimum Bayes risk: chrF is sacrebleu's, and the output closest to all is chosen."""

import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from jumok.decoding.mbr import by_expected_chrf, chrf_matrix

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
