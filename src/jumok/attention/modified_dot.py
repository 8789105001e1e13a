"""Dot products with a bias, slopes, a soft cap, sinks, or changed by a function of the caller.

score = change(cap · tanh(scale · q·k / cap)) − slope · |distance| + bias
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from numbers import Real
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.checks import as_integer, broadcasts, check_sizes, describe
from jumok.attention.scores import PreparedScore, ScaledDot, Score, finite_scale
from jumok.errors import ArgumentError

Change = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class ModifiedDot(Score):
    """scale · q · k, modified; `scale` None stands for 1 / √dim.

    A sink is a learned score that joins the denominator of the softmax: a key that everybody sees, whose value is 0.
    """

    scale: float | None = None
    bias: Float[Tensor, "*#lead #query #key"] | None = None
    slopes: Float[Tensor, "*#lead"] | None = None
    soft_cap: float | None = None
    sinks: Float[Tensor, "*#lead"] | None = None
    offset: int = 0
    """The position of the first query among the keys, for slopes."""
    change: Change | None = None
    rows: Int[Tensor, " rows"] | None = None
    """Positions of the queries; None for all, in order."""
    heads: Int[Tensor, " heads"] | None = None
    """Entries of the last leading axis; None for all."""

    parameter_axes: ClassVar[dict[str, int]] = {"bias": 2, "slopes": 0, "sinks": 0}
    any_dtype: ClassVar[tuple[str, ...]] = ("slopes",)

    def prepare(self, query: Tensor, key: Tensor) -> PreparedScore:
        """The same with its scale."""
        scale = max(1, query.shape[-1]) ** -0.5 if self.scale is None else self.scale
        return PreparedScore(self if scale == self.scale else replace(self, scale=scale), query, key)

    def __call__(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
    ) -> Float[Tensor, "*lead query key"]:
        """The score of every query with every key."""
        scale = max(1, query.shape[-1]) ** -0.5 if self.scale is None else self.scale
        scores = (query * scale) @ key.mT
        rows = torch.arange(query.shape[-2], device=query.device) if self.rows is None else self.rows
        cols = torch.arange(key.shape[-2], device=query.device)
        if self.soft_cap is not None:
            scores = self.soft_cap * torch.tanh(scores / self.soft_cap)
        if self.change is not None:
            scores = self._changed(scores, rows, cols)
        if self.slopes is not None:
            distances = (rows[:, None] + self.offset - cols).abs().to(scores.dtype)
            scores = scores - self.slopes.to(scores.dtype)[..., None, None] * distances
        if self.bias is None:
            return scores
        spans = self.rows is not None and self.bias.dim() > 1 and self.bias.shape[-2] != 1
        return scores + (self.bias.index_select(-2, rows) if spans else self.bias)

    def _changed(self, scores: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        assert self.change is not None
        *batch, heads = (1, 1, *scores.shape[:-2])[-max(2, scores.dim() - 2) :]
        head = torch.arange(heads, device=scores.device) if self.heads is None else self.heads
        batches = torch.arange(prod(batch), device=scores.device).reshape(*batch, 1, 1, 1)
        whole = scores.reshape(*batch, heads, *scores.shape[-2:])
        changed = self.change(whole, batches, head[:, None, None], rows[:, None], cols)
        if not isinstance(changed, Tensor) or not broadcasts(tuple(changed.shape), tuple(whole.shape)):
            raise ArgumentError(f"change returned {describe(changed)}, but the scores are {list(whole.shape)}")
        return changed.expand_as(whole).reshape(scores.shape)

    def mismatch(self, query: Tensor, key: Tensor) -> str | None:
        """The bias must broadcast to [query, key]."""
        wanted = (query.shape[-2], key.shape[-2])
        if self.bias is not None and not broadcasts(tuple(self.bias.shape[-2:]), wanted):
            return f"bias has shape {list(self.bias.shape)}, but there are {wanted[0]} queries and {wanted[1]} keys"
        return super().mismatch(query, key)

    def for_rows(self, rows: Int[Tensor, " rows"]) -> Score:
        """The same for queries at these positions."""
        return replace(self, rows=rows)

    def for_heads(self, heads: Int[Tensor, " heads"]) -> Score:
        """The same for these entries of the last leading axis."""
        picked = super().for_heads(heads)
        assert isinstance(picked, ModifiedDot)
        return replace(picked, heads=heads)

    def __str__(self) -> str:
        names = ("bias", "slopes", "soft_cap", "sinks", "change")
        parts = [name for name in names if getattr(self, name) is not None]
        return f'score "dot" with {", ".join(parts)}'


def scaled_dot(
    scale: float | None = None,
    *,
    bias: Float[Tensor, "*#lead #query #key"] | None = None,
    slopes: Float[Tensor, "*#lead"] | None = None,
    soft_cap: float | None = None,
    sinks: Float[Tensor, "*#lead"] | None = None,
    offset: int = 0,
    change: Change | None = None,
) -> Score:
    """scale · q · k; `scale` defaults to 1 / √dim.

    bias: added to the scores, such as the relative positions of T5 (Raffel et al. 2020); it has a gradient.
    slopes: one per head; subtracts slope · |distance| (`alibi(heads)`), with the first query at key `offset`.
    soft_cap: keeps scores between ± soft_cap by a tanh (Gemma 2), before bias and slopes.
    sinks: one learned score per head that joins the denominator of the softmax (gpt-oss), so that a row sums to less
        than 1.
    change: any function of scores and positions, change(score, batch, head, query, key) -> score, called with tensors
        that broadcast to [batch, head, query, key]; after the soft cap.
    """
    scale = None if scale is None else finite_scale(scale)
    if all(part is None for part in (bias, slopes, soft_cap, sinks, change)):
        return ScaledDot(scale)
    if soft_cap is not None and not (isinstance(soft_cap, Real) and 0 < soft_cap < math.inf):
        raise ArgumentError(f"soft_cap must be a number greater than 0, but it is {soft_cap!r}")
    if change is not None and not callable(change):
        raise ArgumentError(f"change must be a function of score, batch, head, query and key, but it is {change!r}")
    soft_cap = None if soft_cap is None else float(soft_cap)
    return ModifiedDot(scale, bias, slopes, soft_cap, sinks, as_integer("offset", offset), change)


def sink_share(
    scores: Float[Tensor, "*lead query key"], sinks: Float[Tensor, "*#lead"]
) -> Float[Tensor, "*lead query 1"]:
    """The share of the softmax that remains beside the sink: Σ exp(s) / (Σ exp(s) + exp(sink))."""
    nothing = (scores == -torch.inf).all(-1, keepdim=True)  # the gradient of log Σ exp(-inf) is NaN
    total = scores.masked_fill(nothing, 0).logsumexp(-1, keepdim=True)
    return torch.sigmoid(total - sinks[..., None, None])


def alibi(heads: int) -> Float[Tensor, " heads"]:
    """The slopes of ALiBi (Press et al. 2022): a geometric sequence from 2^(−8/heads), in the paper's order.

    For a number of heads that is not a power of two, the paper takes the slopes of the next lower power, and then
    every second one of the next higher power.
    """
    (heads,) = check_sizes(heads=heads)
    lower = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-8 * (head + 1) / lower) for head in range(lower)]
    slopes += [2 ** (-8 * (head + 1) / (2 * lower)) for head in range(0, 2 * (heads - lower), 2)]
    return torch.tensor(slopes)
