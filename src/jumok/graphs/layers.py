"""Graph attention layers: GAT (Velickovic et al. 2018), GATv2 (Brody et al. 2022) and SuperGAT (Kim and Oh 2021).

All layers take `x` [node, in_width] (or `SparseRows`, where most of it is zero), `edge_index` [2, edge] whose rows are
source and target, and optionally `edge_features` [edge, edge_width]. They return `GraphAttended(values, weights)`:

    out.values           [node, out_width]
    out.weights()        α [edge, head], row e for edge_index[:, e], before dropout
    out.weights.loops()  α [node, head] of the self-loops that were added

While training, `dropout` drops weights α, and `value_dropout` drops parts of the values after the scores were computed.
With `self_loops` every node also attends to itself. A node whose loop is among the edges keeps that one, with its own
features; other nodes get a loop whose features are the mean of their incoming edges (zeros when there are none).
PyTorch Geometric instead removes given loops and adds its own; the two agree on edges without loops.
With `hops` above 1 the same weights mix the values several times (graphs/diffusion.py).
With `degree_exponent` p, a neighbour j with d edges into it, its loop among them, counts d^-p times as much:

    α ∝ exp(e) · d_j^-p

At p = 0.5 attention begins at the symmetric normalisation of Kipf and Welling (2017), with rows that sum to 1.

On a GPU one fused kernel (graphs/gpu.py) scores, normalises and mixes. It reads the edges sorted: pass
`SortedEdges.of(edge_index, nodes)` instead of `edge_index` to check and sort them once for all layers and steps.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention.backends import runs_on_kernels
from jumok.attention.checks import check_optional_sizes, check_probabilities, check_sizes
from jumok.errors import ArgumentError
from jumok.graphs.diffusion import diffuse, drop_weights, mix_sorted
from jumok.graphs.edges import (
    EdgeWeights,
    GraphAttended,
    PairScores,
    SortedEdges,
    attend_edges,
    check_range,
    dynamic_edge_scores,
    edge_softmax,
    sort_edges,
    static_edge_scores,
)
from jumok.graphs.sparse import SparseRows, linears

MOST_EDGE_WIDTH = 32
"""GATv2's kernels take features of edges up to this width; wider ones are scored piece by piece."""

__all__ = [
    "EdgeWeights",
    "GraphAttended",
    "GraphAttention",
    "GraphAttentionV2",
    "SortedEdges",
    "SuperGraphAttention",
]


