"""Attention diffusion held against dense matrices and PyTorch Geometric's APPNP, for the layers and the network."""

import pytest
import torch
from torch_geometric.nn import APPNP

from jumok.errors import ConfigError
from jumok.graphs.diffusion import diffuse, mix_sorted
from jumok.graphs.edges import SortedEdges, mix_edges
from jumok.graphs.layers import GraphAttention, GraphAttentionV2
from jumok.graphs.network import GatConfig, GraphAttentionNetwork

NODES = 11
LOOPS = torch.arange(NODES).expand(2, -1)


def graph(edges=40, heads=3, dim=5, dtype=torch.float64):
    edge_index = torch.randint(NODES - 1, (2, edges))  # the last node has no neighbours
    weights = torch.rand(edges + NODES, heads, dtype=dtype, requires_grad=True)
    return edge_index, weights, torch.randn(NODES, heads, dim, dtype=dtype, requires_grad=True)


def test_mixing_along_sorted_edges_is_mixing_along_the_edges():
    edge_index, weights, values = graph()
    edges = SortedEdges.of(edge_index, NODES)
    found = mix_sorted(weights, values, edges)
    wanted = mix_edges(weights, values, torch.cat([edge_index, LOOPS], 1), NODES)
    assert torch.allclose(found, wanted)
    upstream = torch.randn_like(found)
    for mine, theirs in zip(
        *(torch.autograd.grad(out, (weights, values), upstream) for out in (found, wanted)), strict=True
    ):
        assert torch.allclose(mine, theirs)
    without = mix_sorted(weights[:40], values, edges)
    assert torch.allclose(without, mix_edges(weights[:40], values, edge_index, NODES))


def test_mixing_along_sorted_edges_has_first_and_second_gradients():
    edge_index, weights, values = graph(edges=9, heads=2, dim=2)
    edges = SortedEdges.of(edge_index, NODES)
    assert torch.autograd.gradgradcheck(lambda *inputs: mix_sorted(*inputs, edges), (weights, values))


def test_hops_with_fixed_weights_are_the_propagation_of_appnp():
    edge_index, weights, values = graph(heads=1)
    edges = SortedEdges.of(edge_index, NODES)
    found = diffuse(lambda z: mix_sorted(weights, z, edges), values, hops=4, teleport=0.2)
    theirs = APPNP(K=4, alpha=0.2, add_self_loops=False, normalize=False)
    wanted = theirs(values[:, 0], torch.cat([edge_index, LOOPS], 1), weights[:, 0])
    assert torch.allclose(found[:, 0], wanted)


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("kind", [GraphAttention, GraphAttentionV2])
def test_a_layer_of_several_hops_applies_its_attention_matrix_as_often(kind, self_loops):
    edge_index = torch.randint(NODES, (2, 30)).unique(dim=1)
    x = torch.randn(NODES, 4)
    layer = kind(in_width=4, out_width=3, heads=2, concat=False, self_loops=self_loops, hops=3, teleport=0.25)
    out = layer(x, edge_index)
    matrix = torch.zeros(2, NODES, NODES)  # head, target, source
    matrix[:, edge_index[1], edge_index[0]] = out.weights().T
    matrix += torch.diag_embed(out.weights.loops().T)
    values = (layer.to_values if kind is GraphAttention else layer.to_source)(x).view(NODES, 2, 3).transpose(0, 1)
    z = values
    for _ in range(3):
        z = 0.75 * matrix @ z + 0.25 * values
    assert torch.allclose(out.values, z.mean(0) + layer.bias, atol=1e-5)
    assert torch.equal(layer(x, SortedEdges.of(edge_index, NODES)).values, out.values)


def test_a_network_reaches_as_far_as_its_hops():
    path = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]])
    quiet = {"dropout": 0.0, "attention_dropout": 0.0}
    network = GraphAttentionNetwork(GatConfig(hops=(1, 3), **quiet), features=4, classes=2)
    x = torch.randn(7, 4)
    changed = x.clone()
    changed[0] += 1
    same = [
        torch.equal(one, other) for one, other in zip(*(network(v, path).logits for v in (x, changed)), strict=True)
    ]
    assert same == [False] * 5 + [True] * 2
    assert network.config.reach == 4


def test_an_input_layer_is_a_linear_layer_and_elu_before_the_attention():
    config = GatConfig(layers=1, input_layer=True, width=8, dropout=0.0, attention_dropout=0.0)
    network = GraphAttentionNetwork(config, features=4, classes=3)
    x, edge_index = torch.randn(NODES, 4), torch.randint(NODES, (2, 30))
    hidden = torch.nn.functional.elu(network.input_layer(x))
    assert torch.allclose(network(x, edge_index).logits, network.layers[0](hidden, edge_index).values)


def test_hops_are_one_number_for_each_layer():
    with pytest.raises(ConfigError, match=r"network.hops = \[4\] has 1 numbers, but network.layers = 2"):
        GatConfig(hops=(4,))
