"""Flash attention as PyTorch operators, which work with autograd, torch.compile and CUDA graphs.

Compiled code calls the operators; other code calls the same functions through torch.autograd.Function, because calling
an operator takes the host as long as the kernels of a small problem. Importing this module imports Triton.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.call import AttentionCall, attend_as_written
from jumok.attention.checks import is_autocast
from jumok.attention.flash import causal, launch
from jumok.attention.flash.launch import NOTHING, Extras, FlashOptions
from jumok.attention.flash.ranges import Ranges, four_axes, limits, two_axes
from jumok.attention.modified_dot import ModifiedDot
from jumok.attention.scores import Dot
from jumok.attention.sdpa import with_positive_scale
from jumok.errors import BackendError

Five = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
TENSORS = 3 + len(Extras._fields)
"""Arguments that are tensors or None, before the options."""
BIAS, SINKS = (3 + Extras._fields.index(name) for name in ("bias", "sinks"))


def run(call: AttentionCall) -> Float[Tensor, "*lead query value_dim"]:
    """Σ softmax(score) v over the visible keys; no weight is stored."""
    call = with_positive_scale(call)
    score, lead = call.score, call.tile.lead
    assert isinstance(score, Dot | ModifiedDot)
    assert score.scale is not None
    query, key, value = _lowered(call.query), _lowered(call.key), _lowered(call.value)
    if len(lead) != 2:
        query, key, value = (four_axes(tensor, lead) for tensor in (query, key, value))
    low, high, extras = limits(call.visible, call.tile)
    soft_cap, shift = 0.0, 0
    if isinstance(score, ModifiedDot):
        extras = extras._replace(
            bias=None if score.bias is None else two_axes(score.bias, lead, own=2),
            slopes=None if score.slopes is None else two_axes(score.slopes.float(), lead),
            sinks=None if score.sinks is None else two_axes(score.sinks, lead),
        )
        soft_cap, shift = score.soft_cap or 0.0, score.offset
    if call.dropout:
        extras = extras._replace(seed=torch.randint(2**62, (1,), device=query.device))
    options = FlashOptions(low, high, shift, float(score.scale), soft_cap, call.dropout, call.visible is not None)
    mixed = attention(query, key, value, extras, options)
    return mixed if len(lead) == 2 else mixed.reshape(*lead, *mixed.shape[-2:])


def run_causal(call: AttentionCall) -> Float[Tensor, "*lead query value_dim"]:
    """The same under a plain causal mask, by PyTorch's kernel (see causal.py)."""
    call = with_positive_scale(call)
    assert isinstance(call.score, Dot)
    assert call.score.scale is not None
    lead, query, key, value = call.tile.lead, call.query, call.key, call.value
    if len(lead) != 2:
        query, key, value = (four_axes(tensor, lead) for tensor in (query, key, value))
    mixed = causal.attention(query, key, value, call.score.scale)
    if mixed is None:
        return run(call)
    return mixed if len(lead) == 2 else mixed.reshape(*lead, *mixed.shape[-2:])


def _lowered(tensor: Tensor) -> Tensor:
    """As PyTorch's own attention, in the dtype of autocast."""
    if tensor.dtype == torch.float32 and is_autocast(tensor.device):
        return tensor.to(torch.get_autocast_dtype(tensor.device.type))
    return tensor


@torch.library.custom_op("jumok::flash_attention", mutates_args=())
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    query_lengths: Tensor | None,
    query_ends: Tensor | None,
    key_ends: Tensor | None,
    mask: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    sinks: Tensor | None,
    seed: Tensor | None,
    low: int | None,
    high: int | None,
    shift: int,
    scale: float,
    soft_cap: float,
    dropout: float,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    """Σ softmax(score) v for [batch, head, time, dim], and the log-sum-exp to base 2."""
    extras = Extras(key_lengths, query_lengths, query_ends, key_ends, mask, bias, slopes, sinks, seed)
    options = FlashOptions(low, high, shift, scale, soft_cap, dropout, exact)
    return launch.forward(query, key, value, extras, options)


@flash_attention.register_fake
def _attention_shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return launch.results(query, value)


@torch.library.custom_op("jumok::flash_attention_backward", mutates_args=())
def flash_attention_backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    query_lengths: Tensor | None,
    query_ends: Tensor | None,
    key_ends: Tensor | None,
    mask: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    sinks: Tensor | None,
    seed: Tensor | None,
    out: Tensor,
    lse: Tensor,
    low: int | None,
    high: int | None,
    shift: int,
    scale: float,
    soft_cap: float,
    dropout: float,
    exact: bool,
    wants_bias: bool,
    wants_sinks: bool,
) -> list[Tensor]:
    """The gradients of query, key and value, and of the bias and the sinks where they are wanted."""
    extras = Extras(key_lengths, query_lengths, query_ends, key_ends, mask, bias, slopes, sinks, seed)
    options = FlashOptions(low, high, shift, scale, soft_cap, dropout, exact)
    gradients = _gradients(d_out, query, key, value, extras, out, lse, options, wants_bias, wants_sinks)
    return [gradient for gradient in gradients if gradient is not None]


