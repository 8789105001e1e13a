"""Graph attention: one GAT and one GATv2 layer, forward and backward, beside PyTorch Geometric and plain PyTorch."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jumok.bench import JUMOK, Size
from jumok.bench.timing import Call, Work
from jumok.layers import GraphAttention, GraphAttentionV2, SortedEdges


class GraphShape(NamedTuple):
    """A random graph, and a layer with `heads` heads of width `dim`."""

    nodes: int
    edges: int
    heads: int
    dim: int
    given: int = 0
    """Features of a node, if they are not as many as come out."""

    @property
    def width(self) -> int:
        """Features that come out."""
        return self.heads * self.dim

    @property
    def features(self) -> int:
        """Features that go in."""
        return self.given or self.width

    def __str__(self) -> str:
        features = f"{self.given:,} features, " if self.given else ""
        return f"{self.nodes:,} nodes, {self.edges:,} edges, {features}{self.heads} × {self.dim}"


SHAPES: dict[str, dict[Size, GraphShape]] = {
    "cpu": {
        "small": GraphShape(1_000, 10_000, 4, 8),
        "medium": GraphShape(10_000, 200_000, 8, 16),
        "large": GraphShape(50_000, 1_000_000, 8, 32),
    },
    "cuda": {
        "small": GraphShape(3_000, 10_000, 8, 8),
        "medium": GraphShape(50_000, 1_000_000, 8, 32),
        "large": GraphShape(200_000, 8_000_000, 8, 32),
    },
}


def works(device: torch.device, size: Size) -> Iterator[Work]:
    """GAT and GATv2 on the graph of a size."""
    return works_on(SHAPES[device.type][size], device)


def works_on(shape: GraphShape, device: torch.device) -> Iterator[Work]:
    """GAT and GATv2; the edges are sorted once, outside the timing."""
    for kind in ("GAT", "GATv2"):
        yield Work(
            f"{kind}, {shape}",
            {
                JUMOK: partial(_jumok, kind, shape, device),
                "PyTorch": partial(_plain, kind, shape, device),
                "PyTorch Geometric": partial(_geometric, kind, shape, device),
            },
        )


def _jumok(kind: str, shape: GraphShape, device: torch.device) -> Call:
    make = GraphAttention if kind == "GAT" else GraphAttentionV2
    layer = make(in_width=shape.features, out_width=shape.width, heads=shape.heads, self_loops=False).to(device)
    edges = SortedEdges.of(_edges(shape, device), shape.nodes)
    return _trained(lambda x: layer(x, edges).values, shape, device)


def _geometric(kind: str, shape: GraphShape, device: torch.device) -> Call:
    from torch_geometric.nn import GATConv, GATv2Conv

    make = GATConv if kind == "GAT" else GATv2Conv
    layer = make(shape.features, shape.dim, heads=shape.heads, add_self_loops=False).to(device)
    edges = _edges(shape, device)
    return _trained(lambda x: layer(x, edges), shape, device)


def _plain(kind: str, shape: GraphShape, device: torch.device) -> Call:
    """The equations of Veličković et al. (2018) and Brody et al. (2022), edge by edge with scatter and gather."""
    heads, dim = shape.heads, shape.dim
    to_source, to_target = (nn.Linear(shape.features, shape.width, bias=False).to(device) for _ in range(2))
    vectors = torch.randn(2, heads, dim, device=device) * dim**-0.5
    source, target = _edges(shape, device)

    def layer(x: Tensor) -> Tensor:
        sources = to_source(x).view(-1, heads, dim)
        if kind == "GAT":
            from_source, from_target = ((sources * vector).sum(-1) for vector in vectors)
            scores = F.leaky_relu(from_source[source] + from_target[target], 0.2)
        else:
            targets = to_target(x).view(-1, heads, dim)
            scores = (F.leaky_relu(sources[source] + targets[target], 0.2) * vectors[0]).sum(-1)
        everyone = target[:, None].expand_as(scores)
        top = torch.full((shape.nodes, heads), -torch.inf, device=device)
        top = top.scatter_reduce(0, everyone, scores.detach(), "amax")
        raised = (scores - top[target]).exp()
        total = torch.zeros(shape.nodes, heads, device=device).index_add(0, target, raised)
        weights = raised / total[target]
        mixed = torch.zeros(shape.nodes, heads, dim, device=device)
        return mixed.index_add(0, target, weights[..., None] * sources[source]).flatten(1)

    return _trained(layer, shape, device)


def _edges(shape: GraphShape, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(shape.nodes, (2, shape.edges), generator=generator).to(device)


def _trained(layer: Callable[[Tensor], Tensor], shape: GraphShape, device: torch.device) -> Call:
    """Forward and backward."""
    x = torch.randn(shape.nodes, shape.features, device=device, requires_grad=True)
    upstream = torch.randn(shape.nodes, shape.width, device=device)

    def call() -> None:
        layer(x).backward(upstream)  # type: ignore[no-untyped-call]
        x.grad = None

    return call
