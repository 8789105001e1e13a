"""Encoder-decoder models: the contracts, recurrent and Transformer encoders and decoders, and `build_model`."""

from jumok.models.build import build_model
from jumok.models.encoder_decoder import (
    Decoder,
    Encoder,
    EncoderDecoder,
    Encoding,
    Hidden,
    Prediction,
    SingleHeadWeights,
    State,
)
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderBase, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig
from jumok.models.rnn.hard_attention import HardAttentionBase, HardAttentionConfig, HardAttentionDecoder
from jumok.models.rnn.transducer import TransducerConfig, TransducerDecoder
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderBase, TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig

__all__ = [
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "Encoding",
    "HardAttentionBase",
    "HardAttentionConfig",
    "HardAttentionDecoder",
    "Hidden",
    "Prediction",
    "RnnDecoder",
    "RnnDecoderBase",
    "RnnDecoderConfig",
    "RnnEncoder",
    "RnnEncoderConfig",
    "SingleHeadWeights",
    "State",
    "TransducerConfig",
    "TransducerDecoder",
    "TransformerDecoder",
    "TransformerDecoderBase",
    "TransformerDecoderConfig",
    "TransformerEncoder",
    "TransformerEncoderConfig",
    "build_model",
]
