"""Graph attention: every node looks at its neighbours, as in Velickovic et al. (2018) or Brody et al. (2022).

Both layers take `x` [node, in_width] (or `SparseRows`, where most of it is zero), `edge_index` [2, edge] whose rows are
source and target, and optionally `edge_features` [edge, edge_width], and give back `GraphAttended(values, weights)`:

    out.values           [node, out_width]
    out.weights()        α [edge, head], row e belonging to edge_index[:, e], before dropout
    out.weights.loops()  α [node, head] of the self-loops that were added

While training, `dropout` drops weights α and `value_dropout` parts of the values they mix, scores being made of all.
With `self_loops` every node also sees itself. A node whose loop is already among the edges keeps that one, with its own
features; elsewhere a loop is added, its features the mean of the node's incoming edges (zeros when there are none).
PyTorch Geometric instead throws given loops away and adds its own; the two agree on edges without loops.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention.arguments import check_optional_sizes, check_probabilities, check_sizes
from jumok.attention.edges import (
    EdgeWeights,
    GraphAttended,
    attend_edges,
    dynamic_edge_scores,
    static_edge_scores,
)
from jumok.errors import ArgumentError
from jumok.layers.checks import check_kind
from jumok.layers.sparse_rows import SparseRows, linear

__all__ = ["EdgeWeights", "GraphAttended", "GraphAttention", "GraphAttentionV2"]


class GraphAttention(nn.Module):
    """GAT: e = LeakyReLU(aₛ·W xⱼ + aₜ·W xᵢ + aₑ·Wₑ f),  α = softmax of e over the edges into i,  out = Σ α W xⱼ.

    Velickovic et al., "Graph Attention Networks" (2018). Heads are joined when `concat`, else averaged.
    """

    def __init__(
        self,
        *,
        in_width: int,
        out_width: int,
        heads: int = 1,
        concat: bool = True,
        edge_width: int | None = None,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        value_dropout: float = 0.0,
        self_loops: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        in_width, out_width, heads = check_sizes(in_width=in_width, out_width=out_width, heads=heads)
        (edge_width,) = check_optional_sizes(edge_width=edge_width)
        check_probabilities(dropout=dropout, value_dropout=value_dropout)
        self.in_width, self.edge_width = in_width, edge_width
        self.heads, self.head_dim, self.concat = heads, _head_dim(out_width, heads, concat), concat
        self.negative_slope, self.self_loops = negative_slope, self_loops
        self.dropout, self.value_dropout = dropout, value_dropout

        self.to_values = _glorot_linear(in_width, heads * self.head_dim, bias=False)
        self.source_vector = _glorot(heads, self.head_dim)
        self.target_vector = _glorot(heads, self.head_dim)
        self.to_edges = None if edge_width is None else _glorot_linear(edge_width, heads * self.head_dim, bias=False)
        self.edge_vector = None if edge_width is None else _glorot(heads, self.head_dim)
        self.bias = nn.Parameter(torch.zeros(out_width)) if bias else None

    def forward(
        self,
        x: Float[Tensor, "node in_width"] | SparseRows,
        edge_index: Int[Tensor, "2 edge"],
        edge_features: Float[Tensor, "edge edge_width"] | None = None,
    ) -> GraphAttended:
        """Mix every node's neighbours, and itself where there are self-loops."""
        _check_graph(x, edge_index, edge_features, self.in_width, self.edge_width, self.to_values.weight)
        graph = _graph(edge_index, edge_features, x.shape[0], self.self_loops)
        values = linear(x, self.to_values.weight).view(-1, self.heads, self.head_dim)
        source, target = (torch.einsum("nhd,hd->nh", values, v) for v in (self.source_vector, self.target_vector))
        scores = static_edge_scores(
            source, target, graph.edge_index, self._edge_scores(graph.features), slope=self.negative_slope
        )
        return _mix(self, scores, values, graph)

    def _edge_scores(self, features: Tensor | None) -> Tensor | None:
        if features is None or self.to_edges is None or self.edge_vector is None:
            return None
        # (aₑ Wₑ) f rather than aₑ (Wₑ f): the projected features of every edge and head are never built.
        projection = self.to_edges.weight.view(self.heads, self.head_dim, -1)
        return features @ torch.einsum("hd,hde->eh", self.edge_vector, projection)


