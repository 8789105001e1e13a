import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jumok.data import FilterConfig, Pair, PairFilter
from jumok.data.filters import pair_hash


def keeps(rules, *rows):
    """Whether each pair, given with the tokens of its sides, is kept; all come at once."""
    pairs = [row[0] for row in rows]
    lengths = np.array([row[1:] for row in rows], np.int64).reshape(-1, 2)
    hashes = np.array([pair_hash(pair) for pair in pairs], np.uint64)
    return rules.keeps(lengths, hashes, np.array([not all(map(str.strip, pair)) for pair in pairs], bool)).tolist()


def test_each_rule_is_counted_by_its_name():
    rules = PairFilter(FilterConfig(min_length=2, max_length=20, max_ratio=3.0))
    kept = keeps(
        rules,
        (Pair("good pair", "좋은 짝"), 5, 5),
        (Pair(" ", "x"), 0, 5),
        (Pair("good pair", "좋은 짝"), 5, 5),
        (Pair("short", "x"), 5, 1),
        (Pair("long", "x"), 21, 20),
        (Pair("uneven", "x"), 19, 6),
        (Pair("even enough", "x"), 18, 6),
        (Pair("too short for a ratio", "x"), 8, 2),
    )
    assert kept == [True, False, False, False, False, False, True, True]
    assert rules.report.dropped == {"empty": 1, "duplicate": 1, "too short": 1, "too long": 1, "ratio": 1}
    assert str(rules.report) == ("kept 3 of 8 pairs (dropped: 1 empty, 1 duplicate, 1 too short, 1 too long, 1 ratio)")


def test_a_report_without_losses_is_short():
    assert str(PairFilter(FilterConfig()).report) == "kept 0 of 0 pairs"


def test_duplicates_stay_when_asked_to():
    rules = PairFilter(FilterConfig(duplicates=False))
    assert keeps(rules, (Pair("a", "b"), 1, 1), (Pair("a", "b"), 1, 1)) == [True, True]


def test_the_same_letters_split_elsewhere_are_no_duplicate():
    rules = PairFilter(FilterConfig())
    assert keeps(rules, (Pair("ab", "c"), 2, 1), (Pair("a", "bc"), 1, 2)) == [True, True]


def test_a_pair_repeats_one_of_an_earlier_chunk():
    rules = PairFilter(FilterConfig())
    assert keeps(rules, (Pair("a", "b"), 1, 1)) == [True]
    assert keeps(rules, (Pair("c", "d"), 1, 1), (Pair("a", "b"), 1, 1)) == [True, False]


@given(st.lists(st.tuples(st.sampled_from("ab "), st.sampled_from("xy"), st.integers(0, 9), st.integers(0, 9))))
def test_read_is_kept_plus_dropped(rows):
    rules = PairFilter(FilterConfig(max_length=5, max_ratio=2.0, ratio_from=1))
    kept = sum(keeps(rules, *((Pair(a, b), m, n) for a, b, m, n in rows)))
    assert rules.report.kept == kept
    assert rules.report.read == len(rows)
