"""What is said when outputs cannot be scored."""

import json

import pytest

from jumok.analysis.scores.metrics import score_outputs
from jumok.errors import ArgumentError
from support.commands import jumok, well, write


def test_outputs_and_references_must_be_as_many():
    with pytest.raises(ArgumentError, match="2 outputs but 1 references"):
        score_outputs(["a", "b"], ["a"])


def test_no_outputs_have_no_score():
    with pytest.raises(ArgumentError, match="no outputs"):
        score_outputs([], [])


def test_an_unknown_score_is_named_with_the_known_ones():
    with pytest.raises(ArgumentError, match="'blue' is not a score; choose from bleu, chrf"):
        score_outputs(["a"], ["a"], ["blue"])


def test_a_score_that_would_take_minutes_is_refused():
    with pytest.raises(ArgumentError, match="line 2 has 100,000 words, and ter takes minutes for more than"):
        score_outputs(["a", 100_000 * "a "], ["a", "a"], ["bleu", "ter"])


def test_a_line_of_600_kb_is_scored_without_ter_which_is_said(tmp_path):
    output, reference = write(tmp_path / "out", 100_000 * "word1 " + "\n"), write(tmp_path / "ref", "word1\n")
    done = well("evaluate", "--output", output, "--reference", reference, "--json")
    assert done.err == "ter is left out: line 1 has 100,000 words, and ter takes minutes for more than 300\n"
    assert [score["name"] for score in json.loads(done.out)["scores"]] == ["BLEU", "chrF"]
    alone = jumok("evaluate", "--output", output, "--reference", reference, "--metrics", "ter")
    assert (alone.code, alone.out, alone.err.count("\n")) == (1, "", 1)
