"""What the settings of recurrent encoders and decoders share."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import TokenEmbedding

Cell = Literal["rnn", "gru", "lstm"]


@dataclass(frozen=True, kw_only=True)
class RnnConfig:
    """The settings of one half, encoder or decoder; they need not be alike."""

    section: ClassVar[str] = "model"

    kind: Literal["rnn"] = "rnn"
    """The family of models this half belongs to."""
    cell: Cell = "gru"
    """What steps from state to state: plain "rnn", "gru" or "lstm"."""
    width: int = 512
    """Size of a state; in an encoder, of both directions together."""
    layers: int = 1
    """Recurrent layers on top of each other."""
    embedding: int = 256
    """Size of a token's vector."""
    dropout: float = 0.2
    """Dropout on embeddings, between layers and, in a decoder, before the output layer."""

    def __post_init__(self) -> None:
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

    def _one_of(self, name: str, known: tuple[str, ...]) -> None:
        if getattr(self, name) not in known:
            raise ConfigError(f"{self._said(name)}; wanted one of {', '.join(known)}")

    def _said(self, name: str) -> str:
        value = getattr(self, name)
        if isinstance(value, bool):
            return f"{self.section}.{name} = {str(value).lower()}"
        return f"{self.section}.{name} = " + (f'"{value}"' if isinstance(value, str) else str(value))


def own_or_shared(embedding: TokenEmbedding | None, *, vocabulary: int, width: int) -> TokenEmbedding:
    """A fresh table, or the one given if it fits."""
    if embedding is None:
        return TokenEmbedding(vocabulary=vocabulary, width=width)
    if (len(embedding.table), embedding.width) != (vocabulary, width):
        raise ArgumentError(
            f"the embedding holds {len(embedding.table)} tokens, {embedding.width} wide; wanted {vocabulary} tokens, "
            f"{width} wide"
        )
    return embedding
