"""Fused additive attention as PyTorch operators, which work with autograd, torch.compile and CUDA graphs.

Compiled code calls the operators; other code calls the same functions through torch.autograd.Function, because calling
an operator takes the host as long as the kernels of a small problem. Importing this module imports Triton.
"""

from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.additive.gpu import backward, forward
from jumok.attention.additive.gpu.forward import in_type
from jumok.attention.additive.gpu.mask_intervals import MaskIntervals
from jumok.attention.additive.reference import Additive
from jumok.attention.call import AttentionCall, attend_as_written
from jumok.errors import BackendError

Four = tuple[Tensor, Tensor, Tensor, Tensor]
Three = tuple[Tensor, Tensor, Tensor]


def run(call: AttentionCall) -> tuple[Tensor, AttentionCall]:
    """Σ softmax(v · tanh(q + k)) value, and the call with what weights on demand are computed from.

    tanh(q + k) is never stored, and scores only for some rows at a time.
    """
    assert isinstance(call.score, Additive)
    lead = call.tile.lead
    query, key, value = (flat(tensor, lead) for tensor in (call.query, call.key, call.value))
    intervals = MaskIntervals.of(call.visible, call.tile).flat(lead)
    seed = torch.randint(2**62, (1,), device=query.device) if call.dropout else None
    mixed, sums = attention(
        query, key, value, flat_vector(call.score.v, lead), intervals.first, intervals.beyond, intervals.mask, seed,
        float(call.dropout),
    )  # fmt: skip
    if len(lead) != 1:
        mixed, sums = mixed.reshape(*lead, *mixed.shape[-2:]), sums.reshape(2, *lead, sums.shape[-1])
    return mixed, replace(call, score=FusedAdditive(call.score.v), sums=sums)


