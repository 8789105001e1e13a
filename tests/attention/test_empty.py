"""No queries, no keys, no batch: shapes stay right, and gradients are zeros of the given shapes."""

import pytest
import torch

from jumok.attention import attend, causal, explain, from_lengths, gaussian_window, score_pairs, window
from support.attention import SCORES, backends_of, every_normaliser, every_score, values_and_gradients
from support.combinations import in_pairs

SIZES = {
    "no queries": ((2, 3), 0, 5),
    "no keys": ((2, 3), 4, 0),
    "neither": ((2, 3), 0, 0),
    "no batch": ((0, 3), 4, 5),
    "no heads": ((2, 0), 4, 5),
    "nothing at all": ((0, 0), 0, 0),
    "no leading axes, no keys": ((), 4, 0),
    "no leading axes, no queries": ((), 0, 5),
}


def inputs(lead, queries, keys, dim=3, value_dim=2):
    return [torch.randn((*lead, *shape)).double() for shape in ((queries, dim), (keys, dim), (keys, value_dim))]


@pytest.mark.parametrize(
    ("name", "size", "backend"), in_pairs(tuple(SCORES), tuple(SIZES), ("auto", "direct", "blocked"))
)
def test_shapes_and_gradients(name, size, backend):
    lead, queries, keys = SIZES[size]
    given, parameters = inputs(*SIZES[size]), SCORES[name].parameters(3)
    for visible in (None, causal(), window(1) & causal(), torch.ones((queries, keys), dtype=torch.bool)):

        def compute(query, key, value, *parameters, visible=visible):
            score = SCORES[name].build(*parameters)
            out = attend(query, key, value, score=score, visible=visible, backend=backend)
            assert out.weights().shape == (*lead, queries, keys)
            assert out.weights.entropy().shape == (*lead, queries)
            assert out.weights.column_sums().shape == (*lead, keys)
            return out.values

        values, *gradients = values_and_gradients(compute, [*given, *parameters])
        assert values.shape == (*lead, queries, 2)
        assert (values == 0).all()
        assert all((gradient == 0).all() for gradient in gradients)


@every_normaliser
@pytest.mark.parametrize("size", SIZES)
def test_every_normaliser(normalise, size):
    lead, queries, _ = SIZES[size]
    assert attend(*inputs(*SIZES[size]), normalise=normalise).values.shape == (*lead, queries, 2)


@every_score
def test_sequences_of_length_zero_beside_others(name):
    given, score = inputs((3,), 4, 5), SCORES[name].build(*SCORES[name].parameters(3))
    for backend in backends_of(name):
        out = attend(*given, score=score, visible=from_lengths([0, 5, 2]), backend=backend)
        assert (out.values[0] == 0).all()
        torch.testing.assert_close(out.values[1], attend(*(tensor[1] for tensor in given), score=score).values)
        short = attend(given[0][2], given[1][2, :2], given[2][2, :2], score=score)
        torch.testing.assert_close(out.values[2], short.values)


def test_a_batch_of_nothing_has_no_lengths():
    for lengths in (from_lengths([]), from_lengths(torch.zeros(0, dtype=torch.long))):
        assert attend(*inputs((0,), 4, 5), visible=lengths).values.shape == (0, 4, 2)


def test_a_window_over_nothing():
    centre = torch.zeros(0)
    assert attend(*inputs((2,), 0, 5), visible=gaussian_window(centre, 1.0)).values.shape == (2, 0, 2)


@pytest.mark.parametrize(("dim", "value_dim"), [(0, 2), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", ["dot", "scaled_dot", "cosine", "gaussian", "additive"])
def test_vectors_without_features_are_all_alike(name, dim, value_dim):
    given = inputs((2,), 4, 5, dim, value_dim)
    score = SCORES[name].build(*SCORES[name].parameters(dim))
    out = attend(*given, score=score)
    assert out.values.shape == (2, 4, value_dim)
    if dim == 0:
        torch.testing.assert_close(out.weights(), torch.full((2, 4, 5), 0.2).double())


def test_scores_of_nothing():
    assert score_pairs(torch.zeros(0, 3), torch.zeros(5, 3), "gaussian").shape == (0, 5)
    assert explain(torch.zeros(0, 3), torch.zeros(5, 3), torch.zeros(5, 2)).backend == "direct"
