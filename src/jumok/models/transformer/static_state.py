"""The steps of a Transformer decoder over preallocated caches: what `TransformerDecoder.advance` computes.

The layers' own matrices for queries, keys and values are stacked, and on a GPU what stands between two products is one
kernel. The residual stream is kept in single precision.
"""

from collections.abc import Callable
from typing import Protocol, cast, runtime_checkable
from weakref import proxy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention.backends import why_no_triton
from jumok.layers import AddedPositions, LearnedPositions
from jumok.layers.gpu.stack import WIDEST
from jumok.layers.multi_head import MultiHeadAttention, keys_values_of
from jumok.layers.steps import cross_attention_step, self_attention_step, update_ancestry
from jumok.layers.transformer import DecoderLayer, FeedForward, Residual
from jumok.models.copying import CopyAttention
from jumok.models.encoder_decoder import Encoding, Hidden, StaticState
from jumok.models.transformer.config import PositionedTokens

Sublayer = Callable[[Tensor], Tensor]


@runtime_checkable
class Parts(Protocol):
    """What the steps need of a Transformer decoder."""

    tokens: PositionedTokens
    layers: nn.ModuleList
    norm: nn.LayerNorm | None
    output: nn.Linear
    copying: CopyAttention | None
    width: int
    limit: int | None


class LayerCache:
    """What the steps of one layer read and write: caches of its own past, keys and values of the source, weights."""

    def __init__(self, layer: DecoderLayer, encoding: Encoding, *, beam: int, capacity: int) -> None:
        own, cross = layer.own, layer.cross
        sentences, source, _ = encoding.states.shape
        weight, dim = own.to_query.weight, own.to_query.out_features // own.heads
        self.layer = layer
        self.keys, self.values = (weight.new_empty(sentences, capacity, beam, own.key_heads, dim) for _ in range(2))
        self.memory = weight.new_empty(2, sentences, source, cross.key_heads, dim)
        projections = _own_projections(own)
        outputs = sum(part.out_features for part in projections)
        self.weight = weight.new_empty(outputs, own.to_query.in_features)
        self.bias = None if own.to_query.bias is None else weight.new_empty(outputs)

    def copy_weights(self) -> None:
        """Copy the weights, which may have changed since the last search."""
        projections = _own_projections(self.layer.own)
        torch.cat([part.weight for part in projections], out=self.weight)
        if self.bias is not None:
            torch.cat([part.bias for part in projections], out=self.bias)

    def take(self, other: "LayerCache", sentences: Tensor) -> None:
        """Copy the caches of some sentences of another."""
        torch.index_select(other.keys, 0, sentences, out=self.keys)
        torch.index_select(other.values, 0, sentences, out=self.values)
        torch.index_select(other.memory, 1, sentences, out=self.memory)

    def put(self, other: "LayerCache", rows: Tensor) -> None:
        """Replace these sentences by the first ones of another, which has taken one step at most."""
        count = len(rows)
        self.keys[:, :1].index_copy_(0, rows, other.keys[:count, :1])
        self.values[:, :1].index_copy_(0, rows, other.values[:count, :1])
        self.memory.index_copy_(1, rows, other.memory[:, :count])


