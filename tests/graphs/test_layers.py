import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import GATConv, GATv2Conv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from jumok.graphs import edges, sparse
from jumok.graphs.layers import GraphAttention, GraphAttentionV2

torch.set_num_threads(1)

LAYERS = [GraphAttention, GraphAttentionV2]
IN_WIDTH, EDGE_WIDTH = 5, 3


def random_graph(seed=0, nodes=8, count=20, loops=False):
    make = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes, (2, count), generator=make)
    if not loops:
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    x = torch.randn(nodes, IN_WIDTH, generator=make, dtype=torch.float64)
    return x, edge_index, torch.randn(edge_index.shape[1], EDGE_WIDTH, generator=make, dtype=torch.float64)


def layer_of(kind, out_width=12, heads=3, **options):
    torch.manual_seed(0)
    layer = kind(in_width=IN_WIDTH, out_width=out_width, heads=heads, **options).double()
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    return layer


def peer_of(layer, **options):
    """PyTorch Geometric's layer with our weights."""
    options |= {"heads": layer.heads, "concat": layer.concat, "edge_dim": layer.edge_width}
    options |= {"add_self_loops": layer.self_loops, "bias": layer.bias is not None}
    peer = (GATConv if isinstance(layer, GraphAttention) else GATv2Conv)(IN_WIDTH, layer.head_dim, **options).double()
    with torch.no_grad():
        for theirs, ours in pairs(peer, layer):
            theirs.copy_(ours.view_as(theirs))
    return peer


def pairs(peer, layer):
    if isinstance(layer, GraphAttention):
        yield peer.lin.weight, layer.to_values.weight
        yield peer.att_src, layer.source_vector
        yield peer.att_dst, layer.target_vector
        if layer.edge_vector is not None:
            yield peer.att_edge, layer.edge_vector
    else:
        yield peer.att, layer.vector
        for theirs, ours in ((peer.lin_l, layer.to_source), (peer.lin_r, layer.to_target)):
            yield theirs.weight, ours.weight
            if ours.bias is not None:
                yield theirs.bias, ours.bias
    if layer.to_edges is not None:
        yield peer.lin_edge.weight, layer.to_edges.weight
    if layer.bias is not None:
        yield peer.bias, layer.bias


def assert_same_as_peer(layer, peer, graph):
    x, edge_index, features = graph
    features = None if layer.edge_width is None else features
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    f_ours, f_theirs = (None if features is None else features.clone().requires_grad_() for _ in range(2))
    out = layer(x_ours, edge_index, f_ours)
    values, (their_edges, alpha) = peer(x_theirs, edge_index, f_theirs, return_attention_weights=True)
    torch.testing.assert_close(out.values, values)

    count = edge_index.shape[1]
    assert torch.equal(their_edges[:, :count], edge_index)
    torch.testing.assert_close(out.weights(), alpha[:count])
    loops = alpha[count:] if layer.self_loops else torch.zeros(len(x), layer.heads, dtype=x.dtype)
    torch.testing.assert_close(out.weights.loops(), loops)

    upstream = torch.randn_like(values)
    (out.values * upstream).sum().backward()
    (values * upstream).sum().backward()
    torch.testing.assert_close(x_ours.grad, x_theirs.grad)
    if features is not None:
        torch.testing.assert_close(f_ours.grad, f_theirs.grad)
    for theirs, ours in pairs(peer, layer):
        torch.testing.assert_close(ours.grad, theirs.grad.view_as(ours))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("concat", "self_loops", "edge_width", "bias"),
    list(itertools.product([True, False], [True, False], [None, EDGE_WIDTH], [True, False])),
)
def test_values_weights_and_gradients_equal_pytorch_geometric(kind, concat, self_loops, edge_width, bias):
    layer = layer_of(kind, concat=concat, self_loops=self_loops, edge_width=edge_width, bias=bias)
    assert_same_as_peer(layer, peer_of(layer), random_graph(loops=not self_loops))


@pytest.mark.parametrize("bias", [True, False])
def test_wide_features_projected_at_once_equal_pytorch_geometric(bias, monkeypatch):
    monkeypatch.setattr(sparse, "WIDE", IN_WIDTH)
    layer = layer_of(GraphAttentionV2, bias=bias)
    assert_same_as_peer(layer, peer_of(layer), random_graph())


@pytest.mark.parametrize("bias", [True, False])
def test_shared_weights_equal_pytorch_geometric(bias):
    layer = layer_of(GraphAttentionV2, share_weights=True, bias=bias, edge_width=EDGE_WIDTH)
    assert_same_as_peer(layer, peer_of(layer, share_weights=True), random_graph(1))
    assert sum(p.numel() for p in layer.parameters()) == sum(
        p.numel() for p in peer_of(layer, share_weights=True).parameters()
    )


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("slope", [0.0, 0.5])
def test_the_negative_slope_is_the_one_asked_for(kind, slope):
    layer = layer_of(kind, negative_slope=slope)
    assert_same_as_peer(layer, peer_of(layer, negative_slope=slope), random_graph(2))


