"""Supervised attention, held against PyTorch Geometric's SuperGATConv."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.nn import SuperGATConv

from jumok.errors import ConfigError
from jumok.graphs.batches import GraphBatches, predict
from jumok.graphs.edge_supervision import NodePairs, edge_loss, sample_pairs
from jumok.graphs.graph import GraphConfig
from jumok.graphs.layers import SuperGraphAttention
from jumok.graphs.network import LAYERS, GatConfig, GraphAttentionNetwork
from jumok.graphs.sampling import SamplingConfig
from jumok.tasks import make_recipe
from jumok.tasks.node_classification import NodeClassificationTask
from jumok.tasks.recipes import GraphRecipe, GraphTraining
from jumok.tasks.run import train
from support.graphs import stored
from support.runs import Remarks, assert_same_run, interrupt

NODES, IN_WIDTH = 9, 5
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 2, 0], [1, 2, 0, 1, 3, 3, 7, 8, 5, 8]])
NON_EDGES = torch.tensor([[0, 4, 8, 6], [2, 1, 0, 3]])
PAIRS = NodePairs(torch.cat([EDGES, NON_EDGES], dim=1), torch.tensor([1.0] * 10 + [0.0] * 4))
NETWORK = GatConfig(kind="supergat", width=8, heads=2, dropout=0.2, attention_dropout=0.2)


def layer_and_peer(*, concat: bool, self_loops: bool = True):
    """Our layer, and PyTorch Geometric's with its weights."""
    torch.manual_seed(0)
    layer = SuperGraphAttention(in_width=IN_WIDTH, out_width=12, heads=3, concat=concat, self_loops=self_loops)
    peer = SuperGATConv(IN_WIDTH, layer.head_dim, heads=3, concat=concat, add_self_loops=self_loops)
    ours = layer.to_values.weight, layer.source_vector, layer.target_vector, layer.bias
    with torch.no_grad():
        for theirs, weight in zip((peer.lin.weight, peer.att_l, peer.att_r, peer.bias), ours, strict=True):
            theirs.copy_(weight.view_as(theirs))
    return layer.double(), peer.double()


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
def test_values_of_supergat_equal_pytorch_geometric(concat, self_loops):
    layer, peer = layer_and_peer(concat=concat, self_loops=self_loops)
    x = torch.randn(NODES, IN_WIDTH, dtype=torch.float64)
    torch.testing.assert_close(layer(x, EDGES).values, peer(x, EDGES))


