"""AER, precision and recall, and gold standards in the formats they come in."""

import pytest

from jumok.analysis.alignment.error_rate import Gold, alignment_scores, read_gold
from jumok.data.word_links import parse_word_links


def gold(sure, possible=""):
    one = frozenset(parse_word_links(sure, ""))
    return Gold(one, one | frozenset(parse_word_links(possible, "")))


def test_the_rates_are_those_of_och_and_ney():
    wanted = gold("0-0 1-1 2-2", "2-3 3-3")
    scores = alignment_scores([{(0, 0), (1, 1), (2, 3), (4, 4)}], [wanted])
    assert scores.precision == 3 / 4  # 4-4 is not even possible
    assert scores.recall == 2 / 3
    assert scores.error == pytest.approx(1 - (2 + 3) / (4 + 3))


def test_rates_are_of_all_pairs_together():
    scores = alignment_scores([{(0, 0)}, set()], [gold("0-0"), gold("0-0 1-1")])
    assert (scores.precision, scores.recall, scores.error) == (1, 1 / 3, pytest.approx(1 - 2 / 4))


def test_everything_right_is_no_error_and_nothing_at_all_neither():
    assert alignment_scores([{(0, 0)}], [gold("0-0")]).error == 0
    assert alignment_scores([set()], [gold("")]).error == 0
    assert alignment_scores([set()], [gold("0-0")]).error == 1


def test_gold_links_past_the_end_are_left_out_and_told():
    scores = alignment_scores([{(0, 0)}], [gold("0-0 5-0", "0-9")], [(3, 2)])
    assert scores.error == 0
    assert [message.split(" (")[0] for message in scores.dropped] == [
        "line 1: the gold link 0-9",
        "line 1: the gold link 5-0",
    ]


def test_three_formats_of_the_same_links(tmp_path):
    (tmp_path / "one").write_text("1-1 2p3\n\n2-1\n")
    (tmp_path / "zero").write_text("0-0 1?2\n\n1-0\n")
    (tmp_path / "shared-task").write_text("1 1 1 S\n0001 2 3 P\n3 2 1\n")
    wanted = [gold("0-0", "1-2"), gold(""), gold("1-0")]
    assert all(read_gold(tmp_path / name) == wanted for name in ("one", "zero", "shared-task"))


def test_the_shared_task_may_end_before_the_text_does(tmp_path):
    (tmp_path / "gold").write_text("1 1 1 S\n")
    assert read_gold(tmp_path / "gold", pairs=3) == [gold("0-0"), gold(""), gold("")]


def test_the_number_of_the_first_word_can_be_said(tmp_path):
    (tmp_path / "gold").write_text("1-1\n")
    assert read_gold(tmp_path / "gold", first=0) == [gold("1-1")]
