"""What Transformer encoders and decoders share: settings, embeddings with positions, and initial weights."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.errors import ConfigError
from jumok.layers import (
    AddedPositions,
    ConcatenatedPositions,
    LearnedPositions,
    MultiHeadAttention,
    RotaryPositions,
    TokenEmbedding,
)
from jumok.layers.dropout import Dropout
from jumok.layers.gpu.stack import Embedded
from jumok.layers.positions import Start, sinusoids
from jumok.layers.transformer import Activation, Norm
from jumok.models.config import TextModelConfig, token_table
from jumok.settings import Depth, Fraction, OnlyWith, PositiveInt

Positions = Literal["added", "concatenated", "learned", "rotary"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TextModelConfig):
    """The settings that Transformer encoders and decoders share; the two need not be equal."""

    width: PositiveInt = 256
    """Size of a token's vector between layers."""
    heads: PositiveInt = 4
    """Attention heads per layer; must divide `width`."""
    key_heads: PositiveInt | None = None
    """Heads of keys and values, shared by groups of `heads`; must divide `heads` and defaults to `heads`."""
    hidden: PositiveInt = 1024
    """Hidden size of the feed-forward networks."""
    layers: Depth = 3
    """Number of layers."""
    norm: Norm = "pre"
    """Layer normalisation before each sublayer ("pre") or after the residual connection ("post")."""
    positions: Positions = "added"
    """Position encoding: sinusoids "added" or "concatenated" to the embeddings, "learned" vectors, or "rotary"."""
    position_width: Annotated[PositiveInt, OnlyWith("positions", "concatenated")] = 32
    """Part of `width` used by concatenated positions."""
    longest: Annotated[PositiveInt, OnlyWith("positions", "learned")] = 512
    """Number of learned positions."""
    activation: Activation = "relu"
    """Activation function of the feed-forward networks: "relu", "gelu", "silu" or "swiglu"."""
    dropout: Fraction = 0.1
    """Dropout on the embeddings and on the output of each sublayer."""
    attention_dropout: Fraction = 0.0
    """Dropout on attention weights."""
    activation_dropout: Fraction = 0.0
    """Dropout inside the feed-forward networks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_heads()
        if self.positions == "concatenated" and self.position_width >= self.width:
            raise ConfigError(
                f"{self.shown('position_width')} leaves no room for the token in {self.shown('width')}; "
                f"it must be below {self.width}"
            )

    @property
    def token_width(self) -> int:
        """Size of a token's vector; concatenated positions take the rest of `width`."""
        return self.width - self.position_width if self.positions == "concatenated" else self.width

    def width_for(self, token_width: int) -> str:
        """The setting that makes a token's vector this wide."""
        return f"{self.section}.width = {token_width + self.width - self.token_width}"

    @property
    def limit(self) -> int | None:
        """The longest sequence the model can take; None for no limit."""
        return self.longest if self.positions == "learned" else None

    def layer_options(self) -> dict[str, Any]:
        """The arguments of an `EncoderLayer` or a `DecoderLayer`."""
        names = ("width", "heads", "key_heads", "hidden", "norm", "activation")
        dropouts = ("dropout", "attention_dropout", "activation_dropout")
        rotary = RotaryPositions(head_dim=self.width // self.heads) if self.positions == "rotary" else None
        return {name: getattr(self, name) for name in names + dropouts} | {"rotary": rotary}

    def _check_heads(self) -> None:
        if self.width % self.heads:
            nearest = max(round(self.width / self.heads), 1) * self.heads
            raise ConfigError(
                f"{self.shown('heads')} does not divide {self.shown('width')}; "
                f"the nearest width that works is {nearest}"
            )
        if self.key_heads is not None and self.heads % self.key_heads:
            works = ", ".join(str(n) for n in range(1, self.heads + 1) if self.heads % n == 0)
            raise ConfigError(f"{self.shown('key_heads')} does not divide {self.shown('heads')}; these do: {works}")


class PositionedTokens(nn.Module):
    """Token ids to vectors: embeddings times √width, positions, dropout."""

    def __init__(self, config: TransformerConfig, *, vocabulary: int, embedding: TokenEmbedding | None = None) -> None:
        super().__init__()
        self.embedding = token_table(config, vocabulary=vocabulary, scale=True, embedding=embedding)
        self.positions = _positions(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Int[Tensor, "batch time"], *, start: Start = 0) -> Float[Tensor, "batch time width"]:
        """The vectors of the tokens; `start` is the position of the first, one for all or one for each sequence."""
        vectors = self.embedding(ids)
        positioned: Tensor = self.dropout(vectors if self.positions is None else self.positions(vectors, start))
        return positioned

    def embedded(self, ids: Int[Tensor, "batch time"]) -> Embedded | Float[Tensor, "batch time width"]:
        """The vectors for a fused stack of pre-norm layers, which scales, places and drops them in its first norm.

        Where other code may watch or change them, they are already that.
        """
        table, placed = self.embedding, self.positions
        parts = [part for part in self.modules() if part._forward_hooks or part._forward_pre_hooks]
        if parts or type(table) is not TokenEmbedding or not (placed is None or type(placed) is AddedPositions):
            return self(ids)  # type: ignore[no-any-return]
        vectors, factor = table.unscaled(ids), table.factor
        time = torch.arange(ids.shape[1], device=ids.device)
        positions = None if placed is None else sinusoids(time, vectors.shape[-1], dtype=vectors.dtype)
        return Embedded(vectors, positions, factor, self.dropout.p if self.dropout.training else 0.0)


def initialise(model: nn.Module) -> None:
    """Xavier-uniform weights and zero biases for every linear layer (Glorot & Bengio 2010).

    Query, key and value weights are drawn as parts of one matrix three times as tall, as in other libraries.
    """
    thirds = {
        third
        for module in model.modules()
        if isinstance(module, MultiHeadAttention)
        for third in (module.to_query, module.to_key, module.to_value)
    }
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain=2**-0.5 if module in thirds else 1.0)
            nn.init.zeros_(module.bias)


def _positions(config: TransformerConfig) -> nn.Module | None:
    if config.positions == "added":
        return AddedPositions(width=config.width)
    if config.positions == "concatenated":
        return ConcatenatedPositions(width=config.width, position_width=config.position_width)
    if config.positions == "learned":
        return LearnedPositions(width=config.width, longest=config.longest)
    return None  # rotary positions rotate queries and keys in every layer
