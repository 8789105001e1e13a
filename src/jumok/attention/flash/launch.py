"""Launches of the flash attention kernels: shapes, strides and tile sizes."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from jumok.attention.flash.backward_kernels import key_gradient_kernel, query_gradient_kernel
from jumok.attention.flash.forward_kernels import forward_kernel


@dataclass(frozen=True)
class Shape:
    """The tile of one program, and how it is compiled."""

    rows: int
    cols: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Shapes:
    """The tiles of the three kernels."""

    forward: Shape
    query: Shape
    key: Shape


LONG = Shapes(Shape(128, 64, 4, 3), Shape(128, 64, 8, 2), Shape(64, 128, 8, 2))
SHORT = Shapes(Shape(64, 64, 4, 2), Shape(64, 64, 4, 2), Shape(64, 64, 4, 2))
WIDE = Shapes(Shape(128, 64, 8, 2), Shape(64, 64, 8, 2), Shape(64, 64, 8, 2))
FULL = Shapes(Shape(64, 32, 4, 2), Shape(32, 32, 4, 1), Shape(32, 32, 4, 1))
TINY = Shapes(Shape(16, 16, 4, 1), Shape(16, 16, 4, 1), Shape(16, 16, 4, 1))


def shapes_for(query: Tensor, key: Tensor, value: Tensor) -> Shapes:
    """Measured on an H200: large tiles for long sequences of narrow heads."""
    widest, longest = max(query.shape[-1], value.shape[-1]), max(query.shape[-2], key.shape[-2])
    if query.element_size() > 2:
        return FULL
    if widest > 64:
        return WIDE
    return SHORT if longest <= 128 else LONG


@dataclass(frozen=True)
class Options:
    """What is not a tensor: the band, the scale, dropout, and whether NaN behind the mask is kept in its place."""

    low: int | None
    high: int | None
    scale: float
    dropout: float
    exact: bool


Masks = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
"""Key lengths, query lengths, segments and a boolean tensor."""


def forward(
    query: Tensor, key: Tensor, value: Tensor, masks: Masks, seed: Tensor | None, options: Options,
    shapes: Shapes | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The values [batch, head, query, value_dim], and the log-sum-exp [batch, head, query] to base 2."""
    query, key, value = (with_unit_step(tensor) for tensor in (query, key, value))
    out, lse = results(query, value)
    shape = (shapes or shapes_for(query, key, value)).forward
    batches, heads, queries, _ = query.shape
    forward_kernel(
        (triton.cdiv(queries, shape.rows), batches * heads),
        query, key, value, out, lse, *stand_ins(masks, seed, lse), *strides(query, key, value, out),
        *mask_strides(masks), *sizes(query, key, options), **constants(query, value, masks, options, shape),
        warps=shape.warps, stages=shape.stages,
    )  # fmt: skip
    return out, lse


def backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, masks: Masks,
    seed: Tensor | None, options: Options, shapes: Shapes | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of query, key and value."""
    query, key, value, d_out = (with_unit_step(tensor) for tensor in (query, key, value, d_out))
    d_query, d_key, d_value = (empty_like(tensor, tensor.shape[-1]) for tensor in (query, key, value))
    delta = torch.empty_like(lse)
    chosen = shapes or shapes_for(query, key, value)
    (batches, heads, queries, _), keys = query.shape, key.shape[2]
    query_gradient_kernel(
        (triton.cdiv(queries, chosen.query.rows), batches * heads),
        query, key, value, out, d_out, lse, delta, d_query, *stand_ins(masks, seed, lse),
        *strides(query, key, value, out, d_out, d_query), *mask_strides(masks), *sizes(query, key, options),
        **constants(query, value, masks, options, chosen.query), warps=chosen.query.warps, stages=chosen.query.stages,
    )  # fmt: skip
    key_gradient_kernel(
        (triton.cdiv(keys, chosen.key.cols), batches * heads),
        query, key, value, d_out, lse, delta, d_key, d_value, *stand_ins(masks, seed, lse),
        *strides(query, key, value, d_out, d_key, d_value), *mask_strides(masks), *sizes(query, key, options),
        **constants(query, value, masks, options, chosen.key), warps=chosen.key.warps, stages=chosen.key.stages,
    )  # fmt: skip
    return d_query, d_key, d_value


def results(query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the values and the log-sum-exp."""
    return empty_like(query, value.shape[-1]), query.new_empty(query.shape[:-1], dtype=torch.float32)


def empty_like(tensor: Tensor, dim: int) -> Tensor:
    """[batch, head, time, dim] in the order of memory of `tensor`: heads are joined without a copy afterwards."""
    batch, heads, time, _ = tensor.shape
    if heads > 1 and 0 < tensor.stride(1) < tensor.stride(2):
        return tensor.new_empty(batch, time, heads, dim).transpose(1, 2)
    return tensor.new_empty(batch, heads, time, dim)


def with_unit_step(tensor: Tensor) -> Tensor:
    """The tensor with its last axis contiguous in memory."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def strides(*tensors: Tensor) -> list[int]:
    """Steps along batch, head and time of every tensor."""
    return [step for tensor in tensors for step in tensor.stride()[:3]]


def stand_ins(masks: Masks, seed: Tensor | None, other: Tensor) -> list[Tensor]:
    """The tensors of the mask and the seed as kernel arguments, `other` where there is none."""
    lengths, query_lengths, segments, mask = masks
    given = (lengths, query_lengths, segments, None if mask is None else mask.view(torch.uint8), seed)
    return [other if tensor is None else tensor for tensor in given]


def mask_strides(masks: Masks) -> list[int]:
    """Steps along [batch, head] of lengths and [batch, head, row, key] of the mask; 0 along axes of size 1."""
    lengths, query_lengths, _, mask = masks
    return [
        *(_steps(lengths) or (0, 0)),
        *(_steps(query_lengths) or (0, 0)),
        *(_steps(mask) or (0, 0, 0, 0)),
    ]


def _steps(tensor: Tensor | None) -> tuple[int, ...]:
    if tensor is None:
        return ()
    return tuple(0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def sizes(query: Tensor, key: Tensor, options: Options) -> tuple[int, ...]:
    """Heads, queries, keys and the band; positions beyond all keys where there is no limit."""
    return query.shape[1], query.shape[2], key.shape[2], options.low or 0, options.high or 0


def constants(query: Tensor, value: Tensor, masks: Masks, options: Options, shape: Shape) -> dict[str, Any]:
    """What the kernels are compiled for."""
    lengths, query_lengths, segments, mask = masks
    dim, value_dim = query.shape[-1], value.shape[-1]
    return {
        "SCALE": options.scale,
        "DIM": dim,
        "VALUE_DIM": value_dim,
        "BLOCK_DIM": max(16, triton.next_power_of_2(dim)),
        "BLOCK_VALUE_DIM": max(16, triton.next_power_of_2(value_dim)),
        "ROWS": shape.rows,
        "COLS": shape.cols,
        "LOW": options.low is not None,
        "HIGH": options.high is not None,
        "KEY_LENGTHS": lengths is not None,
        "QUERY_LENGTHS": query_lengths is not None,
        "SEGMENTS": segments is not None,
        "MASK": 0 if mask is None else 1 if mask.shape[2] == 1 else 2,
        "DROPOUT": options.dropout,
        "PRECISION": "ieee" if query.dtype == torch.float32 else "tf32",
        "EXACT": options.exact,
    }
