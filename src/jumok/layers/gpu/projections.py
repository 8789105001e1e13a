"""Linear projections of Transformer layers in training: one kernel casts all weights, and gradients need no cast.

`lower` copies the weights of many projections into the precision of matrix products, those that read the same vectors
into one matrix. The operators take these copies and the weights themselves, for which they have gradients in the
precision of the weights: products write them in single precision. Importing this module imports Triton.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from jumok.layers.gpu import transformer
from jumok.layers.gpu.transformer import activation_backward, column_sums


class Projections(NamedTuple):
    """Linear projections of the same vectors, and their weights and biases in the precision of products, stacked."""

    layers: tuple[nn.Linear, ...]
    weight: Float[Tensor, "out width"]
    bias: Float[Tensor, " out"]

    @property
    def parameters(self) -> list[Tensor]:
        """Weights, then biases."""
        return [layer.weight for layer in self.layers] + [layer.bias for layer in self.layers]

    @property
    def sizes(self) -> list[int]:
        """Outputs of each projection."""
        return [layer.out_features for layer in self.layers]


@torch.no_grad()
def lower(groups: Sequence[Sequence[nn.Linear]], dtype: torch.dtype) -> list[Projections]:
    """Every group as one matrix of this precision, by one kernel for all."""
    projections, rooms, weights = [], [], []
    for layers in groups:
        first = layers[0].weight
        sizes = [layer.out_features for layer in layers]
        weight, bias = (
            first.new_empty(sum(sizes), first.shape[1], dtype=dtype),
            first.new_empty(sum(sizes), dtype=dtype),
        )
        projections.append(Projections(tuple(layers), weight, bias))
        rooms += [*torch.split(weight, sizes), *torch.split(bias, sizes)]
        weights += projections[-1].parameters
    torch._foreach_copy_(rooms, weights)
    return projections


def project(x: Float[Tensor, "batch time width"], projections: Projections) -> list[Float[Tensor, "batch time out"]]:
    """x Wᵀ + b of every projection; where a kernel leaves the gradients of all side by side, they are not copied."""
    rows = x.flatten(0, -2).to(projections.weight.dtype)
    parts = _Project.apply(rows, projections.weight, projections.bias, projections.sizes, *projections.parameters)  # type: ignore[no-untyped-call]
    return [part.view(*x.shape[:-1], -1) for part in parts]


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        ctx.sizes, ctx.dtype = sizes, parameters[0].dtype
        return torch.split(torch.addmm(bias, x, weight.t()), sizes, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_parts: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_out = side_by_side(d_parts)
        d_weight, d_bias = weight_gradient(d_out, x, ctx.dtype), column_sums(d_out, ctx.dtype)
        parts = (*torch.split(d_weight, ctx.sizes), *torch.split(d_bias, ctx.sizes))
        return d_out @ weight, None, None, None, *parts


def project_without_bias(
    x: Float[Tensor, "batch time width"], projections: Projections
) -> Float[Tensor, "batch time out"]:
    """x Wᵀ of one projection without its bias."""
    (layer,) = projections.layers
    out: Tensor = _ProjectWithoutBias.apply(
        x.flatten(0, -2).to(projections.weight.dtype), projections.weight, layer.weight
    )  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


class _ProjectWithoutBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, parameter: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dtype = parameter.dtype
        return x @ weight.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return d_out @ weight, None, weight_gradient(d_out, x, ctx.dtype)


def project_and_activate(
    x: Float[Tensor, "batch time width"], projections: Projections, activation: str
) -> Float[Tensor, "batch time hidden"]:
    """activation(x Wᵀ + b) of one projection, for "relu", "gelu" and "silu"."""
    rows = x.flatten(0, -2).to(projections.weight.dtype)
    out: Tensor = _ProjectAndActivate.apply(
        rows, projections.weight, projections.bias, activation, *projections.parameters
    )  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


class _ProjectAndActivate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, activation: str, *parameters: Tensor) -> Tensor:
        out, saved = transformer.linear_activation(x, weight, bias, activation)
        ctx.save_for_backward(x, weight, saved)
        ctx.activation, ctx.dtype = activation, parameters[0].dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, saved = ctx.saved_tensors
        d_hidden, d_bias = activation_backward(d_out, saved, ctx.activation, ctx.dtype)
        return d_hidden @ weight, None, None, None, weight_gradient(d_hidden, x, ctx.dtype), d_bias


def weight_gradient(
    d_out: Float[Tensor, "row out"], x: Float[Tensor, "row width"], dtype: torch.dtype
) -> Float[Tensor, "out width"]:
    """d_outᵀ x; on a GPU the product itself writes single precision."""
    if d_out.is_cuda and dtype == torch.float32 and d_out.dtype in (torch.bfloat16, torch.float16):
        return torch.ops.aten.mm.dtype(d_out.t(), x, dtype)  # type: ignore[no-any-return]
    return (d_out.t() @ x).to(dtype)


def side_by_side(parts: tuple[Tensor, ...]) -> Float[Tensor, "row width"]:
    """Parts [row, _] in one contiguous matrix; no copy if they already lie so in memory."""
    first, width, offset = parts[0], sum(part.shape[1] for part in parts), parts[0].storage_offset()
    for part in parts:
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not same or part.stride() != (width, 1) or part.storage_offset() != offset or part.dtype != first.dtype:
            return torch.cat(parts, 1)
        offset += part.shape[1]
    return first.as_strided((len(first), width), (width, 1), first.storage_offset())
