import numpy as np
import pytest
import torch

from jumok.attention import attend, concat, cosine, distribution, gaussian, scaled_dot, score_pairs
from jumok.attention.distance_scores import distances
from support.attention import KERNELS, SCORES, every_score, random_inputs, random_score


def scores_pair_by_pair(name, query, key, parameters):
    arrays = [parameter.numpy() for parameter in parameters]
    formula = SCORES[name].formula
    return torch.tensor([[formula(q, k, i, *arrays) for i, k in enumerate(key.numpy())] for q in query.numpy()])


@every_score
@pytest.mark.parametrize("dim", [1, 4])
def test_a_score_is_its_formula(name, dim):
    query, key, _ = random_inputs(lead=(), queries=6, keys=7, dim=dim)
    parameters = SCORES[name].parameters(dim)
    found = score_pairs(query, key, SCORES[name].build(*parameters))
    torch.testing.assert_close(found, scores_pair_by_pair(name, query, key, parameters))


@pytest.mark.parametrize("name", [name for name, case in SCORES.items() if case.shapes(1)])
@pytest.mark.parametrize("lead", [(3,), (2, 1), (2, 3)])
def test_every_head_may_have_parameters_of_its_own(name, lead):
    query, key, value = random_inputs(lead=(2, 3))
    parameters = SCORES[name].parameters(3, lead)
    out = attend(query, key, value, score=SCORES[name].build(*parameters), backend="direct")
    spread = [p.expand(2, 3, *p.shape[len(lead) :]) if len(lead) == 2 else p.expand(2, *p.shape) for p in parameters]
    for batch in range(2):
        for head in range(3):
            at = (batch, head)
            scores = scores_pair_by_pair(name, query[at], key[at], [p[at] for p in spread])
            torch.testing.assert_close(out.weights()[at], distribution(scores))
            torch.testing.assert_close(out.values[at], distribution(scores) @ value[at])


@pytest.mark.parametrize("name", [name for name, case in SCORES.items() if case.shapes(1)])
def test_parameters_of_heads_give_a_query_without_heads_as_many_answers(name):
    query, key, value = random_inputs(lead=())
    parameters = SCORES[name].parameters(3, (4,))
    found = attend(query, key, value, score=SCORES[name].build(*parameters))
    assert found.values.shape == (4, 4, 2)
    assert found.weights().shape == (4, 4, 5)
    for head in range(4):
        alone = attend(query, key, value, score=SCORES[name].build(*[p[head] for p in parameters]))
        torch.testing.assert_close(found.values[head], alone.values)
        torch.testing.assert_close(found.weights(heads=[head])[0], alone.weights())


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_sum_is_nadaraya_and_watsons_estimate(name):
    query, key, value = random_inputs(lead=(), queries=8, keys=20, dim=2)
    (bandwidth,) = SCORES[name].parameters(2)
    kernel = np.exp(scores_pair_by_pair(name, query, key, [bandwidth]).numpy())
    assert 0 < (kernel == 0).sum() < kernel.size or name == "gaussian"
    total = kernel.sum(1, keepdims=True)
    wanted = np.where(total > 0, kernel / np.where(total > 0, total, 1), 0) @ value.numpy()
    out = attend(query, key, value, score=SCORES[name].build(bandwidth), normalise="sum")
    torch.testing.assert_close(out.values, torch.tensor(wanted))


@pytest.mark.parametrize(("name", "at_the_edge"), [("boxcar", 0.0), ("epanechnikov", -np.inf), ("triangular", -np.inf)])
def test_a_key_exactly_one_bandwidth_away(name, at_the_edge):
    query, key = torch.zeros(1, 1), torch.tensor([[2.0], [-2.0]])
    assert score_pairs(query, key, SCORES[name].build(2.0)).tolist() == [[at_the_edge] * 2]


def test_a_gaussian_far_from_all_data_still_picks_the_nearest():
    query, key, value = torch.tensor([[1e4]]), torch.tensor([[0.0], [1.0], [3.0]]), torch.eye(3)
    assert attend(query, key, value, score=gaussian(0.5), normalise="sum").values.tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("name", ["boxcar", "epanechnikov", "triangular"])
