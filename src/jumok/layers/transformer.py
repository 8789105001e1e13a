"""One layer of a Transformer (Vaswani et al. 2017): attention and feed-forward, each with a way round it."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.attention import Attended, Visible, Weights, causal
from jumok.attention.arguments import check_probabilities, check_sizes
from jumok.attention.checks import check_device_and_dtype
from jumok.errors import ArgumentError
from jumok.layers.memory import KeyValueCache, KeyValues
from jumok.layers.multi_head import MultiHeadAttention
from jumok.layers.positions import RotaryPositions

Activation = Literal["relu", "gelu", "silu", "swiglu"]

_CURVES: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """W₂ activation(W₁ x + b₁) + b₂, as in Vaswani et al. (2017); dropout falls on the hidden layer.

    "swiglu" is gated (Shazeer, 2020): W₂ (silu(W_g x + b_g) ⊙ (W₁ x + b₁)) + b₂, with half as many weights again.
    """

    def __init__(self, *, width: int, hidden: int, activation: Activation = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        if activation not in _CURVES:
            raise ArgumentError(f'activation = "{activation}"; wanted one of {", ".join(get_args(Activation))}')
        width, hidden = check_sizes(width=width, hidden=hidden)
        check_probabilities(dropout=dropout)
        self.width, self.activation = width, activation
        self.to_hidden = nn.Linear(width, hidden)
        self.to_gate = nn.Linear(width, hidden) if activation == "swiglu" else None
        self.to_output = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*lead width"]) -> Float[Tensor, "*lead width"]:
        """Transform every position on its own."""
        if x.shape[-1:] != (self.width,):
            raise ArgumentError(f"x is {list(x.shape)}; wanted [..., width] with width = {self.width}")
        check_device_and_dtype("x", x, self.to_hidden.weight)
        curve = _CURVES[self.activation]
        hidden = self.to_hidden(x)
        hidden = curve(hidden) if self.to_gate is None else curve(self.to_gate(x)) * hidden
        output: Tensor = self.to_output(self.dropout(hidden))
        return output


Norm = Literal["pre", "post"]
CAUSAL = causal()


class Residual(nn.Module):
    """The way round a sublayer f: x + f(norm(x)) with the norm "pre", norm(x + f(x)) with the norm "post".

    "post" is the original; with "pre" (Xiong et al. 2020) the gradient finds a straight path, and warm-up matters less.
    """

    def __init__(self, *, width: int, norm: Norm, dropout: float = 0.0) -> None:
        super().__init__()
        check_probabilities(dropout=dropout)
        if norm not in get_args(Norm):
            raise ArgumentError(f"norm = {norm!r}; wanted one of {', '.join(get_args(Norm))}")
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.pre = norm == "pre"

    def before(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        """What the sublayer is given."""
        given: Tensor = self.norm(x) if self.pre else x
        return given

    def after(
        self, x: Float[Tensor, "batch time width"], change: Float[Tensor, "batch time width"]
    ) -> Float[Tensor, "batch time width"]:
        """What goes on, once the sublayer has answered with a change."""
        x = x + self.dropout(change)
        onward: Tensor = x if self.pre else self.norm(x)
        return onward


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        hidden: int,
        key_heads: int | None = None,
        norm: Norm = "pre",
        activation: Activation = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        self.own = MultiHeadAttention(
            width=width, heads=heads, key_heads=key_heads, dropout=attention_dropout, rotary=rotary
        )
        self.feed = FeedForward(width=width, hidden=hidden, activation=activation, dropout=activation_dropout)
        self.around_own, self.around_feed = (Residual(width=width, norm=norm, dropout=dropout) for _ in range(2))

    def forward(
        self, x: Float[Tensor, "batch time width"], visible: Visible | Bool[Tensor, "..."] | None = None
    ) -> Attended:
        """The layer's output, and where each position looked."""
        change, weights = self.own(self.around_own.before(x), visible=visible)
        x = self.around_own.after(x, change)
        return Attended(self.around_feed.after(x, self.feed(self.around_feed.before(x))), weights)


class DecoderLayerOutput(NamedTuple):
    """What a decoder layer answers."""

    values: Float[Tensor, "batch query width"]
    own: Weights
    """Where each position looked among those before it, and at itself."""
    cross: Weights
    """Where it looked in the source."""


class DecoderLayer(nn.Module):
    """Self-attention over what came before, cross-attention to a source of `key_width`, the feed-forward network.

    The source's keys and values are made once, by `memory`. A whole target goes through `forward`, the next token of
    many hypotheses through `step`: a sentence's hypotheses are then so many queries to the one source.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        hidden: int,
        key_width: int | None = None,
        key_heads: int | None = None,
        norm: Norm = "pre",
        activation: Activation = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        self.own = MultiHeadAttention(
            width=width, heads=heads, key_heads=key_heads, dropout=attention_dropout, rotary=rotary
        )
        self.cross = MultiHeadAttention(
            width=width, heads=heads, key_heads=key_heads, key_width=key_width, dropout=attention_dropout
        )
        self.feed = FeedForward(width=width, hidden=hidden, activation=activation, dropout=activation_dropout)
        self.around_own, self.around_cross, self.around_feed = (
            Residual(width=width, norm=norm, dropout=dropout) for _ in range(3)
        )

    def memory(self, states: Float[Tensor, "batch source key_width"]) -> KeyValues:
        """The source's states, ready to be looked at."""
        return self.cross.keys_values(states)

    def forward(
        self,
        x: Float[Tensor, "batch target width"],
        memory: KeyValues,
        visible: Visible | Bool[Tensor, "..."] | None = None,
        *,
        own_visible: Visible | Bool[Tensor, "..."] | None = CAUSAL,
    ) -> DecoderLayerOutput:
        """Every position of a whole target at once.

        `visible` is what of the source may be seen, `own_visible` what of the target; it defaults to what came before.
        """
        change, own = self.own(self.around_own.before(x), visible=own_visible)
        return self._attend_to_source(self.around_own.after(x, change), own, memory, visible)

    def step(
        self,
        x: Float[Tensor, "sentence beam width"],
        cache: KeyValueCache,
        memory: KeyValues,
        visible: Visible | Bool[Tensor, "..."] | None = None,
    ) -> DecoderLayerOutput:
        """The newest token of every hypothesis; `cache` holds those before it and takes it in."""
        start = cache.length
        newest = self.around_own.before(x).reshape(-1, 1, x.shape[-1])  # each hypothesis has a past of its own
        past = cache.append(self.own.keys_values(newest, start=start))
        change, own = self.own.attend(newest, past, start=start)
        return self._attend_to_source(self.around_own.after(x, change.view_as(x)), own, memory, visible)

    def _attend_to_source(
        self, x: Tensor, own: Weights, memory: KeyValues, visible: Visible | Tensor | None
    ) -> DecoderLayerOutput:
        change, cross = self.cross.attend(self.around_cross.before(x), memory, visible)
        x = self.around_cross.after(x, change)
        return DecoderLayerOutput(self.around_feed.after(x, self.feed(self.around_feed.before(x))), own, cross)