@torch.library.custom_op("jumok::additive_attention", mutates_args=())
def additive_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    v: Tensor,
    first: Tensor | None,
    beyond: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Σ softmax(v · tanh(q + k)) value for [batch, time, dim], v [batch or 1, dim]; and the log-sum-exp."""
    return _forward(query, key, value, v, first, beyond, mask, seed, dropout)[:2]


@additive_attention.register_fake
def _attention_shapes(
    query: Tensor, key: Tensor, value: Tensor, v: Tensor, first: Any, beyond: Any, mask: Any, seed: Any, dropout: float
) -> tuple[Tensor, Tensor]:
    out = query.new_empty(*query.shape[:2], value.shape[2])
    return out, query.new_empty(2, *query.shape[:2], dtype=torch.float32)


@torch.library.custom_op("jumok::additive_attention_backward", mutates_args=())
def additive_attention_backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    first: Tensor | None,
    beyond: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    dropout: float,
) -> Four:
    """The gradients of query, key, value and v."""
    return _backward(d_out, query, key, value, v, first, beyond, mask, seed, out, lse, dropout)


@additive_attention_backward.register_fake
def _gradient_shapes(d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, v: Tensor, *_: Any) -> Four:
    return _like(query), _like(key), _like(value), _like(v)


@torch.library.custom_op("jumok::additive_scores", mutates_args=())
def additive_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """v · tanh(q + k) of every query with every key, [batch, query, key], in single precision."""
    return forward.scores(query, key, v).contiguous()


@additive_scores.register_fake
def _scores_shape(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return query.new_empty(*query.shape[:2], key.shape[1], dtype=torch.float32)


@torch.library.custom_op("jumok::additive_scores_backward", mutates_args=())
def additive_scores_backward(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> Three:
    """The gradients of query, key and v."""
    gradients = backward.scores_backward(d_scores, query, key, v)
    return gradients.query.to(query.dtype), gradients.key.to(key.dtype), gradients.v.to(v.dtype)


@additive_scores_backward.register_fake
def _score_gradient_shapes(d_scores: Tensor, query: Tensor, key: Tensor, v: Tensor) -> Three:
    return _like(query), _like(key), _like(v)


def attention(*arguments: Any) -> tuple[Tensor, Tensor]:
    """`additive_attention`, by the faster way where nothing is compiled."""
    run: Any = additive_attention if torch.compiler.is_compiling() else _AdditiveAttention.apply
    outputs: tuple[Tensor, Tensor] = run(*arguments)
    return outputs


class _AdditiveAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        *tensors, ctx.dropout = arguments
        out, lse, scores = _forward(*arguments)
        ctx.save_for_backward(*tensors, out, lse, scores if any(ctx.needs_input_grad) else None)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if d_out is None:  # the output has no gradient
            return (None,) * 9
        *saved, scores = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second gradient
            gradients = _gradients_by_definition(d_out, *saved, ctx.dropout)
        else:
            gradients = _backward(d_out, *saved, ctx.dropout, scores)
        return (*gradients, None, None, None, None, None)


def _forward(
    query: Tensor, key: Tensor, value: Tensor, v: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor | None]:
    first, beyond, mask, seed, dropout = others
    return forward.forward(query, key, value, v, MaskIntervals(first, beyond, mask), seed, dropout)


def _backward(d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, v: Tensor, *others: Any) -> Four:
    first, beyond, mask, seed, out, lse, dropout, *scores = others
    with torch.autocast(query.device.type, enabled=False):
        gradients = backward.backward(
            d_out.contiguous(),
            query,
            key,
            value,
            v,
            out,
            lse,
            MaskIntervals(first, beyond, mask),
            seed,
            dropout,
            *scores,
        )
    assert gradients.value is not None
    d_query, d_key = in_type(gradients.query, query.dtype), in_type(gradients.key, key.dtype)
    return d_query, d_key, in_type(gradients.value, value.dtype), in_type(gradients.v, v.dtype)


def _gradients_by_definition(d_out: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    """The gradients from the equation, with tanh(q + k) of all pairs, so that autograd can differentiate them again."""
    query, key, value, v, first, beyond, mask, _, out, _, dropout = arguments
    if dropout:
        raise BackendError('fused attention with dropout has no second gradient; use backend="direct"')
    inputs = tracing.graph_inputs(query, key, value, v)
    visible = _visible_keys(query, key, first, beyond, mask)
    with torch.autocast(query.device.type, enabled=False):
        query, key, value, v = (tensor.float() for tensor in inputs)
        score = Additive(v[0] if len(v) == 1 else v)
        mixed = attend_as_written(query, key, value, score, visible)
        return torch.autograd.grad(mixed.to(out.dtype), inputs, d_out, create_graph=True)


def _visible_keys(
    query: Tensor, key: Tensor, first: Tensor | None, beyond: Tensor | None, mask: Tensor | None
) -> Bool[Tensor, "batch #query key"] | None:
    """The visible keys of each query; None if all keys are visible."""
    positions = torch.arange(key.shape[1], device=key.device)
    parts = [
        None if first is None else positions >= first[..., None],
        None if beyond is None else positions < beyond[..., None],
        None if mask is None else mask.repeat_interleave(len(query) // len(mask), 0),
    ]
    present = [part for part in parts if part is not None]
    return reduce(torch.logical_and, present) if present else None


def _like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, dropout = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.dropout = dropout
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _attention_gradients(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if d_out is None:
        return (None,) * 9
    query, key, value, v, first, beyond, mask, seed, out, lse = ctx.saved_tensors
    gradients = additive_attention_backward(
        d_out, query, key, value, v, out, lse, first, beyond, mask, seed, ctx.dropout
    )
    return (*gradients, None, None, None, None, None)


def _keep_scores(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _score_gradients(ctx: Any, d_scores: Tensor) -> Three:
    differentiable = torch.is_grad_enabled()  # for a second gradient
    gradients_of = _score_gradients_by_definition if differentiable else additive_scores_backward
    query, key, v = gradients_of(d_scores, *ctx.saved_tensors)
    return query, key, v


def _score_gradients_by_definition(d_scores: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The gradients from the equation, so that autograd can differentiate them again."""
    leaves = tracing.graph_inputs(*inputs)
    with torch.autocast(d_scores.device.type, enabled=False):
        # A visible NaN has a gradient of NaN anyway; a hidden NaN must not be multiplied by a gradient of 0.
        query, key, v = (tensor.float().masked_fill(tensor.isnan(), 0) for tensor in leaves)
        scores = Additive(v[0] if len(v) == 1 else v)(query, key)
        return torch.autograd.grad(scores, leaves, d_scores, create_graph=True)


additive_attention.register_autograd(_attention_gradients, setup_context=_keep_attention)
additive_scores.register_autograd(_score_gradients, setup_context=_keep_scores)


class FusedAdditive(Additive):
    """v · tanh(q + k): `Additive`, computed by the kernels, for weights on demand.

    Always in single precision, as in the kernels: rounded scores would give other weights than those of the values.
    """

    def __call__(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""
        lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])  # type: ignore[no-untyped-call]
        scores: Tensor = additive_scores(flat(query, lead), flat(key, lead), flat_vector(self.v, lead))
        return scores.reshape(*lead, *scores.shape[-2:])

    def planes(self, query: Tensor) -> int:
        """Nothing larger than the scores is built."""
        return 1


def flat(tensor: Tensor, lead: tuple[int, ...]) -> Float[Tensor, "batch time dim"]:
    """[*lead, time, dim] with one leading axis, broadcast."""
    if len(lead) == 1 and tensor.is_contiguous() and tensor.shape[:-2] == lead:
        return tensor
    return tensor.expand(*lead, *tensor.shape[-2:]).reshape(-1, *tensor.shape[-2:]).contiguous()


def flat_vector(v: Tensor, lead: tuple[int, ...]) -> Float[Tensor, "batch dim"]:
    """v shared by the batch, [1, dim], or one for each entry."""
    return (v[None] if v.dim() == 1 else v.expand(*lead, v.shape[-1]).reshape(-1, v.shape[-1])).contiguous()
