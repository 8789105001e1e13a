"""Graph attention networks for classifying nodes or whole graphs.

    h⁰ = x,   hˡ = ELU(GATˡ(dropout(hˡ⁻¹))) with heads joined,   logits = GATᴸ(dropout(hᴸ⁻¹)) with heads averaged

as in Velickovic et al. (2018), section 3.3. With `pooling` the nodes of each graph are pooled after the last layer, and
a linear layer classifies the graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.errors import ArgumentError, ConfigError
from jumok.graphs.layers import EdgeWeights, GraphAttention, GraphAttentionV2, SortedEdges
from jumok.graphs.sparse import SparseRows, linear
from jumok.settings import Fraction, NonNegativeFloat, PositiveInt, Settings

__all__ = ["GatConfig", "GraphAttentionNetwork", "GraphPrediction", "Hop", "SortedEdges", "SparseRows", "node_features"]

LAYERS: dict[str, type[nn.Module]] = {"gat": GraphAttention, "gatv2": GraphAttentionV2}


@dataclass(frozen=True, kw_only=True)
class GatConfig(Settings):
    """The section [network] of a graph recipe."""

    section: ClassVar[str] = "network"

    kind: Literal["gat", "gatv2"] = "gat"
    """Layer: "gat" ranks neighbours alike for every node; in "gatv2" the ranking depends on the attending node."""
    layers: PositiveInt = 2
    """Number of attention layers; each extends a node's view by one hop."""
    width: PositiveInt = 64
    """Size of a node's vector between layers, all heads together; `heads` must divide it."""
    heads: PositiveInt = 8
    """Attention heads of every layer but the last; their outputs are concatenated."""
    output_heads: PositiveInt = 1
    """Attention heads of the last layer; their outputs are averaged."""
    dropout: Fraction = 0.6
    """Dropout on the inputs of every layer."""
    attention_dropout: Fraction = 0.6
    """Dropout on the attention weights."""
    value_dropout: Fraction = 0.0
    """Dropout on the projected features of the neighbours, as in the authors' code."""
    self_loops: bool = True
    """Add an edge from every node to itself."""
    residual: bool = False
    """Add a layer's input, projected, to its output."""
    l2: NonNegativeFloat = 0.0
    """L2 regularisation of all weights but biases: the factor of half the sum of their squares."""
    pooling: Literal["", "mean", "max", "sum"] = ""
    """How node vectors are pooled for graph classification; "" classifies nodes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads and self.layers > 1:
            nearest = max(round(self.width / self.heads), 1) * self.heads
            raise ConfigError(
                f"{self.shown('heads')} does not divide {self.shown('width')}; "
                f"the nearest width that works is {nearest}"
            )


class Hop(NamedTuple):
    """Number of leading nodes and edges of a sampled neighbourhood that a layer needs."""

    nodes: int
    edges: int


class GraphPrediction(NamedTuple):
    """Class logits of every node or graph, and the attention of each layer."""

    logits: Float[Tensor, "item class_"]
    attention: tuple[EdgeWeights, ...]
    """One entry per layer; call it for α [edge, head]."""


class GraphAttentionNetwork(nn.Module):
    """GAT or GATv2 from node features to classes."""

    def __init__(self, config: GatConfig, *, features: int, classes: int, edge_width: int | None = None) -> None:
        super().__init__()
        self.config, self.classes = config, classes
        self.pooling = config.pooling
        out = config.width if config.pooling else classes
        ins = [features] + [config.width] * (config.layers - 1)
        outs = [config.width] * (config.layers - 1) + [out]
        self.layers = nn.ModuleList(
            _layer(config, into, out, last=number == config.layers - 1, edge_width=edge_width)
            for number, (into, out) in enumerate(zip(ins, outs, strict=True))
        )
        self.skips = nn.ModuleList(
            nn.Linear(into, out, bias=False) for into, out in zip(ins, outs, strict=True) if config.residual
        )
        self.to_classes = nn.Linear(config.width, classes) if config.pooling else None

    def forward(
        self,
        x: Float[Tensor, "node feature"] | SparseRows,
        edge_index: Int[Tensor, "2 edge"] | SortedEdges,
        edge_features: Float[Tensor, "edge edge_width"] | None = None,
        *,
        hops: Sequence[Hop] = (),
        graph: Int[Tensor, " node"] | None = None,
        graphs: int | None = None,
    ) -> GraphPrediction:
        """Classify every node, or with pooling every graph: `graph` is the graph of each node, 0 to `graphs` - 1.

        `hops`, one per layer, cut a sampled neighbourhood to what the layer needs; the nodes to classify come first.
        """
        if hops and len(hops) != len(self.layers):
            raise ArgumentError(f"hops has {len(hops)} entries for {len(self.layers)} layers; expected one per layer")
        attention = []
        for number, layer in enumerate(self.layers):
            if hops:
                assert isinstance(edge_index, Tensor)
                edge_index = edge_index[:, : hops[number].edges]
                edge_features = None if edge_features is None else edge_features[: hops[number].edges]
                x = x[: hops[number].nodes] if isinstance(x, Tensor) else x
            x = self._dropped(x)
            attended = layer(x, edge_index, edge_features)
            attention.append(attended.weights)
            values: Tensor = attended.values
            if self.skips:
                values = values + linear(x, self.skips[number].weight)  # type: ignore[arg-type]
            x = F.elu(values) if number < len(self.layers) - 1 or self.to_classes is not None else values
        assert isinstance(x, Tensor)
        if self.to_classes is None:
            return GraphPrediction(x, tuple(attention))
        pooled = pool(x, *_membership(graph, graphs, len(x)), self.pooling)
        return GraphPrediction(self.to_classes(self._dropped(pooled)), tuple(attention))

    def penalty(self) -> Float[Tensor, ""]:
        """L2 regularisation, to be added to the mean loss."""
        squares = [weight.square().sum() for weight in self.parameters() if weight.ndim > 1]
        return 0.5 * self.config.l2 * torch.stack(squares).sum()

    def _dropped(self, x: Tensor | SparseRows) -> Tensor | SparseRows:
        if not self.training:
            return x
        return F.dropout(x, self.config.dropout) if isinstance(x, Tensor) else x.dropout(self.config.dropout)


def node_features(rows: Any) -> Float[Tensor, "node feature"] | SparseRows:
    """Features for a network, from an array or from a table with `starts`, `columns`, `values` and `width`."""
    if isinstance(rows, np.ndarray):
        return torch.from_numpy(np.array(rows, np.float32))
    starts, columns = (torch.from_numpy(np.array(part, np.int64)) for part in (rows.starts, rows.columns))
    return SparseRows.of(starts, columns, torch.from_numpy(np.array(rows.values, np.float32)), rows.width)


def pool(
    x: Float[Tensor, "node width"], graph: Int[Tensor, " node"], graphs: int, how: str
) -> Float[Tensor, "graph width"]:
    """The mean, largest or sum of the nodes of each graph; a graph without nodes gets zeros.

    >>> pool(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 2]), 3, "mean").flatten()
    tensor([2., 0., 5.])
    """
    if how == "max":
        places = graph[:, None].expand_as(x)
        return x.new_zeros(graphs, x.shape[1]).scatter_reduce(0, places, x, "amax", include_self=False)
    total = x.new_zeros(graphs, x.shape[1]).index_add(0, graph, x)
    if how == "sum":
        return total
    return total / torch.bincount(graph, minlength=graphs).clamp(min=1)[:, None]


def _layer(config: GatConfig, into: int, out: int, *, last: bool, edge_width: int | None) -> nn.Module:
    return LAYERS[config.kind](
        in_width=into,
        out_width=out,
        heads=config.output_heads if last else config.heads,
        concat=not last,
        dropout=config.attention_dropout,
        value_dropout=config.value_dropout,
        self_loops=config.self_loops,
        edge_width=edge_width,
    )


def _membership(graph: Tensor | None, graphs: int | None, nodes: int) -> tuple[Tensor, int]:
    if graph is None:
        raise ArgumentError("graph is missing: a network with pooling needs the number of every node's graph")
    if graph.shape != (nodes,):
        raise ArgumentError(f"graph is {list(graph.shape)}; expected one number for each of the {nodes} nodes")
    return graph, graphs if graphs is not None else int(graph.max()) + 1 if nodes else 0
