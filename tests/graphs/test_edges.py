import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jumok.graphs import edges
from jumok.graphs.edges import attend_edges, dynamic_edge_scores, edge_softmax, mix_edges, static_edge_scores

torch.set_num_threads(1)


def random_graph(seed, nodes=7, count=30, heads=3, dim=4, dtype=torch.float64):
    make = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes, (2, count), generator=make)
    scores = torch.randn(count, heads, generator=make, dtype=dtype)
    values = torch.randn(nodes, heads, dim, generator=make, dtype=dtype)
    return scores, values, edge_index


def dense_attention(scores, values, edge_index, nodes):
    """The same thing node by node, with torch's own softmax."""
    weights = torch.zeros_like(scores)
    out = values.new_zeros(nodes, *values.shape[1:])
    for node in range(nodes):
        into = edge_index[1] == node
        if into.any():
            weights[into] = scores[into].softmax(0)
            out[node] = torch.einsum("eh,ehd->hd", weights[into], values[edge_index[0, into]])
    return out, weights


@pytest.fixture(params=["whole", "in pieces"])
def piece(request, monkeypatch):
    if request.param == "in pieces":
        monkeypatch.setattr(edges, "_PIECE_ON_CPU", 64)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("seed", range(3))
def test_it_equals_torch_softmax_and_a_weighted_sum_node_by_node(seed):
    scores, values, edge_index = random_graph(seed)
    out = attend_edges(scores, values, edge_index, 7)
    want, weights = dense_attention(scores, values, edge_index, 7)
    torch.testing.assert_close(out.values, want)
    torch.testing.assert_close(out.weights(), weights)


@settings(max_examples=30, deadline=None)
@given(nodes=st.integers(1, 9), count=st.integers(0, 40), seed=st.integers(0, 10**6))
def test_weights_into_every_node_with_an_edge_sum_to_one(nodes, count, seed):
    scores, _, edge_index = random_graph(seed, nodes, count)
    weights = edge_softmax(100 * scores, edge_index[1], nodes)
    sums = torch.zeros(nodes, 3, dtype=torch.float64).index_add(0, edge_index[1], weights)
    has_edge = torch.zeros(nodes, dtype=torch.bool).index_fill(0, edge_index[1], True)
    torch.testing.assert_close(sums, has_edge[:, None].expand(-1, 3).double())
    assert (weights >= 0).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), shift=st.floats(-1e4, 1e4))
def test_adding_a_constant_to_all_scores_changes_nothing(seed, shift):
    scores, _, edge_index = random_graph(seed)
    torch.testing.assert_close(
        edge_softmax(scores + shift, edge_index[1], 7), edge_softmax(scores, edge_index[1], 7), rtol=1e-9, atol=1e-10
    )


@pytest.mark.parametrize("spread", [1.0, 1000.0])
def test_scores_close_together_and_far_apart_give_the_softmax_of_each_node(spread):
    scores, values, edge_index = random_graph(0)
    scores = spread * edge_index[1, :, None] + scores  # far apart between nodes, close within each
    _, weights = dense_attention(scores, values, edge_index, 7)
    torch.testing.assert_close(edge_softmax(scores, edge_index[1], 7), weights)


def test_enormous_scores_do_not_overflow():
    weights = edge_softmax(torch.tensor([[3e38], [-3e38], [1e30]]), torch.tensor([0, 0, 1]), 2)
    assert weights.flatten().tolist() == [1, 0, 1]


def test_half_precision_scores_are_normalised_in_float32():
    scores = torch.zeros(5000, 1, dtype=torch.float16)  # 5000 ones summed in float16 stop at 2048
    weights = edge_softmax(scores, torch.zeros(5000, dtype=torch.long), 1)
    assert weights.dtype == torch.float16
    torch.testing.assert_close(weights.float(), torch.full((5000, 1), 1 / 5000), rtol=1e-3, atol=0)
    mixed = mix_edges(weights, torch.ones(1, 1, 2).half(), torch.zeros(2, 5000, dtype=torch.long), 1)
    torch.testing.assert_close(mixed.float(), torch.ones(1, 1, 2), rtol=2e-3, atol=0)


def test_gradients_agree_with_finite_differences_also_twice(piece):
    scores, values, edge_index = random_graph(0, nodes=4, count=9, heads=2, dim=3)

    def attend(scores, values):
        out = attend_edges(scores, values, edge_index, 4)
        return out.values, out.weights()

    inputs = scores.requires_grad_(), values.requires_grad_()
    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(attend, inputs, fast_mode=True)


