"""Euclidean distances whose gradient has a gradient, which PyTorch's own lacks."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import transforms

_DIFFERENCES = "donot_use_mm_for_euclid_dist"
"""‖q‖² + ‖k‖² − 2 q·k would round small distances away."""


def euclidean(
    query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
) -> Float[Tensor, "*lead query key"]:
    """‖q − k‖ of every query with every key."""
    needs_gradient = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    if not needs_gradient or torch.compiler.is_compiling() or transforms.at_work():
        return torch.cdist(query, key, compute_mode=_DIFFERENCES)
    distances: Tensor = _Euclidean.apply(query, key)  # type: ignore[no-untyped-call]
    return distances


class _Euclidean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor) -> Tensor:
        distances = torch.cdist(query, key, compute_mode=_DIFFERENCES)
        ctx.save_for_backward(query, key, distances)
        return distances

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor]:
        query, key, distances = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants the gradient of the gradient: it is left to autograd
            slope = (upstream / distances.masked_fill(distances == 0, torch.inf))[..., None]
            towards_query = slope * (query[..., :, None, :] - key[..., None, :, :])
            d_query, d_key = towards_query.sum(-2), -towards_query.sum(-3)
        else:
            d_query = torch.ops.aten._cdist_backward(upstream.contiguous(), query, key, 2.0, distances)
            d_key = torch.ops.aten._cdist_backward(upstream.mT.contiguous(), key, query, 2.0, distances.mT.contiguous())
        return d_query.sum_to_size(query.shape), d_key.sum_to_size(key.shape)
