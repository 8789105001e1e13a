"""The layers of a pre-norm Transformer in training on a GPU: the equations of `layers.transformer`, fused differently.

There, a sublayer is x + dropout(f(norm(x))), one after another. Here, a change f(norm(x)) waits until the next norm,
and one operator adds it and normalises the sum.
"""

from collections.abc import Iterator, Sequence
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
    """Whether these layers are fused: pre-norm, in training, on a GPU with Triton."""
    if torch.compiler.is_compiling() or tracing.in_transform() or not torch.is_grad_enabled() or not _wanted.get():
        return False
    if why_no_triton(device, torch.float32) is not None:
        return False
    return all(_can_fuse(layer) for layer in layers)


def _can_fuse(layer: EncoderLayer | DecoderLayer) -> bool:
    norm = layer.around_own.norm
    watched = any(part._forward_hooks or part._forward_pre_hooks for part in layer.modules())
    return layer.training and layer.around_own.pre and norm.normalized_shape[0] <= WIDEST and not watched


def encoder_stack(
    layers: Sequence[EncoderLayer],
    norm: nn.LayerNorm,
    x: Float[Tensor, "batch time width"],
    visible: Bool[Tensor, "batch 1 1 time"] | None,
) -> Float[Tensor, "batch time width"]:
    """The normed output of the last layer."""
    seeds = draw_seeds(2 * len(layers), x)
    change = None
    for number, layer in enumerate(layers):
        x, normed = join(x, change, layer.around_own, seeds[2 * number - 1])
        change = layer.own(normed, visible=visible).values
        x, normed = join(x, change, layer.around_feed, seeds[2 * number])
        change = feed_forward(layer.feed, normed)
    return join(x, change, layers[-1].around_feed, seeds[-1], norm=norm)[1]


def decoder_stack(
    layers: Sequence[DecoderLayer],
    norm: nn.LayerNorm,
    x: Float[Tensor, "batch target width"],
    memories: Sequence[KeyValues],
    visible: Bool[Tensor, "batch 1 1 source"] | None,
) -> Float[Tensor, "batch target width"]:
    """The normed output of the last layer, over the keys and values of the source for every layer."""
    seeds = draw_seeds(3 * len(layers), x)
    change = None
    for number, (layer, memory) in enumerate(zip(layers, memories, strict=True)):
        x, normed = join(x, change, layer.around_own, seeds[3 * number - 1])
        change = layer.own(normed, visible=CAUSAL).values
        x, normed = join(x, change, layer.around_cross, seeds[3 * number])
        change = layer.cross.attend(normed, memory, visible).values
        x, normed = join(x, change, layer.around_feed, seeds[3 * number + 1])
        change = feed_forward(layer.feed, normed)
    return join(x, change, layers[-1].around_feed, seeds[-1], norm=norm)[1]


def draw_seeds(count: int, x: Tensor) -> tuple[Tensor, ...]:
    """A seed of dropout for every change, from the generator of the device."""
    return torch.randint(2**62, (count, 2), device=x.device).unbind()  # of 16 bytes each, so that all are aligned


def join(
    x: Tensor, change: Tensor | None, around: Residual, seed: Tensor, *, norm: nn.LayerNorm | None = None
) -> tuple[Tensor, Tensor]:
    """x + dropout(change), and its norm."""
    from jumok.layers.gpu.transformer import add_norm  # imports Triton

    dropout = around.dropout.p if around.training else 0.0
    return add_norm(x, change, norm or around.norm, dropout=dropout, seed=seed if dropout else None)


def feed_forward(feed: FeedForward, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
    """W₂ relu(W₁ x + b₁) + b₂ with the ReLU in the first product; other networks as they are written."""
    from jumok.layers.gpu.transformer import linear, linear_relu  # imports Triton

    if feed.activation != "relu" or feed.dropout.p:
        output: Tensor = feed(x)
    else:
        output = linear(linear_relu(x, feed.to_hidden), feed.to_output.weight, feed.to_output.bias)
    return output
