"""What the settings of every half of a model share, and the table of its tokens."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import TokenEmbedding
from jumok.settings import Settings

Tied = Literal["none", "output", "embeddings", "all"]
"""Which tables of a model are one."""


@dataclass(frozen=True, kw_only=True)
class HalfConfig(Settings, ABC):
    """The settings of an encoder or a decoder of tokens, whatever its family."""

    section: ClassVar[str] = "model"

    kind: str = ""
    vectors: str = ""
    """File of pretrained word vectors that initialise the embeddings: word2vec, GloVe or fastText (.vec)."""
    freeze_vectors: bool = False
    """Do not train the embeddings, including those of pieces without a pretrained vector."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.freeze_vectors and not self.vectors:
            raise ConfigError(
                f"{self.shown('freeze_vectors')} needs {self.section}.vectors: without them a random table would stay "
                "random"
            )

    @property
    @abstractmethod
    def token_width(self) -> int:
        """Size of a token's vector, by the name it has in every family of models."""

    @abstractmethod
    def width_for(self, token_width: int) -> str:
        """The setting that makes a token's vector this wide."""

    @property
    def limit(self) -> int | None:
        """The longest sequence there can be; None where there is no such limit."""
        return None


class Tying:
    """What the `tied` of a decoder's settings means."""

    tied: Tied

    @property
    def ties_output(self) -> bool:
        """Whether the output is the target embedding."""
        return self.tied in ("output", "all")

    @property
    def ties_source(self) -> bool:
        """Whether the target embedding is the source embedding."""
        return self.tied in ("embeddings", "all")


def token_table(
    config: HalfConfig, *, vocabulary: int, scale: bool, embedding: TokenEmbedding | None = None
) -> TokenEmbedding:
    """A fresh table, or the one given if it fits; one that learns nothing where its vectors are to stay."""
    width = config.token_width
    if embedding is None:
        embedding = TokenEmbedding(vocabulary=vocabulary, width=width, scale=scale)
    elif (len(embedding.table), embedding.width) != (vocabulary, width):
        raise ArgumentError(
            f"the embedding holds {len(embedding.table)} tokens, {embedding.width} wide; wanted {vocabulary} tokens, "
            f"{width} wide"
        )
    if config.freeze_vectors:
        embedding.table.requires_grad_(False)
    return embedding