@pytest.mark.parametrize("kind", LAYERS)
def test_a_given_self_loop_keeps_its_own_features_and_no_second_one_is_added(kind):
    x, edge_index, features = random_graph(3, count=40, loops=True)
    edge_index = edge_index.unique(dim=1)
    features = features[: edge_index.shape[1]]
    loop = edge_index[0] == edge_index[1]
    assert 0 < loop.sum() < len(x)
    layer = layer_of(kind, edge_width=EDGE_WIDTH)
    out = layer(x, edge_index, features)
    has_loop = torch.zeros(len(x), dtype=torch.bool).index_fill(0, edge_index[0, loop], True)
    assert (out.weights.loops()[has_loop] == 0).all()
    assert (out.weights.loops()[~has_loop] > 0).all()

    # The same graph with the missing loops written out by hand, through PyTorch Geometric without loops of its own.
    missing = (~has_loop).nonzero().flatten()
    means = [features[edge_index[1] == node].mean(0).nan_to_num() for node in missing]
    plain = layer_of(kind, edge_width=EDGE_WIDTH, self_loops=False)
    want = peer_of(plain)(
        x, torch.cat([edge_index, missing.expand(2, -1)], 1), torch.cat([features, torch.stack(means)])
    )
    torch.testing.assert_close(out.values, want)


@pytest.mark.parametrize("kind", LAYERS)
def test_an_isolated_node_keeps_its_own_features(kind):
    x, _, _ = random_graph()
    layer = layer_of(kind, bias=False)
    out = layer(x, torch.tensor([[0], [1]]))
    own = (layer.to_values if kind is GraphAttention else layer.to_source)(x)
    torch.testing.assert_close(out.values[5], own[5])
    assert (out.weights.loops()[5] == 1).all()


@pytest.mark.parametrize("kind", LAYERS)
def test_an_isolated_node_without_self_loops_gets_the_bias_alone(kind):
    x, _, _ = random_graph()
    layer = layer_of(kind, self_loops=False)
    out = layer(x, torch.tensor([[0], [1]]))
    torch.testing.assert_close(out.values[5], layer.bias)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("nodes", [0, 4])
def test_a_graph_without_edges_or_without_nodes_works(kind, self_loops, concat, nodes):
    layer = layer_of(kind, self_loops=self_loops, concat=concat, edge_width=EDGE_WIDTH)
    x = torch.randn(nodes, IN_WIDTH, dtype=torch.float64, requires_grad=True)
    no_features = torch.zeros(0, EDGE_WIDTH, dtype=torch.float64)
    out = layer(x, torch.zeros(2, 0, dtype=torch.long), no_features)
    out.values.sum().backward()
    assert out.values.shape == (nodes, 12)
    assert out.weights().shape == (0, 3)
    assert out.weights.loops().shape == (nodes, 3)
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_agree_with_finite_differences(kind):
    x, edge_index, features = random_graph(4, nodes=4, count=7, loops=True)
    layer = layer_of(kind, out_width=4, heads=2, edge_width=EDGE_WIDTH)

    def attend(x, features):
        out = layer(x, edge_index, features)
        return out.values, out.weights(), out.weights.loops()

    assert torch.autograd.gradcheck(attend, (x.requires_grad_(), features.requires_grad_()))


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=15, deadline=None)
@given(nodes=st.integers(1, 8), count=st.integers(0, 25), seed=st.integers(0, 10**6))
def test_every_node_spreads_a_weight_of_one_over_its_edges_and_its_loop(kind, nodes, count, seed):
    x, edge_index, _ = random_graph(seed, nodes, count, loops=True)
    out = layer_of(kind)(x, edge_index)
    sums = out.weights.loops().index_add(0, edge_index[1], out.weights())
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_shuffling_the_edges_shuffles_the_weights_and_leaves_the_values(kind, seed):
    x, edge_index, features = random_graph(seed, loops=True)
    order = torch.randperm(edge_index.shape[1], generator=torch.Generator().manual_seed(seed))
    layer = layer_of(kind, edge_width=EDGE_WIDTH)
    out, shuffled = layer(x, edge_index, features), layer(x, edge_index[:, order], features[order])
    torch.testing.assert_close(shuffled.values, out.values)
    torch.testing.assert_close(shuffled.weights(), out.weights()[order])
    torch.testing.assert_close(shuffled.weights.loops(), out.weights.loops())


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_renaming_the_nodes_renames_the_values(kind, seed):
    x, edge_index, features = random_graph(seed, loops=True)
    new_name = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    layer = layer_of(kind, edge_width=EDGE_WIDTH)
    out, renamed = layer(x, edge_index, features), layer(x[new_name.argsort()], new_name[edge_index], features)
    torch.testing.assert_close(renamed.values[new_name], out.values)
    torch.testing.assert_close(renamed.weights(), out.weights())
    torch.testing.assert_close(renamed.weights.loops()[new_name], out.weights.loops())


