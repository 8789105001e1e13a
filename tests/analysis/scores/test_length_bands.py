"""Scores by source length, against sacrebleu on the same sentences picked by hand."""

import pytest
import sacrebleu

from jumok.analysis.scores.length_bands import join_texts, members, score_bands
from jumok.errors import ArgumentError

SOURCES = ["a b c", "a b c d e f", "a", "a b c d e f g h i j k l", "", "a b c d e"]
OUTPUTS = [
    "the cat sat on the mat",
    "a big dog barks at night",
    "yes",
    "one two three four five six",
    "",
    "four words or five",
]
REFERENCES = [
    "the cat sat on a mat",
    "the big dog barks at night",
    "yes",
    "one two three four six",
    "",
    "four words or five",
]


@pytest.mark.parametrize(
    ("name", "metric"), [("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF()), ("ter", sacrebleu.TER())]
)
def test_each_band_is_scored_as_sacrebleu_scores_its_sentences(name, metric):
    bands = score_bands(name, SOURCES, OUTPUTS, REFERENCES, edges=[5, 10])
    by_hand = {"0": [4], "1-5": [0, 2, 5], "6-10": [1], "over 10": [3]}
    assert [(band.words, band.sentences) for band in bands] == [(words, len(at)) for words, at in by_hand.items()]
    for band in bands:
        inside = by_hand[band.words]
        wanted = metric.corpus_score([OUTPUTS[at] for at in inside], [[REFERENCES[at] for at in inside]])
        assert band.score.value == pytest.approx(wanted.score)


def test_a_length_at_an_edge_belongs_to_the_band_below():
    assert members(["a b", "a b c"], [2, 4]) == [("1-2", [0]), ("3-4", [1])]


@pytest.mark.parametrize("edges", [[], [5, 5], [10, 5], [0, 5]])
def test_edges_that_are_no_bands_are_refused(edges):
    with pytest.raises(ArgumentError, match="ascending"):
        members(["a"], edges)


def test_consecutive_texts_are_joined_and_none_is_used_twice():
    assert join_texts(["a", "b ", "c", "d", "e"], [1, 2]) == ["a", "b", "c", "d", "e", "a b", "c d"]
    assert join_texts(["a", "b"], [3]) == []
    with pytest.raises(ArgumentError, match="1 or more"):
        join_texts(["a"], [0])
