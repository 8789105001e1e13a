"""Attention over the edges of a graph: score each edge, softmax over a node's incoming edges, mix along them.

    α_e = exp(s_e) / Σ_{e' into target(e)} exp(s_e')          out_i = Σ_{e into i} α_e · value_{source(e)}

`edge_index` is [source, target]: edge e carries the value of node edge_index[0, e] to node edge_index[1, e].
A score of -inf hides its edge; a node without a visible edge gets zeros in values, weights and gradients.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from jumok.attention.tracing import in_transform, is_readable
from jumok.errors import ArgumentError

LONGEST = 4096
"""Edges of a node that a small program of the fused kernels takes; nodes with more get larger programs."""

CLOSE = 32.0
"""Scores that differ by less share one maximum: exp of their differences is far from the smallest float32, 1e-38."""


class Adjacency(NamedTuple):
    """The edges of every node, node by node (compressed sparse rows)."""

    starts: Int[Tensor, " node_and_one"]
    """Node n has the edges starts[n] to starts[n + 1]."""
    ends: Int[Tensor, " node"]
    """starts[n + 1], or starts[n] if that are more than LONGEST edges."""
    others: Int[Tensor, " edge"]
    """The nodes at their other ends."""
    edges: Int[Tensor, " edge"]
    """Their columns in edge_index."""
    long: Int[Tensor, " long_and_one"]
    """How many nodes have more than LONGEST edges, then these nodes, those with the most edges first."""


class SortedEdges(NamedTuple):
    """A graph's edges, sorted once for any number of layers and steps."""

    edge_index: Int[Tensor, "2 edge"]
    into: Adjacency
    """By target."""
    out_of: Adjacency
    """By source."""

    @classmethod
    def of(cls, edge_index: Int[Tensor, "2 edge"], nodes: int) -> "SortedEdges":
        """Sort the edges of a graph of `nodes` nodes; edges into the same node keep their order."""
        check_range(edge_index, nodes)
        return sort_edges(edge_index, nodes)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.into.starts) - 1

    def to(self, device: torch.device | str) -> "SortedEdges":
        """The same on another device."""
        into, out_of = (Adjacency(*(part.to(device) for part in order)) for order in (self.into, self.out_of))
        return SortedEdges(self.edge_index.to(device), into, out_of)


def sort_edges(edge_index: Int[Tensor, "2 edge"], nodes: int) -> SortedEdges:
    """`SortedEdges.of` without the check that every edge joins nodes."""
    if edge_index.shape[1] + nodes >= 2**31:
        raise ArgumentError(f"edge_index has {edge_index.shape[1]} edges; the kernels count up to 2,147,483,647")
    source, target = edge_index
    return SortedEdges(edge_index, _adjacency(target, source, nodes), _adjacency(source, target, nodes))


def _adjacency(owners: Tensor, others: Tensor, nodes: int) -> Adjacency:
    sorted_owners, order = torch.sort(owners.int(), stable=True)
    numbers = torch.arange(nodes + 1, device=owners.device, dtype=torch.int32)
    starts = torch.searchsorted(sorted_owners, numbers, out_int32=True)
    # There are at most so many long ones: a size that does not depend on the data needs no wait for the GPU.
    degrees = starts.diff()
    ends = torch.where(degrees > LONGEST, starts[:-1], starts[1:])
    degrees, nodes_by_degree = torch.sort(degrees, descending=True, stable=True)
    most = len(owners) // LONGEST
    long = torch.cat([(degrees[:most] > LONGEST).sum()[None], nodes_by_degree[:most]]).int()
    return Adjacency(starts, ends, others[order].int(), order.int(), long)


def check_range(edge_index: Int[Tensor, "2 edge"], nodes: int) -> None:
    """Raise an ArgumentError that names the first edge whose end is no node."""
    # The check waits for the GPU, which neither a compiler nor a graph capture allows. Elsewhere kernels would read and
    # write out of bounds without it, and PyTorch's own operators would end the process with a device-side assertion.
    capturing = edge_index.is_cuda and torch.cuda.is_current_stream_capturing()
    if edge_index.numel() == 0 or torch.compiler.is_compiling() or capturing or edge_index.is_meta:
        return
    lowest, highest = (bound.item() for bound in edge_index.aminmax())
    if lowest < 0 or highest >= nodes:
        row, column = ((edge_index < 0) | (edge_index >= nodes)).nonzero()[0].tolist()
        there_are = f"x has {nodes} nodes, 0 to {nodes - 1}" if nodes else "x has no nodes"
        raise ArgumentError(f"edge_index[{row}, {column}] = {edge_index[row, column]}, but {there_are}")