class _GraphLayer(nn.Module):
    """What all layers share: their settings, and attention from scores and values to joined heads."""

    bias: nn.Parameter | None

    def __init__(
        self,
        *,
        in_width: int,
        out_width: int,
        heads: int,
        concat: bool,
        edge_width: int | None,
        negative_slope: float,
        dropout: float,
        value_dropout: float,
        self_loops: bool,
        hops: int,
        teleport: float,
        degree_exponent: float,
    ) -> None:
        super().__init__()
        in_width, out_width, heads, hops = check_sizes(in_width=in_width, out_width=out_width, heads=heads, hops=hops)
        (edge_width,) = check_optional_sizes(edge_width=edge_width)
        check_probabilities(dropout=dropout, value_dropout=value_dropout, teleport=teleport)
        self.in_width, self.out_width, self.edge_width = in_width, out_width, edge_width
        self.heads, self.head_dim, self.concat = heads, _head_dim(out_width, heads, concat), concat
        self.negative_slope, self.self_loops = negative_slope, self_loops
        self.dropout, self.value_dropout = dropout, value_dropout
        self.hops, self.teleport, self.degree_exponent = hops, teleport, degree_exponent

    def _attend(
        self,
        scores: "_Scores",
        values: Float[Tensor, "node head dim"],
        edge_index: Tensor | SortedEdges,
        features: Tensor | None,
    ) -> GraphAttended:
        """The definition without kernels, with an error for an edge whose end is no node."""
        try:
            return self._attend_graph(scores, values, _graph(edge_index, features, len(values), self.self_loops))
        except (IndexError, RuntimeError):  # on a CPU, PyTorch refuses the edge but does not name it
            if isinstance(edge_index, Tensor):
                check_range(edge_index, len(values))
            raise

    def _attend_graph(
        self, scores: "_Scores", values: Float[Tensor, "node head dim"], graph: "_Graph"
    ) -> GraphAttended:
        """The definition: score every edge, softmax, mix."""
        visible, values = _hide(scores(graph), graph), self._drop_values(values)
        if self.degree_exponent:
            visible = visible - self.degree_exponent * _log_degrees(graph, len(values))[graph.edge_index[0], None]
        if self.hops > 1:
            return self._attend_far(visible, values, graph)
        mixed, weights = attend_edges(visible, values, graph.edge_index, len(values), dropout=self._weight_dropout())
        return GraphAttended(self._join_heads(mixed), replace(weights, edges=graph.edge_count))

    def _attend_far(self, scores: Tensor, values: Float[Tensor, "node head dim"], graph: "_Graph") -> GraphAttended:
        """The same over several hops, each with dropout of its own."""
        weights = edge_softmax(scores, graph.edge_index[1], len(values))
        edges = graph.sorted or sort_edges(graph.edge_index[:, : graph.edge_count], len(values))
        mixed = self._diffuse(lambda z: mix_sorted(drop_weights(weights, self._weight_dropout()), z, edges), values)
        shown = EdgeWeights(build=lambda: weights, edges=graph.edge_count, nodes=len(values))
        return GraphAttended(self._join_heads(mixed), shown)

    def _diffuse(self, mix: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        return diffuse(mix, values, hops=self.hops, teleport=self.teleport)

    def _attended(
        self, mixed: Float[Tensor, "node head dim"], scores: "_Scores", edge_index: Tensor, features: Tensor | None
    ) -> GraphAttended:
        """What the kernel mixed, with weights that are built on demand."""
        build = partial(_weights, scores, edge_index, features, len(mixed), self.self_loops)
        weights = EdgeWeights(build=build, edges=edge_index.shape[1], nodes=len(mixed))
        return GraphAttended(self._join_heads(mixed), weights)

    def _join_heads(self, mixed: Float[Tensor, "node head dim"]) -> Float[Tensor, "node out_width"]:
        out = mixed.flatten(1) if self.concat else mixed.mean(1)
        return out if self.bias is None else out + self.bias

    def _drop_values(self, values: Float[Tensor, "node head dim"]) -> Float[Tensor, "node head dim"]:
        return F.dropout(values, self.value_dropout) if self.value_dropout and self.training else values

    def _weight_dropout(self) -> float:
        return self.dropout if self.training else 0.0


class GraphAttention(_GraphLayer):
    """GAT: e = LeakyReLU(aₛ·W xⱼ + aₜ·W xᵢ + aₑ·Wₑ f),  α = softmax of e over the edges into i,  out = Σ α W xⱼ.

    Velickovic et al., "Graph Attention Networks" (2018). Heads are concatenated with `concat`, else averaged.
    """

    has_kernels: ClassVar[bool] = True
    """Whether the fused kernels compute these scores."""

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
        hops: int = 1,
        teleport: float = 0.1,
        degree_exponent: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_width=in_width,
            out_width=out_width,
            heads=heads,
            concat=concat,
            edge_width=edge_width,
            negative_slope=negative_slope,
            dropout=dropout,
            value_dropout=value_dropout,
            self_loops=self_loops,
            hops=hops,
            teleport=teleport,
            degree_exponent=degree_exponent,
        )
        heads, edge_width, width = self.heads, self.edge_width, self.heads * self.head_dim
        self.to_values = glorot_linear(self.in_width, width, bias=False)
        self.source_vector = _glorot(heads, self.head_dim)
        self.target_vector = _glorot(heads, self.head_dim)
        self.to_edges = None if edge_width is None else glorot_linear(edge_width, width, bias=False)
        self.edge_vector = None if edge_width is None else _glorot(heads, self.head_dim)
        self.bias = nn.Parameter(torch.zeros(self.out_width)) if bias else None

    def forward(
        self,
        x: Float[Tensor, "node in_width"] | SparseRows,
        edge_index: Int[Tensor, "2 edge"] | SortedEdges,
        edge_features: Float[Tensor, "edge edge_width"] | None = None,
    ) -> GraphAttended:
        """Mix every node's neighbours, and itself where there are self-loops."""
        _check_graph(x, edge_index, edge_features, self.in_width, self.edge_width)
        values = linears(x, (self.to_values.weight, None))[0].view(-1, self.heads, self.head_dim)
        vectors = torch.stack([self.source_vector, self.target_vector])
        scores, pair_scores = (partial(of, values, vectors) for of in (self._scores_of, self._pair_scores))
        if not (self.has_kernels and runs_on_kernels(values)) or self.degree_exponent:
            return _with_pair_scores(self._attend(scores, values, edge_index, edge_features), pair_scores)
        from jumok.graphs import gpu

        edges = edge_index if isinstance(edge_index, SortedEdges) else sort_edges(edge_index, len(values))
        features = _with_loops(edge_features, edges.edge_index[1], len(values)) if self.self_loops else edge_features
        dropped, node_scores = self._drop_values(values), None
        if dropped is not values or self.hops > 1:
            node_scores = torch.einsum("nhd,shd->shn", values, vectors)
        edge_scores = self._edge_scores(features)

        def mix(z: Tensor) -> Tensor:
            return gpu.static_attention(
                z, vectors if node_scores is None else None, node_scores, edge_scores, edges,
                slope=self.negative_slope, loops=self.self_loops, dropout=self._weight_dropout(),
            )  # fmt: skip

        mixed = self._diffuse(mix, dropped)
        return _with_pair_scores(self._attended(mixed, scores, edges.edge_index, edge_features), pair_scores)

    def _scores_of(self, values: Tensor, vectors: Tensor, graph: "_Graph") -> Tensor:
        # Made contiguous, for einsum lays the heads out first, and reading them edge by edge would take longer.
        source, target = torch.einsum("nhd,shd->snh", values, vectors).contiguous()
        return self._scores(source, target, graph)

    def _pair_scores(self, values: Tensor, vectors: Tensor, pairs: Int[Tensor, "2 pair"]) -> Tensor:
        return self._scores_of(values, vectors, _Graph.of_pairs(pairs))

    def _scores(self, source: Tensor, target: Tensor, graph: "_Graph") -> Tensor:
        slope = self.negative_slope
        return static_edge_scores(source, target, graph.edge_index, self._edge_scores(graph.features), slope=slope)

    def _edge_scores(self, features: Tensor | None) -> Tensor | None:
        if features is None or self.to_edges is None or self.edge_vector is None:
            return None
        # (aₑ Wₑ) f rather than aₑ (Wₑ f): the projected features of every edge and head are never built.
        projection = self.to_edges.weight.view(self.heads, self.head_dim, -1)
        return features @ torch.einsum("hd,hde->eh", self.edge_vector, projection)


