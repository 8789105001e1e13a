"""What is said when outputs cannot be scored."""

import json

import pytest

from jumok.analysis.scores.metrics import check_scores, score_outputs
from jumok.errors import ArgumentError
from support.commands import well, write
from support.refusals import names, refused, refuses


@pytest.mark.parametrize(
    ("outputs", "references", "scores", "facts"),
    [
        (["a", "b"], ["a"], ["bleu"], "2 outputs … 1 references"),
        ([], [], ["bleu"], "no outputs"),
        (["a", 100_000 * "a "], ["a", "a"], ["bleu", "ter"], "line 2 … 100,000 words … ter"),
    ],
    ids=["lengths", "none", "slow"],
)
def test_outputs_that_cannot_be_scored_are_refused(outputs, references, scores, facts):
    with refuses(ArgumentError, facts):
        score_outputs(outputs, references, scores)


def test_unknown_scores_are_refused():
    with refuses(ArgumentError, "'blue' … bleu, chrf"):
        check_scores(["blue"])


@pytest.mark.slow
def test_a_line_of_600_kb_is_scored_without_ter_which_is_said(tmp_path):
    output, reference = write(tmp_path / "out", 100_000 * "word1 " + "\n"), write(tmp_path / "ref", "word1\n")
    done = well("evaluate", "--output", output, "--reference", reference, "--json")
    assert done.err.startswith("ter is left out: line 1 has 100,000 words, and ter takes minutes for more than 300\n")
    assert [score["name"] for score in json.loads(done.out)["scores"]] == ["BLEU", "chrF"]
    names(refused("evaluate", "--output", output, "--reference", reference, "--metrics", "ter"), "line 1", "ter")


def test_an_empty_file_of_references_is_named(tmp_path):
    empty = write(tmp_path / "empty.ko", "")
    names(refused("evaluate", "--output", empty, "--reference", empty), empty, "is empty")
