"""Fused graph attention against its definition in float64: run on a GPU, or by Triton's interpreter on a CPU."""

import pytest
import torch

from jumok.graphs import edges as edges_module
from jumok.graphs import layers
from jumok.layers import GraphAttention, GraphAttentionV2, SortedEdges

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = [GraphAttention, GraphAttentionV2]
torch.use_deterministic_algorithms(True, warn_only=True)  # fresh memory holds NaN


def outcome(layer, inputs, edges, upstream):
    leaves = [part.detach().requires_grad_() for part in inputs]
    out = layer(leaves[0], edges, *leaves[1:])
    gradients = torch.autograd.grad(out.values, [*leaves, *layer.parameters()], upstream)
    return [part.detach() for part in (out.values, out.weights(), out.weights.loops(), *gradients)]


def by_definition(monkeypatch, work):
    with monkeypatch.context() as patch:
        patch.setattr(layers, "runs_on_kernels", lambda values: False)
        return work()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("loops", "edge_width"), [(True, None), (True, 3), (False, 3)])
@pytest.mark.parametrize(
    ("nodes", "edges", "heads", "dim"), [(1, 3, 1, 7), (23, 100, 2, 8), (9, 30, 1, 33), (5, 0, 2, 4)]
)
def test_it_is_as_accurate_as_plain_torch(kind, loops, edge_width, nodes, edges, heads, dim, monkeypatch):
    torch.manual_seed(nodes)
    layer = kind(in_width=6, out_width=heads * dim, heads=heads, self_loops=loops, edge_width=edge_width).to(DEVICE)
    index = torch.randint(nodes, (2, edges), device=DEVICE)
    inputs = [torch.randn(nodes, 6, device=DEVICE)]
    inputs += [torch.randn(edges, edge_width, device=DEVICE)] if edge_width else []
    upstream = torch.randn(nodes, heads * dim, device=DEVICE)
    fused = outcome(layer, inputs, SortedEdges.of(index, nodes), upstream)
    plain = by_definition(monkeypatch, lambda: outcome(layer, inputs, index, upstream))
    exact = outcome(layer.double(), [part.double() for part in inputs], index, upstream.double())
    for got, ref, want in zip(fused, plain, exact, strict=True):
        if want.numel():
            ours, theirs = ((part - want).abs().max() for part in (got, ref))
            assert ours <= 2 * theirs + 2e-6 * (1 + want.abs().max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("loops", "value_dropout"), [(True, 0.0), (False, 0.5)])
def test_nodes_with_very_many_edges_get_larger_programs(kind, loops, value_dropout, monkeypatch):
    monkeypatch.setattr(edges_module, "LONGEST", 10)
    torch.manual_seed(0)
    layer = kind(in_width=6, out_width=8, heads=2, self_loops=loops, edge_width=2, value_dropout=value_dropout)
    layer = layer.to(DEVICE)
    index = torch.cat([torch.randint(30, (2, 60)), torch.stack([torch.arange(30) % 9, torch.full((30,), 4)])], 1)
    index = torch.cat([index, index.flip(0)], 1).to(DEVICE)
    assert SortedEdges.of(index, 30).into.long[0] >= 1
    inputs = [torch.randn(30, 6, device=DEVICE), torch.randn(index.shape[1], 2, device=DEVICE)]
    upstream = torch.randn(30, 8, device=DEVICE)

    def work():
        torch.manual_seed(3)
        return outcome(layer, inputs, index, upstream)

    for got, want in zip(work(), by_definition(monkeypatch, work), strict=True):
        torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("loops", "edge_width"), [(True, None), (False, 3)])
def test_several_hops_give_what_the_definition_gives(kind, loops, edge_width, monkeypatch):
    torch.manual_seed(0)
    layer = kind(in_width=6, out_width=8, heads=2, self_loops=loops, edge_width=edge_width, hops=3).to(DEVICE)
    index = torch.randint(12, (2, 50), device=DEVICE)
    inputs = [torch.randn(12, 6, device=DEVICE)]
    inputs += [torch.randn(50, edge_width, device=DEVICE)] if edge_width else []
    upstream = torch.randn(12, 8, device=DEVICE)
    fused = outcome(layer, inputs, index, upstream)
    for got, want in zip(
        fused, by_definition(monkeypatch, lambda: outcome(layer, inputs, index, upstream)), strict=True
    ):
        torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_run_and_the_definition_does_not(kind, monkeypatch):
    layer = kind(in_width=4, out_width=8, heads=2).to(DEVICE)
    monkeypatch.setattr(kind, "_attend", None)
    assert layer(torch.randn(5, 4, device=DEVICE), torch.randint(5, (2, 9), device=DEVICE)).values.shape == (5, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_weights_are_the_same_forward_and_backward(kind):
    torch.manual_seed(0)
    index = torch.randint(12, (2, 70), device=DEVICE)
    layer = kind(in_width=4, out_width=16, heads=2, dropout=0.5).to(DEVICE)
    x, direction = torch.randn(2, 12, 4, device=DEVICE)

    def loss(x):
        torch.manual_seed(5)
        return layer(x, index).values.square().sum()

    x.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x), x)
    with torch.no_grad():
        slope = (loss(x + 1e-3 * direction) - loss(x - 1e-3 * direction)) / 2e-3
    assert torch.isclose((gradient * direction).sum(), slope, rtol=2e-2)


def test_half_of_the_weights_are_dropped_and_the_others_doubled():
    torch.manual_seed(1)
    nodes, edges = 20, 800
    layer = GraphAttention(in_width=4, out_width=8, heads=4, dropout=0.5, self_loops=False, bias=False).to(DEVICE)
    index = torch.randint(nodes, (2, edges), device=DEVICE)
    x = torch.ones(nodes, 4, device=DEVICE)
    whole = layer.eval()(x, index).values
    kept = (layer.train()(x, index).values / whole).detach()  # all values are alike: the sum of what was kept
    assert kept.std() > 0.05
    assert abs(kept.mean() - 1) < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_gradient_is_refused_in_one_line(kind):
    layer = kind(in_width=4, out_width=8, heads=2).to(DEVICE)
    x = torch.randn(5, 4, device=DEVICE, requires_grad=True)
    out = layer(x, torch.randint(5, (2, 9), device=DEVICE)).values.square().sum()
    with pytest.raises(RuntimeError, match="no second gradient"):
        torch.autograd.grad(out, x, create_graph=True)


def test_edges_are_sorted_by_either_end_and_keep_their_order():
    index = torch.tensor([[2, 0, 2, 1], [1, 1, 0, 1]], device=DEVICE)
    edges = SortedEdges.of(index, 4)
    assert edges.into.starts.tolist() == [0, 1, 4, 4, 4]
    assert edges.into.others.tolist() == [2, 2, 0, 1]
    assert edges.into.edges.tolist() == [2, 0, 1, 3]
    assert edges.out_of.starts.tolist() == [0, 1, 2, 4, 4]
    assert edges.out_of.others.tolist() == [1, 1, 1, 0]
