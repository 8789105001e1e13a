"""Stochastic edit distance: expected edits and the best alignment against all ways to edit short texts."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumok.data.edit_distance import (
    UNSEEN,
    Edit,
    EditDistance,
    _Probabilities,
    expected_edits,
    learn_edit_distance,
)

letters = st.lists(st.integers(4, 8), max_size=6)


def ways(source, target):
    """All sequences of edits (x, y), either of which may be None, that draw a pair."""
    if not source and not target:
        yield []
    if source:
        yield from ([(source[0], None), *rest] for rest in ways(source[1:], target))
    if target:
        yield from ([(None, target[0]), *rest] for rest in ways(source, target[1:]))
    if source and target:
        yield from ([(source[0], target[0]), *rest] for rest in ways(source[1:], target[1:]))


def apply(source, edits):
    """The text that edits write, and how many source letters they use up."""
    written = [edit.letter for edit in edits if edit.letter is not None]
    return written, sum(edit.operation != "insert" for edit in edits)


def random_costs(seed):
    draws = np.random.default_rng(seed)
    return EditDistance(
        {(x, y): float(draws.uniform(1, 5)) for x, y in product(range(4, 9), repeat=2)},
        {x: float(draws.uniform(1, 5)) for x in range(4, 9)},
        {y: float(draws.uniform(1, 5)) for y in range(4, 9)},
    )


@given(letters, letters, st.integers(0, 99))
def test_the_edits_of_an_alignment_reproduce_the_target_and_use_up_the_source(source, target, seed):
    for distance in (random_costs(seed), EditDistance({}, {}, {})):
        assert apply(source, distance.align(source, target)) == (target, len(source))


@pytest.mark.parametrize("seed", range(5))
def test_an_alignment_has_the_least_cost_of_all_ways_to_edit(seed):
    distance, draws = random_costs(seed), np.random.default_rng(seed)
    source, target = draws.integers(4, 9, 4).tolist(), draws.integers(4, 9, 3).tolist()

    def cost(x, y):
        return distance.insert[y] if x is None else distance.delete[x] if y is None else distance.substitute[x, y]

    at, found = iter(source), 0.0
    for edit in distance.align(source, target):
        x = None if edit.operation == "insert" else next(at)
        found += cost(x, edit.letter)
    assert found == pytest.approx(min(sum(cost(*edit) for edit in way) for way in ways(source, target)))


def test_expected_edits_are_those_of_all_ways_weighted_by_their_probability():
    draws = np.random.default_rng(1)
    counts = [draws.uniform(0.1, 1, (3, 4)), draws.uniform(0.1, 1, 3), draws.uniform(0.1, 1, 4)]
    log_p = _Probabilities.of(counts)
    assert sum(np.exp(part).sum() for part in log_p) == pytest.approx(1)
    sources, targets = draws.integers(0, 3, (2, 4)), draws.integers(0, 4, (2, 3))
    expected = [np.zeros((3, 4)), np.zeros(3), np.zeros(4)]
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        weights = []
        for way in ways(source, target):
            parts = [log_p[2][y] if x is None else log_p[1][x] if y is None else log_p[0][x, y] for x, y in way]
            weights.append((math.exp(sum(parts)), way))
        total = sum(weight for weight, _ in weights)
        for weight, way in weights:
            for x, y in way:
                part, at = (2, y) if x is None else (1, x) if y is None else (0, (x, y))
                expected[part][at] += weight / total
    for mine, theirs in zip(expected_edits(sources, targets, log_p), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_an_empty_side_is_all_insertions_or_deletions():
    distance = learn_edit_distance([([4, 5], []), ([], [6]), ([4], [6])])
    assert distance.align([4, 5], []) == [Edit("delete"), Edit("delete")]
    assert distance.align([], [6, 6]) == [Edit("insert", 6), Edit("insert", 6)]


def test_letters_are_aligned_with_the_sounds_they_occur_with():
    # s 10, h 11, e 12 to ʃ 20, s 21, e 22: "sh" is one sound
    words = {(10, 12): (21, 22), (12, 10): (22, 21), (10, 11, 12): (20, 22), (12, 10, 11): (22, 20), (12,): (22,)}
    distance = learn_edit_distance(list(words.items()) * 3)
    edits = distance.align([12, 10, 11, 12], [22, 20, 22])
    assert edits in (
        [Edit("substitute", 22), Edit("substitute", 20), Edit("delete"), Edit("substitute", 22)],
        [Edit("substitute", 22), Edit("delete"), Edit("substitute", 20), Edit("substitute", 22)],
    )
    assert distance.substitute[12, 22] < distance.substitute.get((12, 20), UNSEEN)


def test_a_letter_of_the_same_alphabet_stands_for_itself():
    distance = learn_edit_distance([([5, 6, 7], [5, 6, 7, 8])], same_alphabet=True, rounds=3)
    copies = [Edit("substitute", 5), Edit("substitute", 6), Edit("substitute", 7)]
    assert distance.align([5, 6, 7], [5, 6, 7, 8]) == [*copies, Edit("insert", 8)]


def test_costs_survive_as_plain_data():
    distance = learn_edit_distance([([4, 5], [6, 7]), ([5], [7])])
    assert EditDistance.of_settings(distance.settings()) == distance
