"""The layers of a Transformer in training on a GPU: the equations of `layers.transformer`, fused differently.

There, a sublayer is x + dropout(f(norm(x))), or norm(x + dropout(f(x))) in post-norm layers. Here, one operator adds a
change f(x) and normalises the sum: by the norm of the next sublayer, or in post-norm layers by its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.attention import Visible, tracing
from jumok.attention.backends import why_no_triton
from jumok.layers.multi_head import KeyValues, MultiHeadAttention, split_heads
from jumok.layers.transformer import CAUSAL, DecoderLayer, EncoderLayer, FeedForward, Residual

if TYPE_CHECKING:  # imports Triton
    from jumok.layers.gpu.projections import Projections

WIDEST = 4096
"""Widest vector that one program of a fused norm holds."""


class Embedded(NamedTuple):
    """Token vectors before dropout: factor · vectors + positions."""

    vectors: Float[Tensor, "batch time width"]
    positions: Float[Tensor, "time width"] | None
    """Without a gradient."""
    factor: float
    dropout: float


Change = tuple[Tensor, Tensor | None]
"""The output of a sublayer [batch, time, width], and a bias that is still to be added to it."""
Sublayer = tuple[Residual, Callable[[Tensor], Change]]
"""A residual connection, and the function around which it goes."""
Lowered = dict[tuple[nn.Module, ...], "Projections"]
"""Linear projections in the precision of matrix products; those that are not there run as they are written."""

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
    x: Float[Tensor, "batch time width"] | Embedded,
    visible: Bool[Tensor, "batch 1 1 time"] | None,
) -> Float[Tensor, "batch time width"]:
    """The normed output of the last layer; `norm` follows pre-norm layers, and post-norm layers have none.

    Pre-norm layers may take token vectors before dropout: the kernel of the first norm does the rest.
    """

    projections = lowered(
        [part for layer in layers for part in (*own_projections(layer.own), *feed_projections(layer.feed))], x
    )

    def sublayers(layer: EncoderLayer) -> list[Sublayer]:
        return [
            (layer.around_own, lambda x: self_attention(layer.own, projections, x, visible)),
            (layer.around_feed, lambda x: feed_forward(layer.feed, projections, x)),
        ]

    return run([sublayer for layer in layers for sublayer in sublayers(layer)], norm, x)


def decoder_stack(
    layers: Sequence[DecoderLayer],
    norm: nn.LayerNorm | None,
    x: Float[Tensor, "batch target width"] | Embedded,
    memories: Sequence[KeyValues],
    visible: Bool[Tensor, "batch 1 1 source"] | None,
) -> Float[Tensor, "batch target width"]:
    """The same for a decoder, over the keys and values of the source for every layer."""

    groups = [
        (*own_projections(layer.own), *cross_projections(layer.cross), *feed_projections(layer.feed))
        for layer in layers
    ]
    projections = lowered([part for group in groups for part in group], x)

    def sublayers(layer: DecoderLayer, memory: KeyValues) -> list[Sublayer]:
        return [
            (layer.around_own, lambda x: self_attention(layer.own, projections, x, CAUSAL)),
            (layer.around_cross, lambda x: cross_attention(layer.cross, projections, x, memory, visible)),
            (layer.around_feed, lambda x: feed_forward(layer.feed, projections, x)),
        ]

    pairs = zip(layers, memories, strict=True)
    return run([sublayer for layer, memory in pairs for sublayer in sublayers(layer, memory)], norm, x)


def run(
    sublayers: Sequence[Sublayer], norm: nn.LayerNorm | None, x: Float[Tensor, "batch time width"] | Embedded
) -> Float[Tensor, "batch time width"]:
    """The normed output of the last sublayer, x going on from one to the next."""
    from jumok.layers.gpu.transformer import add_norm, embed_norm  # imports Triton

    norms = [around.norm for around, _ in sublayers]
    first, *seeds = draw_seeds(len(sublayers) + 1, vectors_of(x))
    if isinstance(x, Embedded):
        seed = first if x.dropout else None
        x, normed = embed_norm(x.vectors, x.positions, norms[0], factor=x.factor, dropout=x.dropout, seed=seed)
    else:
        x, normed = (x, x) if norm is None else add_norm(x, None, norms[0])
    norms = norms if norm is None else [*norms[1:], norm]
    for (around, function), following, seed in zip(sublayers, norms, seeds, strict=True):
        dropout = around.dropout.p if around.training else 0.0
        change, bias = function(normed)
        x, normed = add_norm(
            x, change, following, bias=bias, dropout=dropout, seed=seed if dropout else None, post=norm is None
        )  # fmt: skip
    return normed


def vectors_of(x: Tensor | Embedded) -> Float[Tensor, "batch time width"]:
    """Vectors as they are, or before they are scaled."""
    return x.vectors if isinstance(x, Embedded) else x


def draw_seeds(count: int, x: Tensor) -> tuple[Tensor, ...]:
    """A seed of dropout for every change, from the generator of the device."""
    return torch.randint(2**62, (count, 2), device=x.device).unbind()  # of 16 bytes each, so that all are aligned


def own_projections(attention: MultiHeadAttention) -> list[tuple[nn.Module, ...]]:
    """The projections of self-attention; those that read the same vectors are one matrix."""
    return [(attention.to_query, attention.to_key, attention.to_value), (attention.to_output,)]


def cross_projections(attention: MultiHeadAttention) -> list[tuple[nn.Module, ...]]:
    """The projections of cross-attention without those of the source."""
    return [(attention.to_query,), (attention.to_output,)]


def feed_projections(feed: FeedForward) -> list[tuple[nn.Module, ...]]:
    """The projections of a feed-forward network that can be fused: without a gate or dropout."""
    return [] if feed.to_gate is not None or feed.dropout.p else [(feed.to_hidden,), (feed.to_output,)]


def lowered(groups: Sequence[tuple[nn.Module, ...]], x: Tensor | Embedded) -> Lowered:
    """These projections in the precision of matrix products; groups with others than plain matrices are left out."""
    from jumok.layers.gpu.projections import lower  # imports Triton
    from jumok.layers.gpu.transformer import product_dtype

    plain = [group for group in groups if all(type(part) is nn.Linear and part.bias is not None for part in group)]
    return dict(zip(plain, lower(plain, product_dtype(vectors_of(x))) if plain else [], strict=True))  # type: ignore[arg-type]


def self_attention(
    attention: MultiHeadAttention,
    lowered: Lowered,
    x: Float[Tensor, "batch time width"],
    visible: Visible | Bool[Tensor, "..."] | None,
) -> Change:
    """Attention of a sequence to itself."""
    from jumok.layers.gpu.projections import project

    projections, output = (lowered.get(group) for group in own_projections(attention))
    if projections is None or output is None:
        return attention(x, visible=visible).values, None
    queries, memory = attention.split_projected(*project(x, projections))
    return projected(attention.mix(queries, memory, visible).values, output)


def cross_attention(
    attention: MultiHeadAttention,
    lowered: Lowered,
    x: Float[Tensor, "batch time width"],
    memory: KeyValues,
    visible: Visible | Bool[Tensor, "..."] | None,
) -> Change:
    """Attention to the projected keys and values of another sequence, without rotary positions."""
    from jumok.layers.gpu.projections import project

    projection, output = (lowered.get(group) for group in cross_projections(attention))
    if projection is None or output is None:
        return attention.attend(x, memory, visible).values, None
    (queries,) = project(x, projection)
    return projected(attention.mix(split_heads(queries, attention.heads), memory, visible).values, output)


def feed_forward(feed: FeedForward, lowered: Lowered, x: Float[Tensor, "batch time width"]) -> Change:
    """W₂ activation(W₁ x + b₁), and b₂; networks with a gate, dropout or other projections as written."""
    from jumok.layers.gpu.projections import project_and_activate

    projections = [lowered.get(group) for group in feed_projections(feed)]
    if not projections or projections[0] is None or projections[1] is None:
        return feed(x), None
    return projected(project_and_activate(x, projections[0], feed.activation), projections[1])


def projected(x: Float[Tensor, "batch time inner"], projections: "Projections") -> Change:
    """W x, and the bias b."""
    from jumok.layers.gpu.projections import project_without_bias

    return project_without_bias(x, projections), projections.layers[0].bias
