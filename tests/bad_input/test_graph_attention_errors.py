import pytest
import torch

from jumok.errors import ArgumentError
from jumok.graphs.edges import edge_softmax, mix_edges
from jumok.graphs.layers import GraphAttention, GraphAttentionV2

torch.set_num_threads(1)

X = torch.randn(4, 3)
EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])


@pytest.fixture(params=[GraphAttention, GraphAttentionV2])
def kind(request):
    return request.param


@pytest.mark.parametrize(
    ("x", "edge_index", "message"),
    [
        (torch.randn(4, 5), EDGES, r"x is \[4, 5\]; wanted \[node, in_width\] with in_width = 3"),
        (torch.randn(2, 4, 3), EDGES, r"x is \[2, 4, 3\]; wanted \[node, in_width\]"),
        (X, EDGES.T, r"edge_index is \[3, 2\]; wanted \[2, edge\]: sources, then targets; transpose it"),
        (X, EDGES[0], r"edge_index is \[3\]; wanted \[2, edge\]"),
        (X, EDGES.float(), "edge_index holds torch.float32; wanted torch.int64 or torch.int32"),
        (X, EDGES.bool(), "edge_index holds torch.bool; wanted"),
        (X, EDGES.to("meta"), "edge_index is on meta but x is on cpu"),
        (X, torch.tensor([[0, 1], [1, 4]]), r"edge_index\[1, 1\] = 4, but x has 4 nodes, 0 to 3"),
        (X, torch.tensor([[0, -1], [1, 2]]), r"edge_index\[0, 1\] = -1, but x has 4 nodes"),
        (torch.zeros(0, 3), EDGES, r"edge_index\[0, 0\] = 0, but x has no nodes"),
    ],
)
def test_a_wrong_graph_is_named_with_what_was_seen_and_wanted(kind, x, edge_index, message):
    with pytest.raises(ArgumentError, match=message):
        kind(in_width=3, out_width=4)(x, edge_index)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (None, r"edge_features is missing: edge_width = 2, so wanted \[3, 2\]"),
        (torch.zeros(4, 2), r"edge_features is \[4, 2\]; wanted \[edge, edge_width\] = \[3, 2\]"),
        (torch.zeros(3, 5), r"edge_features is \[3, 5\]; wanted \[edge, edge_width\] = \[3, 2\]"),
        (torch.zeros(3), r"edge_features is \[3\]; wanted"),
    ],
)
def test_wrong_edge_features_are_named_with_what_was_wanted(kind, features, message):
    with pytest.raises(ArgumentError, match=message):
        kind(in_width=3, out_width=4, edge_width=2)(X, EDGES, features)


def test_edge_features_a_layer_cannot_use_are_refused(kind):
    with pytest.raises(ArgumentError, match=r"edge_features is \[3, 2\], but this layer was made without edge_width"):
        kind(in_width=3, out_width=4)(X, EDGES, torch.zeros(3, 2))


def test_heads_must_divide_the_width_they_are_joined_to(kind):
    with pytest.raises(ArgumentError, match=r"heads = 3 does not divide out_width = 8; the nearest width .* is 9"):
        kind(in_width=3, out_width=8, heads=3)
    assert kind(in_width=3, out_width=8, heads=3, concat=False)(X, EDGES).values.shape == (4, 8)


def test_no_heads_at_all_are_refused(kind):
    with pytest.raises(ArgumentError, match="heads = 0; wanted at least 1"):
        kind(in_width=3, out_width=4, heads=0)


def test_a_dropout_that_is_no_probability_is_refused(kind):
    with pytest.raises(ArgumentError, match=r"dropout = 1\.5; wanted at least 0 and below 1"):
        kind(in_width=3, out_width=4, dropout=1.5)


def test_a_head_that_does_not_exist_is_named(kind):
    out = kind(in_width=3, out_width=4, heads=2)(X, EDGES)
    with pytest.raises(ArgumentError, match="heads names head 2, but there are 2 heads, 0 to 1"):
        out.weights(heads=[0, 2])
    with pytest.raises(ArgumentError, match="heads names head -3"):
        out.weights.loops(heads=[-3])


def test_scores_and_targets_of_different_lengths_are_refused():
    with pytest.raises(ArgumentError, match=r"scores is \[3, 1\] and target is \[2\]; wanted \[edge, head\]"):
        edge_softmax(torch.zeros(3, 1), torch.tensor([0, 1]), 2)


def test_weights_and_values_of_different_heads_are_refused():
    with pytest.raises(ArgumentError, match=r"weights is \[3, 2\], values \[4, 1, 5\] and edge_index \[2, 3\]"):
        mix_edges(torch.zeros(3, 2), torch.zeros(4, 1, 5), EDGES, 4)
