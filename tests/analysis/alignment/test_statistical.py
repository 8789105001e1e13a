"""Alignment from text alone: posteriors are sums over every way to write a text, and links are right."""

from itertools import product
from random import Random

import numpy as np
import pytest

from jumok.analysis.alignment.error_rate import Gold, alignment_scores
from jumok.analysis.alignment.statistical import FIRST_JUMPS, NULL, WIDEST, Direction, align_text, posteriors
from jumok.data import Pair


def by_brute_force(emit, null, model):
    """Posteriors of one pair from the probability of every sequence of (state, written or not)."""
    states, times = emit.shape
    moves = model.transitions(states)
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
    model = Direction(np.zeros(0), np.zeros(0), jumps)
    found = posteriors(emit, null, model)
    wanted = [by_brute_force(emit[pair], null[pair], model) for pair in range(2)]
    for pair in range(2):
        assert np.allclose(found.links[pair], wanted[pair][0])
        assert np.allclose(found.null[pair], wanted[pair][1])
        assert np.allclose(found.links[pair].sum(0) + found.null[pair], 1)
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
