"""Multi-head attention: project, split into heads, attend, join, project (Vaswani et al. 2017)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Attended, Visible, attend
from jumok.attention.backends import runs_on_kernels
from jumok.attention.checks import check_optional_sizes, check_probabilities, check_sizes
from jumok.errors import ArgumentError, ConfigError
from jumok.layers.positions import RotaryPositions


class KeyValues(NamedTuple):
    """Projected keys and values, split into heads."""

    keys: Float[Tensor, "batch head key dim"]
    values: Float[Tensor, "batch head key value_dim"]


class KeyValueCache:
    """Keys and values of up to `capacity` decoding steps, in buffers that are allocated once.

    There are two pairs of buffers: when hypotheses are reordered, they are copied from one to the other, and back the
    next time. Views returned by `append` therefore stay valid until the second `select` after them.

    A cache belongs to one run of a decoder. It is not for training: the buffers are written in place.
    """

    def __init__(self, *, capacity: int) -> None:
        (self.capacity,) = check_sizes(capacity=capacity, least=0)
        self.length = 0
        self._rows = 0
        self._buffers: KeyValues | None = None
        self._spare: KeyValues | None = None

    def append(self, new: KeyValues) -> KeyValues:
        """Add the keys and values of the newest steps; returns views of all so far."""
        end = self.length + new.keys.shape[2]
        if end > self.capacity:
            raise ArgumentError(f"the cache has a capacity of {self.capacity} steps, but step {end} was to be added")
        if self._buffers is None:
            self._rows = len(new.keys)
            self._buffers = self._allocate(new, self._rows)
        for buffer, part in zip(self._buffers, new, strict=True):
            buffer[: self._rows, :, self.length : end] = part.detach()
        self.length = end
        return self._filled(self._buffers, self._rows)

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these rows of the batch, in this order, as beam search does with its hypotheses."""
        if self._buffers is None:
            return
        if self._spare is None or len(self._spare.keys) < len(rows):
            self._spare = self._allocate(self._buffers, len(rows))
        filled = zip(self._filled(self._buffers, self._rows), self._filled(self._spare, len(rows)), strict=True)
        for source, target in filled:
            torch.index_select(source, 0, rows, out=target)
        self._buffers, self._spare, self._rows = self._spare, self._buffers, len(rows)

    def _filled(self, buffers: KeyValues, rows: int) -> KeyValues:
        return KeyValues(*(buffer[:rows, :, : self.length] for buffer in buffers))

    def _allocate(self, like: KeyValues, rows: int) -> KeyValues:
        return KeyValues(*(part.new_empty(rows, part.shape[1], self.capacity, part.shape[3]) for part in like))


def split_heads(x: Float[Tensor, "batch time width"], heads: int) -> Float[Tensor, "batch head time dim"]:
    """Split each vector into `heads` parts."""
    if x.dim() != 3:  # PyTorch would split the wrong axes without an error
        raise ArgumentError(f"multi-head attention takes [batch, time, width], but the shape is {list(x.shape)}")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # type: ignore[no-untyped-call, no-any-return]


def join_heads(x: Float[Tensor, "batch head time dim"]) -> Float[Tensor, "batch time width"]:
    """Concatenate the heads of each vector."""
    return x.transpose(1, 2).flatten(2)