PairScores = Callable[[Int[Tensor, "2 pair"]], Float[Tensor, "pair head"]]
"""Scores, before the softmax, of pairs of nodes, be they joined by an edge or not; without features of edges."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeWeights:
    """The attention weights α: call it for those of the given edges; `loops` gives those of the added self-loops.

    A fused kernel never builds the weights; `build` recomputes them on demand.
    """

    build: Callable[[], Float[Tensor, "edge_and_loop head"]]
    edges: int
    """Number of given edges; the rows after them are the added self-loops, one per node."""
    nodes: int
    pair_scores: PairScores | None = None
    """What a layer can be trained to know of any pairs of nodes (graphs/edge_supervision.py)."""

    def __call__(self, *, heads: Sequence[int] | None = None) -> Float[Tensor, "edge chosen"]:
        """α of every edge, in the order of the given edge_index."""
        return _choose(self.build()[: self.edges], heads)

    def loops(self, *, heads: Sequence[int] | None = None) -> Float[Tensor, "node chosen"]:
        """α of every node's added self-loop; zero where none was added."""
        on_loops = self.build()[self.edges :]
        return _choose(on_loops if len(on_loops) else on_loops.new_zeros(self.nodes, on_loops.shape[1]), heads)


class GraphAttended(NamedTuple):
    """The values mixed into every node, and their weights: `weights()` gives α, one row per edge."""

    values: Float[Tensor, "node *width"]
    weights: EdgeWeights


def attend_edges(
    scores: Float[Tensor, "edge head"],
    values: Float[Tensor, "source head dim"],
    edge_index: Int[Tensor, "2 edge"],
    nodes: int,
    *,
    dropout: float = 0.0,
) -> GraphAttended:
    """Mix the `values` of source nodes into `nodes` target nodes, by the softmax of `scores` over incoming edges.

    `dropout` drops weights while mixing; the weights returned are those before it.
    """
    weights = edge_softmax(scores, edge_index[1], nodes)
    mixed = mix_edges(F.dropout(weights, dropout) if dropout else weights, values, edge_index, nodes)
    return GraphAttended(mixed, EdgeWeights(build=partial(_identity, weights), edges=len(weights), nodes=nodes))


def edge_softmax(
    scores: Float[Tensor, "edge head"], target: Int[Tensor, " edge"], nodes: int
) -> Float[Tensor, "edge head"]:
    """Normalise the scores of the edges that share a target.

    >>> edge_softmax(torch.zeros(3, 1), target=torch.tensor([0, 0, 2]), nodes=3).flatten()
    tensor([0.5000, 0.5000, 1.0000])
    """
    if scores.ndim != 2 or target.shape != scores.shape[:1]:
        raise ArgumentError(
            f"scores is {list(scores.shape)} and target is {list(target.shape)}; they must be [edge, head] and [edge]"
        )
    weights = _apply(_EdgeSoftmax, _at_least_float32(scores), target.long(), nodes)
    return weights.to(scores.dtype)


def mix_edges(
    weights: Float[Tensor, "edge head"],
    values: Float[Tensor, "source head dim"],
    edge_index: Int[Tensor, "2 edge"],
    nodes: int,
) -> Float[Tensor, "{nodes} head dim"]:
    """Add up `weights` times the source's value over the edges into each target node."""
    if len(weights) != edge_index.shape[-1] or weights.shape[1:] != values.shape[1:2]:
        raise ArgumentError(
            f"weights is {list(weights.shape)}, values {list(values.shape)} and edge_index {list(edge_index.shape)}; "
            "they must be [edge, head], [source, head, dim] and [2, edge]"
        )
    precision = torch.promote_types(_at_least_float32(weights).dtype, _at_least_float32(values).dtype)
    mixed = _apply(_Mix, weights.to(precision), values.to(precision), *edge_index, nodes)
    return mixed.to(values.dtype)


def static_edge_scores(
    source: Float[Tensor, "source head"],
    target: Float[Tensor, "target head"],
    edge_index: Int[Tensor, "2 edge"],
    edge: Float[Tensor, "edge head"] | None = None,
    *,
    slope: float,
) -> Float[Tensor, "edge head"]:
    """Score an edge as GAT does, LeakyReLU(source_j + target_i + edge), from one number per node and per edge."""
    sums = source.index_select(0, edge_index[0]) + target.index_select(0, edge_index[1])
    return F.leaky_relu(sums if edge is None else sums + edge, slope)


