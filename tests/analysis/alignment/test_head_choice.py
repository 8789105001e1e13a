"""The head that aligns is found among heads that do not, with gold links and without."""

from random import Random

import pytest

from jumok.analysis.alignment.error_rate import Gold
from jumok.analysis.alignment.head_choice import choose_by_agreement, choose_by_dictionary, choose_by_gold, default_head
from jumok.analysis.alignment.word_attention import AlignmentHead
from jumok.data import Pair

RIGHT = AlignmentHead(1, 2, True)


def corpus(words: int = 12, pairs: int = 80, seed: int = 0):
    """Random sentences translated word by word and reversed, with the links of several heads."""
    draws = Random(seed)
    texts, heads = (
        [],
        {
            head: []
            for head in (AlignmentHead(0, 0, True), AlignmentHead(0, 1, True), RIGHT, AlignmentHead(1, 2, False))
        },
    )
    for _ in range(pairs):
        source = [draws.randrange(words) for _ in range(draws.randint(2, 8))]
        last = len(source) - 1
        texts.append(Pair(" ".join(f"s{word}" for word in source), " ".join(f"t{word}" for word in source[::-1])))
        positions = range(len(source))
        heads[AlignmentHead(0, 0, True)].append({(at, at) for at in positions})  # the same place
        heads[AlignmentHead(0, 1, True)].append({(last, at) for at in positions})  # the end
        heads[RIGHT].append({(last - at if draws.random() < 0.8 else at, at) for at in positions})
        heads[AlignmentHead(1, 2, False)].append({(min(last - at + 1, last), at) for at in positions})  # one step late
    return texts, heads


def turned(heads):
    return {head: [{(j, i) for i, j in links} for links in rows] for head, rows in heads.items()}


@pytest.mark.parametrize("seed", range(3))
def test_links_that_make_a_dictionary_are_chosen(seed):
    texts, heads = corpus(seed=seed)
    assert choose_by_dictionary(heads, [(pair.source.split(), pair.target.split()) for pair in texts]) == RIGHT


@pytest.mark.parametrize("seed", range(3))
def test_heads_of_both_directions_that_agree_are_chosen(seed):
    _, forward = corpus(seed=seed)
    _, backward = corpus(seed=seed)
    backward = turned(backward)
    for name in (AlignmentHead(0, 0, True), AlignmentHead(0, 1, True), AlignmentHead(1, 2, False)):
        # The wrong heads of the other direction see the target as their source, and end at its end.
        backward[name] = forward[name] if name != AlignmentHead(0, 0, True) else [set() for _ in forward[name]]
    assert choose_by_agreement(forward, backward) == (RIGHT, RIGHT)


def test_gold_links_choose_the_head_with_the_least_error():
    texts, heads = corpus()
    links = [{(len(one.source.split()) - 1 - at, at) for at in range(len(one.target.split()))} for one in texts]
    assert choose_by_gold(heads, [Gold(frozenset(row), frozenset(row)) for row in links]) == RIGHT


def test_without_text_the_last_layer_but_one_is_taken_shifted_unless_recurrent():
    heads = [
        AlignmentHead(layer, head, shift) for layer in range(3) for head in (None, 0, 1) for shift in (True, False)
    ]
    assert default_head(heads, recurrent=False) == AlignmentHead(1, None, True)
    assert default_head([AlignmentHead(0, 0, True), AlignmentHead(0, 0, False)], recurrent=True) == AlignmentHead(
        0, 0, False
    )