def share_heads(x: Float[Tensor, "batch group time dim"], heads: int) -> Float[Tensor, "batch head time dim"]:
    """Repeat keys or values for neighbouring heads (grouped-query attention, Ainslie et al. 2023)."""
    groups = x.shape[1]
    if groups == heads:
        return x
    return x[:, :, None].expand(-1, -1, heads // groups, -1, -1).flatten(1, 2)


class MultiHeadAttention(nn.Module):
    """Concat(head₁, …, headₙ) W_O with headᵢ = Attention(x W_Q, memory W_K, memory W_V) (Vaswani et al. 2017).

    Self-attention for one sequence, cross-attention for two. `key_width` and `value_width` are the widths of the
    attended sequence and default to `width`. With `key_heads` smaller than `heads`, groups of heads share keys and
    values. `rotary` rotates queries and keys by their positions.

    Keys and values can be computed once and used many times: `layer.attend(x, layer.keys_values(memory))` equals
    `layer(x, memory)`.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        key_width: int | None = None,
        value_width: int | None = None,
        key_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        width, heads = check_sizes(width=width, heads=heads)
        key_width, value_width, key_heads = check_optional_sizes(
            key_width=key_width, value_width=value_width, key_heads=key_heads
        )
        check_probabilities(dropout=dropout)
        key_width = width if key_width is None else key_width
        key_heads = heads if key_heads is None else key_heads
        if width % heads:
            raise ConfigError(f"heads = {heads} does not divide width = {width}")
        if heads % key_heads:
            raise ConfigError(f"key_heads = {key_heads} does not divide heads = {heads}")
        shared = width // heads * key_heads
        self.heads, self.key_heads = heads, key_heads
        self.to_query = nn.Linear(width, width, bias=bias)
        self.to_key = nn.Linear(key_width, shared, bias=bias)
        self.to_value = nn.Linear(key_width if value_width is None else value_width, shared, bias=bias)
        self.to_output = nn.Linear(width, width, bias=bias)
        self.dropout, self.rotary, self.backend = dropout, rotary, backend

    def forward(
        self,
        query: Float[Tensor, "batch query width"],
        key: Float[Tensor, "batch key key_width"] | None = None,
        value: Float[Tensor, "batch key value_width"] | None = None,
        visible: Visible | Bool[Tensor, "..."] | None = None,
    ) -> Attended:
        """Attend from `query` to `key`, which defaults to `query`, with `value`, which defaults to `key`."""
        if (key is None or key is query) and (value is None or value is query):
            return self._attend(*self.project(query), visible)
        return self.attend(query, self.keys_values(query if key is None else key, value), visible)

    def project(
        self, x: Float[Tensor, "batch time width"], *, start: int = 0
    ) -> tuple[Float[Tensor, "batch head time dim"], KeyValues]:
        """The projected queries, keys and values of one sequence; `start` is the position of its first item.

        On a GPU they come from one product with the three matrices stacked: it runs faster than three narrow ones.
        """
        layers = (self.to_query, self.to_key, self.to_value)
        if not gains_from_stacking(x) or not all(_can_stack(layer, x) for layer in layers):
            return self._queries(x, start), self.keys_values(x, start=start)
        weight = torch.cat([layer.weight for layer in layers])
        bias = None if self.to_query.bias is None else torch.cat([layer.bias for layer in layers])
        parts = torch.split(linear_by_device(x, weight, bias), [layer.out_features for layer in layers], -1)
        return self.split_projected(*parts, start=start)

    def split_projected(
        self,
        query: Float[Tensor, "batch time width"],
        key: Float[Tensor, "batch time shared"],
        value: Float[Tensor, "batch time shared"],
        *,
        start: int = 0,
    ) -> tuple[Float[Tensor, "batch head time dim"], KeyValues]:
        """The heads of projected queries, keys and values, rotated by their positions if this layer does that."""
        heads = (self.heads, self.key_heads, self.key_heads)
        queries, keys, values = map(split_heads, (query, key, value), heads)
        if self.rotary is not None:
            queries, keys = self.rotary(queries, start=start), self.rotary(keys, start=start)
        return queries, KeyValues(keys, values)

    def keys_values(
        self,
        key: Float[Tensor, "batch key key_width"],
        value: Float[Tensor, "batch key value_width"] | None = None,
        *,
        start: int = 0,
    ) -> KeyValues:
        """The projected keys and values of a sequence; `start` is the position of its first item."""
        value = key if value is None else value
        keys = split_heads(self.to_key(key), self.key_heads)
        values = split_heads(self.to_value(value), self.key_heads)
        return KeyValues(keys if self.rotary is None else self.rotary(keys, start=start), values)

    def attend(
        self,
        query: Float[Tensor, "batch query width"],
        key_values: KeyValues,
        visible: Visible | Bool[Tensor, "..."] | None = None,
        *,
        start: int = 0,
    ) -> Attended:
        """Attend to projected keys and values; `start` is the position of the first query."""
        return self._attend(self._queries(query, start), key_values, visible)

    def _queries(self, query: Float[Tensor, "batch query width"], start: int) -> Float[Tensor, "batch head query dim"]:
        queries = split_heads(apply(self.to_query, query), self.heads)
        return queries if self.rotary is None else self.rotary(queries, start=start)

    def _attend(
        self,
        queries: Float[Tensor, "batch head query dim"],
        key_values: KeyValues,
        visible: Visible | Bool[Tensor, "..."] | None,
    ) -> Attended:
        values, weights = self.mix(queries, key_values, visible)
        return Attended(apply(self.to_output, values), weights)

    def mix(
        self,
        queries: Float[Tensor, "batch head query dim"],
        key_values: KeyValues,
        visible: Visible | Bool[Tensor, "..."] | None,
    ) -> Attended:
        """The heads, attended and joined, before the last projection."""
        values, weights = attend(
            queries,
            share_heads(key_values.keys, self.heads),
            share_heads(key_values.values, self.heads),
            visible=visible,
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
        )
        return Attended(join_heads(values), weights)


def keys_values_of(layers: Sequence[MultiHeadAttention], x: Float[Tensor, "batch key key_width"]) -> list[KeyValues]:
    """The projected keys and values of one sequence for several layers without rotary positions.

    On a GPU they come from one product, whose gradient of x is also one product and not a sum of many.
    """
    projections = [part for layer in layers for part in (layer.to_key, layer.to_value)]
    if not gains_from_stacking(x) or not all(_can_stack(part, x) and part.bias is not None for part in projections):
        return [layer.keys_values(x) for layer in layers]
    joined = linear_by_device(
        x, torch.cat([part.weight for part in projections]), torch.cat([part.bias for part in projections])
    )
    parts = torch.split(joined, [part.out_features for part in projections], -1)
    return [
        KeyValues(split_heads(keys, layer.key_heads), split_heads(values, layer.key_heads))
        for layer, keys, values in zip(layers, parts[::2], parts[1::2], strict=True)
    ]


def apply(layer: nn.Linear, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time out"]:
    """layer(x), by `linear_by_device` where the layer is a plain matrix."""
    if gains_from_stacking(x) and _can_stack(layer, x):
        return linear_by_device(x, layer.weight, layer.bias)
    out: Tensor = layer(x)
    return out


def linear_by_device(
    x: Float[Tensor, "batch time width"], weight: Float[Tensor, "out width"], bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "batch time out"]:
    """x Wᵀ + b, where training on a GPU by kernels whose gradient of b is faster."""
    learns = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    if bias is None or not learns or not runs_on_kernels(x):
        return F.linear(x, weight, bias)
    from jumok.layers.gpu import transformer  # imports Triton

    return transformer.linear_on_gpu(x, weight, bias)


def gains_from_stacking(x: Tensor) -> bool:
    """Whether one product with stacked matrices is faster: on a GPU, where stacking them costs next to nothing."""
    return x.is_cuda


def _can_stack(layer: nn.Module, x: Tensor) -> bool:
    """Whether the layer is a plain matrix for vectors like x: not quantised, adapted or observed by a hook."""
    if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks:
        return False
    return x.dim() == 3 and layer.in_features == x.shape[-1]