def dynamic_edge_scores(
    source: Float[Tensor, "source head dim"],
    target: Float[Tensor, "target head dim"],
    vector: Float[Tensor, "head dim"],
    edge_index: Int[Tensor, "2 edge"],
    edge_features: Float[Tensor, "edge edge_width"] | None = None,
    edge_projection: Float[Tensor, "head dim edge_width"] | None = None,
    *,
    slope: float,
) -> Float[Tensor, "edge head"]:
    """Score an edge as GATv2 does, vector · LeakyReLU(source_j + target_i + edge_projection edge_features)."""
    features = (edge_features, edge_projection) if edge_features is not None and edge_projection is not None else ()
    if source.device.type == "cpu" and not in_transform() and not torch.compiler.is_compiling():
        return _apply(_DynamicScores, slope, source, target, vector, *edge_index, *features)

    def score(piece: slice) -> Tensor:
        return _scores_of_piece(piece, slope, source, target, vector, *edge_index, *features)

    # The hidden layer of all edges is by far the largest tensor here: recomputing it piece by piece in the backward
    # pass keeps memory linear in nodes. Each piece costs one gradient of the size of `source`, so none is smaller.
    pieces = list(_pieces(edge_index.shape[1], vector, at_least=len(source)))
    if len(pieces) == 1:
        return score(pieces[0])
    return torch.cat([checkpoint(score, p, use_reentrant=False, preserve_rng_state=False) for p in pieces])


def _scores_of_piece(
    piece: slice, slope: float, source: Tensor, target: Tensor, vector: Tensor, origin: Tensor, end: Tensor,
    features: Tensor | None = None, projection: Tensor | None = None,
) -> Tensor:  # fmt: skip
    hidden = _hidden_of_piece(piece, source, target, origin, end, features, projection)
    return (F.leaky_relu(hidden, slope) * vector).sum(-1)


