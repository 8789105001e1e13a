from hypothesis import given
from hypothesis import strategies as st

from jumok.data import FilterConfig, Pair, PairFilter


def test_each_rule_is_counted_by_its_name():
    rules = PairFilter(FilterConfig(min_length=2, max_length=20, max_ratio=3.0))
    kept = [
        rules.keeps(Pair("good pair", "좋은 짝"), 5, 5),
        rules.keeps(Pair(" ", "x"), 0, 5),
        rules.keeps(Pair("good pair", "좋은 짝"), 5, 5),
        rules.keeps(Pair("short", "x"), 5, 1),
        rules.keeps(Pair("long", "x"), 21, 20),
        rules.keeps(Pair("uneven", "x"), 19, 6),
        rules.keeps(Pair("even enough", "x"), 18, 6),
        rules.keeps(Pair("too short for a ratio", "x"), 8, 2),
    ]
    assert kept == [True, False, False, False, False, False, True, True]
    assert rules.report.dropped == {"empty": 1, "duplicate": 1, "too short": 1, "too long": 1, "ratio": 1}
    assert str(rules.report) == ("kept 3 of 8 pairs (dropped: 1 empty, 1 duplicate, 1 too short, 1 too long, 1 ratio)")


def test_a_report_without_losses_is_short():
    assert str(PairFilter(FilterConfig()).report) == "kept 0 of 0 pairs"


def test_duplicates_stay_when_asked_to():
    rules = PairFilter(FilterConfig(duplicates=False))
    assert rules.keeps(Pair("a", "b"), 1, 1)
    assert rules.keeps(Pair("a", "b"), 1, 1)


def test_the_same_letters_split_elsewhere_are_no_duplicate():
    rules = PairFilter(FilterConfig())
    assert rules.keeps(Pair("ab", "c"), 2, 1)
    assert rules.keeps(Pair("a", "bc"), 1, 2)


@given(st.lists(st.tuples(st.sampled_from("ab "), st.sampled_from("xy"), st.integers(0, 9), st.integers(0, 9))))
def test_read_is_kept_plus_dropped(rows):
    rules = PairFilter(FilterConfig(max_length=5, max_ratio=2.0, ratio_from=1))
    kept = sum(rules.keeps(Pair(a, b), m, n) for a, b, m, n in rows)
    assert rules.report.kept == kept
    assert rules.report.read == len(rows)