class GraphAttentionV2(nn.Module):
    """GATv2: e = a·LeakyReLU(Wₛ xⱼ + Wₜ xᵢ + Wₑ f),  α = softmax of e over the edges into i,  out = Σ α Wₛ xⱼ.

    Brody et al., "How Attentive are Graph Attention Networks?" (2022): unlike GAT's, the ranking of the neighbours can
    depend on the node that looks. `share_weights` makes Wₜ the same as Wₛ. `bias` also gives Wₛ and Wₜ theirs.
    """

    def __init__(
        self,
        *,
        in_width: int,
        out_width: int,
        heads: int = 1,
        concat: bool = True,
        edge_width: int | None = None,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        value_dropout: float = 0.0,
        self_loops: bool = True,
        bias: bool = True,
        share_weights: bool = False,
    ) -> None:
        super().__init__()
        in_width, out_width, heads = check_sizes(in_width=in_width, out_width=out_width, heads=heads)
        (edge_width,) = check_optional_sizes(edge_width=edge_width)
        check_probabilities(dropout=dropout, value_dropout=value_dropout)
        self.in_width, self.edge_width = in_width, edge_width
        self.heads, self.head_dim, self.concat = heads, _head_dim(out_width, heads, concat), concat
        self.negative_slope, self.self_loops = negative_slope, self_loops
        self.dropout, self.value_dropout = dropout, value_dropout

        width = heads * self.head_dim
        self.to_source = _glorot_linear(in_width, width, bias=bias)
        self.to_target = self.to_source if share_weights else _glorot_linear(in_width, width, bias=bias)
        self.to_edges = None if edge_width is None else _glorot_linear(edge_width, width, bias=False)
        self.vector = _glorot(heads, self.head_dim)
        self.bias = nn.Parameter(torch.zeros(out_width)) if bias else None

    def forward(
        self,
        x: Float[Tensor, "node in_width"] | SparseRows,
        edge_index: Int[Tensor, "2 edge"],
        edge_features: Float[Tensor, "edge edge_width"] | None = None,
    ) -> GraphAttended:
        """Mix every node's neighbours, and itself where there are self-loops."""
        _check_graph(x, edge_index, edge_features, self.in_width, self.edge_width, self.to_source.weight)
        graph = _graph(edge_index, edge_features, x.shape[0], self.self_loops)
        source = linear(x, self.to_source.weight, self.to_source.bias).view(-1, self.heads, self.head_dim)
        shared = self.to_target is self.to_source
        target = source if shared else linear(x, self.to_target.weight, self.to_target.bias).view_as(source)
        projection = None if self.to_edges is None else self.to_edges.weight.view(self.heads, self.head_dim, -1)
        scores = dynamic_edge_scores(
            source, target, self.vector, graph.edge_index, graph.features, projection, slope=self.negative_slope
        )
        return _mix(self, scores, source, graph)


class _Graph(NamedTuple):
    """The edges attended over: those given, then one loop per node where loops are wanted."""

    edge_index: Int[Tensor, "2 edge_and_loop"]
    features: Float[Tensor, "edge_and_loop edge_width"] | None
    hidden: Bool[Tensor, " edge_and_loop"] | None
    given: int


def _graph(edge_index: Tensor, features: Tensor | None, nodes: int, self_loops: bool) -> _Graph:
    given = edge_index.shape[1]
    if not self_loops:
        return _Graph(edge_index, features, None, given)
    source, target = edge_index
    # Every node gets a loop, hidden where it has one already: keeping only the missing ones would make shapes depend
    # on the data, which stalls a GPU until it has counted them.
    is_loop = source == target
    has_loop = is_loop.new_zeros(nodes, dtype=torch.int32).index_add(0, target, is_loop.int()) > 0
    hidden = torch.cat([torch.zeros_like(is_loop), has_loop])
    loops = torch.arange(nodes, device=edge_index.device, dtype=edge_index.dtype)
    if features is not None:
        features = torch.cat([features, _mean_incoming(features, target, nodes)])
    return _Graph(torch.cat([edge_index, loops.expand(2, -1)], dim=1), features, hidden, given)


def _mean_incoming(features: Tensor, target: Tensor, nodes: int) -> Tensor:
    total = features.new_zeros(nodes, features.shape[1]).index_add(0, target, features)
    degree = features.new_zeros(nodes).index_add(0, target, features.new_ones(len(target)))
    return total / degree.clamp(min=1)[:, None]


