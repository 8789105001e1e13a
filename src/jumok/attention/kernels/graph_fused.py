"""Fused graph attention as operators of PyTorch: what autograd and torch.compile see of the kernels.

Importing this module imports Triton.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from jumok.attention.edge_order import Adjacency, SortedEdges
from jumok.attention.kernels import graph_kernels
from jumok.errors import BackendError

NUMBERS_PER_THREAD = 32
"""Of a tile of neighbours × dim."""


@torch.library.custom_op("jumok::graph_attention", mutates_args=())
def graph_attention(
    values: Tensor,
    source: Tensor | None,
    target: Tensor,
    vector: Tensor | None,
    edge_scores: Tensor | None,
    orders: Sequence[Tensor],
    seed: Tensor | None,
    slope: float,
    loops: bool,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The values mixed; the log-sum-exp of every row; for GAT the part of edges with a positive score in both.

    Shapes: values [node, head, dim]; for GAT source and target [head, node] and perhaps edge_scores [edge (and node),
    head]; for GATv2 target [node, head, dim] and vector [head, dim].
    """
    nodes, heads, dim = values.shape
    out, dynamic = torch.empty_like(values), vector is not None
    lse = values.new_empty(heads, nodes, dtype=torch.float32)
    positive = values.new_empty(0 if dynamic else (nodes, heads, dim), dtype=torch.float32)
    share = values.new_empty(0 if dynamic else (heads, nodes), dtype=torch.float32)
    into = Adjacency(*orders[:3])
    graph_kernels.forward_kernel(
        (nodes, heads), values, _or(source, target), target, _or(vector, target), _or(edge_scores, target),
        *into, _or(seed, target), out, lse, positive, share, nodes, len(into.others),
        HEADS=heads, DIM=dim, SLOPE=slope, DROPOUT=dropout, LOOPS=loops, DYNAMIC=dynamic,
        SCORED=edge_scores is not None, KEEP=True, **tiling(dim),
    )  # fmt: skip
    return out, lse, positive, share


@graph_attention.register_fake
def _shapes(values: Tensor, source: Any, target: Tensor, vector: Any, *_: Any) -> tuple[Tensor, ...]:
    nodes, heads, dim = values.shape
    dynamic = vector is not None
    return (
        torch.empty_like(values),
        values.new_empty(heads, nodes, dtype=torch.float32),
        values.new_empty(0 if dynamic else (nodes, heads, dim), dtype=torch.float32),
        values.new_empty(0 if dynamic else (heads, nodes), dtype=torch.float32),
    )


