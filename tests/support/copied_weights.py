"""Models that are not ours and models of ours holding the same numbers."""

import torch
from torch import nn

from jumok.layers import MultiHeadAttention
from jumok.models import EncoderDecoder, TransformerDecoderConfig, TransformerEncoderConfig, build_model


@torch.no_grad()
def copy_torch_transformer(theirs: nn.Transformer, ours: EncoderDecoder) -> None:
    """Every layer of theirs into ours; embeddings and output, which theirs lacks, stay as they are."""
    for half, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for mine, layer in zip(half.layers, other.layers, strict=True):
            _copy_torch_attention(mine.own, layer.self_attn)
            mine.around_own.norm.load_state_dict(layer.norm1.state_dict())
            if half is ours.decoder:
                _copy_torch_attention(mine.cross, layer.multihead_attn)
                mine.around_cross.norm.load_state_dict(layer.norm2.state_dict())
            last_norm = layer.norm3 if half is ours.decoder else layer.norm2
            mine.around_feed.norm.load_state_dict(last_norm.state_dict())
            mine.feed.to_hidden.load_state_dict(layer.linear1.state_dict())
            mine.feed.to_output.load_state_dict(layer.linear2.state_dict())
        if half.norm is not None:
            half.norm.load_state_dict(other.norm.state_dict())


def _copy_torch_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    parts = zip(theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True)
    for linear, (weight, bias) in zip((ours.to_query, ours.to_key, ours.to_value), parts, strict=True):
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    ours.to_output.load_state_dict(theirs.out_proj.state_dict())


@torch.no_grad()
def as_jumok(marian: nn.Module) -> EncoderDecoder:
    """Ours with the weights of a Hugging Face MarianMTModel.

    Its sinusoids stand in two halves, all sines and then all cosines, where ours alternate. So wherever a vector of the
    model's width comes in or goes out, its numbers change places with them.
    """
    config = marian.config
    shared = {
        "width": config.d_model,
        "norm": "post",
        "positions": "added",
        "activation": {"swish": "silu"}.get(config.activation_function, config.activation_function),
    }
    ours = build_model(
        TransformerEncoderConfig(
            layers=config.encoder_layers, heads=config.encoder_attention_heads, hidden=config.encoder_ffn_dim, **shared
        ),
        TransformerDecoderConfig(
            layers=config.decoder_layers,
            heads=config.decoder_attention_heads,
            hidden=config.decoder_ffn_dim,
            tied="all" if config.tie_word_embeddings else "none",
            **shared,
        ),
        source_vocabulary=config.vocab_size,
        target_vocabulary=config.vocab_size,
        shared_vocabulary=True,
    ).to(marian.dtype)
    places = alternating(config.d_model)
    ours.decoder.output.weight.copy_(marian.lm_head.weight[:, places])
    ours.decoder.output.bias.copy_(marian.final_logits_bias[0])
    for half, other in ((ours.encoder, marian.model.encoder), (ours.decoder, marian.model.decoder)):
        half.tokens.embedding.table.copy_(other.embed_tokens.weight[:, places])
        for mine, layer in zip(half.layers, other.layers, strict=True):
            _copy_marian_attention(mine.own, layer.self_attn, places)
            _copy_norm(mine.around_own.norm, layer.self_attn_layer_norm, places)
            if half is ours.decoder:
                _copy_marian_attention(mine.cross, layer.encoder_attn, places)
                _copy_norm(mine.around_cross.norm, layer.encoder_attn_layer_norm, places)
            _copy_norm(mine.around_feed.norm, layer.final_layer_norm, places)
            _copy_linear(mine.feed.to_hidden, layer.fc1, entering=places)
            _copy_linear(mine.feed.to_output, layer.fc2, leaving=places)
    return ours.train(marian.training)


def alternating(width: int) -> torch.Tensor:
    """Which number of [sin, sin, ..., cos, cos, ...] is each of [sin, cos, sin, cos, ...]."""
    return torch.arange(width).view(2, width // 2).T.flatten()


def _copy_marian_attention(ours: MultiHeadAttention, theirs: nn.Module, places: torch.Tensor) -> None:
    for linear, other in ((ours.to_query, theirs.q_proj), (ours.to_key, theirs.k_proj), (ours.to_value, theirs.v_proj)):
        _copy_linear(linear, other, entering=places)
    _copy_linear(ours.to_output, theirs.out_proj, leaving=places)


def _copy_linear(ours: nn.Linear, theirs: nn.Linear, *, entering=slice(None), leaving=slice(None)) -> None:
    ours.weight.copy_(theirs.weight[leaving][:, entering])
    ours.bias.copy_(theirs.bias[leaving])


def _copy_norm(ours: nn.LayerNorm, theirs: nn.LayerNorm, places: torch.Tensor) -> None:
    ours.weight.copy_(theirs.weight[places])
    ours.bias.copy_(theirs.bias[places])
