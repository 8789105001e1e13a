"""Launches of the flash attention kernels: shapes, strides and tile sizes."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jumok.attention.flash.backward_kernels import bias_gradient_kernel, key_gradient_kernel, query_gradient_kernel
from jumok.attention.flash.forward_kernels import forward_kernel
from jumok.attention.flash.short_kernels import short_gradient_kernel
from jumok.attention.triton_launch import Bound


@dataclass(frozen=True)
class KernelTile:
    """The tile of one program, and how it is compiled."""

    rows: int
    cols: int
    warps: int
    stages: int
    registers: int | None = None
    """The most registers of a thread; None leaves it to the compiler."""


@dataclass(frozen=True)
class Shapes:
    """The tiles of the kernels."""

    forward: KernelTile
    query: KernelTile
    key: KernelTile
    bias: KernelTile = KernelTile(32, 32, 4, 1)


LONG = Shapes(KernelTile(64, 64, 4, 3), KernelTile(64, 64, 4, 3, 168), KernelTile(32, 64, 4, 3, 168))
SHORT = Shapes(KernelTile(64, 64, 4, 2), KernelTile(64, 64, 4, 2), KernelTile(64, 64, 4, 2))
WIDE = Shapes(KernelTile(128, 64, 8, 2), KernelTile(64, 64, 8, 2), KernelTile(64, 64, 8, 2))
FULL = Shapes(KernelTile(64, 32, 4, 2), KernelTile(32, 32, 4, 1), KernelTile(32, 32, 4, 1))
TINY = Shapes(KernelTile(16, 16, 4, 1), KernelTile(16, 16, 4, 1), KernelTile(16, 16, 4, 1))


def shapes_for(query: Tensor, key: Tensor, value: Tensor) -> Shapes:
    """Measured on an H200: large tiles for long sequences of narrow heads."""
    widest, longest = max(query.shape[-1], value.shape[-1]), max(query.shape[-2], key.shape[-2])
    if query.element_size() > 2:
        return FULL
    if widest > 64:
        return WIDE
    return SHORT if longest <= 128 else LONG


def short_shape(query: Tensor, key: Tensor, value: Tensor) -> KernelTile | None:
    """The tile that holds a whole head, for half precision; None if the head is too large for one."""
    widest, longest = max(query.shape[-1], value.shape[-1]), max(query.shape[-2], key.shape[-2])
    if query.element_size() > 2 or widest > 64 or longest > SHORTEST:
        return None
    rows, cols = (max(16, 1 << (time - 1).bit_length()) for time in (query.shape[-2], key.shape[-2]))
    return KernelTile(rows, cols, 4, 1)


SHORTEST = 64
"""The longest sequence whose gradients one program computes at once."""


class Extras(NamedTuple):
    """The tensors of masks and scores, if any, with leading axes [batch, head], of size 1 where entries share."""

    key_lengths: Tensor | None = None
    query_lengths: Tensor | None = None
    query_ends: Tensor | None = None
    """Cumulative lengths of packed sequences, [sequence], int32."""
    key_ends: Tensor | None = None
    mask: Tensor | None = None
    bias: Tensor | None = None
    slopes: Tensor | None = None
    sinks: Tensor | None = None
    seed: Tensor | None = None


class FlashOptions(NamedTuple):
    """What is not a tensor."""

    low: int | None
    """The first key that row 0 sees; it moves on with the rows. None for no limit, as for `high`."""
    high: int | None
    """The first key beyond those that row 0 sees."""
    shift: int
    """The position of row 0 among the keys, for slopes."""
    scale: float
    soft_cap: float
    """The limit of |score|; 0 for none."""
    dropout: float
    exact: bool
    """Whether numbers that are not finite are kept from the rows that do not see them."""


NOTHING = Extras()
MOST = 10_000
"""Maximum number of remembered launches."""

_forward_launches: dict[Any, Bound] = {}
_backward_launches: dict[Any, tuple[Bound, ...]] = {}


def forward(
    query: Tensor, key: Tensor, value: Tensor, extras: Extras, options: FlashOptions, shapes: Shapes | None = None
) -> tuple[Tensor, Tensor]:
    """The values [batch, head, query, value_dim], and the log-sum-exp [batch, head, query] to base 2."""
    query, key, value = with_unit_step(query), with_unit_step(key), with_unit_step(value)
    out, lse = results(query, value)
    signature = (*layout(query, key, value), kinds(extras), options, shapes)
    launch = _forward_launches.get(signature)
    if launch is None:
        shape = (shapes or shapes_for(query, key, value)).forward
        batches, heads, queries, _ = query.shape
        numbers = [*strides(query, key, value, out), *steps(extras), *sizes(query, key, extras, options)]
        constant = constants(query, value, extras, options, shape)
        grid = (-(-queries // shape.rows) * batches * heads,)  # one axis: the others end at 65,535 programs
        launch = Bound(forward_kernel, grid, numbers, constant)
        store_launch(_forward_launches, signature, launch)
    if extras is NOTHING:
        launch(query, key, value, out, lse, last=1 + len(extras))
    else:
        launch(query, key, value, out, lse, *pointers(extras, lse))
    return out, lse


def backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, extras: Extras, out: Tensor, lse: Tensor,
    options: FlashOptions, shapes: Shapes | None = None, *, joint: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of query, key and value, and δ; the gradients may share memory if `joint`."""
    query, key, value, d_out = (
        with_unit_step(query), with_unit_step(key), with_unit_step(value), with_unit_step(d_out)
    )  # fmt: skip
    d_query, d_key, d_value = gradient_room(query, key, value, joint)
    delta = torch.empty_like(lse)
    steps_of_gradients = (d_query.stride(), d_key.stride(), d_value.stride())
    signature = (
        *layout(query, key, value), d_out.stride(), out.stride(), *steps_of_gradients, kinds(extras), options, shapes
    )  # fmt: skip
    launches = _backward_launches.get(signature)
    if launches is None:
        chosen = shapes or shapes_for(query, key, value)
        (batches, heads, queries, _), keys = query.shape, key.shape[2]
        more = [*steps(extras), *sizes(query, key, extras, options)]
        short = None if shapes else short_shape(query, key, value)
        by_row, by_key = (constants(query, value, extras, options, shape) for shape in (chosen.query, chosen.key))
        launches = (
            Bound(
                query_gradient_kernel, (-(-queries // chosen.query.rows) * batches * heads,),
                [*strides(query, key, value, out, d_out, d_query), *more], by_row,
            ),
            Bound(
                key_gradient_kernel, (-(-keys // chosen.key.cols) * batches * heads,),
                [*strides(query, key, value, d_out, d_key, d_value), *more], by_key,
            ),
        )  # fmt: skip
        if short is not None:
            steps_of_all = strides(query, key, value, out, d_out, d_query, d_key, d_value)
            fixed = constants(query, value, extras, options, short)
            launches = (Bound(short_gradient_kernel, (batches * heads,), [*steps_of_all, *more], fixed),)
        store_launch(_backward_launches, signature, launches)
    others = pointers(extras, lse)
    if len(launches) == 1:
        launches[0](query, key, value, out, d_out, lse, delta, d_query, d_key, d_value, *others)
        return d_query, d_key, d_value, delta
    launches[0](query, key, value, out, d_out, lse, delta, d_query, *others)
    launches[1](query, key, value, d_out, lse, delta, d_key, d_value, *others)
    return d_query, d_key, d_value, delta


def layout(query: Tensor, key: Tensor, value: Tensor) -> tuple[Any, ...]:
    """All that launches depend on."""
    return (
        query.shape, query.stride(), key.shape, key.stride(), value.shape, value.stride(), query.dtype,
        query.get_device(),
    )  # fmt: skip


def kinds(extras: Extras) -> tuple[Any, ...] | None:
    """The same of the extra tensors; None if there are none."""
    if extras is NOTHING:
        return None
    return tuple(None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype) for tensor in extras)


def store_launch(launches: dict[Any, Any], signature: Any, launch: Any) -> None:
    """Keep a launch for calls of the same signature."""
    if len(launches) >= MOST:
        launches.clear()
    launches[signature] = launch


def bias_gradient(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, extras: Extras, lse: Tensor, delta: Tensor,
    options: FlashOptions, shapes: Shapes | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of the bias."""
    assert extras.bias is not None
    query, key, value, d_out = (with_unit_step(tensor) for tensor in (query, key, value, d_out))
    shape = (shapes or shapes_for(query, key, value)).bias
    (batches, heads, queries, _), keys = query.shape, key.shape[2]
    bias_batches, bias_heads = extras.bias.shape[:2]
    d_bias = query.new_empty(bias_batches, bias_heads, queries, keys, dtype=torch.float32)
    bias_gradient_kernel(
        (-(-queries // shape.rows), -(-keys // shape.cols), bias_batches * bias_heads),
        query, key, value, d_out, lse, delta, d_bias, *pointers(extras, lse), *strides(query, key, value, d_out),
        *steps(extras), *sizes(query, key, extras, options), bias_heads, batches // bias_batches, heads // bias_heads,
        **constants(query, value, extras, options, shape),
    )  # fmt: skip
    return d_bias.sum_to_size(extras.bias.shape).to(extras.bias.dtype)


def sink_gradient(extras: Extras, lse: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the sinks: a key with this score and a value of zeros."""
    assert extras.sinks is not None
    weights = (extras.sinks.float()[..., None] / math.log(2) - lse).exp2()
    changes = (weights * delta).masked_fill(lse.isnan(), 0).sum(-1)
    return -changes.sum_to_size(extras.sinks.shape).to(extras.sinks.dtype)


def results(query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the values and the log-sum-exp."""
    return empty_like(query, value.shape[-1]), query.new_empty(query.shape[:-1], dtype=torch.float32)


def empty_like(tensor: Tensor, dim: int) -> Tensor:
    """[batch, head, time, dim] in the order of memory of `tensor`: heads are joined without a copy afterwards."""
    batch, heads, time, _ = tensor.shape
    if heads > 1 and 0 < tensor.stride(1) < tensor.stride(2):
        return tensor.new_empty(batch, time, heads, dim).transpose(1, 2)
    return tensor.new_empty(batch, heads, time, dim)


def gradient_room(query: Tensor, key: Tensor, value: Tensor, joint: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients: if `joint`, side by side in one matrix where the three are so, from a single product."""
    batch, heads, time, dim = query.shape
    width = heads * dim
    stacked = (time * 3 * width, dim, 3 * width, 1)
    start, size = query.data_ptr(), width * query.element_size()
    if (
        joint
        and query.shape == key.shape == value.shape
        and query.stride() == key.stride() == value.stride() == stacked
        and (key.data_ptr(), value.data_ptr()) == (start + size, start + 2 * size)
    ):
        room = query.new_empty(batch, time, 3, heads, dim)
        return tuple(part.transpose(1, 2) for part in room.unbind(2))  # type: ignore[return-value]
    return tuple(empty_like(tensor, tensor.shape[-1]) for tensor in (query, key, value))  # type: ignore[return-value]


def with_unit_step(tensor: Tensor) -> Tensor:
    """The tensor with its last axis contiguous in memory."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def strides(*tensors: Tensor) -> list[int]:
    """Steps along batch, head and time of every tensor."""
    return [step for tensor in tensors for step in tensor.stride()[:3]]


def pointers(extras: Extras, other: Tensor) -> list[Tensor]:
    """The extra tensors as kernel arguments, `other` where there is none."""
    if extras is NOTHING:
        return [other] * len(extras)
    if extras.mask is not None:
        extras = extras._replace(mask=extras.mask.view(torch.uint8))
    return [other if tensor is None else tensor for tensor in extras]


def steps(extras: Extras) -> list[int]:
    """Steps along [batch, head] of lengths, slopes and sinks, along [batch, head, row, key] of mask and bias."""
    return [
        *_steps(extras.key_lengths, 2),
        *_steps(extras.query_lengths, 2),
        *_steps(extras.mask, 4),
        *_steps(extras.bias, 4),
        *_steps(extras.slopes, 2),
        *_steps(extras.sinks, 2),
    ]


def _steps(tensor: Tensor | None, axes: int) -> tuple[int, ...]:
    """Steps, 0 along axes of size 1."""
    if tensor is None:
        return (0,) * axes
    return tuple(0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def sizes(query: Tensor, key: Tensor, extras: Extras, options: FlashOptions) -> tuple[int, ...]:
    """Heads, queries, keys, packed sequences and positions."""
    sequences = 0 if extras.key_ends is None else len(extras.key_ends)
    return (
        query.shape[1], query.shape[2], key.shape[2], sequences, options.low or 0, options.high or 0, options.shift
    )  # fmt: skip


def constants(query: Tensor, value: Tensor, extras: Extras, options: FlashOptions, shape: KernelTile) -> dict[str, Any]:
    """What the kernels are compiled for, and how."""
    dim, value_dim, mask, ends = query.shape[-1], value.shape[-1], extras.mask, extras.key_ends
    return {
        "SCALE": options.scale,
        "DIM": dim,
        "VALUE_DIM": value_dim,
        "BLOCK_DIM": max(16, 1 << (dim - 1).bit_length()),
        "BLOCK_VALUE_DIM": max(16, 1 << (value_dim - 1).bit_length()),
        "ROWS": shape.rows,
        "COLS": shape.cols,
        "LOW": options.low is not None,
        "HIGH": options.high is not None,
        "KEY_LENGTHS": extras.key_lengths is not None,
        "QUERY_LENGTHS": extras.query_lengths is not None,
        "SEARCH": 0 if ends is None else len(ends).bit_length(),
        "MASK": 0 if mask is None else 1 if mask.shape[2] == 1 else 2,
        "SOFT_CAP": options.soft_cap,
        "SLOPES": extras.slopes is not None,
        "BIAS": extras.bias is not None,
        "SINKS": extras.sinks is not None,
        "DROPOUT": options.dropout,
        "PRECISION": "ieee" if query.dtype == torch.float32 else "tf32",
        "EXACT": options.exact,
        "warps": shape.warps,
        "stages": shape.stages,
        "registers": shape.registers,
    }