def test_a_query_out_of_reach_of_every_key_gets_zeros(name):
    query, key, value = torch.full((2, 3), 100.0), torch.randn(4, 3), torch.randn(4, 2)
    query.requires_grad_()
    out = attend(query, key, value, score=name)
    assert torch.equal(out.values, torch.zeros(2, 2))
    assert torch.equal(out.weights(), torch.zeros(2, 4))


def test_close_points_far_from_the_origin_keep_their_distance():
    query = torch.tensor([[1000.0, 1000.0]])
    key = query + torch.tensor([[0.25, 0.0]])
    assert distances(query, key).item() == 0.25


@pytest.mark.parametrize("name", ["dot", "scaled_dot", "cosine", *KERNELS])
def test_names_and_objects_are_the_same_score(name):
    query, key, _ = random_inputs()
    torch.testing.assert_close(score_pairs(query, key, name), score_pairs(query, key, SCORES[name].build()))


def test_scales_can_be_given():
    query, key, _ = random_inputs(lead=())
    torch.testing.assert_close(score_pairs(query, key, scaled_dot(0.7)), 0.7 * query @ key.mT)
    wanted = 5 * torch.nn.functional.cosine_similarity(query[:, None], key[None], dim=-1)
    torch.testing.assert_close(score_pairs(query, key, cosine(5.0)), wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_zero_vector_is_similar_to_nothing_and_gets_a_tame_gradient(dtype):
    query, key = torch.zeros(1, 4, dtype=dtype, requires_grad=True), torch.ones(2, 4, dtype=dtype)
    scores = score_pairs(query, key, "cosine")
    assert scores.tolist() == [[0, 0]]
    scores.sum().backward()
    assert query.grad.abs().max() < 10


def test_luongs_concat_without_a_matrix_takes_both_sides_projected():
    query, key, _ = random_inputs(lead=(2,))
    v, weight = SCORES["concat"].parameters(3)
    projected = score_pairs(query @ weight[:, :3].mT, key @ weight[:, 3:].mT, concat(v))
    torch.testing.assert_close(score_pairs(query, key, concat(v, weight)), projected)


def test_general_and_concat_take_queries_and_keys_of_different_widths():
    query, key = torch.randn(4, 3), torch.randn(5, 6)
    general_score, weight, v = torch.randn(3, 6), torch.randn(7, 9), torch.randn(7)
    torch.testing.assert_close(
        score_pairs(query, key, SCORES["general"].build(general_score)), query @ general_score @ key.T
    )
    wanted = [[(v @ (weight @ torch.cat([q, k])).tanh()).item() for k in key] for q in query]
    torch.testing.assert_close(score_pairs(query, key, concat(v, weight)), torch.tensor(wanted))


def test_location_reads_only_the_query():
    query, key, value = random_inputs()
    score = random_score("location", 3)
    one = attend(query, key, value, score=score, visible=torch.ones(5, dtype=torch.bool))
    other = attend(query, key + 1, value, score=score)
    torch.testing.assert_close(one.values, other.values)


def test_any_function_can_score():
    query, key, value = random_inputs()
    out = attend(query, key, value, score=lambda q, k: -torch.cdist(q, k, p=1))
    weights = (-(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1)).softmax(-1)
    torch.testing.assert_close(out.weights(), weights)
    torch.testing.assert_close(out.values, weights @ value)


def test_a_function_that_ignores_the_batch_gives_weights_for_all_of_it():
    query, key, value = random_inputs(lead=(2, 3))
    bias = torch.randn(4, 5, dtype=torch.float64)
    out = attend(query, key, value, score=lambda q, k: bias)
    assert out.weights().shape == (2, 3, 4, 5)
    torch.testing.assert_close(out.values, bias.softmax(-1) @ value)


@pytest.mark.usefixtures("small_blocks")
def test_a_function_that_knows_positions_sees_all_rows_at_once():
    query, key, value = random_inputs(lead=(2,))
    slope = -(torch.arange(4)[:, None] - torch.arange(5)).abs().double()
    out = attend(query, key, value, score=lambda q, k: q @ k.mT + slope)
    weights = (query @ key.mT + slope).softmax(-1)
    torch.testing.assert_close(out.values, weights @ value)
    torch.testing.assert_close(out.weights(rows=[3]), weights[:, 3:])
    torch.testing.assert_close(out.weights.column_sums(), weights.sum(-2))