def _hidden_of_piece(
    piece: slice, source: Tensor, target: Tensor, origin: Tensor, end: Tensor,
    features: Tensor | None = None, projection: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Wₛ xⱼ + Wₜ xᵢ + Wₑ f of some edges."""
    hidden = source.index_select(0, origin[piece]) + target.index_select(0, end[piece])
    if features is not None and projection is not None:
        hidden = hidden + F.linear(features[piece], projection.flatten(0, 1)).view_as(hidden)
    return hidden


class _DynamicScores(Function):
    """The scores of GATv2 on a CPU, some edges at a time, whose hidden layer stays in a core's cache."""

    @staticmethod
    def forward(ctx: Any, slope: float, *inputs: Tensor) -> Tensor:
        ctx.slope = slope
        ctx.save_for_backward(*inputs)
        edges, vector = len(inputs[3]), inputs[2]
        dtype = torch.promote_types(vector.dtype, inputs[0].dtype)
        scores = vector.new_empty(edges, len(vector), dtype=dtype)
        for piece in _pieces(edges, vector):
            scores[piece] = _scores_of_piece(piece, slope, *inputs)
        return scores

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second gradient, autograd differentiates the equation itself
            wanted = [part for part in inputs if part.requires_grad]
            scores = _scores_of_piece(slice(None), ctx.slope, *inputs)
            gradients = iter(torch.autograd.grad(scores, wanted, grad, create_graph=True))
            return None, *(next(gradients) if part.requires_grad else None for part in inputs)
        source, target, vector, origin, end, *features = inputs
        d_source, d_target, d_vector = (torch.zeros_like(part) for part in (source, target, vector))
        d_features = [torch.zeros_like(part) for part in features]
        for piece in _pieces(len(origin), vector):
            hidden = _hidden_of_piece(piece, source, target, origin, end, *features)
            # Contiguous, for products along heads of a few numbers take several times as long.
            upstream = grad[piece, :, None].expand_as(hidden).contiguous()
            d_active = torch.ops.aten.leaky_relu_backward(upstream, hidden, ctx.slope, False)
            d_vector += (d_active * hidden).sum(0)  # LeakyReLU(h) is its slope times h
            d_hidden = d_active.mul_(vector)
            d_source.index_add_(0, origin[piece], d_hidden)
            d_target.index_add_(0, end[piece], d_hidden)
            if features:
                across = d_hidden.flatten(1)
                d_features[0][piece] = across @ features[1].flatten(0, 1)
                d_features[1] += (across.mT @ features[0][piece]).view_as(d_features[1])
        return None, d_source, d_target, d_vector, None, None, *d_features


class _EdgeSoftmax(Function):
    """A custom function, for the gradient needs α alone, and autograd would keep three tensors of its size."""

    @staticmethod
    def forward(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
        raised = _raised(scores, target, nodes)
        total = scores.new_zeros(nodes, scores.shape[1]).index_add_(0, target, raised)
        return raised.div_(total.masked_fill_(total == 0, 1).index_select(0, target))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        _, target, ctx.nodes = inputs
        ctx.save_for_backward(output, target)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        weights, target = ctx.saved_tensors
        if not _surely_finite(grad):
            grad = grad.masked_fill(weights == 0, 0)  # a NaN value behind a hidden edge must not reach the visible ones
        mean = grad.new_zeros(ctx.nodes, grad.shape[1]).index_add(0, target, weights * grad)
        return weights * (grad - mean.index_select(0, target)), None, None


def _raised(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
    """exp(s − m), where m is the highest score into each target, or where scores lie close together, of all."""
    if is_readable(scores) and scores.numel():
        lowest, highest = scores.aminmax()
        if highest - lowest < CLOSE:
            return (scores - highest).exp_()
    none = scores.new_full((nodes, scores.shape[1]), -torch.inf)
    highest = none.scatter_reduce_(0, target[:, None].expand_as(scores), scores, "amax")
    return (scores - highest.masked_fill_(highest == -torch.inf, 0).index_select(0, target)).exp_()


class _Mix(Function):
    """out_i = Σ_{e into i} w_e · value_{source(e)}; its gradients are a `_Match` and a `_Mix` against the edges."""

    @staticmethod
    def forward(weights: Tensor, values: Tensor, source: Tensor, target: Tensor, nodes: int) -> Tensor:
        mixed = values.new_zeros(nodes, *values.shape[1:])
        finite = _surely_finite(values)
        for piece in _pieces(len(weights), values[:1]):
            carried = _weigh(values.index_select(0, source[piece]), weights[piece, :, None], finite)
            mixed.index_add_(0, target[piece], carried)
        return mixed

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:4])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, values, source, target = ctx.saved_tensors
        if not torch.is_grad_enabled() and all(ctx.needs_input_grad[:2]):
            return *_mix_gradients(weights, values, grad, source, target), None, None, None
        d_weights = _apply(_Match, grad, values, source, target) if ctx.needs_input_grad[0] else None
        d_values = _apply(_Mix, weights, grad, target, source, len(values)) if ctx.needs_input_grad[1] else None
        return d_weights, d_values, None, None, None


def _mix_gradients(
    weights: Tensor, values: Tensor, grad: Tensor, source: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """The `_Match` and the `_Mix` in one pass, which reads the gradient at every edge once."""
    d_weights, d_values = torch.empty_like(weights), torch.zeros_like(values)
    finite = _surely_finite(grad)
    for piece in _pieces(len(weights), values[:1]):
        upstream = grad.index_select(0, target[piece])
        torch.sum(values.index_select(0, source[piece]).mul_(upstream), -1, out=d_weights[piece])
        d_values.index_add_(0, source[piece], _weigh(upstream, weights[piece, :, None], finite))
    return d_weights, d_values


def _weigh(carried: Tensor, weight: Tensor, finite: bool) -> Tensor:
    """`weight` times what the edges carry, in its place."""
    carried.mul_(weight)
    return carried if finite else carried.masked_fill_(weight == 0, 0)  # 0 · NaN is a hidden edge: 0


class _Match(Function):
    """s_e = left_{target(e)} · right_{source(e)}, head by head; its gradients are `_Mix`es."""

    @staticmethod
    def forward(left: Tensor, right: Tensor, source: Tensor, target: Tensor) -> Tensor:
        matches = left.new_empty(len(source), left.shape[1])
        for piece in _pieces(len(source), left[:1]):
            product = left.index_select(0, target[piece]).mul_(right.index_select(0, source[piece]))
            matches[piece] = product.sum(-1)
        return matches

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right, source, target = ctx.saved_tensors
        d_left = _apply(_Mix, grad, right, source, target, len(left)) if ctx.needs_input_grad[0] else None
        d_right = _apply(_Mix, grad, left, target, source, len(right)) if ctx.needs_input_grad[1] else None
        return d_left, d_right, None, None


def _surely_finite(values: Tensor) -> bool:
    """Whether all values are known to be finite."""
    return is_readable(values) and math.isfinite(values.sum().item())


# Numbers per piece of an edge-by-head-by-dim tensor: what fits a core's cache, or fills a GPU.
_PIECE_ON_CPU = 2**17
_PIECE_ON_GPU = 2**26


def _pieces(edges: int, row: Tensor, at_least: int = 1) -> Iterator[slice]:
    room = _PIECE_ON_CPU if row.device.type == "cpu" else _PIECE_ON_GPU
    length = max(room // max(row.numel(), 1), at_least, 1)
    for start in range(0, max(edges, 1), length):
        yield slice(start, min(start + length, edges))


def _apply(function: type[Function], *inputs: Tensor | float) -> Tensor:
    if torch.compiler.is_compiling() or in_transform():
        output: Tensor = function.apply(*inputs)  # type: ignore[no-untyped-call]
    else:  # without the search for default arguments in `Function.apply`, which a small graph would notice
        output = super(Function, function).apply(*inputs)  # type: ignore[misc]
    return output


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _identity(weights: Tensor) -> Tensor:
    return weights


def _choose(weights: Tensor, heads: Sequence[int] | None) -> Tensor:
    if heads is None:
        return weights
    count = weights.shape[1]
    for head in heads:
        if not -count <= head < count:
            raise ArgumentError(f"heads names head {head}, but there are {count} heads, 0 to {count - 1}")
    return weights[:, list(heads)]