@flash_attention_backward.register_fake
def _gradient_shapes(d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> list[Tensor]:
    extras, wanted = Extras(*others[: TENSORS - 3]), others[-2:]
    parameters = [
        torch.empty_like(tensor)
        for tensor, wants in zip((extras.bias, extras.sinks), wanted, strict=True)
        if wants and tensor is not None
    ]
    return [launch.empty_like(tensor, tensor.shape[-1]) for tensor in (query, key, value)] + parameters


def attention(query: Tensor, key: Tensor, value: Tensor, extras: Extras, options: FlashOptions) -> Tensor:
    """`flash_attention`, by the fastest way that serves."""
    if torch.compiler.is_compiling():
        mixed: Tensor = flash_attention(query, key, value, *extras, *options)[0]
        return mixed
    if torch.is_grad_enabled():
        bias, sinks = extras.bias, extras.sinks
        parameters = any(tensor is not None and tensor.requires_grad for tensor in (bias, sinks))
        if query.requires_grad or key.requires_grad or value.requires_grad or parameters:
            mixed = _FlashAttention.apply(query, key, value, bias, sinks, extras, options)  # type: ignore[no-untyped-call]
            return mixed
    return launch.forward(query, key, value, extras, options)[0]


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, sinks: Tensor | None, extras: Extras,
        options: FlashOptions,
    ) -> Tensor:  # fmt: skip
        out, lse = launch.forward(query, key, value, extras, options)
        others = () if extras is NOTHING else extras
        ctx.save_for_backward(query, key, value, out, lse, *others)
        ctx.options = options
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse, *others = ctx.saved_tensors
        extras = Extras(*others) if others else NOTHING
        differentiable = torch.is_grad_enabled()  # for a second gradient
        find = _gradients_by_definition if differentiable else partial(_gradients, joint=True)
        wanted = ctx.needs_input_grad[3:5]
        return (*find(d_out, query, key, value, extras, out, lse, ctx.options, *wanted), None, None)


def _gradients(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, extras: Extras, out: Tensor, lse: Tensor,
    options: FlashOptions, wants_bias: bool, wants_sinks: bool, *, joint: bool = False,
) -> Five:  # fmt: skip
    d_query, d_key, d_value, delta = launch.backward(d_out, query, key, value, extras, out, lse, options, joint=joint)
    d_bias = d_sinks = None
    if wants_bias:
        d_bias = launch.bias_gradient(d_out, query, key, value, extras, lse, delta, options)
    if wants_sinks:
        d_sinks = launch.sink_gradient(extras, lse, delta)
    return d_query, d_key, d_value, d_bias, d_sinks


def _in_place(
    d_query: Tensor, d_key: Tensor, d_value: Tensor, d_bias: Tensor | None, d_sinks: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The gradients in the order of the arguments."""
    gradients: list[Tensor | None] = [None] * (TENSORS + len(FlashOptions._fields))
    gradients[:3], gradients[BIAS], gradients[SINKS] = (d_query, d_key, d_value), d_bias, d_sinks
    return tuple(gradients)


def _gradients_by_definition(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, extras: Extras, out: Tensor, lse: Tensor | None,
    options: FlashOptions, *_: bool,
) -> Any:  # fmt: skip
    """The gradients from the equation, so that autograd can differentiate them again."""
    if options.dropout:
        raise BackendError('fused attention with dropout has no second gradient; use backend="direct"')
    tensors = {"query": query, "key": key, "value": value, "bias": extras.bias, "sinks": extras.sinks}
    inputs = tracing.graph_inputs(*(tensor for tensor in tensors.values() if tensor is not None))
    names = [name for name, tensor in tensors.items() if tensor is not None]
    ranges = Ranges(
        options.low, options.high, extras.key_lengths, extras.query_lengths, extras.query_ends, extras.key_ends,
        extras.mask,
    )  # fmt: skip
    visible = ranges.matrix(query.shape[-2], key.shape[-2], query.device) if options.exact else None
    with torch.autocast(query.device.type, enabled=False):
        wide = dict(zip(names, (tensor.float() for tensor in inputs), strict=True))
        score = ModifiedDot(
            options.scale, wide.get("bias"), extras.slopes, options.soft_cap or None, wide.get("sinks"), options.shift
        )  # fmt: skip
        mixed = attend_as_written(wide["query"], wide["key"], wide["value"], score, visible)
        gradients = torch.autograd.grad(mixed.to(out.dtype), inputs, d_out, create_graph=True)
    by_name = dict(zip(names, gradients, strict=True))
    return tuple(by_name.get(name) for name in tensors)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:TENSORS], *output)
    ctx.options = inputs[TENSORS:]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _compiled_gradients(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if d_out is None:
        return (None,) * (TENSORS + len(FlashOptions._fields))
    wants_bias, wants_sinks = ctx.needs_input_grad[BIAS], ctx.needs_input_grad[SINKS]
    d_query, d_key, d_value, *parameters = flash_attention_backward(
        d_out, *ctx.saved_tensors, *ctx.options, wants_bias, wants_sinks
    )
    d_bias = parameters.pop(0) if wants_bias else None
    d_sinks = parameters.pop(0) if wants_sinks else None
    return _in_place(d_query, d_key, d_value, d_bias, d_sinks)


flash_attention.register_autograd(_compiled_gradients, setup_context=_keep)