class SuperGraphAttention(GraphAttention):
    """SuperGAT: e = LeakyReLU(aₛ·W xⱼ + aₜ·W xᵢ + aₑ·Wₑ f) · σ(s) with s = W xᵢ · W xⱼ,  α and out as in GAT.

    Kim and Oh, "How to Find Your Friendly Neighborhood: Graph Attention Design with Self-Supervision" (2021), the
    variant MX. s is the part that learns from edges and pairs without one (graphs/edge_supervision.py).
    """

    has_kernels: ClassVar[bool] = False

    def _scores_of(self, values: Tensor, vectors: Tensor, graph: "_Graph") -> Tensor:
        links = self._pair_scores(values, vectors, graph.edge_index)
        return super()._scores_of(values, vectors, graph) * links.sigmoid()

    def _pair_scores(self, values: Tensor, vectors: Tensor, pairs: Int[Tensor, "2 pair"]) -> Tensor:
        source, target = (values.index_select(0, ends) for ends in pairs)
        return (source * target).sum(-1)


class GraphAttentionV2(_GraphLayer):
    """GATv2: e = a·LeakyReLU(Wₛ xⱼ + Wₜ xᵢ + Wₑ f),  α = softmax of e over the edges into i,  out = Σ α Wₛ xⱼ.

    Brody et al., "How Attentive are Graph Attention Networks?" (2022): unlike GAT's, the ranking of the neighbours can
    depend on the attending node. `share_weights` makes Wₜ the same as Wₛ. `bias` also gives Wₛ and Wₜ a bias.
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
        hops: int = 1,
        teleport: float = 0.1,
        degree_exponent: float = 0.0,
        bias: bool = True,
        share_weights: bool = False,
    ) -> None:
        super().__init__(
            in_width=in_width,
            out_width=out_width,
            heads=heads,
            concat=concat,
            edge_width=edge_width,
            negative_slope=negative_slope,
            dropout=dropout,
            value_dropout=value_dropout,
            self_loops=self_loops,
            hops=hops,
            teleport=teleport,
            degree_exponent=degree_exponent,
        )
        edge_width, width = self.edge_width, self.heads * self.head_dim
        self.to_source = glorot_linear(self.in_width, width, bias=bias)
        self.to_target = self.to_source if share_weights else glorot_linear(self.in_width, width, bias=bias)
        self.to_edges = None if edge_width is None else glorot_linear(edge_width, width, bias=False)
        self.vector = _glorot(self.heads, self.head_dim)
        self.bias = nn.Parameter(torch.zeros(self.out_width)) if bias else None

    def forward(
        self,
        x: Float[Tensor, "node in_width"] | SparseRows,
        edge_index: Int[Tensor, "2 edge"] | SortedEdges,
        edge_features: Float[Tensor, "edge edge_width"] | None = None,
    ) -> GraphAttended:
        """Mix every node's neighbours, and itself where there are self-loops."""
        _check_graph(x, edge_index, edge_features, self.in_width, self.edge_width)
        maps = [self.to_source] if self.to_target is self.to_source else [self.to_source, self.to_target]
        projected = linears(x, *((linear.weight, linear.bias) for linear in maps))
        source, target = (projected[at].view(-1, self.heads, self.head_dim) for at in (0, -1))
        scores = partial(self._scores, source, target)
        pair_scores = partial(self._pair_scores, source, target)
        if not runs_on_kernels(source) or self.degree_exponent or (self.edge_width or 0) > MOST_EDGE_WIDTH:
            return _with_pair_scores(self._attend(scores, source, edge_index, edge_features), pair_scores)
        from jumok.graphs import gpu

        edges = edge_index if isinstance(edge_index, SortedEdges) else sort_edges(edge_index, len(source))
        features = _with_loops(edge_features, edges.edge_index[1], len(source)) if self.self_loops else edge_features
        dropped = self._drop_values(source)
        projection = None
        if features is not None and self.to_edges is not None:
            projection = self.to_edges.weight.view(self.heads, self.head_dim, -1).mT

        def mix(z: Tensor) -> Tensor:
            return gpu.dynamic_attention(
                source, None if z is source else z, target, self.vector, features, projection, edges,
                slope=self.negative_slope, loops=self.self_loops, dropout=self._weight_dropout(),
            )  # fmt: skip

        mixed = self._diffuse(mix, dropped)
        return _with_pair_scores(self._attended(mixed, scores, edges.edge_index, edge_features), pair_scores)

    def _pair_scores(self, source: Tensor, target: Tensor, pairs: Int[Tensor, "2 pair"]) -> Tensor:
        return self._scores(source, target, _Graph.of_pairs(pairs))

    def _scores(self, source: Tensor, target: Tensor, graph: "_Graph") -> Tensor:
        projection = None if self.to_edges is None else self.to_edges.weight.view(self.heads, self.head_dim, -1)
        return dynamic_edge_scores(
            source, target, self.vector, graph.edge_index, graph.features, projection, slope=self.negative_slope
        )


