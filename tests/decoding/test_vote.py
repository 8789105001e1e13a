"""Votes by mean reciprocal rank."""

import pytest

from jumok.decoding.vote import by_mean_reciprocal_rank


def test_the_first_place_of_two_models_beats_that_of_one():
    assert by_mean_reciprocal_rank([["a", "b"], ["b", "c"], ["b", "a"]])[0] == ("b", pytest.approx(5 / 6))


def test_an_output_that_all_models_rank_second_beats_those_that_one_ranks_first():
    ranked = by_mean_reciprocal_rank([["a", "x"], ["b", "x"], ["c", "x"]])
    assert ranked == [("x", 0.5), *((text, pytest.approx(1 / 3)) for text in "abc")]


def test_an_output_written_twice_by_one_model_has_its_best_rank_and_takes_no_place():
    assert by_mean_reciprocal_rank([["a", "a", "b"]]) == [("a", 1.0), ("b", 0.5)]


def test_of_equally_good_outputs_that_of_the_earlier_model_wins():
    assert [text for text, _ in by_mean_reciprocal_rank([["b", "a"], ["a", "b"]])] == ["b", "a"]
