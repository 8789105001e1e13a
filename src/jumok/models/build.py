"""From the sections [encoder] and [decoder] of a recipe to a model: any encoder with any decoder."""

from collections.abc import Callable
from typing import NamedTuple

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import TokenEmbedding
from jumok.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderBase, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig
from jumok.models.rnn.hard_attention import HardAttentionBase, HardAttentionConfig, HardAttentionDecoder
from jumok.models.rnn.transducer import TransducerConfig, TransducerDecoder, edit_vocabulary
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderBase, TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig

EncoderConfig = TransformerEncoderConfig | RnnEncoderConfig
DecoderConfig = TransformerDecoderConfig | RnnDecoderConfig | TransducerConfig | HardAttentionConfig
AnySourceDecoderConfig = TransformerDecoderBase | RnnDecoderBase | HardAttentionBase
"""The settings of decoders whose source need not be text."""


class EncoderKind(NamedTuple):
    """A kind of encoder: its settings, and its class, which takes them and `vocabulary`."""

    config: type[EncoderConfig]
    make: Callable[..., Encoder]


class DecoderKind(NamedTuple):
    """A kind of decoder: its settings, and its class, which takes them, `vocabulary`, `encoder_width`, `embedding`."""

    config: type[DecoderConfig]
    make: Callable[..., Decoder]


ENCODERS = {
    "transformer": EncoderKind(TransformerEncoderConfig, TransformerEncoder),
    "rnn": EncoderKind(RnnEncoderConfig, RnnEncoder),
}
"""Encoders by the `kind` of their section."""
DECODERS = {
    "transformer": DecoderKind(TransformerDecoderConfig, TransformerDecoder),
    "rnn": DecoderKind(RnnDecoderConfig, RnnDecoder),
    "transducer": DecoderKind(TransducerConfig, TransducerDecoder),
    "hard": DecoderKind(HardAttentionConfig, HardAttentionDecoder),
}
"""Decoders by the `kind` of their section."""


def build_model(
    encoder_config: EncoderConfig,
    decoder_config: DecoderConfig,
    *,
    source_vocabulary: int,
    target_vocabulary: int,
    shared_vocabulary: bool = False,
) -> EncoderDecoder:
    """A model with random weights, the same after the same torch.manual_seed.

    `source_vocabulary` and `target_vocabulary` are numbers of tokens; `shared_vocabulary` says that both are the same
    vocabulary, so that source and target may share their embeddings.
    """
    edits = isinstance(decoder_config, TransducerConfig)
    if shared_vocabulary and target_vocabulary != (edit_vocabulary(source_vocabulary) if edits else source_vocabulary):
        raise ArgumentError(
            f"a shared vocabulary has one size, but source_vocabulary = {source_vocabulary} and "
            f"target_vocabulary = {target_vocabulary}"
        )
    if decoder_config.copy and not shared_vocabulary:
        raise ConfigError(
            "decoder.copy = true copies source tokens into the target, but their vocabularies differ; "
            "set tokenizer.shared = true or decoder.copy = false"
        )
    table = None
    if decoder_config.ties_source and decoder_config.ties_output:
        table = TokenEmbedding(vocabulary=source_vocabulary, width=encoder_config.token_width, scale=True)
    encoder = ENCODERS[encoder_config.kind].make(encoder_config, vocabulary=source_vocabulary, embedding=table)
    embedding = _shared_embedding(encoder, decoder_config, shared_vocabulary) if decoder_config.ties_source else None
    decoder = DECODERS[decoder_config.kind].make(
        decoder_config, vocabulary=target_vocabulary, encoder_width=encoder.width, embedding=embedding
    )
    return EncoderDecoder(encoder, decoder)


def _shared_embedding(encoder: Encoder, config: DecoderConfig, shared_vocabulary: bool) -> TokenEmbedding:
    setting = f'decoder.tied = "{config.tied}" shares the embeddings of source and target'
    instead = 'set decoder.tied = "output" or "none"'
    if config.vectors:
        raise ConfigError(f"{setting}, so decoder.vectors would replace encoder.vectors; leave it out, or {instead}")
    if not shared_vocabulary:
        raise ConfigError(f"{setting}, but their vocabularies differ; set tokenizer.shared = true or {instead}")
    if encoder.embedding.width != config.token_width:
        raise ConfigError(
            f"{setting}, but the encoder's are {encoder.embedding.width} wide and the decoder's {config.token_width}; "
            f"make them equal or {instead}"
        )
    return encoder.embedding
