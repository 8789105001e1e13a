"""Pretrained word vectors as the first embeddings of a translation model."""

from collections.abc import Callable
from typing import Literal

from jumok.data import Tokenizer, vector_width, vectors_of
from jumok.errors import ConfigError, DataError
from jumok.models.config import TextModelConfig
from jumok.models.encoder_decoder import Decoder, Encoder


def check_vectors(config: TextModelConfig) -> None:
    """Raise an error if the file of vectors that an encoder or decoder names cannot be used."""
    if not config.vectors:
        return
    width = vector_width(config.vectors)
    if width != config.token_width:
        raise ConfigError(
            f'{config.section}.vectors = "{config.vectors}" holds vectors of {width} numbers, but tokens are '
            f"{config.token_width} wide; set {config.width_for(width)}"
        )


def initialise_embeddings(
    part: Encoder | Decoder,
    config: TextModelConfig,
    tokenizer: Tokenizer,
    side: Literal["source", "target"],
    say: Callable[[str], None],
) -> None:
    """Put the vectors of the file that an encoder or decoder names, if any, into its embeddings."""
    if not config.vectors:
        return
    vectors = vectors_of(config.vectors, tokenizer.pieces)
    known = int((~vectors.isnan().any(-1)).sum())
    if not known:
        raise DataError(
            f"none of the {tokenizer.size} pieces of the {side} vocabulary, such as {_longest_pieces(tokenizer)}, is "
            f'a word of {config.vectors}; is it of the same language? With tokenizer.kind = "word" pieces are words'
        )
    part.embedding.initialise_from(vectors)
    say(f"{known:,} of {tokenizer.size:,} pieces of the {side} have a vector in {config.vectors}")


def _longest_pieces(tokenizer: Tokenizer) -> str:
    pieces = [piece.removeprefix("▁") for piece in tokenizer.pieces[4:]]
    return ", ".join(map(repr, sorted(filter(None, pieces), key=len, reverse=True)[:3]))
