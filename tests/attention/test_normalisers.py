import entmax
import pytest
import torch
from hypothesis import example, given
from hypothesis.strategies import integers, lists, sampled_from

from jumok.attention import distribution, mean
from support.attention import assert_all_close, every_normaliser, values_and_gradients

PEERS = {"sparsemax": entmax.sparsemax, "entmax15": entmax.entmax15, "softmax": torch.softmax, "sum": torch.softmax}
PATTERNS = {
    "random": lambda: torch.randn(6, 9, dtype=torch.float64),
    "narrow": lambda: torch.randn(6, 9, dtype=torch.float64) / 100,
    "wide": lambda: torch.randn(6, 9, dtype=torch.float64) * 30,
    "huge": lambda: torch.randn(6, 9, dtype=torch.float64) * 1e6,
    "far from zero": lambda: torch.randn(6, 9, dtype=torch.float64) + 1e4,
    "one key": lambda: torch.randn(6, 1, dtype=torch.float64),
    "leading axes": lambda: torch.randn(2, 3, 4, 5, dtype=torch.float64),
}


@pytest.mark.parametrize("normalise", PEERS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_equals_the_peer_forward_and_backward(normalise, pattern):
    scores = PATTERNS[pattern]()
    found = values_and_gradients(lambda s: distribution(s, normalise), [scores])
    wanted = values_and_gradients(lambda s: PEERS[normalise](s, dim=-1), [scores])
    assert_all_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("normalise", PEERS)
def test_ties_share_alike_and_their_gradients_equal_the_peers(normalise):
    scores = torch.tensor([[0.0, 0, 0, 0], [1, 1, 0.9, -5], [2, 2, 2, 1], [0.3, 0.3, 0.3, 0.3]], dtype=torch.float64)
    found = values_and_gradients(lambda s: distribution(s, normalise), [scores])
    wanted = values_and_gradients(lambda s: PEERS[normalise](s, dim=-1), [scores])
    assert_all_close(found, wanted)
    torch.testing.assert_close(found[0][0], torch.full((4,), 0.25, dtype=torch.float64))


def jacobian(normalise, scores):
    """d weight i / d score j, at [i, j]."""
    return torch.autograd.functional.jacobian(lambda s: distribution(s, normalise), scores)


@pytest.mark.parametrize("normalise", ["sparsemax", "entmax15"])
@given(
    steps=lists(integers(-6, 6), min_size=1, max_size=8),
    size=sampled_from([0.25, 0.5, 1 / 3, 0.1, 1.0]),
    dtype=sampled_from([torch.float32, torch.float64]),
)
@example(steps=[1, 0], size=1.0, dtype=torch.float32)
def test_gradients_of_the_weights_sum_to_0_where_scores_tie_with_the_threshold(normalise, steps, size, dtype):
    scores = torch.tensor(steps, dtype=dtype) * size
    slopes = jacobian(normalise, scores)
    assert_all_close([slopes.sum(0), slopes.sum(1)], [torch.zeros_like(scores)] * 2, rtol=0, atol=1e-5)
    torch.testing.assert_close(slopes, slopes.mT)
    if size in (0.25, 0.5, 1.0):  # numbers that neither rounds, so that both see the same ties
        wanted = torch.autograd.functional.jacobian(lambda s: PEERS[normalise](s, dim=-1), scores)
        torch.testing.assert_close(slopes, wanted, rtol=1e-4, atol=1e-5)


@every_normaliser
def test_a_hidden_key_is_as_good_as_absent(normalise):
    scores = torch.randn(5, 7, dtype=torch.float64)
    keep = torch.tensor([0, 2, 3, 6])
    hidden = torch.full_like(scores, -torch.inf)
    found = values_and_gradients(
        lambda s: distribution(hidden.index_copy(1, keep, s), normalise)[:, keep], [scores[:, keep]]
    )
    wanted = values_and_gradients(lambda s: distribution(s, normalise), [scores[:, keep]])
    assert_all_close(found, wanted)
    weights = distribution(hidden.index_copy(1, keep, scores[:, keep]), normalise)
    assert (weights[:, [1, 4, 5]] == 0).all()


@every_normaliser
def test_a_row_of_hidden_keys_is_zeros_with_zero_gradient(normalise):
    scores = torch.randn(3, 4, dtype=torch.float64)
    scores[1] = -torch.inf
    weights, gradient = values_and_gradients(lambda s: distribution(s, normalise), [scores])
    assert (weights[1] == 0).all()
    assert (gradient[1] == 0).all()
    assert gradient.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), torch.tensor([1.0, 0, 1], dtype=torch.float64))


@every_normaliser
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (2, 0, 4)])
def test_nothing_normalises_to_nothing(normalise, shape):
    assert distribution(torch.zeros(shape), normalise).shape == shape


@every_normaliser
def test_a_single_visible_key_gets_everything(normalise):
    scores = torch.tensor([[-torch.inf, -300.0, -torch.inf]])
    assert distribution(scores, normalise).tolist() == [[0, 1, 0]]


def test_mean_ignores_scores_but_not_hidden_keys():
    scores = torch.tensor([[1.0, 50, -torch.inf, -7], [-torch.inf, 1, -torch.inf, -torch.inf]])
    torch.testing.assert_close(mean(scores), torch.tensor([[1 / 3, 1 / 3, 0, 1 / 3], [0, 1, 0, 0]]))


@pytest.mark.parametrize("normalise", ["softmax", "sparsemax", "entmax15"])
def test_a_score_that_is_nan_makes_its_row_nan_and_no_other(normalise):
    scores = torch.randn(2, 4)
    scores[0, 2] = torch.nan
    weights = distribution(scores, normalise)
    assert weights[0].isnan().all()
    assert weights[1].sum().item() == pytest.approx(1)


@pytest.mark.parametrize("normalise", ["sparsemax", "entmax15"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("spread", [0.001, 1.0, 1000.0])
def test_low_precision_over_thousands_of_keys_is_near_the_exact_weights(normalise, dtype, spread):
    scores = (torch.randn(3, 3000) * spread).to(dtype)
    exact = distribution(scores.double(), normalise)
    found = distribution(scores, normalise)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(dtype).eps, atol=2e-7)


@pytest.mark.parametrize("normalise", ["sparsemax", "entmax15"])
def test_one_large_score_among_very_many_small_ones_takes_everything(normalise):
    scores = torch.full((100_000,), -1000.0)
    scores[777] = 0
    assert distribution(scores, normalise)[777] == 1
    assert distribution(scores, normalise).sum() == 1


def test_a_function_can_normalise():
    scores = torch.randn(3, 4)
    torch.testing.assert_close(distribution(scores, lambda s: s.sigmoid()), scores.sigmoid())
