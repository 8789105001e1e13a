"""Two directions joined by their weights: a link is where the square root of the product is large enough."""

import numpy as np

from jumok.analysis.alignment.aligner import extract, product_links


def test_a_link_counts_as_far_as_both_directions_believe_in_it():
    forward = np.array([[0.9, 0.1], [0.5, 0.5], [0.0, 1.0]])  # three target words look at two source words
    backward = np.array([[0.6, 0.4, 0.0], [0.0, 0.1, 0.9]])
    beliefs = {(i, j): (forward[j, i] * backward[i, j]) ** 0.5 for i in range(2) for j in range(3)}
    for least in (0.1, 0.3, 0.5, 0.8):
        assert product_links(forward, backward, least) == {link for link, belief in beliefs.items() if belief >= least}


def test_a_word_that_looks_most_at_none_has_no_link():
    weights = np.array([[0.3, 0.2], [0.5, 0.2], [0.0, 0.0], [0.45, 0.55]])
    assert extract(weights) == {(0, 1), (1, 3)}
    assert extract(weights, "mutual") == {(0, 1), (1, 3)}


def test_what_one_direction_rules_out_is_no_link_however_sure_the_other_is():
    assert product_links(np.array([[1.0, 0.0]]), np.array([[0.0], [1.0]]), 0.01) == set()


def test_a_pair_that_one_of_the_models_could_not_take_has_no_links():
    assert product_links(np.zeros((0, 0)), np.ones((2, 3)) / 3, 0.0) == set()
    assert product_links(np.zeros((0, 0)), np.zeros((0, 0)), 0.0) == set()