_Scores = Callable[["_Graph"], Tensor]


class _Graph(NamedTuple):
    """The edges attended over: those given, then with `self_loops` one loop per node."""

    edge_index: Int[Tensor, "2 edge_and_loop"]
    features: Float[Tensor, "edge_and_loop edge_width"] | None
    hidden: Bool[Tensor, " edge_and_loop"] | None
    edge_count: int
    sorted: SortedEdges | None

    @classmethod
    def of_pairs(cls, pairs: Int[Tensor, "2 pair"]) -> "_Graph":
        """Any pairs of nodes in place of edges."""
        return cls(pairs, None, None, pairs.shape[1], None)


def _with_pair_scores(attended: GraphAttended, pair_scores: PairScores) -> GraphAttended:
    return attended._replace(weights=replace(attended.weights, pair_scores=pair_scores))


def _graph(edge_index: Tensor | SortedEdges, features: Tensor | None, nodes: int, self_loops: bool) -> _Graph:
    in_order = edge_index if isinstance(edge_index, SortedEdges) else None
    edge_index = edge_index.edge_index if isinstance(edge_index, SortedEdges) else edge_index
    edge_count = edge_index.shape[1]
    if not self_loops:
        return _Graph(edge_index, features, None, edge_count, in_order)
    source, target = edge_index
    # Every node gets a loop, hidden where it has one already: keeping only the missing ones would make shapes depend
    # on the data, which stalls a GPU until it has counted them.
    is_loop = source == target
    has_loop = is_loop.new_zeros(nodes, dtype=torch.int32).index_add(0, target, is_loop.int()) > 0
    hidden = torch.cat([torch.zeros_like(is_loop), has_loop])
    loops = torch.arange(nodes, device=edge_index.device, dtype=edge_index.dtype)
    features = _with_loops(features, target, nodes)
    return _Graph(torch.cat([edge_index, loops.expand(2, -1)], dim=1), features, hidden, edge_count, in_order)


