"""The equations of Transformer encoders and decoders as ONNX graphs (Vaswani et al. 2017)."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from jumok.data import BOS, PAD
from jumok.exchange.onnx_graph import HIDDEN, OnnxGraph
from jumok.layers import MultiHeadAttention, TokenEmbedding
from jumok.layers.positions import sinusoids
from jumok.layers.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual
from jumok.models.transformer.config import PositionedTokens, TransformerConfig
from jumok.models.transformer.decoder import TransformerDecoder
from jumok.models.transformer.encoder import TransformerEncoder

POSITIONS = 4096
"""Longest sequence of an exported model, where positions are not learned."""


def never_written(vocabulary: int) -> Tensor:
    """Added to scores: padding and the beginning are never written."""
    bias = torch.zeros(vocabulary)
    bias[[PAD, BOS]] = HIDDEN
    return bias


def embed(g: OnnxGraph, embedding: TokenEmbedding, ids: str) -> str:
    """The vectors of tokens."""
    vectors = g("Gather", g.weight(embedding.table), ids)
    if embedding.project is not None:
        vectors = g.linear(vectors, embedding.project)
    return g.scale(vectors, embedding.factor)


def normed(g: OnnxGraph, norm: nn.LayerNorm, x: str) -> str:
    """(x − mean) / deviation · w + b."""
    return g("LayerNormalization", x, g.weight(norm.weight), g.weight(norm.bias), axis=-1, epsilon=norm.eps)


def transformer_encoder(
    g: OnnxGraph, encoder: TransformerEncoder, source: str, visible: str, bias: str
) -> tuple[str, str]:
    """The states of a source, and their mean."""
    positions = g("Range", g.weight(torch.tensor(0)), g.drop_axes(g.size(source, 1), 0), g.weight(torch.tensor(1)))
    x = _positioned(g, encoder.tokens, encoder.config, source, positions)
    hidden = g.add_axes(bias, 1, 2)
    for layer in cast(list[EncoderLayer], list(encoder.layers)):

        def own(x: str, layer: EncoderLayer = layer) -> str:
            return _attend(g, layer.own, *_projected(g, layer.own, x, positions), hidden)

        def feed(x: str, layer: EncoderLayer = layer) -> str:
            return _feed_forward(g, layer.feed, x)

        x = _residual(g, layer.around_feed, _residual(g, layer.around_own, x, own), feed)
    if encoder.norm is not None:
        x = normed(g, encoder.norm, x)
    shown = g.add_axes(g("Cast", visible, to=g.library.TensorProto.FLOAT), 2)
    states = g("Mul", x, shown)
    total = g("ReduceSum", states, g.integers(1), keepdims=0)
    return states, g("Div", total, g("ReduceSum", shown, g.integers(1), keepdims=0))


class TransformerStep:
    """One step of a decoder: keys and values of the source as memory, those of the target so far as state."""

    def __init__(self, decoder: TransformerDecoder) -> None:
        self.decoder, self.vocabulary, self.never = decoder, decoder.vocabulary, never_written(decoder.vocabulary)
        layers = range(len(decoder.layers))
        self.memory = ("bias", *(f"source_{part}_{layer}" for layer in layers for part in ("keys", "values")))
        self.states = tuple(f"target_{part}_{layer}" for layer in layers for part in ("keys", "values"))

    def axes(self, part: str, *, after: bool = False) -> tuple[str | int, ...]:
        """The axes of a part of the memory or the state."""
        if part == "bias":
            return ("batch", "source")
        attention = self._layers[0].own
        length = "source" if part.startswith("source") else "length + 1" if after else "length"
        return ("batch", attention.key_heads, length, attention.to_key.out_features // attention.key_heads)

    def prepare(self, g: OnnxGraph, source: Any) -> dict[str, str]:
        """The memory, and a state without tokens."""
        parts = {"bias": source.bias}
        for number, layer in enumerate(self._layers):
            keys = _split(g, g.linear(source.states, layer.cross.to_key), layer.cross.key_heads)
            values = _split(g, g.linear(source.states, layer.cross.to_value), layer.cross.key_heads)
            parts |= {f"source_keys_{number}": keys, f"source_values_{number}": values}
        for part in self.states:
            _, heads, _, dim = self.axes(part)
            shape = g("Concat", g.size(source.states, 0), g.integers(int(heads), 0, int(dim)), axis=0)
            parts[part] = g("Expand", g.number(0.0), shape)
        return parts

    def step(self, g: OnnxGraph, token: str, parts: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """The logits of the next token, and the state with this one."""
        decoder, after = self.decoder, dict[str, str]()
        position = g.size(parts[self.states[0]], 2)
        x = _positioned(g, decoder.tokens, decoder.config, g.add_axes(token, 1), position)
        hidden = g.add_axes(parts["bias"], 1, 2)
        for number, layer in enumerate(self._layers):

            def own(x: str, layer: DecoderLayer = layer, number: int = number) -> str:
                query, keys, values = _projected(g, layer.own, x, position)
                for name, new in (("keys", keys), ("values", values)):
                    part = f"target_{name}_{number}"
                    after[part] = g("Concat", parts[part], new, axis=2)
                return _attend(g, layer.own, query, after[f"target_keys_{number}"], after[f"target_values_{number}"])

            def cross(x: str, layer: DecoderLayer = layer, number: int = number) -> str:
                query = _split(g, g.linear(x, layer.cross.to_query), layer.cross.heads)
                keys, values = parts[f"source_keys_{number}"], parts[f"source_values_{number}"]
                return _attend(g, layer.cross, query, keys, values, hidden)

            def feed(x: str, layer: DecoderLayer = layer) -> str:
                return _feed_forward(g, layer.feed, x)

            for residual, change in ((layer.around_own, own), (layer.around_cross, cross), (layer.around_feed, feed)):
                x = _residual(g, residual, x, change)
        if decoder.norm is not None:
            x = normed(g, decoder.norm, x)
        return g.linear(g.drop_axes(x, 1), decoder.output), after

    @property
    def _layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder.layers))


def _positioned(g: OnnxGraph, tokens: PositionedTokens, config: TransformerConfig, ids: str, positions: str) -> str:
    vectors = embed(g, tokens.embedding, ids)
    if config.positions == "rotary":
        return vectors
    if config.positions == "learned":
        return g("Add", vectors, g("Gather", g.weight(cast(Any, tokens.positions).table), positions))
    width = config.position_width if config.positions == "concatenated" else config.width
    rows = g("Gather", g.weight(sinusoids(torch.arange(POSITIONS), width)), positions)
    if config.positions == "added":
        return g("Add", vectors, rows)
    shape = g("Concat", g("Shape", ids), g.integers(width), axis=0)
    return g("Concat", vectors, g("Expand", rows, shape), axis=-1)


def _residual(g: OnnxGraph, residual: Residual, x: str, change: Callable[[str], str]) -> str:
    """x + f(norm(x)), or norm(x + f(x))."""
    if residual.pre:
        return g("Add", x, change(normed(g, residual.norm, x)))
    return normed(g, residual.norm, g("Add", x, change(x)))


def _projected(g: OnnxGraph, attention: MultiHeadAttention, x: str, positions: str) -> tuple[str, str, str]:
    query = _split(g, g.linear(x, attention.to_query), attention.heads)
    keys = _split(g, g.linear(x, attention.to_key), attention.key_heads)
    values = _split(g, g.linear(x, attention.to_value), attention.key_heads)
    if attention.rotary is not None:
        query, keys = (
            _rotated(g, part, positions, attention.rotary.head_dim, attention.rotary.base) for part in (query, keys)
        )
    return query, keys, values


def _attend(
    g: OnnxGraph, attention: MultiHeadAttention, query: str, keys: str, values: str, hidden: str | None = None
) -> str:
    """softmax(q kᵀ / √d) v of every head, joined and projected."""
    dim = attention.to_query.out_features // attention.heads
    keys, values = (_shared(g, part, attention, dim) for part in (keys, values))
    scores = g.scale(g("MatMul", query, g("Transpose", keys, perm=[0, 1, 3, 2])), dim**-0.5)
    weights = g("Softmax", scores if hidden is None else g("Add", scores, hidden), axis=-1)
    heads = g("Transpose", g("MatMul", weights, values), perm=[0, 2, 1, 3])
    return g.linear(g("Reshape", heads, g.integers(0, 0, attention.heads * dim)), attention.to_output)


def _shared(g: OnnxGraph, part: str, attention: MultiHeadAttention, dim: int) -> str:
    """Keys or values repeated for neighbouring heads."""
    groups = attention.key_heads
    if groups == attention.heads:
        return part
    times = g.integers(1, 1, attention.heads // groups, 1, 1)
    return g("Reshape", g("Tile", g.add_axes(part, 2), times), g.integers(0, attention.heads, -1, dim))


def _split(g: OnnxGraph, x: str, heads: int) -> str:
    """[batch, time, width] as [batch, head, time, dim]."""
    # Two axes cannot be inferred at once: the width is split first.
    split = g("Reshape", x, g("Concat", g("Shape", x, start=0, end=2), g.integers(heads, -1), axis=0))
    return g("Transpose", split, perm=[0, 2, 1, 3])


def _rotated(g: OnnxGraph, x: str, positions: str, dim: int, base: float) -> str:
    """x cos + x' sin, where x' is (−x₁, x₀) for every pair (x₀, x₁)."""
    paired = dim - dim % 2
    waves = sinusoids(torch.arange(POSITIONS), paired, base=base)
    cos, sin = torch.ones(POSITIONS, dim), torch.zeros(POSITIONS, dim)
    cos[:, :paired], sin[:, :paired] = waves[:, 1::2].repeat_interleave(2, 1), waves[:, 0::2].repeat_interleave(2, 1)
    turn = torch.zeros(dim, dim)
    for even in range(0, paired, 2):
        turn[even + 1, even], turn[even, even + 1] = -1, 1
    factors = [g("Gather", g.weight(table), positions) for table in (cos, sin)]
    return g("Add", g("Mul", x, factors[0]), g("Mul", g("MatMul", x, g.weight(turn)), factors[1]))


def _feed_forward(g: OnnxGraph, feed: FeedForward, x: str) -> str:
    hidden = g.linear(x, feed.to_hidden)
    gate = hidden if feed.to_gate is None else g.linear(x, feed.to_gate)
    if feed.activation in ("silu", "swiglu"):
        active = g("Mul", gate, g("Sigmoid", gate))
    else:
        active = g({"relu": "Relu", "gelu": "Gelu"}[feed.activation], gate)
    return g.linear(active if feed.to_gate is None else g("Mul", active, hidden), feed.to_output)
