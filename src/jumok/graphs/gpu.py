"""Graph attention on a GPU: the Triton kernels as PyTorch operators, for autograd and torch.compile.

Importing this module imports Triton.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from jumok.errors import BackendError
from jumok.graphs import gpu_kernels
from jumok.graphs.edges import Adjacency, SortedEdges


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
    """The mixed values; log-sum-exp and score of every node and head; for GAT the part of positive scores in both.

    Shapes: values [node, head, dim]; for GAT source and target [head, node] and perhaps edge_scores [edge (and node),
    head]; for GATv2 target [node, head, dim] and vector [head, dim].
    """
    nodes, heads, dim = values.shape
    output: tuple[Tensor, Tensor, Tensor, Tensor] = _shapes(values, source, target, vector)
    into = Adjacency(*orders[:3])
    gpu_kernels.forward_kernel(
        (nodes, heads), values, _or(source, target), target, _or(vector, target), _or(edge_scores, target),
        *into, _or(seed, target), *output, nodes, len(into.others),
        HEADS=heads, DIM=dim, SLOPE=slope, DROPOUT=dropout, LOOPS=loops, DYNAMIC=vector is not None,
        SCORED=edge_scores is not None, **tiling(dim, 32 if vector is None else 16),
    )  # fmt: skip
    return output


@graph_attention.register_fake
def _shapes(values: Tensor, source: Any, target: Tensor, vector: Any, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    nodes, heads, dim = values.shape
    static = vector is None
    rows = values.new_empty(heads, nodes, 4, dtype=torch.float32)
    positive = values.new_empty((nodes, heads, dim) if static else 0, dtype=torch.float32)
    share = values.new_empty((heads, nodes) if static else 0, dtype=torch.float32)
    return torch.empty_like(values), rows, positive, share


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
    out, rows, positive, share = kept
    into, out_of = Adjacency(*orders[:3]), Adjacency(*orders[3:])
    constants: dict[str, Any] = {"HEADS": heads, "DIM": dim, "SLOPE": slope}
    rows, d_target, d_values = rows.clone(), torch.empty_like(target), torch.empty_like(values)
    block = max(1, 1024 // triton.next_power_of_2(dim))
    gpu_kernels.delta_kernel(
        (triton.cdiv(nodes, block), heads), d_out, out, positive, share, rows, d_target, nodes,
        **constants, DYNAMIC=vector is not None, BLOCK_DIM=triton.next_power_of_2(dim), BLOCK=block,
    )  # fmt: skip
    constants |= {"LOOPS": loops, "DROPOUT": dropout}
    sizes = nodes, len(into.others)
    if vector is None:
        assert source is not None
        d_source = torch.empty_like(source)
        # A hidden edge is not written.
        d_scores = values.new_empty(0) if edge_scores is None else torch.zeros_like(edge_scores)
        gpu_kernels.source_gradients_kernel(
            (nodes, heads), d_out, values, source, _or(edge_scores, target), *out_of, _or(seed, target), rows,
            d_values, d_source, d_scores, *sizes, **constants, SCORED=edge_scores is not None, **tiling(dim, 16),
        )  # fmt: skip
        return [d_values, d_source, d_target, d_scores]
    d_vector = torch.empty(nodes, heads, dim, dtype=torch.float32, device=values.device)
    inputs = d_out, values, target, vector
    gpu_kernels.dynamic_source_kernel(
        (nodes, heads),
        *inputs,
        *out_of,
        _or(seed, target),
        rows,
        d_values,
        *sizes,
        **constants,
        **tiling(dim, 8),
    )
    gpu_kernels.dynamic_target_kernel(
        (nodes, heads), *inputs, *into, _or(seed, target), rows, d_target, d_vector, *sizes, **constants,
        **tiling(dim, 8),
    )  # fmt: skip
    return [d_values, d_vector.sum(0).to(vector.dtype), d_target, values.new_empty(0)]


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


def static_attention(
    values: Tensor, source: Tensor, target: Tensor, edge_scores: Tensor | None, edges: SortedEdges, **settings: Any
) -> Tensor:
    """GAT: Σ softmax(LeakyReLU(source_j + target_i + edge)) values_j, source and target [node, head]."""
    source, target = (scores.float().t().contiguous() for scores in (source, target))
    scores = None if edge_scores is None else edge_scores.float().contiguous()
    return _run(values, source, target, None, scores, edges, **settings)


def dynamic_attention(values: Tensor, target: Tensor, vector: Tensor, edges: SortedEdges, **settings: Any) -> Tensor:
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


def tiling(dim: int, numbers: int) -> dict[str, Any]:
    """Neighbours a program reads at a time, and its warps; each thread holds `numbers` numbers of a tile."""
    width = triton.next_power_of_2(dim)
    block = min(numbers, max(1, 32 * numbers // width))
    return {"BLOCK_DIM": width, "BLOCK": block, "warps": max(1, min(4, width * block // (32 * numbers)))}


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A kernel needs a pointer in any case; it does not read this one."""
    return other if tensor is None else tensor