def _with_loops(features: Tensor | None, target: Tensor, nodes: int) -> Tensor | None:
    """The features of the edges, then those of the loops: the mean of a node's incoming edges."""
    if features is None:
        return None
    total = features.new_zeros(nodes, features.shape[1]).index_add(0, target, features)
    degree = features.new_zeros(nodes).index_add(0, target, features.new_ones(len(target)))
    return torch.cat([features, total / degree.clamp(min=1)[:, None]])


def _weights(scores: "_Scores", edge_index: Tensor, features: Tensor | None, nodes: int, self_loops: bool) -> Tensor:
    graph = _graph(edge_index, features, nodes, self_loops)
    return edge_softmax(_hide(scores(graph), graph), graph.edge_index[1], nodes)


def _hide(scores: Tensor, graph: _Graph) -> Tensor:
    return scores if graph.hidden is None else scores.masked_fill(graph.hidden[:, None], -torch.inf)


def _log_degrees(graph: _Graph, nodes: int) -> Float[Tensor, " node"]:
    """The logarithm of how many visible edges lead into each node; 0 where there are none."""
    target = graph.edge_index[1]
    counts = torch.ones_like(target) if graph.hidden is None else (~graph.hidden).to(target.dtype)
    return target.new_zeros(nodes).index_add(0, target, counts).clamp(min=1).log()


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


def glorot_linear(in_width: int, out_width: int, *, bias: bool) -> nn.Linear:
    """A linear layer with Glorot's initial weights, and zeros as its bias."""
    linear = nn.Linear(in_width, out_width, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def _check_graph(
    x: Tensor | SparseRows,
    edge_index: Tensor | SortedEdges,
    edge_features: Tensor | None,
    in_width: int,
    edge_width: int | None,
) -> None:
    """Refuse what PyTorch would take silently or explain badly; on a GPU, also an edge whose end is no node."""
    if len(x.shape) != 2 or x.shape[1] != in_width:
        raise ArgumentError(f"x is {list(x.shape)}; it must be [node, in_width] with in_width = {in_width}")
    if isinstance(edge_index, SortedEdges):  # its numbers were checked when it was sorted
        if edge_index.nodes != x.shape[0]:
            raise ArgumentError(f"edge_index was sorted for {edge_index.nodes} nodes, but x has {x.shape[0]}")
        _check_features(edge_features, edge_index.edge_index, edge_width)
        return
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        hint = "; transpose it" if edge_index.ndim == 2 and edge_index.shape[1] == 2 else ""
        raise ArgumentError(
            f"edge_index is {list(edge_index.shape)}; it must be [2, edge]: sources, then targets{hint}"
        )
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise ArgumentError(f"edge_index holds {edge_index.dtype}; it must be torch.int64 or torch.int32")
    if edge_index.device != x.device:
        raise ArgumentError(f"edge_index is on {edge_index.device} but x is on {x.device}; move one to the other")
    _check_features(edge_features, edge_index, edge_width)
    if edge_index.is_cuda:
        check_range(edge_index, x.shape[0])


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
        raise ArgumentError(
            f"edge_features is missing; a layer with edge_width = {edge_width} needs edge features of shape {wanted}"
        )
    if list(edge_features.shape) != wanted:
        raise ArgumentError(f"edge_features is {list(edge_features.shape)}; it must be [edge, edge_width] = {wanted}")