def _mix(layer: GraphAttention | GraphAttentionV2, scores: Tensor, values: Tensor, graph: _Graph) -> GraphAttended:
    if graph.hidden is not None:
        scores = scores.masked_fill(graph.hidden[:, None], -torch.inf)
    dropout = layer.dropout if layer.training else 0.0
    if layer.value_dropout and layer.training:
        values = F.dropout(values, layer.value_dropout)
    mixed, weights = attend_edges(scores, values, graph.edge_index, len(values), dropout=dropout)
    out = mixed.flatten(1) if layer.concat else mixed.mean(1)
    if layer.bias is not None:
        out = out + layer.bias
    on_edges, on_loops = weights()[: graph.given], weights()[graph.given :]
    return GraphAttended(
        out, EdgeWeights(on_edges=on_edges, on_loops=weights.loops() if graph.hidden is None else on_loops)
    )


def _head_dim(out_width: int, heads: int, concat: bool) -> int:
    if not concat:
        return out_width
    if out_width % heads:
        raise ArgumentError(
            f"heads = {heads} does not divide out_width = {out_width}; the nearest width that works is "
            f"{max(round(out_width / heads), 1) * heads}, or average the heads with concat=False"
        )
    return out_width // heads


def _glorot(*shape: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(*shape)))


def _glorot_linear(in_width: int, out_width: int, *, bias: bool) -> nn.Linear:
    linear = nn.Linear(in_width, out_width, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def _check_graph(
    x: Tensor | SparseRows,
    edge_index: Tensor,
    edge_features: Tensor | None,
    in_width: int,
    edge_width: int | None,
    weight: Tensor,
) -> None:
    for name, given in (("x", x), ("edge_index", edge_index), ("edge_features", edge_features)):
        fits = given is None if name == "edge_features" else name == "x" and isinstance(given, SparseRows)
        if not isinstance(given, Tensor) and not fits:
            raise ArgumentError(f"{name} must be a tensor, but it is {type(given).__name__}")
    if len(x.shape) != 2 or x.shape[1] != in_width:
        raise ArgumentError(f"x is {list(x.shape)}; wanted [node, in_width] with in_width = {in_width}")
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        hint = "; transpose it" if edge_index.ndim == 2 and edge_index.shape[1] == 2 else ""
        raise ArgumentError(f"edge_index is {list(edge_index.shape)}; wanted [2, edge]: sources, then targets{hint}")
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise ArgumentError(f"edge_index holds {edge_index.dtype}; wanted torch.int64 or torch.int32")
    if edge_index.device != x.device:
        raise ArgumentError(f"edge_index is on {edge_index.device} but x is on {x.device}; move one to the other")
    check_kind("x", x, weight)
    _check_features(edge_features, edge_index, edge_width)
    if edge_features is not None:
        check_kind("edge_features", edge_features, weight)
    _check_range(edge_index, x.shape[0])


def _check_features(edge_features: Tensor | None, edge_index: Tensor, edge_width: int | None) -> None:
    if edge_width is None:
        if edge_features is not None:
            raise ArgumentError(
                f"edge_features is {list(edge_features.shape)}, but this layer was made without edge_width; "
                "pass edge_width to its constructor or leave edge_features out"
            )
        return
    wanted = [edge_index.shape[1], edge_width]
    if edge_features is None:
        raise ArgumentError(f"edge_features is missing: edge_width = {edge_width}, so wanted {wanted}")
    if list(edge_features.shape) != wanted:
        raise ArgumentError(f"edge_features is {list(edge_features.shape)}; wanted [edge, edge_width] = {wanted}")
    if edge_features.device != edge_index.device:
        raise ArgumentError(f"edge_features is on {edge_features.device} but edge_index is on {edge_index.device}")


def _check_range(edge_index: Tensor, nodes: int) -> None:
    # Looking costs a wait for the GPU, which neither a compiler nor a graph capture allows; elsewhere it is far
    # cheaper than the device-side assertion that would end the process.
    capturing = edge_index.is_cuda and torch.cuda.is_current_stream_capturing()
    if edge_index.numel() == 0 or torch.compiler.is_compiling() or capturing or edge_index.is_meta:
        return
    lowest, highest = (bound.item() for bound in edge_index.aminmax())
    if lowest < 0 or highest >= nodes:
        row, column = ((edge_index < 0) | (edge_index >= nodes)).nonzero()[0].tolist()
        there_are = f"x has {nodes} nodes, 0 to {nodes - 1}" if nodes else "x has no nodes"
        raise ArgumentError(f"edge_index[{row}, {column}] = {edge_index[row, column]}, but {there_are}")