@torch.library.custom_op("jumok::graph_attention_backward", mutates_args=())
def graph_attention_backward(
    d_out: Tensor,
    values: Tensor,
    source: Tensor | None,
    target: Tensor,
    vector: Tensor | None,
    edge_scores: Tensor | None,
    orders: Sequence[Tensor],
    seed: Tensor | None,
    kept: Sequence[Tensor],
    slope: float,
    loops: bool,
    dropout: float,
) -> list[Tensor]:
    """The gradients of values, source or vector, target and, if there are any, edge scores."""
    nodes, heads, dim = values.shape
    out, lse, positive, share = kept
    into, out_of = Adjacency(*orders[:3]), Adjacency(*orders[3:])
    dynamic = vector is not None
    common: dict[str, Any] = {"HEADS": heads, "DIM": dim, "SLOPE": slope}
    drop: dict[str, Any] = {"DROPOUT": dropout, "LOOPS": loops}
    delta, d_target = torch.empty_like(lse), torch.empty_like(target)
    rows = max(1, 1024 // triton.next_power_of_2(dim))
    graph_kernels.delta_kernel(
        (triton.cdiv(nodes, rows), heads), d_out, out, positive, share, delta, d_target, nodes,
        **common, DYNAMIC=dynamic, BLOCK_DIM=triton.next_power_of_2(dim), BLOCK=rows,
    )  # fmt: skip
    d_values, d_source = torch.empty_like(values), values.new_empty(0) if source is None else torch.empty_like(source)
    # A hidden edge is not written.
    d_scores = values.new_empty(0) if edge_scores is None else torch.zeros_like(edge_scores)
    graph_kernels.source_gradients_kernel(
        (nodes, heads), d_out, values, _or(source, target), target, _or(vector, target), _or(edge_scores, target),
        *out_of, _or(seed, target), lse, delta, d_values, d_source, d_scores, nodes, len(out_of.others),
        **common, **drop, DYNAMIC=dynamic, SCORED=edge_scores is not None, **tiling(dim),
    )  # fmt: skip
    if vector is None:
        return [d_values, d_source, d_target, d_scores]
    d_vector = values.new_empty(nodes, heads, dim, dtype=torch.float32)
    graph_kernels.target_gradients_kernel(
        (nodes, heads), d_out, values, target, vector, *into, _or(seed, target), lse, delta, d_target, d_vector,
        nodes, len(into.others), **common, **drop, **tiling(dim),
    )  # fmt: skip
    return [d_values, d_vector.sum(0).to(vector.dtype), d_target, d_scores]


@graph_attention_backward.register_fake
def _gradient_shapes(
    d_out: Tensor, values: Tensor, source: Any, target: Tensor, vector: Any, edge_scores: Any, *_: Any
) -> list[Tensor]:
    second = source if vector is None else vector
    none = values.new_empty(0) if edge_scores is None else torch.empty_like(edge_scores)
    return [torch.empty_like(values), torch.empty_like(second), torch.empty_like(target), none]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    values, source, target, vector, edge_scores, orders, seed, *ctx.settings = inputs
    ctx.save_for_backward(values, source, target, vector, edge_scores, seed, *orders, *output)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_out: Tensor | None, *_: None) -> tuple[Any, ...]:
    if d_out is None:  # what came after has no gradient
        return (None,) * 10
    values, source, target, vector, edge_scores, seed, *rest = ctx.saved_tensors
    if torch.is_grad_enabled():  # somebody wants the gradient of the gradient
        raise BackendError("fused graph attention has no second gradient; run the layer on a CPU or in float64")
    d_values, second, d_target, d_scores = graph_attention_backward(
        d_out.contiguous(), values, source, target, vector, edge_scores, rest[:6], seed, rest[6:], *ctx.settings
    )
    d_source, d_vector = (second, None) if vector is None else (None, second)
    d_edges = None if edge_scores is None else d_scores
    return d_values, d_source, d_target, d_vector, d_edges, [None] * 6, None, None, None, None


graph_attention.register_autograd(_gradients, setup_context=_keep)


def static(
    values: Tensor, source: Tensor, target: Tensor, edge_scores: Tensor | None, edges: SortedEdges, **settings: Any
) -> Tensor:
    """GAT: Σ softmax(LeakyReLU(source_j + target_i + edge)) values_j, source and target [node, head]."""
    source, target = (scores.float().t().contiguous() for scores in (source, target))
    scores = None if edge_scores is None else edge_scores.float().contiguous()
    return _run(values, source, target, None, scores, edges, **settings)


def dynamic(values: Tensor, target: Tensor, vector: Tensor, edges: SortedEdges, **settings: Any) -> Tensor:
    """GATv2: Σ softmax(vector · LeakyReLU(values_j + target_i)) values_j."""
    return _run(values, None, target.contiguous(), vector.contiguous(), None, edges, **settings)


def _run(
    values: Tensor,
    source: Tensor | None,
    target: Tensor,
    vector: Tensor | None,
    edge_scores: Tensor | None,
    edges: SortedEdges,
    *,
    slope: float,
    loops: bool,
    dropout: float,
) -> Tensor:
    seed = torch.randint(2**31, (1,), device=values.device) if dropout else None
    orders = [*edges.into, *edges.out_of]
    out: Tensor = graph_attention(
        values.contiguous(), source, target, vector, edge_scores, orders, seed, slope, loops, dropout
    )[0]
    return out


def tiling(dim: int) -> dict[str, Any]:
    """How many neighbours a program takes at a time, and its warps."""
    width = triton.next_power_of_2(dim)
    block = min(32, max(1, 32 * NUMBERS_PER_THREAD // width))
    warps = max(1, min(4, width * block // (32 * NUMBERS_PER_THREAD)))
    return {"BLOCK_DIM": width, "BLOCK": block, "warps": warps}


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A kernel takes a pointer in any case; it does not read this one."""
    return other if tensor is None else tensor