def test_the_loss_and_its_gradients_equal_pytorch_geometric():
    layer, peer = layer_and_peer(concat=True, self_loops=False)
    x = torch.randn(NODES, IN_WIDTH, dtype=torch.float64)
    loss = edge_loss([layer(x, EDGES).weights], PAIRS)
    peer(x, EDGES, neg_edge_index=NON_EDGES)
    wanted = peer.get_attention_loss()
    torch.testing.assert_close(loss, wanted.to(loss.dtype))
    loss.backward()
    wanted.backward()
    assert layer.to_values.weight.grad.abs().sum() > 0
    torch.testing.assert_close(layer.to_values.weight.grad, peer.lin.weight.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_scores_of_edges_are_those_the_softmax_takes(kind):
    torch.manual_seed(0)
    layer = LAYERS[kind](in_width=IN_WIDTH, out_width=8, heads=2, self_loops=False)
    attention = layer(torch.randn(NODES, IN_WIDTH), EDGES).weights
    into_3 = EDGES[1] == 3
    torch.testing.assert_close(attention()[into_3], attention.pair_scores(EDGES)[into_3].softmax(0))


@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer_can_learn_to_tell_edges_from_other_pairs(kind):
    torch.manual_seed(0)
    layer, x = LAYERS[kind](in_width=NODES, out_width=8, heads=2), torch.eye(NODES)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(50):
        losses.append(edge_loss([layer(x, EDGES).weights], PAIRS))
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < 0.5 * losses[0]


def test_samples_hold_the_share_of_edges_and_pairs_that_are_none():
    torch.manual_seed(0)
    nodes = 300
    edges = torch.randint(nodes, (2, 4000)).unique(dim=1)
    known = set(map(tuple, edges.T.tolist()))
    ends, linked = sample_pairs(edges, nodes, share=0.5, negatives=2.0)
    assert abs(linked.sum().item() - 0.5 * edges.shape[1]) < 200
    assert 0.9 * edges.shape[1] < (1 - linked).sum().item() <= edges.shape[1]
    for (source, target), is_edge in zip(ends.T.tolist(), linked.tolist(), strict=True):
        assert ((source, target) in known) == bool(is_edge)
        assert is_edge or source != target
    assert sample_pairs(edges, nodes, share=1.0, negatives=0.1).linked.sum().item() == edges.shape[1]


def test_a_graph_without_edges_has_no_loss():
    layer = SuperGraphAttention(in_width=IN_WIDTH, out_width=4)
    edges = torch.zeros(2, 0, dtype=torch.long)
    attention = layer(torch.randn(3, IN_WIDTH), edges).weights
    assert edge_loss([attention], sample_pairs(edges, 3, share=0.8, negatives=0.5)).item() == 0


def test_the_loss_of_a_step_adds_that_of_all_layers_and_nothing_without_a_weight(tmp_path):
    graph = stored(tmp_path, nodes=50)
    torch.manual_seed(1)
    quiet = replace(NETWORK, dropout=0.0, attention_dropout=0.0)
    model = GraphAttentionNetwork(quiet, features=graph.width, classes=graph.classes)
    batch = GraphBatches(graph, graph.train, SamplingConfig(), layers=2).batch(0, 0)

    def loss_of(**settings):
        torch.manual_seed(2)
        found = NodeClassificationTask().loss(model, batch, torch.device("cpu"), GraphTraining(**settings))
        return found, torch.get_rng_state()

    (plain, plain_state), (supervised, _) = loss_of(), loss_of(edge_supervision=3.0, edge_share=1.0)
    torch.manual_seed(2)
    assert torch.equal(plain_state, torch.get_rng_state())  # no random number was drawn
    pairs = sample_pairs(batch.edge_index.edge_index, 50, share=1.0, negatives=0.5)
    parts = [edge_loss([layer], pairs) for layer in predict(model, batch).attention]
    assert len(parts) == 2
    assert torch.allclose(supervised.total, plain.total + 3.0 * len(batch.items) * sum(parts))
    assert torch.equal(supervised.cross_entropy, plain.cross_entropy)


@pytest.mark.slow
def test_an_interrupted_run_with_supervised_edges_goes_on_to_the_same_bits(tmp_path):
    recipe = GraphRecipe(
        graph=GraphConfig(built_in="planted", size=60),
        network=NETWORK,
        sampling=SamplingConfig(),
        training=GraphTraining(steps=12, validate_every=4, log_every=3, keep=2, edge_supervision=2.0),
    )
    train(recipe, out=tmp_path / "whole", device="cpu", report=Remarks())
    train(recipe, out=tmp_path / "parts", device="cpu", report=Remarks({5: interrupt}))
    train(recipe, out=tmp_path / "parts", device="cpu", report=Remarks(), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"training": {"edge_supervision": -1.0}}, r"training.edge_supervision = -1.0"),
        ({"training": {"edge_supervision": 1.0, "edge_share": 0.0}}, r"training.edge_share = 0.0"),
        ({"training": {"edge_supervision": 1.0, "edge_share": 1.5}}, r"training.edge_share = 1.5"),
        ({"training": {"edge_supervision": 1.0, "negative_pairs": 0.0}}, r"training.negative_pairs = 0.0"),
        (
            {"training": {"edge_share": 0.5}},
            r"training.edge_share = 0.5 has no effect, because training.edge_supervision = 0.0; leave it out, or set "
            r"training.edge_supervision above 0",
        ),
        (
            {"training": {"edge_supervision": 2.0}, "sampling": {"fanout": [5, 5]}},
            r"training.edge_supervision = 2.0 needs all nodes in every step, but sampling.fanout = \[5, 5\]",
        ),
        (
            {"training": {"edge_supervision": 2.0}, "network": {"pooling": "mean"}},
            r"training.edge_supervision = 2.0 applies only to node classification",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(sections, said):
    with pytest.raises(ConfigError, match=said) as refused:
        make_recipe({"graph": {"built_in": "planted"}, **sections})
    assert "\n" not in str(refused.value)
