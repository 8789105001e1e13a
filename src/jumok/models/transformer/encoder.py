"""The Transformer's encoder: every source token looks at every other, layer upon layer (Vaswani et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Weights, tracing
from jumok.layers import TokenEmbedding
from jumok.layers.transformer import EncoderLayer
from jumok.models.encoder_decoder import Encoder, Encoding
from jumok.models.transformer.config import PlacedTokens, TransformerConfig, initialise


@dataclass(frozen=True, kw_only=True)
class TransformerEncoderConfig(TransformerConfig):
    """The section [encoder] of a recipe, with kind = "transformer"."""

    section: ClassVar[str] = "encoder"


class Encoded(NamedTuple):
    """An encoding, and how it came about."""

    encoding: Encoding
    own: tuple[Weights, ...]
    """Where each source token looked in the source, one entry for each layer: [batch, head, source, source]."""


class TransformerEncoder(Encoder):
    """Source ids to states; padding stands after the tokens, and its states are zeros.

    The summary is the mean of the visible states. `embedding` is a table to share; it makes its own unless given one.
    """

    def __init__(
        self, config: TransformerEncoderConfig, *, vocabulary: int, embedding: TokenEmbedding | None = None
    ) -> None:
        super().__init__()
        self.config, self.width, self.limit, self.vocabulary = config, config.width, config.limit, vocabulary
        self.tokens = PlacedTokens(config, vocabulary=vocabulary, embedding=embedding)
        self.layers = nn.ModuleList(EncoderLayer(**config.layer_options()) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else None
        initialise(self.layers)

    @property
    def embedding(self) -> TokenEmbedding:
        """The table of the source tokens, for a decoder to share."""
        return self.tokens.embedding

    def forward(self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]) -> Encoding:
        """Encode a padded batch; what is not visible changes nothing."""
        return self.encode(source, visible).encoding

    def encode(self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]) -> Encoded:
        """The same, with the attention of every layer."""
        x, own = self.tokens(source), []
        keys = keys_seen(visible)
        for layer in self.layers:
            x, weights = layer(x, keys)
            own.append(weights)
        states = (x if self.norm is None else self.norm(x)).masked_fill(~visible[..., None], 0)
        return Encoded(Encoding(states, visible, mean_state(states, visible), source), tuple(own))


def keys_seen(visible: Bool[Tensor, "batch source"]) -> Bool[Tensor, "batch 1 1 source"] | None:
    """The mask of every head and query over these keys; None where all can be seen, which is faster."""
    if tracing.is_readable(visible) and bool(visible.all()):
        return None
    return visible[:, None, None]


def mean_state(
    states: Float[Tensor, "batch source width"], visible: Bool[Tensor, "batch source"]
) -> Float[Tensor, "batch width"]:
    """The mean of the visible states, the others being zeros; zeros for a source of nothing."""
    return states.sum(1) / visible.sum(1, keepdim=True).clamp(min=1)