def test_a_node_whose_every_edge_is_hidden_gets_zeros_and_zero_gradient():
    scores = torch.tensor([[1.0], [-torch.inf], [-torch.inf]], requires_grad=True)
    values = torch.randn(3, 1, 2, requires_grad=True)
    out = attend_edges(scores, values, torch.tensor([[0, 1, 2], [0, 1, 1]]), 3)
    assert out.weights().flatten().tolist() == [1, 0, 0]
    assert (out.values[1:] == 0).all()
    (out.values.square().sum() + out.weights().sum()).backward()
    assert (scores.grad == 0).all()
    assert (values.grad[1:] == 0).all()


def test_nan_behind_a_hidden_edge_reaches_neither_values_nor_gradients():
    scores = torch.tensor([[1.0], [-torch.inf], [2.0]], requires_grad=True)
    values = torch.tensor([[[1.0]], [[torch.nan]], [[3.0]]], requires_grad=True)
    out = attend_edges(scores, values, torch.tensor([[0, 1, 2], [0, 0, 0]]), 1)
    out.values.sum().backward()
    assert out.values.isfinite().all()
    assert scores.grad.isfinite().all()
    assert values.grad.isfinite().all()


def test_a_visible_nan_is_not_swept_under_the_carpet():
    out = attend_edges(torch.zeros(1, 1), torch.full((1, 1, 1), torch.nan), torch.zeros(2, 1, dtype=torch.long), 1)
    assert out.values.isnan().all()


def test_sources_and_targets_may_be_different_sets_of_nodes():
    scores, values, _ = random_graph(3, nodes=5, count=4)
    edge_index = torch.tensor([[4, 3, 0, 0], [0, 0, 1, 0]])
    out = attend_edges(scores, values, edge_index, 2)
    torch.testing.assert_close(out.values, dense_attention(scores, values, edge_index, 2)[0])


def test_thirty_two_bit_indices_work():
    scores, values, edge_index = random_graph(4)
    short = attend_edges(scores, values, edge_index.int(), 7)
    torch.testing.assert_close(short.values, attend_edges(scores, values, edge_index, 7).values)


def test_no_edges_give_zeros():
    empty = torch.zeros(2, 0, dtype=torch.long)
    scores = torch.zeros(0, 3, requires_grad=True)
    out = attend_edges(scores, torch.ones(4, 3, 2), empty, 4)
    out.values.sum().backward()
    assert (out.values == 0).all()
    assert out.weights().shape == (0, 3)
    assert scores.grad.shape == (0, 3)


def test_dropout_falls_on_the_mixing_and_not_on_the_weights_returned():
    scores, values, edge_index = random_graph(5, count=60)
    torch.manual_seed(0)
    dropped = attend_edges(scores, values, edge_index, 7, dropout=0.5)
    kept = attend_edges(scores, values, edge_index, 7)
    torch.testing.assert_close(dropped.weights(), kept.weights())
    assert not torch.allclose(dropped.values, kept.values)


def test_static_scores_are_a_leaky_sum():
    source, target = torch.tensor([[1.0], [-5.0]]), torch.tensor([[2.0], [3.0]])
    scores = static_edge_scores(source, target, torch.tensor([[0, 1], [1, 0]]), slope=0.1)
    torch.testing.assert_close(scores, torch.tensor([[4.0], [-0.3]]))


def test_dynamic_scores_in_pieces_equal_the_whole_with_all_their_gradients(monkeypatch):
    make = torch.Generator().manual_seed(0)
    shapes = [(5, 2, 3), (5, 2, 3), (2, 3), (40, 4), (2, 3, 4)]
    source, target, vector, features, projection = inputs = [
        torch.randn(shape, generator=make, dtype=torch.float64, requires_grad=True) for shape in shapes
    ]
    edge_index = torch.randint(5, (2, 40), generator=make)

    def outputs_and_gradients():
        scores = dynamic_edge_scores(source, target, vector, edge_index, features, projection, slope=0.2)
        return scores, *torch.autograd.grad(scores.square().sum(), inputs)

    whole = outputs_and_gradients()
    monkeypatch.setattr(edges, "_PIECE_ON_CPU", 1)
    for got, want in zip(outputs_and_gradients(), whole, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("with_features", [False, True])
def test_gradients_of_dynamic_scores_agree_with_finite_differences_also_twice(with_features, piece):
    make = torch.Generator().manual_seed(0)
    shapes = [(4, 2, 3), (4, 2, 3), (2, 3), (9, 4), (2, 3, 4)][: 5 if with_features else 3]
    inputs = [torch.randn(shape, generator=make, dtype=torch.float64, requires_grad=True) for shape in shapes]
    edge_index = torch.randint(4, (2, 9), generator=make)

    def scores(source, target, vector, *features):
        return dynamic_edge_scores(source, target, vector, edge_index, *features, slope=0.2)

    assert torch.autograd.gradcheck(scores, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(scores, inputs, fast_mode=True)
