"""Scores against sacrebleu's own numbers and against counting by hand."""

import unicodedata

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.lib_ter import BeamEditDistance

from jumok.analysis.scores.metrics import by_length, score_outputs
from jumok.errors import ArgumentError

OUTPUTS = ["the cat sat on the mat", "a dog barks", "1988년 12월 23일 금요일", "hello"]
REFERENCES = ["the cat sat on a mat", "the dog is barking", "1988년 12월 23일 금요일", "hello there"]


def test_bleu_chrf_and_ter_are_those_of_sacrebleu_with_its_signature():
    bleu, chrf, ter = score_outputs(OUTPUTS, REFERENCES, ["bleu", "chrf", "ter"])
    assert bleu.value == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    assert chrf.value == sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score
    assert ter.value == sacrebleu.corpus_ter(OUTPUTS, [REFERENCES]).score
    assert "tok:13a" in bleu.signature
    assert all(score.low < score.value < score.high for score in (bleu, chrf, ter))


def test_exact_match_counts_whole_outputs():
    (exact,) = score_outputs(OUTPUTS, REFERENCES, ["exact_match"])
    assert exact.value == 25
    assert exact.low <= 25 <= exact.high


def test_word_errors_are_insertions_deletions_and_substitutions_over_reference_words():
    (wer,) = score_outputs(["a b c", "x"], ["a c", "x y z"], ["wer"])
    assert wer.value == pytest.approx(100 * (1 + 2) / 5)


@pytest.mark.parametrize("name", ["bleu", "chrf", "exact_match"])
def test_the_same_text_is_the_same_however_unicode_spells_it(name):
    composed = ["한국어 문장 하나 입니다", "두 번째 문장 입니다"]
    decomposed = [unicodedata.normalize("NFD", text) for text in composed]
    for outputs, references in ((composed, decomposed), (decomposed, [[text] for text in composed])):
        (score,) = score_outputs(outputs, references, [name])
        assert score.value == pytest.approx(100)


def test_case_is_ignored_where_that_is_asked_for():
    for name, (strict, lenient) in {"wer": (100, 0), "exact_match": (0, 100)}.items():
        assert score_outputs(["The Cat"], ["the cat"], [name])[0].value == strict
        (found,) = score_outputs(["The Cat"], ["the cat"], [name], lowercase=True)
        assert found.value == lenient
        assert "case:lc" in found.signature


words = st.lists(st.sampled_from("abc"), max_size=6)


@given(words, words.filter(bool))
def test_word_errors_are_the_edits_of_sacrebleu_without_shifts(output, reference):
    distance, _ = BeamEditDistance(reference)(output)
    (wer,) = score_outputs([" ".join(output)], [" ".join(reference)], ["wer"])
    assert wer.value == pytest.approx(100 * distance / len(reference))


def test_word_errors_of_long_lines_are_counted_in_no_time():
    (wer,) = score_outputs(["a " * 20_000], ["a " * 19_999 + "b"], ["wer"])
    assert wer.value == pytest.approx(100 / 20_000)


def test_one_sentence_alone_has_a_score_and_no_spread():
    (bleu,) = score_outputs(["the cat sat on the mat"], ["the cat sat on the mat"], ["bleu"])
    assert bleu.value == pytest.approx(100)
    assert bleu.low == bleu.high


def test_the_interval_of_a_score_near_zero_does_not_reach_below():
    outputs, references = ["ab", "cd", "ef", "gh", "xy"], ["qrs", "tuv", "wqr", "stu", "xqr"]
    by_hand = sacrebleu.CHRF().corpus_score(outputs, [references])
    (score,) = score_outputs(outputs, references, ["chrf"])
    assert score.value == pytest.approx(by_hand.score)
    assert score.low == 0 < score.value < score.high


@pytest.mark.parametrize("name", ["bleu", "chrf", "exact_match"])
def test_the_interval_of_a_score_near_a_hundred_does_not_reach_above(name):
    references = [f"this is line {number} of the test set" for number in range(30)]
    outputs = ["this was something else altogether", *references[1:]]
    (score,) = score_outputs(outputs, references, [name])
    assert score.low < score.value < score.high == 100


@pytest.mark.parametrize("name", ["bleu", "chrf", "exact_match"])
def test_a_perfect_score_is_a_hundred_and_no_more(name):
    texts = [f"this is line {number} of the test set" for number in range(30)]
    (score,) = score_outputs(texts, texts, [name])
    assert (score.value, score.low, score.high) == (100, 100, 100)


def test_error_rates_may_pass_a_hundred():
    outputs = ["many more words than were ever wanted", "and here again quite a few too many"] * 5
    ter, wer = score_outputs(outputs, ["no", "yes"] * 5, ["ter", "wer"])
    assert min(ter.value, wer.value, ter.high, wer.high) > 100


def test_bands_of_length_hold_what_belongs_to_them():
    assert by_length([1, 2, 3, 9], [1, 0, 1, 1], [2, 4]) == [("1-2", 2, 0.5), ("3-4", 1, 1.0), ("over 4", 1, 1.0)]


def test_several_references_score_as_sacrebleu_scores_them():
    outputs = ["a dog runs", "a cat", "the big house stands here"]
    references = [("a dog is running", "a dog runs"), ("one cat",), ("a house", "the house stands", "a big house here")]
    bleu, exact, wer = score_outputs(outputs, references, ["bleu", "exact_match", "wer"], resamples=1)
    streams = [[one[at] if at < len(one) else None for one in references] for at in range(3)]
    assert bleu.value == pytest.approx(sacrebleu.BLEU().corpus_score(outputs, streams).score)
    assert "nrefs:var" in bleu.signature
    assert exact.value == pytest.approx(100 / 3)
    assert wer.value == pytest.approx(100 * (0 + 1 + 2) / (3 + 2 + 4))


def test_an_output_without_any_reference_is_refused():
    with pytest.raises(ArgumentError, match="output 2 has no reference"):
        score_outputs(["a", "b"], [["a"], []])
