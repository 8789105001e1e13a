"""Whole models, tensors in and tensors out: kernel regression, the soft database, encoders, decoders, graph networks.

Each is imported when first asked for, since some need optional packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumok.models.build import build_model
    from jumok.models.gat import GatConfig, GraphAttentionNetwork, GraphPrediction
    from jumok.models.kernel_regression import KernelRegressor
    from jumok.models.rnn_decoder import RnnDecoder, RnnDecoderConfig
    from jumok.models.rnn_encoder import RnnEncoder, RnnEncoderConfig
    from jumok.models.seq2seq import Decoder, Encoder, Encoding, Prediction, Seq2Seq, State
    from jumok.models.soft_database import Answer, SoftDatabase
    from jumok.models.transformer_decoder import TransformerDecoder, TransformerDecoderConfig
    from jumok.models.transformer_encoder import TransformerEncoder, TransformerEncoderConfig

__all__ = [
    "Answer",
    "Decoder",
    "Encoder",
    "Encoding",
    "GatConfig",
    "GraphAttentionNetwork",
    "GraphPrediction",
    "KernelRegressor",
    "Prediction",
    "RnnDecoder",
    "RnnDecoderConfig",
    "RnnEncoder",
    "RnnEncoderConfig",
    "Seq2Seq",
    "SoftDatabase",
    "State",
    "TransformerDecoder",
    "TransformerDecoderConfig",
    "TransformerEncoder",
    "TransformerEncoderConfig",
    "build_model",
]

_HOME = {
    "Answer": "soft_database",
    "Decoder": "seq2seq",
    "Encoder": "seq2seq",
    "Encoding": "seq2seq",
    "GatConfig": "gat",
    "GraphAttentionNetwork": "gat",
    "GraphPrediction": "gat",
    "KernelRegressor": "kernel_regression",
    "Prediction": "seq2seq",
    "RnnDecoder": "rnn_decoder",
    "RnnDecoderConfig": "rnn_decoder",
    "RnnEncoder": "rnn_encoder",
    "RnnEncoderConfig": "rnn_encoder",
    "Seq2Seq": "seq2seq",
    "SoftDatabase": "soft_database",
    "State": "seq2seq",
    "TransformerDecoder": "transformer_decoder",
    "TransformerDecoderConfig": "transformer_decoder",
    "TransformerEncoder": "transformer_encoder",
    "TransformerEncoderConfig": "transformer_encoder",
    "build_model": "build",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
