"""Settings that all encoders and decoders of text share, and the embeddings and tied outputs they describe."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import nn

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import TokenEmbedding
from jumok.settings import FilePath, OnlyWith, Settings

Tied = Literal["none", "output", "embeddings", "all"]
"""Which embedding and output weights of a model are shared."""
TiedOutput = Literal["none", "output"]
"""The same where the source has no embeddings."""


@dataclass(frozen=True, kw_only=True)
class TextModelConfig(Settings, ABC):
    """The settings of an encoder or a decoder of text, whatever its kind."""

    section: ClassVar[str] = "model"

    kind: str = ""

    vectors, freeze_vectors = "", False  # settings only of those with `PretrainedVectors`

    @property
    @abstractmethod
    def token_width(self) -> int:
        """Size of a token's vector."""

    @abstractmethod
    def width_for(self, token_width: int) -> str:
        """The setting that makes a token's vector this wide."""

    @property
    def limit(self) -> int | None:
        """The longest sequence the model can take; None for no limit."""
        return None


@dataclass(frozen=True, kw_only=True)
class PretrainedVectors(TextModelConfig):
    """The settings of an encoder or a decoder that can start from word vectors; stands last among base classes."""

    vectors: FilePath = ""
    """File of pretrained word vectors that initialise the embeddings: word2vec, GloVe or fastText (.vec)."""
    freeze_vectors: Annotated[bool, OnlyWith("vectors")] = False
    """Do not train the embeddings, including those of pieces without a pretrained vector."""


class Tying:
    """The meaning of a decoder's setting `tied`; and no copying, which is a setting only where the source is text."""

    tied: Tied
    copy: bool = False

    @property
    def ties_output(self) -> bool:
        """Whether the output layer is the target embedding."""
        return self.tied in ("output", "all")

    @property
    def ties_source(self) -> bool:
        """Whether the target embedding is the source embedding."""
        return self.tied in ("embeddings", "all")


def token_table(
    config: TextModelConfig, *, vocabulary: int, scale: bool, embedding: TokenEmbedding | None = None
) -> TokenEmbedding:
    """The given embedding, or a new one; frozen if the settings say so.

    A table that is the output layer as well should be scaled: rows of length 1 give logits of the right size, and Adam,
    whose steps do not depend on the size of gradients, changes them as fast as those of a layer of its own.
    """
    width = config.token_width
    if embedding is None:
        embedding = TokenEmbedding(vocabulary=vocabulary, width=width, scale=scale)
    elif (len(embedding.table), embedding.width) != (vocabulary, width):
        raise ArgumentError(
            f"the embedding holds {len(embedding.table)} tokens, {embedding.width} wide; expected {vocabulary} tokens, "
            f"{width} wide"
        )
    if config.freeze_vectors:
        embedding.table.requires_grad_(False)
    return embedding


def tied_output(embedding: TokenEmbedding, config: TextModelConfig) -> nn.Parameter:
    """The embedding's table as the weight of an output layer."""
    if embedding.project is not None:
        raise ConfigError(
            f"the output cannot be tied to vectors {embedding.table.shape[1]} wide when embeddings are "
            f'{config.token_width} wide; set {config.section}.tied = "none"'
        )
    return embedding.table
