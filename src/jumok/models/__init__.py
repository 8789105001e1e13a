"""Whole networks, tensors in and tensors out: encoders and decoders that go together in any combination."""

from jumok.models.build import build_model
from jumok.models.seq2seq import Decoder, Encoder, Encoding, Prediction, Seq2Seq, State
from jumok.models.transformer_decoder import TransformerDecoder, TransformerDecoderConfig
from jumok.models.transformer_encoder import TransformerEncoder, TransformerEncoderConfig

__all__ = [
    "Decoder",
    "Encoder",
    "Encoding",
    "Prediction",
    "Seq2Seq",
    "State",
    "TransformerDecoder",
    "TransformerDecoderConfig",
    "TransformerEncoder",
    "TransformerEncoderConfig",
    "build_model",
]
