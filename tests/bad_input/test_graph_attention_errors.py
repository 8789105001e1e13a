import pytest
import torch

from jumok.errors import ArgumentError
from jumok.graphs.edges import edge_softmax, mix_edges
from jumok.graphs.layers import GraphAttention, GraphAttentionV2
from support.refusals import refuses

torch.set_num_threads(1)

X = torch.randn(4, 3)
EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])


@pytest.fixture(params=[GraphAttention, GraphAttentionV2])
def kind(request):
    return request.param


@pytest.mark.parametrize(
    ("x", "edge_index", "facts"),
    [
        (torch.randn(4, 5), EDGES, "x is [4, 5] … in_width = 3"),
        (torch.randn(2, 4, 3), EDGES, "x is [2, 4, 3] … [node, in_width]"),
        (X, EDGES.T, "edge_index is [3, 2] … [2, edge] … transpose"),
        (X, EDGES[0], "edge_index is [3] … [2, edge]"),
        (X, EDGES.float(), "edge_index … torch.float32 … torch.int64"),
        (X, EDGES.bool(), "edge_index … torch.bool"),
        (X, EDGES.to("meta"), "edge_index … meta … x … cpu"),
        (X, torch.tensor([[0, 1], [1, 4]]), "edge_index[1, 1] = 4 … 4 nodes … 0 to 3"),
        (X, torch.tensor([[0, -1], [1, 2]]), "edge_index[0, 1] = -1 … 4 nodes"),
        (torch.zeros(0, 3), EDGES, "edge_index[0, 0] = 0 … no nodes"),
    ],
)
def test_a_wrong_graph_is_named_with_what_was_seen_and_wanted(kind, x, edge_index, facts):
    with refuses(ArgumentError, facts):
        kind(in_width=3, out_width=4)(x, edge_index)


@pytest.mark.parametrize("shape", [None, (4, 2), (3, 5), (3,)])
def test_wrong_edge_features_are_named_with_what_was_wanted(kind, shape):
    features = None if shape is None else torch.zeros(shape)
    with refuses(ArgumentError, "edge_features", "missing" if shape is None else list(shape), "[3, 2]"):
        kind(in_width=3, out_width=4, edge_width=2)(X, EDGES, features)


def test_edge_features_a_layer_cannot_use_are_refused(kind):
    with refuses(ArgumentError, "edge_features is [3, 2]", "edge_width"):
        kind(in_width=3, out_width=4)(X, EDGES, torch.zeros(3, 2))


def test_heads_must_divide_the_width_they_are_joined_to(kind):
    with pytest.raises(ArgumentError, match=r"heads = 3 does not divide out_width = 8; the nearest width .* is 9"):
        kind(in_width=3, out_width=8, heads=3)
    assert kind(in_width=3, out_width=8, heads=3, concat=False)(X, EDGES).values.shape == (4, 8)


def test_a_head_that_does_not_exist_is_named(kind):
    out = kind(in_width=3, out_width=4, heads=2)(X, EDGES)
    with refuses(ArgumentError, "heads", "head 2", "0 to 1"):
        out.weights(heads=[0, 2])
    with refuses(ArgumentError, "heads", "head -3"):
        out.weights.loops(heads=[-3])


def test_tensors_of_edges_that_do_not_fit_each_other_are_refused():
    with refuses(ArgumentError, "scores is [3, 1]", "target is [2]"):
        edge_softmax(torch.zeros(3, 1), torch.tensor([0, 1]), 2)
    with refuses(ArgumentError, "weights is [3, 2]", "values [4, 1, 5]", "edge_index [2, 3]"):
        mix_edges(torch.zeros(3, 2), torch.zeros(4, 1, 5), EDGES, 4)
