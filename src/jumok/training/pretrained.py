"""Embeddings that begin with pretrained word vectors; a run that is resumed, or a saved model, has no need of them."""

from collections.abc import Callable
from typing import Any, Literal

from torch import nn

from jumok.data import Tokenizer, vector_width, vectors_of
from jumok.errors import ConfigError, DataError
from jumok.models.half import HalfConfig


def check_vectors(config: HalfConfig) -> None:
    """Say what is wrong with the file a half names, if it names one, before any work is done."""
    if not config.vectors:
        return
    found = vector_width(config.vectors)
    if found != config.token_width:
        raise ConfigError(
            f'{config.section}.vectors = "{config.vectors}" holds vectors of {found} numbers, but tokens are '
            f"{config.token_width} wide; set {config.width_for(found)}"
        )


def begin_with_vectors(
    half: nn.Module,
    config: HalfConfig,
    tokenizer: Tokenizer,
    side: Literal["source", "target"],
    say: Callable[[str], None],
) -> None:
    """Put the vectors of the file a half names, if it names one, into the table of its tokens."""
    if not config.vectors:
        return
    table: Any = half.embedding
    vectors = vectors_of(config.vectors, tokenizer.pieces)
    known = int((~vectors.isnan().any(-1)).sum())
    if not known:
        raise DataError(
            f"none of the {tokenizer.size} pieces of the {side} vocabulary, such as {_some(tokenizer)}, is a word of "
            f'{config.vectors}; is it of the same language? With tokenizer.kind = "word" pieces are whole words'
        )
    table.begin_with(vectors)
    say(f"{known:,} of {tokenizer.size:,} pieces of the {side} have a vector in {config.vectors}")


def _some(tokenizer: Tokenizer) -> str:
    pieces = [piece.removeprefix("▁") for piece in tokenizer.pieces[4:]]
    return ", ".join(map(repr, sorted(filter(None, pieces), key=len, reverse=True)[:3]))
