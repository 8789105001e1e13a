"""The Transformer encoder: every source token attends to every other, in every layer (Vaswani et al. 2017)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Weights, tracing
from jumok.layers import TokenEmbedding
from jumok.layers.gpu import stack
from jumok.layers.transformer import EncoderLayer
from jumok.models.config import PretrainedVectors
from jumok.models.encoder_decoder import Encoder, Encoding
from jumok.models.transformer.config import PositionedTokens, TransformerConfig, initialise


@dataclass(frozen=True, kw_only=True)
class TransformerEncoderConfig(TransformerConfig, PretrainedVectors):
    """The section [encoder] of a recipe, with kind = "transformer"."""

    section: ClassVar[str] = "encoder"

    kind: Literal["transformer"] = "transformer"
    """Kind of encoder: "transformer" or "rnn"."""
    sees_end: bool = True
    """Let the encoder see the end-of-sentence token of the source; models imported from OpenNMT-py do not."""


END = 2
"""The id of the end of a text, as every tokenizer has it."""


class Encoded(NamedTuple):
    """An encoding, and the attention that made it."""

    encoding: Encoding
    self_attention: tuple[Weights, ...]
    """Attention of the source tokens to each other [batch, head, source, source], one entry for each layer."""


class TransformerEncoder(Encoder):
    """A Transformer encoder; its summary is the mean of the visible states.

    `embedding` is a table to share; the encoder makes its own by default.
    """

    def __init__(
        self, config: TransformerEncoderConfig, *, vocabulary: int, embedding: TokenEmbedding | None = None
    ) -> None:
        super().__init__()
        self.config, self.width, self.limit, self.vocabulary = config, config.width, config.limit, vocabulary
        self.tokens = PositionedTokens(config, vocabulary=vocabulary, embedding=embedding)
        self.layers = nn.ModuleList(EncoderLayer(**config.layer_options()) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else None
        initialise(self.layers)

    @property
    def embedding(self) -> TokenEmbedding:  # type: ignore[override]
        """The vectors of the source tokens."""
        return self.tokens.embedding

    def forward(self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]) -> Encoding:
        """Encode a padded batch; padding follows the tokens and changes nothing."""
        layers = list(self._layers)
        if not stack.fuses(layers, source.device):
            return self.encode(source, visible).encoding
        visible = self._visible_tokens(source, visible)
        x = self.tokens(source) if self.norm is None else self.tokens.embedded(source)
        states = stack.encoder_stack(layers, self.norm, x, key_mask(visible))
        return self._encoding(states, source, visible)

    def encode(self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]) -> Encoded:
        """The same, with the attention of every layer."""
        x, own = self.tokens(source), []
        visible = self._visible_tokens(source, visible)
        keys = key_mask(visible)
        for layer in self._layers:
            x, weights = layer(x, keys)
            own.append(weights)
        return Encoded(self._encoding(self._normed(x), source, visible), tuple(own))

    def _visible_tokens(self, source: Tensor, visible: Tensor) -> Tensor:
        return visible if self.config.sees_end else visible & (source != END)

    def self_attention(
        self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]
    ) -> tuple[Weights, ...]:
        """Attention [batch, head, source, source] of the source tokens to each other, one entry for each layer."""
        return self.encode(source, visible).self_attention

    def _normed(self, x: Tensor) -> Tensor:
        normed: Tensor = x if self.norm is None else self.norm(x)
        return normed

    def _encoding(self, states: Tensor, source: Tensor, visible: Tensor) -> Encoding:
        states = states.masked_fill(~visible[..., None], 0)
        return Encoding(states, visible, mean_state(states, visible), source)

    @property
    def _layers(self) -> Iterable[EncoderLayer]:
        return cast(Iterable[EncoderLayer], self.layers)


def key_mask(visible: Bool[Tensor, "batch source"]) -> Bool[Tensor, "batch 1 1 source"] | None:
    """The mask of every head and query over these keys; None where all are visible, which is faster."""
    recording = visible.is_cuda and torch.cuda.is_current_stream_capturing()
    if tracing.is_readable(visible) and not recording and bool(visible.all()):
        return None
    return visible[:, None, None]


def mean_state(
    states: Float[Tensor, "batch source width"], visible: Bool[Tensor, "batch source"]
) -> Float[Tensor, "batch width"]:
    """The mean of the visible states, the others being zeros; zeros for an empty source."""
    return states.sum(1) / visible.sum(1, keepdim=True).clamp(min=1)
