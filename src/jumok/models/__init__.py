"""Sequence models, tensors in and tensors out: encoders, decoders, and what any two of them are together."""

from jumok.models.build import build_model
from jumok.models.encoder_decoder import Decoder, Encoder, Encoding, Prediction, Seq2Seq, State
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig

__all__ = [
    "Decoder",
    "Encoder",
    "Encoding",
    "Prediction",
    "RnnDecoder",
    "RnnDecoderConfig",
    "RnnEncoder",
    "RnnEncoderConfig",
    "Seq2Seq",
    "State",
    "TransformerDecoder",
    "TransformerDecoderConfig",
    "TransformerEncoder",
    "TransformerEncoderConfig",
    "build_model",
]
