"""From the sections [encoder] and [decoder] of a recipe to a model: any encoder with any decoder."""

from collections.abc import Callable
from typing import NamedTuple

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import TokenEmbedding
from jumok.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig

EncoderConfig = TransformerEncoderConfig | RnnEncoderConfig
DecoderConfig = TransformerDecoderConfig | RnnDecoderConfig


class EncoderKind(NamedTuple):
    """A family of encoders: what its section is read into, and what is made of that, given `vocabulary`."""

    config: type[EncoderConfig]
    make: Callable[..., Encoder]


class DecoderKind(NamedTuple):
    """A family of decoders, made given `vocabulary`, `encoder_width` and an `embedding` to share, or None."""

    config: type[DecoderConfig]
    make: Callable[..., Decoder]


ENCODERS = {
    "transformer": EncoderKind(TransformerEncoderConfig, TransformerEncoder),
    "rnn": EncoderKind(RnnEncoderConfig, RnnEncoder),
}
"""The encoders there are, by the `kind` of their section."""
DECODERS = {
    "transformer": DecoderKind(TransformerDecoderConfig, TransformerDecoder),
    "rnn": DecoderKind(RnnDecoderConfig, RnnDecoder),
}
"""The decoders there are, by the `kind` of their section."""


def build_model(
    encoder_config: EncoderConfig,
    decoder_config: DecoderConfig,
    *,
    source_vocabulary: int,
    target_vocabulary: int,
    shared_vocabulary: bool = False,
) -> EncoderDecoder:
    """A model with fresh weights; the same ones after the same torch.manual_seed.

    The vocabularies are given by how many tokens they have. `shared_vocabulary` says that they are one and the same,
    so that source and target may share their embeddings.
    """
    if shared_vocabulary and source_vocabulary != target_vocabulary:
        raise ArgumentError(
            f"a shared vocabulary has one size, but source_vocabulary = {source_vocabulary} and "
            f"target_vocabulary = {target_vocabulary}"
        )
    if isinstance(decoder_config, RnnDecoderConfig) and decoder_config.copy and not shared_vocabulary:
        raise ConfigError(
            "decoder.copy = true copies source tokens into the target, but their vocabularies differ; "
            "share the vocabulary or set decoder.copy = false"
        )
    encoder = ENCODERS[encoder_config.kind].make(encoder_config, vocabulary=source_vocabulary)
    embedding = _shared_embedding(encoder, decoder_config, shared_vocabulary) if decoder_config.ties_source else None
    decoder = DECODERS[decoder_config.kind].make(
        decoder_config, vocabulary=target_vocabulary, encoder_width=encoder.width, embedding=embedding
    )
    return EncoderDecoder(encoder, decoder)


def _shared_embedding(encoder: Encoder, config: DecoderConfig, shared_vocabulary: bool) -> TokenEmbedding:
    said = f'decoder.tied = "{config.tied}" shares the embeddings of source and target'
    instead = 'set decoder.tied = "output" or "none"'
    if config.vectors:
        raise ConfigError(f"{said}, so decoder.vectors would replace encoder.vectors; leave it out, or {instead}")
    embedding = getattr(encoder, "embedding", None)
    if not isinstance(embedding, TokenEmbedding):
        raise ConfigError(f"{said}, but the encoder has no tokens; {instead}")
    if not shared_vocabulary:
        raise ConfigError(f"{said}, but their vocabularies differ; share the vocabulary or {instead}")
    if embedding.width != config.token_width:
        raise ConfigError(
            f"{said}, but the encoder's are {embedding.width} wide and the decoder's {config.token_width}; "
            f"make them alike or {instead}"
        )
    return embedding
