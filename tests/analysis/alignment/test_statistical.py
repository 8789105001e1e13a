"""Alignment from text alone: posteriors are sums over every way to write a text, and links are right."""

from itertools import product
from random import Random

import numpy as np
import pytest

from jumok.analysis.alignment.error_rate import Gold, alignment_scores
from jumok.analysis.alignment.statistical import FIRST_JUMPS, NULL, WIDEST, Direction, align_text, fit, posteriors
from jumok.analysis.alignment.word_pairs import LONGEST
from jumok.data import Pair


def by_brute_force(emit, null, model):
    """Posteriors of one pair from the probability of every sequence of (state, written or not)."""
    states, times = emit.shape
    moves = np.full((states + 1, states), 1 / states) if model.jumps is None else model.transitions(states)
    links, nulls, widths, total = np.zeros_like(emit), np.zeros(times), np.zeros(2 * WIDEST + 1), 0.0
    for path in product(product(range(states), (True, False)), repeat=times):
        chance, before = 1.0, None
        for time, (state, written) in enumerate(path):
            if written:
                chance *= (1 - NULL) * moves[-1 if before is None else before, state] * emit[state, time]
            else:
                chance *= NULL * null[time] * (1 / states if before is None else float(state == before))
            before = state
        total += chance
        before = None
        for time, (state, written) in enumerate(path):
            if not written:
                nulls[time] += chance
            else:
                links[state, time] += chance
                if time or before is None:
                    widths[np.clip(state - (-1 if before is None else before), -WIDEST, WIDEST) + WIDEST] += chance
            before = state
    return links / total, nulls / total, widths / total


@pytest.mark.parametrize(("states", "times"), [(1, 1), (3, 1), (1, 3), (3, 4)])
@pytest.mark.parametrize("jumps", [None, FIRST_JUMPS])
def test_posteriors_are_sums_over_every_path(states, times, jumps):
    draws = np.random.default_rng(0)
    emit, null = draws.random((2, states, times)), draws.random((2, times))
    model = Direction(np.zeros((1, 0)), np.zeros((0, 0)), *np.zeros((3, 0)), jumps)
    found = posteriors(emit, null, model)
    wanted = [by_brute_force(emit[pair], null[pair], model) for pair in range(2)]
    for pair in range(2):
        assert np.allclose(found.links[pair], wanted[pair][0])
        assert np.allclose(found.null[pair], wanted[pair][1])
        assert np.allclose(found.links[pair].sum(0) + found.null[pair], 1)
    if jumps is not None:
        assert np.allclose(found.jumps, wanted[0][2] + wanted[1][2])


def test_words_are_found_though_their_order_turns_round():
    draws, pairs, gold = Random(0), [], []
    for _ in range(300):
        words = draws.sample(range(40), draws.randint(1, 6))
        cut = draws.randint(0, len(words))
        order = [*range(cut, len(words)), *range(cut)]  # the second half first
        pairs.append(Pair(" ".join(f"s{word}" for word in words), " ".join(f"T{words[at]}" for at in order)))
        links = frozenset((one, two) for two, one in enumerate(order))
        gold.append(Gold(links, links))
    assert alignment_scores(align_text(pairs), gold).error < 0.01


def test_a_word_that_nothing_stands_for_seldom_gets_a_link():
    draws = Random(1)
    rows = [draws.sample("abcdefgh", draws.randint(1, 4)) for _ in range(200)]
    pairs = [Pair(" ".join(row), " ".join(["do", *(letter.upper() + "1" for letter in row)])) for row in rows]
    found = align_text(pairs)
    assert sum((0 in {target for _, target in links}) for links in found) < len(rows) / 4
    for links, row in zip(found, rows, strict=True):
        assert links >= {(at, at + 1) for at in range(len(row))}


def test_empty_texts_and_no_texts_have_no_links():
    assert align_text([Pair("", "a"), Pair("a b", "b a"), Pair(" ", "")])[0] == set()
    assert align_text([]) == []
    assert align_text([Pair("", "")]) == [set()]


def test_a_pair_of_too_many_words_has_no_links_and_changes_no_others():
    pairs = [Pair("a b", "B A"), Pair("b c", "C B"), Pair("a c", "C A")] * 20
    long = Pair("a z " * LONGEST, "A")
    assert align_text([*pairs, long]) == [*align_text(pairs), set()]


def test_transitions_sum_to_one_and_wide_jumps_share_one_probability():
    jumps = np.random.default_rng(1).random(2 * WIDEST + 1)
    table = Direction(np.zeros((1, 0)), np.zeros((0, 0)), *np.zeros((3, 0)), jumps).transitions(3 * WIDEST)
    assert np.allclose(table.sum(1), 1)
    share = 0.05 / (3 * WIDEST)
    wide, next_to_it = table[0, WIDEST:] - share, table[0, 1] - share
    assert np.allclose(wide.sum() / next_to_it, jumps[-1] / jumps[WIDEST + 1])
    assert np.allclose(wide, wide[0])


@pytest.mark.parametrize(
    ("known", "unknown"),
    [("government", "governments"), ("경제는", "경제에서"), ("经济", "经济学"), ("けいざい", "けいざいが")],
)
def test_a_word_seen_once_is_linked_as_words_that_begin_like_it(known, unknown):
    draws = Random(0)
    words = dict(zip([known, *"abcdefghij"], range(11), strict=True))
    rows = [draws.sample(list(words), 4) for _ in range(100)]
    pairs = [Pair(" ".join(row), " ".join(str(words[word]) for word in row[::-1])) for row in rows]
    for source in (f"{unknown} x y", f"x {unknown} y", f"x y {unknown}"):
        links = align_text([*pairs, Pair(source, "11 0 12")])[-1]
        assert (source.split().index(unknown), 1) in links


def test_a_link_does_not_confirm_itself():
    """Words that occur once, in the same pair, are linked by what stands around them alone."""
    pairs = [*[Pair("a b", "2 1"), Pair("b c", "3 2"), Pair("c a", "1 3")] * 5, Pair("q r s", "7 8 9")]
    corpus, model = fit(pairs, rounds=(30, 0))
    counts = np.zeros((len(corpus.source.frequency), len(corpus.target.frequency)))
    counts[corpus.source.of, corpus.target.of] = model.counts[:, 0]
    assert np.allclose(counts[3:, 3:], counts[3, 3])
    assert counts[0, 1] > 5
