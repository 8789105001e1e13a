"""What the settings of recurrent encoders and decoders share."""

from dataclasses import dataclass
from typing import Literal, get_args

from jumok.errors import ConfigError
from jumok.models.half import HalfConfig

Cell = Literal["rnn", "gru", "lstm"]


@dataclass(frozen=True, kw_only=True)
class RnnConfig(HalfConfig):
    """The settings of one half, encoder or decoder; they need not be alike."""

    kind: Literal["rnn"] = "rnn"
    """Kind of model: "transformer" or "rnn"."""
    cell: Cell = "gru"
    """Recurrent cell: plain "rnn", "gru" or "lstm"."""
    width: int = 512
    """Size of the hidden state; in an encoder, of both directions together."""
    layers: int = 1
    """Number of recurrent layers."""
    embedding: int = 256
    """Size of the embeddings."""
    dropout: float = 0.2
    """Dropout on embeddings, between layers and, in a decoder, before the output layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "layers", "embedding"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{self._said(name)}; wanted at least 1")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"{self._said('dropout')}; wanted at least 0 and below 1")
        self._one_of("kind", ("rnn",))
        self._one_of("cell", get_args(Cell))

    @property
    def token_width(self) -> int:
        """Size of a token's vector, by the name it has in every family of models."""
        return self.embedding

    def width_for(self, token_width: int) -> str:
        """The setting that makes a token's vector this wide."""
        return f"{self.section}.embedding = {token_width}"