class TransformerStaticState(StaticState):
    """Keys and values of the source, once for each sentence, and those of every step, for each hypothesis of it."""

    def __init__(self, decoder: Parts, encoding: Encoding, *, beam: int, capacity: int) -> None:
        sentences, device = len(encoding.states), encoding.states.device
        # A weak reference, so that a state does not keep its decoder alive.
        self.decoder, self.beam = proxy(decoder), beam
        layers = cast(list[DecoderLayer], list(decoder.layers))
        self.layers = [LayerCache(layer, encoding, beam=beam, capacity=capacity) for layer in layers]
        self.copies = None if decoder.copying is None else decoder.copying.source(encoding).clone()
        self.visible = encoding.visible.clone()
        self.lengths = torch.zeros(sentences, dtype=torch.long, device=device)
        self.ancestry = torch.zeros(sentences, beam, capacity, dtype=torch.int32, device=device)
        self.positions = torch.zeros(sentences, dtype=torch.long, device=device)
        # Sinusoids and learned vectors are the same for every token: one table instead of some ten kernels a step.
        self.table = decoder.output.weight.new_zeros(capacity, decoder.width) if self._adds_positions else None
        self.begin(encoding)

    @property
    def _adds_positions(self) -> bool:
        return isinstance(self.decoder.tokens.positions, AddedPositions | LearnedPositions)

    @torch.no_grad()
    def begin(self, encoding: Encoding) -> None:
        """Project the source for every layer, and clear the steps."""
        memories = keys_values_of([cache.layer.cross for cache in self.layers], encoding.states)
        for cache, memory in zip(self.layers, memories, strict=True):
            cache.memory[0].copy_(memory.keys.transpose(1, 2))
            cache.memory[1].copy_(memory.values.transpose(1, 2))
            cache.copy_weights()
        if self.copies is not None:
            self.copies.become(self.decoder.copying.source(encoding))
        self.visible.copy_(encoding.visible)
        items = torch.arange(1, self.visible.shape[1] + 1, device=self.visible.device)
        torch.amax(self.visible * items, 1, out=self.lengths)
        self.ancestry.zero_()
        self.positions.zero_()
        if self.table is not None:
            within = self.table[: self.decoder.limit]  # the capacity is rounded up, and learned positions may be fewer
            within.copy_(self.decoder.tokens.positions(torch.zeros_like(within)))

    @torch.no_grad()
    def take(self, other: StaticState, sentences: Int[Tensor, " sentence"]) -> None:
        """Copy the steps of some sentences of another."""
        before = cast(TransformerStaticState, other)
        for cache, larger in zip(self.layers, before.layers, strict=True):
            cache.take(larger, sentences)
        if self.copies is not None and before.copies is not None:
            self.copies.become(before.copies.select(sentences))
        for name in ("visible", "lengths", "ancestry", "positions"):
            torch.index_select(getattr(before, name), 0, sentences, out=getattr(self, name))
        if self.table is not None and before.table is not None:
            self.table.copy_(before.table)

    @torch.no_grad()
    def put(self, other: StaticState, rows: Int[Tensor, " row"]) -> None:
        """Replace these sentences by the first ones of another, which has taken one step at most."""
        begun = cast(TransformerStaticState, other)
        for cache, theirs in zip(self.layers, begun.layers, strict=True):
            cache.put(theirs, rows)
        if self.copies is not None and begun.copies is not None:
            self.copies.put(begun.copies, rows)
        for name in ("visible", "lengths", "ancestry", "positions"):
            getattr(self, name).index_copy_(0, rows, getattr(begun, name)[: len(rows)])

    def advance(self, tokens: Int[Tensor, "sentence beam"], parents: Int[Tensor, "sentence beam"]) -> Hidden:
        """One step of every layer."""
        update_ancestry(self.ancestry, parents, self.positions)
        states = self._layers_of(self._embedded(tokens)).view(*tokens.shape, -1)
        self.positions.add_(1).clamp_(max=self.ancestry.shape[2] - 1)  # finished sentences stay at the last position
        copied = None if self.copies is None else self.decoder.copying(states, self.copies)
        return Hidden(states, copied=copied)

    def _embedded(self, tokens: Tensor) -> Float[Tensor, "row width"]:
        embed = self.decoder.tokens
        if self.table is None:
            return embed(tokens.reshape(-1, 1), start=self.positions.repeat_interleave(self.beam)).squeeze(1)  # type: ignore[no-any-return]
        if why_no_triton(tokens.device, self.table.dtype) is None and embed.embedding.project is None:
            from jumok.layers.gpu import steps  # imports Triton

            return steps.embed(tokens, self.positions, embed.embedding.table, embed.embedding.factor, self.table)
        vectors: Tensor = embed.embedding(tokens.flatten())
        return vectors + self.table[self.positions].repeat_interleave(self.beam, 0)

    def _layers_of(self, x: Float[Tensor, "row width"]) -> Float[Tensor, "row width"]:
        """The sublayers one after another, each with its norm before it or after it."""
        norm, precision = self.decoder.norm, self.decoder.output.weight.dtype
        if norm is None:
            x = x.to(precision)
            for sublayer, around in self._sublayers():
                x = _add_norm(x, sublayer(x), around.norm, precision)[1]
            return x
        x, change = x.to(torch.promote_types(precision, torch.float32)), None
        for sublayer, around in self._sublayers():
            x, normed = _add_norm(x, change, around.norm, precision)
            change = sublayer(normed)
        return _add_norm(x, change, norm, precision)[1]

    def _sublayers(self) -> list[tuple[Sublayer, Residual]]:
        return [
            pair
            for cache in self.layers
            for pair in (
                (lambda x, cache=cache: self._own(cache, x), cache.layer.around_own),
                (lambda x, cache=cache: self._cross(cache, x), cache.layer.around_cross),
                (lambda x, cache=cache: _feed(cache.layer.feed, x), cache.layer.around_feed),
            )
        ]

    def _own(self, cache: LayerCache, x: Float[Tensor, "row width"]) -> Float[Tensor, "row width"]:
        own = cache.layer.own
        joined = torch.nn.functional.linear(x, cache.weight, cache.bias)
        parts = torch.split(joined, [part.out_features for part in _own_projections(own)], 1)
        query, key, value = (
            part.view(len(x), heads, -1)
            for part, heads in zip(parts, (own.heads, own.key_heads, own.key_heads), strict=True)
        )
        if own.rotary is not None:
            start = self.positions.repeat_interleave(self.beam)
            query, key = (own.rotary(part[:, :, None], start=start).squeeze(2) for part in (query, key))
        mixed = self_attention_step(query, key, value, cache.keys, cache.values, self.ancestry, self.positions)
        out: Tensor = own.to_output(mixed)
        return out

    def _cross(self, cache: LayerCache, x: Float[Tensor, "row width"]) -> Float[Tensor, "row width"]:
        cross = cache.layer.cross
        query = cross.to_query(x).view(len(x), cross.heads, -1)
        mixed = cross_attention_step(query, cache.memory[0], cache.memory[1], self.visible, self.lengths)
        out: Tensor = cross.to_output(mixed)
        return out


def _own_projections(own: MultiHeadAttention) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    return own.to_query, own.to_key, own.to_value


def _feed(feed: FeedForward, x: Float[Tensor, "row width"]) -> Float[Tensor, "row width"]:
    if feed.activation != "relu" or why_no_triton(x.device, x.dtype) is not None:
        out: Tensor = feed(x)
        return out
    hidden = torch.ops.aten._addmm_activation(feed.to_hidden.bias, x, feed.to_hidden.weight.t())  # with the ReLU
    out = feed.to_output(hidden)
    return out


def _add_norm(x: Tensor, change: Tensor | None, norm: nn.LayerNorm, precision: torch.dtype) -> tuple[Tensor, Tensor]:
    """x + change, and its norm in the precision of matrix products."""
    if why_no_triton(x.device, x.dtype) is None and x.shape[-1] <= WIDEST:
        from jumok.layers.gpu.transformer import sum_and_norm  # imports Triton

        y, normed, _ = sum_and_norm(x, change, None, norm.weight, norm.bias, norm.eps, precision)
        return y, normed
    x = x if change is None else x + change
    return x, nn.functional.layer_norm(x, norm.normalized_shape, norm.weight.to(x), norm.bias.to(x), norm.eps).to(
        precision
    )
