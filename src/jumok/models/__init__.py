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
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig
from jumok.models.rnn.hard_attention import HardAttentionConfig, HardAttentionDecoder
from jumok.models.rnn.transducer import TransducerConfig, TransducerDecoder
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig

__all__ = [
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "Encoding",
    "HardAttentionConfig",
    "HardAttentionDecoder",
    "Hidden",
    "Prediction",
    "RnnDecoder",
    "RnnDecoderConfig",
    "RnnEncoder",
    "RnnEncoderConfig",
    "SingleHeadWeights",
    "State",
    "TransducerConfig",
    "TransducerDecoder",
    "TransformerDecoder",
    "TransformerDecoderConfig",
    "TransformerEncoder",
    "TransformerEncoderConfig",
    "build_model",
]
