"""The layers of a Transformer in training on a GPU: the equations of `layers.transformer`, fused differently.

There, a sublayer is x + dropout(f(norm(x))), or norm(x + dropout(f(x))) in post-norm layers. Here, one operator adds a
change f(x) and normalises the sum: by the norm of the next sublayer, or in post-norm layers by its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.attention import tracing
from jumok.attention.backends import why_no_triton
from jumok.layers.multi_head import KeyValues
from jumok.layers.transformer import CAUSAL, DecoderLayer, EncoderLayer, FeedForward, Residual

WIDEST = 4096
"""Widest vector that one program of a fused norm holds."""

Sublayer = tuple[Residual, Callable[[Tensor], Tensor]]
"""A residual connection, and the function around which it goes."""

_wanted: ContextVar[bool] = ContextVar("fused_layers", default=True)


@contextmanager
def fused_layers(wanted: bool) -> Iterator[None]:
    """Whether layers may be fused in the block; by default they are where they can."""
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def fuses(layers: Sequence[EncoderLayer] | Sequence[DecoderLayer], device: torch.device) -> bool:
    """Whether these layers are fused: in training, on a GPU with Triton."""
    if torch.compiler.is_compiling() or tracing.in_transform() or not torch.is_grad_enabled() or not _wanted.get():
        return False
    if why_no_triton(device, torch.float32) is not None:
        return False
    return all(_can_fuse(layer) for layer in layers)


def _can_fuse(layer: EncoderLayer | DecoderLayer) -> bool:
    norm = layer.around_own.norm
    watched = any(part._forward_hooks or part._forward_pre_hooks for part in layer.modules())
    return layer.training and norm.normalized_shape[0] <= WIDEST and not watched


def encoder_stack(
    layers: Sequence[EncoderLayer],
    norm: nn.LayerNorm | None,
    x: Float[Tensor, "batch time width"],
    visible: Bool[Tensor, "batch 1 1 time"] | None,
) -> Float[Tensor, "batch time width"]:
    """The normed output of the last layer; `norm` follows pre-norm layers, and post-norm layers have none."""

    def sublayers(layer: EncoderLayer) -> list[Sublayer]:
        return [
            (layer.around_own, lambda x: layer.own(x, visible=visible).values),
            (layer.around_feed, lambda x: feed_forward(layer.feed, x)),
        ]

    return run([sublayer for layer in layers for sublayer in sublayers(layer)], norm, x)


def decoder_stack(
    layers: Sequence[DecoderLayer],
    norm: nn.LayerNorm | None,
    x: Float[Tensor, "batch target width"],
    memories: Sequence[KeyValues],
    visible: Bool[Tensor, "batch 1 1 source"] | None,
) -> Float[Tensor, "batch target width"]:
    """The same for a decoder, over the keys and values of the source for every layer."""

    def sublayers(layer: DecoderLayer, memory: KeyValues) -> list[Sublayer]:
        return [
            (layer.around_own, lambda x: layer.own(x, visible=CAUSAL).values),
            (layer.around_cross, lambda x: layer.cross.attend(x, memory, visible).values),
            (layer.around_feed, lambda x: feed_forward(layer.feed, x)),
        ]

    pairs = zip(layers, memories, strict=True)
    return run([sublayer for layer, memory in pairs for sublayer in sublayers(layer, memory)], norm, x)


def run(
    sublayers: Sequence[Sublayer], norm: nn.LayerNorm | None, x: Float[Tensor, "batch time width"]
) -> Float[Tensor, "batch time width"]:
    """The normed output of the last sublayer, x going on from one to the next."""
    from jumok.layers.gpu.transformer import add_norm  # imports Triton

    norms, normed = [around.norm for around, _ in sublayers], x
    if norm is not None:
        normed = add_norm(x, None, norms[0])[1]
        norms = [*norms[1:], norm]
    for (around, function), following, seed in zip(sublayers, norms, draw_seeds(len(sublayers), x), strict=True):
        dropout = around.dropout.p if around.training else 0.0
        x, normed = add_norm(
            x, function(normed), following, dropout=dropout, seed=seed if dropout else None, post=norm is None
        )
    return normed


def draw_seeds(count: int, x: Tensor) -> tuple[Tensor, ...]:
    """A seed of dropout for every change, from the generator of the device."""
    return torch.randint(2**62, (count, 2), device=x.device).unbind()  # of 16 bytes each, so that all are aligned


def feed_forward(feed: FeedForward, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
    """W₂ activation(W₁ x + b₁) + b₂ by fused operators; networks with a gate, dropout or other maps as written."""
    from jumok.layers.gpu.transformer import linear, linear_activation  # imports Triton

    plain = type(feed.to_hidden) is type(feed.to_output) is nn.Linear
    if feed.to_gate is not None or feed.dropout.p or not plain:
        output: Tensor = feed(x)
    else:
        hidden = linear_activation(x, feed.to_hidden, feed.activation)
        output = linear(hidden, feed.to_output.weight, feed.to_output.bias)
    return output
