"""Graph attention networks for classifying nodes or whole graphs.

    h⁰ = x,   hˡ = ELU(GATˡ(dropout(hˡ⁻¹))) with heads joined,   logits = GATᴸ(dropout(hᴸ⁻¹)) with heads averaged

as in Velickovic et al. (2018), section 3.3. With `input_layer`, h⁰ = ELU(W dropout(x) + b). With `output_layer` the
last attention layer is like the others but averages its heads, and a linear layer classifies. With `pooling` the nodes
of each graph are pooled before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.errors import ArgumentError, ConfigError
from jumok.graphs.layers import (
    EdgeWeights,
    GraphAttention,
    GraphAttentionV2,
    SortedEdges,
    SuperGraphAttention,
    glorot_linear,
)
from jumok.graphs.sparse import SparseRows, project_rows
from jumok.settings import Depth, Fraction, NonNegativeFloat, OnlyWith, PositiveInt, Settings

__all__ = ["GatConfig", "GraphAttentionNetwork", "GraphPrediction", "Hop", "SortedEdges", "SparseRows", "node_features"]

LAYERS: dict[str, type[nn.Module]] = {
    "gat": GraphAttention,
    "gatv2": GraphAttentionV2,
    "supergat": SuperGraphAttention,
}


@dataclass(frozen=True, kw_only=True)
class GatConfig(Settings):
    """The section [network] of a graph recipe."""

    section: ClassVar[str] = "network"

    kind: Literal["gat", "gatv2", "supergat"] = "gat"
    """Layer: "gat" ranks neighbours alike for every node; in "gatv2" the ranking depends on the attending node.

    "supergat" multiplies the scores of "gat" by how alike two nodes are, for `training.edge_supervision`.
    """
    layers: Depth = 2
    """Number of attention layers; each extends a node's view by one hop."""
    width: PositiveInt = 64
    """Size of a node's vector between layers, all heads together; `heads` must divide it."""
    heads: PositiveInt = 8
    """Attention heads of every layer but the last; their outputs are concatenated."""
    output_heads: PositiveInt = 1
    """Attention heads of the last layer; their outputs are averaged."""
    input_layer: bool = False
    """Begin with a linear layer and ELU, so that the attention layers see node vectors instead of features."""
    output_layer: bool = False
    """End with ELU and a linear layer from node vectors to classes, instead of attention between scores of classes."""
    hops: tuple[PositiveInt, ...] = ()
    """Attention diffusion: hops that each layer makes with the same weights (Wang et al. 2021); [] for one each."""
    teleport: Annotated[Fraction, OnlyWith("hops")] = 0.1
    """Share of its own value that a node keeps at every hop, in a layer of several hops."""
    degree_exponent: NonNegativeFloat = 0.0
    """Power of a neighbour's degree that divides its weight before the weights of a node are normalised.

    0.5 corresponds to the normalisation of GCN (Kipf and Welling 2017).
    """
    dropout: Fraction = 0.6
    """Dropout on the inputs of every layer."""
    attention_dropout: Fraction = 0.6
    """Dropout on the attention weights."""
    value_dropout: Fraction = 0.0
    """Dropout on the projected features of the neighbours, as in the authors' code."""
    node_dropout: Fraction = 0.0
    """DropNode: dropout of all features of a node at once, in addition to `dropout` (Feng et al. 2020)."""
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
        if self.hops and len(self.hops) != self.layers:
            raise ConfigError(
                f"{self.shown('hops')} has {len(self.hops)} numbers, but {self.shown('layers')}; give one number per "
                "layer"
            )

    @property
    def reach(self) -> int:
        """How many hops away a node still affects another."""
        return sum(self.hops) or self.layers

    @property
    def drops(self) -> bool:
        """Whether training has dropout of any kind, so that two passes differ."""
        return any((self.dropout, self.attention_dropout, self.value_dropout, self.node_dropout))


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
    """Graph attention layers from node features to classes."""

    def __init__(self, config: GatConfig, *, features: int, classes: int, edge_width: int | None = None) -> None:
        super().__init__()
        self.config, self.classes = config, classes
        self.pooling = config.pooling
        out = config.width if config.pooling or config.output_layer else classes
        self.input_layer = glorot_linear(features, config.width, bias=True) if config.input_layer else None
        ins = [config.width if config.input_layer else features] + [config.width] * (config.layers - 1)
        outs = [config.width] * (config.layers - 1) + [out]
        self.layers = nn.ModuleList(
            _layer(config, number, into, out, edge_width=edge_width)
            for number, (into, out) in enumerate(zip(ins, outs, strict=True))
        )
        self.skips = nn.ModuleList(
            nn.Linear(into, out, bias=False) for into, out in zip(ins, outs, strict=True) if config.residual
        )
        self.to_classes: nn.Linear | None = None
        if config.pooling:
            self.to_classes = nn.Linear(config.width, classes)
        elif config.output_layer:
            self.to_classes = glorot_linear(config.width, classes, bias=True)

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
            raise ArgumentError(
                f"hops has {len(hops)} entries for {len(self.layers)} layers; there must be one per layer"
            )
        attention = []
        x = self._drop_nodes(x)
        if self.input_layer is not None:
            x = F.elu(project_rows(self._dropped(x), self.input_layer.weight, self.input_layer.bias))
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
                values = values + project_rows(x, self.skips[number].weight)  # type: ignore[arg-type]
            x = F.elu(values) if number < len(self.layers) - 1 or self.to_classes is not None else values
        assert isinstance(x, Tensor)
        if self.to_classes is None:
            return GraphPrediction(x, tuple(attention))
        if self.pooling:
            x = pool(x, *_membership(graph, graphs, len(x)), self.pooling)
        return GraphPrediction(self.to_classes(self._dropped(x)), tuple(attention))

    def penalty(self) -> Float[Tensor, ""]:
        """L2 regularisation, to be added to the mean loss."""
        squares = [weight.square().sum() for weight in self.parameters() if weight.ndim > 1]
        return 0.5 * self.config.l2 * torch.stack(squares).sum()

    def _drop_nodes(self, x: Tensor | SparseRows) -> Tensor | SparseRows:
        """DropNode: x_n / (1 - p) with probability 1 - p, else zeros."""
        if not self.training or not self.config.node_dropout:
            return x
        factors = F.dropout(torch.ones(x.shape[0], dtype=x.dtype, device=x.device), self.config.node_dropout)
        return factors[:, None] * x if isinstance(x, Tensor) else x.scaled(factors)

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


def _layer(config: GatConfig, number: int, into: int, out: int, *, edge_width: int | None) -> nn.Module:
    last = number == config.layers - 1
    return LAYERS[config.kind](
        in_width=into,
        out_width=out,
        heads=config.output_heads if last else config.heads,
        concat=not last,
        dropout=config.attention_dropout,
        value_dropout=config.value_dropout,
        self_loops=config.self_loops,
        hops=config.hops[number] if config.hops else 1,
        teleport=config.teleport,
        degree_exponent=config.degree_exponent,
        edge_width=edge_width,
    )


def _membership(graph: Tensor | None, graphs: int | None, nodes: int) -> tuple[Tensor, int]:
    if graph is None:
        raise ArgumentError("graph is missing: a network with pooling needs the number of every node's graph")
    if graph.shape != (nodes,):
        raise ArgumentError(f"graph is {list(graph.shape)}; it must be one number for each of the {nodes} nodes")
    return graph, graphs if graphs is not None else int(graph.max()) + 1 if nodes else 0
