"""Graph attention networks held against PyTorch Geometric's, with features dense or sparse, for nodes and graphs."""

import pytest
import torch
from torch_geometric.nn import GAT, global_add_pool, global_max_pool, global_mean_pool

from jumok.errors import ConfigError
from jumok.graphs.network import GatConfig, GraphAttentionNetwork, SparseRows, pool

QUIET = {"dropout": 0.0, "attention_dropout": 0.0}


def random_graph(nodes=30, edges=120, width=12):
    source, target = torch.randint(nodes, (2, edges))
    keep = source != target
    return torch.randn(nodes, width), torch.stack([source[keep], target[keep]])


def sparse(x):
    starts = torch.cat([torch.zeros(1, dtype=torch.long), (x != 0).sum(1).cumsum(0)])
    rows, columns = x.nonzero().T
    return SparseRows.of(starts, columns, x[rows, columns], x.shape[1])


@torch.no_grad()
def copy_from(theirs, ours, kind):
    for mine, conv in zip(ours.layers, theirs.convs, strict=True):
        if kind == "gat":
            mine.to_values.weight.copy_(conv.lin.weight)
            mine.source_vector.copy_(conv.att_src[0])
            mine.target_vector.copy_(conv.att_dst[0])
        else:
            mine.to_source.load_state_dict(conv.lin_l.state_dict())
            mine.to_target.load_state_dict(conv.lin_r.state_dict())
            mine.vector.copy_(conv.att[0])
        mine.bias.copy_(torch.randn_like(conv.bias))
        conv.bias.copy_(mine.bias)


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_logits_and_gradients_equal_pytorch_geometrics_network(kind, layers):
    x, edges = random_graph()
    theirs = GAT(12, 16, layers, 5, v2=kind == "gatv2", heads=4, act="elu")
    config = GatConfig(kind=kind, layers=layers, width=16, heads=4, output_heads=4, **QUIET)
    ours = GraphAttentionNetwork(config, features=12, classes=5)
    copy_from(theirs, ours, kind)
    found, wanted = ours(x, edges).logits, theirs(x, edges)
    assert torch.allclose(found, wanted, atol=1e-5)
    upstream = torch.randn_like(wanted)
    found.backward(upstream)
    wanted.backward(upstream)
    first = (ours.layers[0].to_values if kind == "gat" else ours.layers[0].to_source).weight.grad
    other = (theirs.convs[0].lin if kind == "gat" else theirs.convs[0].lin_l).weight.grad
    assert torch.allclose(first, other, atol=1e-4)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
@pytest.mark.parametrize("residual", [False, True])
def test_sparse_features_give_what_the_full_matrix_gives(kind, residual):
    x, edges = random_graph()
    x = x * (torch.rand_like(x) < 0.2)
    x[3] = 0
    network = GraphAttentionNetwork(GatConfig(kind=kind, residual=residual, **QUIET), features=12, classes=3)
    results = []
    for features in (x, sparse(x)):
        network.zero_grad()
        out = network(features, edges)
        (out.logits.square().sum() + out.attention[0]().square().sum()).backward()
        results.append([out.logits, *(weight.grad.clone() for weight in network.parameters())])
    for dense, thin in zip(*results, strict=True):
        assert torch.allclose(dense, thin, atol=1e-4)


def test_sparse_rows_are_the_matrix_they_came_from():
    x = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    assert torch.equal(sparse(x).dense(), x)
    assert sparse(x).shape == (3, 3)
    dropped = sparse(torch.ones(50, 40)).dropout(0.5).dense()
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize(
    ("how", "theirs"), [("mean", global_mean_pool), ("max", global_max_pool), ("sum", global_add_pool)]
)
def test_pooling_equals_pytorch_geometrics(how, theirs):
    x, graph = torch.randn(9, 4), torch.tensor([0, 0, 0, 1, 3, 3, 1, 1, 3])
    assert torch.allclose(pool(x, graph, 4, how), theirs(x, graph, 4))


def test_graphs_are_classified_each_by_its_own_nodes():
    network = GraphAttentionNetwork(GatConfig(pooling="mean", **QUIET), features=12, classes=3)
    x, edges = random_graph()
    other, more = random_graph()
    alone = network(x, edges, graph=torch.zeros(30, dtype=torch.long)).logits
    both = network(
        torch.cat([x, other]), torch.cat([edges, more + 30], 1), graph=torch.arange(2).repeat_interleave(30)
    ).logits
    assert both.shape == (2, 3)
    assert torch.allclose(both[:1], alone, atol=1e-5)


def test_a_node_without_neighbours_sees_itself_or_nothing():
    x = torch.randn(3, 12)
    nothing = torch.zeros(2, 0, dtype=torch.long)
    for loops in (True, False):
        network = GraphAttentionNetwork(GatConfig(self_loops=loops, **QUIET), features=12, classes=3)
        out = network(x, nothing)
        assert out.logits.isfinite().all()
        assert (out.attention[0].loops() == (1.0 if loops else 0.0)).all()


def test_dropout_of_inputs_weights_and_values_is_for_training_only():
    x, edges = random_graph()
    for name in ("dropout", "attention_dropout", "value_dropout", "node_dropout"):
        network = GraphAttentionNetwork(GatConfig(**{**QUIET, name: 0.5}), features=12, classes=3)
        assert not torch.equal(network(x, edges).logits, network(x, edges).logits), name
        network.eval()
        assert torch.equal(network(x, edges).logits, network(x, edges).logits), name


@pytest.mark.parametrize("form", [torch.clone, sparse], ids=["dense", "sparse"])
def test_node_dropout_hides_all_features_of_a_node_or_none(form):
    network = GraphAttentionNetwork(GatConfig(node_dropout=0.5, **QUIET), features=12, classes=3)
    found = network._drop_nodes(form(torch.ones(200, 12)))
    rows = (found if isinstance(found, torch.Tensor) else found.dense()).unique(dim=0)
    assert torch.equal(rows, torch.stack([torch.zeros(12), torch.full((12,), 2.0)]))


def test_the_penalty_is_half_the_squares_of_all_weights_but_biases():
    network = GraphAttentionNetwork(GatConfig(l2=0.1), features=12, classes=3)
    squares = sum(
        float(weight.detach().square().sum()) for name, weight in network.named_parameters() if "bias" not in name
    )
    assert network.penalty().item() == pytest.approx(0.05 * squares, rel=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"heads": 3}, {"layers": 0}, {"dropout": 1.0}, {"l2": -1.0}, {"value_dropout": -0.1}]
)
def test_settings_that_cannot_work_are_named(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        GatConfig(**wrong)