@pytest.mark.parametrize("kind", LAYERS)
def test_weights_of_chosen_heads_come_in_the_order_asked(kind):
    x, edge_index, _ = random_graph()
    out = layer_of(kind)(x, edge_index)
    torch.testing.assert_close(out.weights(heads=[2, 0]), out.weights()[:, [2, 0]])
    torch.testing.assert_close(out.weights.loops(heads=[-1]), out.weights.loops()[:, 2:])


@pytest.mark.parametrize("kind", LAYERS)
def test_dropout_changes_values_in_training_only_and_never_the_weights(kind):
    x, edge_index, _ = random_graph()
    layer = layer_of(kind, dropout=0.6)
    training, testing = layer.train()(x, edge_index), layer.eval()(x, edge_index)
    assert not torch.allclose(training.values, testing.values)
    torch.testing.assert_close(training.weights(), testing.weights())
    torch.testing.assert_close(testing.values, layer(x, edge_index).values)


@pytest.mark.parametrize("kind", LAYERS)
def test_nothing_the_size_of_every_edge_times_every_channel_is_kept_for_the_backward_pass(kind, monkeypatch):
    monkeypatch.setattr(edges, "_PIECE_ON_CPU", 256)
    x, edge_index, _ = random_graph(count=1000)
    layer = layer_of(kind, out_width=48)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        layer(x, edge_index).values.sum().backward()
    assert max(kept) <= 3 * (edge_index.shape[1] + len(x))  # heads, not heads times channels


@pytest.mark.parametrize("kind", LAYERS)
def test_thirty_two_bit_indices_work(kind):
    x, edge_index, features = random_graph(5, loops=True)
    layer = layer_of(kind, edge_width=EDGE_WIDTH)
    torch.testing.assert_close(layer(x, edge_index.int(), features).values, layer(x, edge_index, features).values)


def test_gat_ranks_neighbours_alike_for_every_node_and_gat_v2_need_not():
    nodes = 6
    x = torch.eye(nodes, IN_WIDTH, dtype=torch.float64) * 3
    edge_index = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).T  # source-major: [source, target]

    def favourites(layer):
        return layer(x, edge_index).weights().view(nodes, nodes, -1).argmax(0)

    assert (favourites(layer_of(GraphAttention)) == favourites(layer_of(GraphAttention))[:1]).all()
    dynamic = favourites(layer_of(GraphAttentionV2))
    assert (dynamic != dynamic[:1]).any()


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_degree_exponent_divides_the_weights_by_degrees_and_normalises_them_again(kind, hops):
    x, edge_index, _ = random_graph(loops=True)
    edge_index = edge_index.unique(dim=1)
    plain, with_degrees = (layer_of(kind, hops=hops, degree_exponent=power)(x, edge_index) for power in (0.0, 0.5))
    loops = torch.arange(8).expand(2, -1)
    source, target = torch.cat([edge_index, loops], 1)
    weights, found = (torch.cat([out.weights(), out.weights.loops()]) for out in (plain, with_degrees))
    degrees = torch.bincount(target[(weights > 0).any(1)], minlength=8)  # a loop that is given is not added
    divided = weights / degrees[source, None].sqrt()
    sums = torch.zeros(8, 3, dtype=torch.float64).index_add(0, target, divided)
    assert torch.allclose(found, divided / sums[target])
    assert not torch.allclose(plain.values, with_degrees.values)


@pytest.mark.parametrize("kind", LAYERS)
def test_without_scores_a_degree_exponent_of_one_half_ranks_neighbours_as_gcn_does(kind):
    x, edge_index, _ = random_graph()
    edge_index = edge_index.unique(dim=1)
    layer = layer_of(kind, degree_exponent=0.5)
    for vector in (layer.source_vector, layer.target_vector) if kind is GraphAttention else (layer.vector,):
        torch.nn.init.zeros_(vector)
    (_, target), wanted = gcn_norm(edge_index, num_nodes=8, dtype=torch.float64)
    wanted = wanted / wanted.new_zeros(8).index_add(0, target, wanted)[target]
    out = layer(x, edge_index)
    found = torch.cat([out.weights(heads=[0]), out.weights.loops(heads=[0])])
    assert torch.allclose(found[:, 0], wanted)
