"""Layers of a Transformer (Vaswani et al. 2017): attention and feed-forward, each with a residual connection."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.attention import Attended, Visible, Weights, causal
from jumok.attention.checks import check_choice, check_probabilities, check_sizes
from jumok.layers.dropout import Dropout
from jumok.layers.multi_head import KeyValueCache, KeyValues, MultiHeadAttention
from jumok.layers.positions import RotaryPositions

Activation = Literal["relu", "gelu", "silu", "swiglu"]

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """W₂ activation(W₁ x + b₁) + b₂ (Vaswani et al. 2017), with dropout on the hidden layer.

    "swiglu" is gated (Shazeer 2020): W₂ (silu(W_g x + b_g) ⊙ (W₁ x + b₁)) + b₂, with half as many weights again.
    """

    def __init__(self, *, width: int, hidden: int, activation: Activation = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        check_choice("activation", activation, _FUNCTIONS)
        width, hidden = check_sizes(width=width, hidden=hidden)
        check_probabilities(dropout=dropout)
        self.width, self.activation = width, activation
        self.to_hidden = nn.Linear(width, hidden)
        self.to_gate = nn.Linear(width, hidden) if activation == "swiglu" else None
        self.to_output = nn.Linear(hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*lead width"]) -> Float[Tensor, "*lead width"]:
        """Transform every position independently."""
        function = _FUNCTIONS[self.activation]
        hidden = self.to_hidden(x)
        hidden = function(hidden) if self.to_gate is None else function(self.to_gate(x)) * hidden
        output: Tensor = self.to_output(self.dropout(hidden))
        return output


Norm = Literal["pre", "post"]
CAUSAL = causal()


class Residual(nn.Module):
    """A residual connection around a sublayer f: x + f(norm(x)) with norm "pre", norm(x + f(x)) with norm "post".

    "post" is the original; "pre" (Xiong et al. 2020) passes the gradient on unchanged and depends less on warm-up.
    """

    def __init__(self, *, width: int, norm: Norm, dropout: float = 0.0) -> None:
        super().__init__()
        check_probabilities(dropout=dropout)
        check_choice("norm", norm, get_args(Norm))
        self.norm, self.dropout = nn.LayerNorm(width), Dropout(dropout)
        self.pre = norm == "pre"

    def before(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        """The input of the sublayer."""
        normed: Tensor = self.norm(x) if self.pre else x
        return normed

    def after(
        self, x: Float[Tensor, "batch time width"], change: Float[Tensor, "batch time width"]
    ) -> Float[Tensor, "batch time width"]:
        """The output, from the input x and the output `change` of the sublayer."""
        x = x + self.dropout(change)
        normed: Tensor = x if self.pre else self.norm(x)
        return normed


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
        """The output, and the weights of the self-attention."""
        change, weights = self.own(self.around_own.before(x), visible=visible)
        x = self.around_own.after(x, change)
        return Attended(self.around_feed.after(x, self.feed(self.around_feed.before(x))), weights)


class DecoderLayerOutput(NamedTuple):
    """The output of a decoder layer, and its attention weights."""

    values: Float[Tensor, "batch query width"]
    own: Weights
    """Self-attention: from each target position to itself and earlier ones."""
    cross: Weights
    """Cross-attention: from each target position to the source."""


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to a source of width `key_width`, then the feed-forward network.

    `memory` projects the keys and values of the source once. `forward` processes a whole target; `step` the next token
    of many hypotheses, where the hypotheses of a sentence are queries to the same source.
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
        """The projected keys and values of the source states."""
        return self.cross.keys_values(states)

    def forward(
        self,
        x: Float[Tensor, "batch target width"],
        memory: KeyValues,
        visible: Visible | Bool[Tensor, "..."] | None = None,
        *,
        own_visible: Visible | Bool[Tensor, "..."] | None = CAUSAL,
    ) -> DecoderLayerOutput:
        """Process every position of a whole target at once.

        `visible` is the mask of the source; `own_visible` is that of the target and defaults to causal.
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
        """Process the newest token of every hypothesis and add it to `cache`, which holds the earlier ones."""
        start = cache.length
        newest = self.around_own.before(x).reshape(-1, 1, x.shape[-1])  # each hypothesis has its own past
        past = cache.append(self.own.keys_values(newest, start=start))
        change, own = self.own.attend(newest, past, start=start)
        return self._attend_to_source(self.around_own.after(x, change.view_as(x)), own, memory, visible)

    def _attend_to_source(
        self, x: Tensor, own: Weights, memory: KeyValues, visible: Visible | Tensor | None
    ) -> DecoderLayerOutput:
        change, cross = self.cross.attend(self.around_cross.before(x), memory, visible)
        x = self.around_cross.after(x, change)
        return DecoderLayerOutput(self.around_feed.after(x, self.feed(self.around_feed.before(x))), own, cross)
