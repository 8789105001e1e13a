"""Graph attention on a GPU: the Triton kernels as PyTorch operators, for autograd and torch.compile.

Importing this module imports Triton.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from jumok.errors import BackendError
from jumok.graphs import gpu_gat_kernels, gpu_gatv2_kernels
from jumok.graphs.edges import Adjacency, SortedEdges

ORDER = len(Adjacency._fields)
MIX: dict[str, Any] = {"rows": 32, "apart": False, "registers": 64}
SOURCE: dict[str, Any] = {"rows": 32, "apart": False}
MIX_V2: dict[str, Any] = {"rows": 16, "apart": False}
SOURCE_V2: dict[str, Any] = {"rows": 8, "apart": True}
TARGET_V2: dict[str, Any] = {"rows": 8, "apart": True}
"""What was fastest on an H200: rows read at once, how sums are kept (see gpu_tiles.py), and most registers."""


@torch.library.custom_op("jumok::graph_attention", mutates_args=())
def graph_attention(
    values: Tensor,
    vectors: Tensor | None,
    scores: Tensor | None,
    edge_scores: Tensor | None,
    orders: Sequence[Tensor],
    seed: Tensor | None,
    slope: float,
    loops: bool,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """GAT's mixed values; then, for the backward pass, what `rows` keeps, the part of positive scores in both, scores.

    Shapes: values [node, head, dim]; either vectors [source and target, head, dim], which give the scores, or the
    scores themselves [source and target, head, node]; perhaps edge_scores [edge (and node), head].
    """
    into = Adjacency(*orders[:ORDER])
    nodes, heads, dim = values.shape
    output: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] = _shapes(values, vectors)
    *kept, made = output
    if vectors is not None:
        block = _nodes_at_once(dim)
        gpu_gat_kernels.scores_kernel(
            (triton.cdiv(nodes, block), heads), values, vectors, made, nodes, HEADS=heads, DIM=dim,
            WIDTH=triton.next_power_of_2(dim), BLOCK=block,
        )  # fmt: skip
    _launch(
        gpu_gat_kernels.forward_kernel, into, values,
        values, made if scores is None else scores, _or(_by_head(edge_scores, into), values), *into,
        _or(seed, values), *kept, nodes, len(into.others), _length(edge_scores),
        **MIX, SLOPE=slope, DROPOUT=dropout, LOOPS=loops, SCORED=edge_scores is not None,
    )  # fmt: skip
    return output


@graph_attention.register_fake
def _shapes(values: Tensor, vectors: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    nodes, heads, dim = values.shape

    def single(*shape: int) -> Tensor:
        return values.new_empty(shape, dtype=torch.float32)

    scores = single(0) if vectors is None else single(2, heads, nodes)
    return torch.empty_like(values), single(heads, nodes, 4), single(nodes, heads, dim), single(heads, nodes), scores


@torch.library.custom_op("jumok::graph_attention_backward", mutates_args=())
def graph_attention_backward(
    d_out: Tensor,
    values: Tensor,
    vectors: Tensor | None,
    scores: Tensor,
    edge_scores: Tensor | None,
    orders: Sequence[Tensor],
    seed: Tensor | None,
    kept: Sequence[Tensor],
    slope: float,
    loops: bool,
    dropout: float,
) -> list[Tensor]:
    """The gradients of values, of vectors or scores, and of edge scores if there are any."""
    nodes, heads, dim = values.shape
    out, rows, positive, share = kept
    out_of = Adjacency(*orders[ORDER:])
    rows, d_values = rows.clone(), torch.empty_like(values)
    d_scores = values.new_empty(2, heads, nodes, dtype=torch.float32)
    _deltas(d_out, out, rows, slope, positive, share, d_scores[1])
    by_head = _by_head(edge_scores, out_of)
    # A hidden edge is not written.
    d_by_head = values.new_empty(0) if by_head is None else torch.zeros_like(by_head)
    _launch(
        gpu_gat_kernels.source_kernel, out_of, values,
        d_out, values, _or(vectors, values), scores, _or(by_head, values), *out_of, _or(seed, values),
        rows.view(torch.int64), d_values, d_scores, d_by_head, nodes, len(out_of.others), _length(edge_scores),
        **SOURCE, SLOPE=slope, DROPOUT=dropout, LOOPS=loops, SCORED=edge_scores is not None,
        VECTORS=vectors is not None,
    )  # fmt: skip
    d_edge_scores = d_by_head if by_head is None else _as_given(d_by_head.mT, out_of)
    if vectors is None:
        return [d_values, d_scores, d_edge_scores]
    block = _nodes_at_once(dim)
    parts = min(triton.cdiv(nodes, block), 256)
    d_vectors = values.new_empty(parts, 2, heads, dim, dtype=torch.float32)
    gpu_gat_kernels.vector_gradients_kernel(
        (parts, heads), values, d_scores, d_vectors, nodes, HEADS=heads, DIM=dim,
        BLOCK_DIM=triton.next_power_of_2(dim), BLOCK=block,
    )  # fmt: skip
    return [d_values, d_vectors.sum(0).to(vectors.dtype), d_edge_scores]


@graph_attention_backward.register_fake
def _gradient_shapes(
    d_out: Tensor, values: Tensor, vectors: Any, scores: Any, edge_scores: Any, *_: Any
) -> list[Tensor]:
    of_edges = values.new_empty(0) if edge_scores is None else torch.empty_like(edge_scores)
    return [torch.empty_like(values), torch.empty_like(scores if vectors is None else vectors), of_edges]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    values, vectors, scores, edge_scores, orders, seed, *ctx.settings = inputs
    *kept, made = output
    ctx.save_for_backward(values, vectors, made if scores is None else scores, edge_scores, seed, *orders, *kept)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_out: Tensor | None, *_: None) -> tuple[Any, ...]:
    if d_out is None:  # what came after has no gradient
        return (None,) * 9
    _refuse_second_gradients()
    values, vectors, scores, edge_scores, seed, *rest = ctx.saved_tensors
    orders, kept = rest[: 2 * ORDER], rest[2 * ORDER :]
    d_values, second, d_edges = graph_attention_backward(
        d_out.contiguous(), values, vectors, scores, edge_scores, orders, seed, kept, *ctx.settings
    )
    d_vectors, d_scores = (None, second) if vectors is None else (second, None)
    of_edges = None if edge_scores is None else d_edges
    return d_values, d_vectors, d_scores, of_edges, [None] * len(orders), None, None, None, None


graph_attention.register_autograd(_gradients, setup_context=_keep)


@torch.library.custom_op("jumok::graph_attention_v2", mutates_args=())
def graph_attention_v2(
    values: Tensor,
    carried: Tensor | None,
    target: Tensor,
    vector: Tensor,
    features: Tensor | None,
    projection: Tensor | None,
    edge_index: Tensor,
    orders: Sequence[Tensor],
    seed: Tensor | None,
    slope: float,
    loops: bool,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """GATv2's mixed values, and what `rows` keeps for the backward pass.

    Shapes: values, target and perhaps carried [node, head, dim]; vector [head, dim]; perhaps features [edge (and node),
    edge_width] and projection [head, edge_width, dim].
    """
    into = Adjacency(*orders[:ORDER])
    out, rows = _shapes_v2(values)
    inputs = values, _or(carried, values), target, vector, _or(_sorted(features, into), values), _or(projection, values)
    _launch(
        gpu_gatv2_kernels.forward_kernel, into, values, *inputs, *into, _or(seed, values), out, rows,
        len(values), len(into.others), **MIX_V2, SLOPE=slope, DROPOUT=dropout, LOOPS=loops,
        CARRIED=carried is not None, EDGE_WIDTH=_width(features),
    )  # fmt: skip
    return out, rows


@graph_attention_v2.register_fake
def _shapes_v2(values: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    nodes, heads = values.shape[:2]
    return torch.empty_like(values), values.new_empty(heads, nodes, 2, dtype=torch.float32)


@torch.library.custom_op("jumok::graph_attention_v2_backward", mutates_args=())
def graph_attention_v2_backward(
    d_out: Tensor,
    values: Tensor,
    carried: Tensor | None,
    target: Tensor,
    vector: Tensor,
    features: Tensor | None,
    projection: Tensor | None,
    edge_index: Tensor,
    orders: Sequence[Tensor],
    seed: Tensor | None,
    kept: Sequence[Tensor],
    slope: float,
    loops: bool,
    dropout: float,
) -> list[Tensor]:
    """The gradients of values, target, vector, and of carried, features and projection if they are there."""
    nodes, heads, dim = values.shape
    into, out_of = Adjacency(*orders[:ORDER]), Adjacency(*orders[ORDER:])
    out, rows = kept[0], kept[1].clone()
    _deltas(d_out, out, rows, slope)
    rows = rows.view(torch.int64)
    d_values, d_target = torch.empty_like(values), torch.empty_like(target)
    d_vector = torch.empty(nodes, heads, dim, dtype=torch.float32, device=values.device)
    d_carried = values.new_empty(0) if carried is None else torch.empty_like(carried)
    common, projected = (d_out, values, _or(carried, values), target, vector), _or(projection, values)
    constants: dict[str, Any] = {
        "SLOPE": slope, "DROPOUT": dropout, "LOOPS": loops, "CARRIED": carried is not None,
        "EDGE_WIDTH": _width(features),
    }  # fmt: skip
    _launch(
        gpu_gatv2_kernels.source_kernel, out_of, values, *common, _or(_sorted(features, out_of), values), projected,
        *out_of, _or(seed, values), rows,
        d_values, d_carried, nodes, len(out_of.others), **SOURCE_V2, **constants,
    )  # fmt: skip
    _launch(
        gpu_gatv2_kernels.target_kernel, into, values, *common, _or(_sorted(features, into), values), projected,
        *into, _or(seed, values), rows,
        d_target, d_vector, nodes, len(into.others), **TARGET_V2, **constants,
    )  # fmt: skip
    of_edges = [values.new_empty(0), values.new_empty(0)]
    if features is not None and projection is not None:
        of_edges = _edge_gradients((*common, features, projection), edge_index, rows, seed, constants)
    of_vector = d_vector.view(nodes, -1).mT.mv(d_vector.new_ones(nodes)).view_as(vector)
    return [d_values, d_target, of_vector.to(vector.dtype), d_carried, *of_edges]


@graph_attention_v2_backward.register_fake
def _gradient_shapes_v2(
    d_out: Tensor, values: Tensor, carried: Any, target: Tensor, vector: Tensor, features: Any, projection: Any, *_: Any
) -> list[Tensor]:
    optional = [values.new_empty(0) if part is None else torch.empty_like(part) for part in (carried, features)]
    of_projection = values.new_empty(0) if projection is None else torch.empty_like(projection)
    return [torch.empty_like(values), torch.empty_like(target), torch.empty_like(vector), *optional, of_projection]


def _edge_gradients(
    inputs: tuple[Tensor, ...], edge_index: Tensor, rows: Tensor, seed: Tensor | None, constants: dict[str, Any]
) -> list[Tensor]:
    """The gradients of the edges' features and of their projection."""
    _, values, _, _, _, features, projection = inputs
    nodes, heads, dim = values.shape
    (count, width), edges = features.shape, edge_index.shape[1]
    source, target = edge_index
    looped = torch.zeros(nodes, dtype=torch.int32, device=values.device)
    if constants["LOOPS"]:
        looped = looped.index_add(0, target, (source == target).int())
    block, parts = 32, max(1, min(triton.cdiv(count, 32), 2048))
    each = triton.cdiv(triton.cdiv(count, parts), block) * block
    d_features = torch.empty(features.shape, dtype=torch.float32, device=values.device)
    d_projection = torch.empty(parts, *projection.shape, dtype=torch.float32, device=values.device)
    gpu_gatv2_kernels.edge_kernel(
        (parts,), *inputs, source.contiguous(), target.contiguous(), looped, _or(seed, values), rows,
        d_features, d_projection, nodes, edges, count, each, HEADS=heads, DIM=dim, **constants,
        BLOCK_DIM=max(16, triton.next_power_of_2(dim)), BLOCK_WIDTH=max(16, triton.next_power_of_2(width)),
        BLOCK=block, warps=4,
    )  # fmt: skip
    return [d_features.to(features.dtype), d_projection.sum(0).to(projection.dtype)]


