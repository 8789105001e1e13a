"""What is said when outputs cannot be scored."""

import pytest

from jumok.analysis.scores import score_outputs
from jumok.errors import ArgumentError


def test_outputs_and_references_must_be_as_many():
    with pytest.raises(ArgumentError, match="2 outputs but 1 references"):
        score_outputs(["a", "b"], ["a"])


def test_no_outputs_have_no_score():
    with pytest.raises(ArgumentError, match="no outputs"):
        score_outputs([], [])


def test_an_unknown_score_is_named_with_the_known_ones():
    with pytest.raises(ArgumentError, match="'blue' is not a score; there are bleu, chrf"):
        score_outputs(["a"], ["a"], ["blue"])
