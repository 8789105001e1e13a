"""A Transformer as a model of CTranslate2, an engine for fast translation on CPUs and GPUs (Klein et al. 2020).

Every weight keeps its value: the float32 model writes the tokens that ours writes. Products of queries, keys and values
become one, as the engine wants them, and positions become a table.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from jumok.data import BOS, EOS, PAD, UNK, TokenizerPair
from jumok.decoding.config import Quantization
from jumok.errors import ConfigError, ModelError
from jumok.layers import MultiHeadAttention
from jumok.layers.positions import LearnedPositions, sinusoids
from jumok.layers.transformer import DecoderLayer, EncoderLayer, FeedForward
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.transformer.config import TransformerConfig
from jumok.models.transformer.decoder import TransformerDecoder
from jumok.models.transformer.encoder import TransformerEncoder

POSITIONS = 4096
"""Longest sequence of an exported model with sinusoidal positions."""
NEVER = -1e9
"""The bias of tokens that our search does not consider, and the engine would."""
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}


def why_not(model: EncoderDecoder) -> str | None:
    """Why a model cannot run on CTranslate2; None if it can."""
    encoder, decoder = model.encoder, model.decoder
    for name, part in (("encoder", encoder), ("decoder", decoder)):
        config = getattr(part, "config", None)  # a class of the user's own may have none
        if not isinstance(part, TransformerEncoder | TransformerDecoder):
            return f"CTranslate2 runs Transformers only, and the {name} is {getattr(config, 'kind', 'of another kind')}"
        if part.config.positions == "concatenated":
            return f'CTranslate2 has no {name}.positions = "concatenated"'
    assert isinstance(encoder, TransformerEncoder)
    assert isinstance(decoder, TransformerDecoder)
    if decoder.config.copy:
        return "CTranslate2 has no decoder.copy = true"
    if encoder.width != decoder.width:
        return f"CTranslate2 needs equal widths, but they are {encoder.width} and {decoder.width}"
    return None


def write_model(
    model: EncoderDecoder,
    tokenizers: TokenizerPair,
    folder: str | Path,
    *,
    quantization: Quantization = "float32",
    never: tuple[int, ...] = (PAD, BOS),
) -> None:
    """Write `folder` as a model of CTranslate2; a ModelError for a model that it cannot run.

    Tokens in `never` get no probability. Our search passes them over, but their probability counts in its scores.
    """
    if (reason := why_not(model)) is not None:
        raise ModelError(reason)
    assert isinstance(model.encoder, TransformerEncoder)
    assert isinstance(model.decoder, TransformerDecoder)
    spec = _specification(model.encoder, model.decoder)
    spec.decoder.projection.bias[list(never)] = NEVER
    spec.register_source_vocabulary(tokenizers.source.pieces)
    spec.register_target_vocabulary(tokenizers.target.pieces)
    start, end, unknown = (tokenizers.target.pieces[token] for token in (BOS, EOS, UNK))
    spec.config.bos_token = spec.config.decoder_start_token = start
    spec.config.eos_token, spec.config.unk_token = end, unknown
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    Path(folder).mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def specs() -> Any:
    """The module that describes models; a ConfigError where CTranslate2 is not installed."""
    try:
        import ctranslate2.specs
    except ImportError:
        raise ConfigError("CTranslate2 is not installed; run in the folder of jumok: pip install '.[fast]'") from None
    return ctranslate2.specs


def _specification(encoder: TransformerEncoder, decoder: TransformerDecoder) -> Any:
    """The description of the model, with its weights."""
    module = specs()
    spec = module.TransformerSpec(
        module.transformer_spec.TransformerEncoderSpec(**_options(module, encoder.config)),
        module.transformer_spec.TransformerDecoderSpec(**_options(module, decoder.config)),
    )
    _fill_common(spec.encoder, spec.encoder.embeddings[0], encoder)
    _fill_common(spec.decoder, spec.decoder.embeddings, decoder)
    for layer, ours in zip(spec.encoder.layer, cast(Iterable[EncoderLayer], encoder.layers), strict=True):
        _fill_own(layer.self_attention, ours.own, ours.around_own.norm)
        _fill_feed_forward(layer.ffn, ours.feed, ours.around_feed.norm)
    for layer, own in zip(spec.decoder.layer, cast(Iterable[DecoderLayer], decoder.layers), strict=True):
        _fill_own(layer.self_attention, own.own, own.around_own.norm)
        _fill_cross(layer.attention, own.cross, own.around_cross.norm)
        _fill_feed_forward(layer.ffn, own.feed, own.around_feed.norm)
    _fill_linear(spec.decoder.projection, [decoder.output])
    return spec


def _options(module: Any, config: TransformerConfig) -> dict[str, Any]:
    return {
        "num_layers": config.layers,
        "num_heads": config.heads,
        "num_heads_kv": None if config.key_heads in (None, config.heads) else config.key_heads,
        "pre_norm": config.norm == "pre",
        "activation": getattr(module.common_spec.Activation, ACTIVATIONS[config.activation]),
        "ffn_glu": config.activation == "swiglu",
        "rotary_dim": 0 if config.positions == "rotary" else None,
    }


def _fill_common(spec: Any, embeddings: Any, part: TransformerEncoder | TransformerDecoder) -> None:
    """Embeddings, positions and the last normalisation of an encoder or a decoder."""
    embedding, config = part.embedding, part.config
    table = embedding.table if embedding.project is None else embedding.project(embedding.table)
    embeddings.weight = _array(table)
    spec.scale_embeddings = True
    if config.positions == "added":
        spec.position_encodings.encodings = _array(sinusoids(torch.arange(POSITIONS), config.width))
    elif isinstance(part.tokens.positions, LearnedPositions):
        spec.position_encodings.encodings = _array(part.tokens.positions.table)
    elif hasattr(spec, "position_encodings"):
        del spec.position_encodings  # rotary positions are in the attention
    if part.norm is not None:
        _fill_norm(spec.layer_norm, part.norm)


def _fill_own(spec: Any, attention: MultiHeadAttention, norm: nn.Module) -> None:
    _fill_norm(spec.layer_norm, norm)
    _fill_linear(spec.linear[0], [attention.to_query, attention.to_key, attention.to_value])
    _fill_linear(spec.linear[1], [attention.to_output])


def _fill_cross(spec: Any, attention: MultiHeadAttention, norm: nn.Module) -> None:
    _fill_norm(spec.layer_norm, norm)
    _fill_linear(spec.linear[0], [attention.to_query])
    _fill_linear(spec.linear[1], [attention.to_key, attention.to_value])
    _fill_linear(spec.linear[2], [attention.to_output])


def _fill_feed_forward(spec: Any, feed: FeedForward, norm: nn.Module) -> None:
    _fill_norm(spec.layer_norm, norm)
    _fill_linear(spec.linear_0, [feed.to_hidden if feed.to_gate is None else feed.to_gate])
    if feed.to_gate is not None:
        _fill_linear(spec.linear_0_noact, [feed.to_hidden])
    _fill_linear(spec.linear_1, [feed.to_output])


def _fill_linear(spec: Any, layers: list[nn.Linear]) -> None:
    """One product for several layers with the same input."""
    spec.weight = _array(torch.cat([layer.weight for layer in layers]))
    spec.bias = _array(torch.cat([layer.bias for layer in layers]))


def _fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy().copy()