def _keep_v2(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, orders, seed, slope, loops, dropout = inputs
    ctx.settings = slope, loops, dropout
    ctx.save_for_backward(*tensors, seed, *orders, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradients_v2(ctx: Any, d_out: Tensor | None, *_: None) -> tuple[Any, ...]:
    if d_out is None:
        return (None,) * 12
    _refuse_second_gradients()
    *tensors, seed = ctx.saved_tensors[:8]
    rest = ctx.saved_tensors[8:]
    orders, kept = rest[: 2 * ORDER], rest[2 * ORDER :]
    d_values, d_target, d_vector, d_carried, d_features, d_projection = graph_attention_v2_backward(
        d_out.contiguous(), *tensors, orders, seed, kept, *ctx.settings
    )
    _, carried, _, _, features, _, _ = tensors
    of_carried = None if carried is None else d_carried
    of_edges = (None, None) if features is None else (d_features, d_projection)
    nothing = None, [None] * len(orders), None, None, None, None
    return d_values, of_carried, d_target, d_vector, *of_edges, *nothing


graph_attention_v2.register_autograd(_gradients_v2, setup_context=_keep_v2)


def static_attention(
    values: Tensor, vectors: Tensor | None, scores: Tensor | None, edge_scores: Tensor | None, edges: SortedEdges, *,
    slope: float, loops: bool, dropout: float,
) -> Tensor:  # fmt: skip
    """GAT: Σ softmax(LeakyReLU(source_j + target_i + edge)) values_j.

    The scores, source and target, are those of the values with both vectors [2, head, dim], or given [2, head, node].
    """
    given = [None if part is None else part.float().contiguous() for part in (scores, edge_scores)]
    out: Tensor = graph_attention(
        values.contiguous(), None if vectors is None else vectors.contiguous(), *given, [*edges.into, *edges.out_of],
        _seed(values, dropout), slope, loops, dropout,
    )[0]  # fmt: skip
    return out


def dynamic_attention(
    values: Tensor, carried: Tensor | None, target: Tensor, vector: Tensor, features: Tensor | None,
    projection: Tensor | None, edges: SortedEdges, *, slope: float, loops: bool, dropout: float,
) -> Tensor:  # fmt: skip
    """GATv2: Σ softmax(vector · LeakyReLU(values_j + target_i + projection f)) carried_j, or values_j."""
    parts = values, carried, target, vector, features, projection
    together = [None if part is None else part.contiguous() for part in parts]
    out: Tensor = graph_attention_v2(
        *together, edges.edge_index, [*edges.into, *edges.out_of], _seed(values, dropout), slope, loops, dropout
    )[0]
    return out


def _launch(
    kernel: Any, order: Adjacency, values: Tensor, *arguments: Any, rows: int, apart: bool, registers: int | None =
    None,
    **constants: Any,
) -> None:  # fmt: skip
    """A program for every node and head, then larger ones for the nodes with very many edges, if there may be any.

    A small program reads `rows` rows of 32 numbers at once, or fewer of longer ones.
    """
    nodes, heads, dim = values.shape
    width = triton.next_power_of_2(dim)
    block = max(1, min(32, 32 * rows // width))
    constants |= {"HEADS": heads, "DIM": dim, "WIDTH": width, "APART": apart}
    kernel(
        (nodes, heads),
        *arguments,
        **constants,
        LONG=False,
        BLOCK=block,
        warps=1,
        registers=registers if width == 32 else None,
    )
    if len(order.long) > 1:
        programs, block = min(len(order.long) - 1, 64), max(8, min(256, 2048 // width))
        kernel((programs, heads), *arguments, **constants, LONG=True, BLOCK=block, warps=8)


def _deltas(d_out: Tensor, out: Tensor, rows: Tensor, slope: float, *static: Tensor) -> None:
    """Write δ into `rows`; for GAT also the gradients of the targets' scores, from `static`."""
    nodes, heads, dim = out.shape
    positive, share, d_target = static or (rows, rows, rows)
    block = _nodes_at_once(dim)
    gpu_gat_kernels.delta_kernel(
        (triton.cdiv(nodes, block), heads), d_out, out, positive, share, rows, d_target, nodes,
        HEADS=heads, DIM=dim, SLOPE=slope, COLUMNS=rows.shape[2], DYNAMIC=not static,
        BLOCK_DIM=triton.next_power_of_2(dim), BLOCK=block,
    )  # fmt: skip


def _nodes_at_once(dim: int) -> int:
    return max(1, 1024 // int(triton.next_power_of_2(dim)))


def _refuse_second_gradients() -> None:
    if torch.is_grad_enabled():  # a second gradient is requested
        raise BackendError("fused graph attention has no second gradient; run the layer on a CPU or in float64")


def _seed(values: Tensor, dropout: float) -> Tensor | None:
    return torch.randint(2**31, (1,), device=values.device) if dropout else None


def _sorted(rows: Tensor | None, order: Adjacency) -> Tensor | None:
    """Rows of edges in an order, then those of loops: read so, they lie side by side."""
    if rows is None:
        return None
    edges = len(order.edges)
    return torch.cat([rows[:edges].index_select(0, order.edges), rows[edges:]])


def _by_head(scores: Tensor | None, order: Adjacency) -> Tensor | None:
    """Scores of edges (and loops) [head, edge], in an order."""
    rows = _sorted(scores, order)
    return None if rows is None else rows.mT.contiguous()


def _as_given(rows: Tensor, order: Adjacency) -> Tensor:
    """The inverse of `_sorted`."""
    edges, restored = len(order.edges), torch.empty_like(rows, memory_format=torch.contiguous_format)
    restored[:edges].index_copy_(0, order.edges.long(), rows[:edges])
    restored[edges:] = rows[edges:]
    return restored


def _length(rows: Tensor | None) -> int:
    return 0 if rows is None else len(rows)


def _width(features: Tensor | None) -> int:
    return 0 if features is None else int(features.shape[1])


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A kernel needs a pointer in any case; it does not read this one."""
    return other if tensor is None else tensor
