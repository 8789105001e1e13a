"""One step of attention in a recurrent decoder, and the gradients that are summed over all steps at once."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.attention.triton_launch import INTERPRETED, next_power_of_two
from jumok.models.rnn.gpu.attention_kernels import (
    attend_step_backward_kernel,
    attend_step_kernel,
    key_gradients_kernel,
)

TILE, STEP_TILE = 4096, 16384
"""Numbers of a tile [key, feature] that a program works on: where there are many programs, and in a step (of bf16)."""
STEP_WARPS = 8
MOST_SPREAD = 32
"""Keys of which every thread can hold its features."""


class DecoderStates(NamedTuple):
    """What every step of a decoder made."""

    states: Float[Tensor, "target batch width"]
    contexts: Float[Tensor, "target batch encoder_width"]
    weights: Float[Tensor, "target batch source"]


@dataclass(frozen=True)
class Attention:
    """The source of a batch, as the kernels of a step need it."""

    keys: Float[Tensor, "batch source hidden"]
    values: Float[Tensor, "batch source encoder_width"]
    visible: Bool[Tensor, "batch source"]
    v: Float[Tensor, " hidden"]
    w: Float[Tensor, " hidden"]
    """The vector of coverage; `v` where there is none."""
    covers: bool = False
    dot: bool = False
    """Whether the score is q · k; `v` then has no meaning."""

    @classmethod
    def of(
        cls, keys: Tensor, values: Tensor, visible: Tensor, v: Tensor | None, w: Tensor | None, dtype: torch.dtype
    ) -> "Attention":
        """With keys and values in one dtype; without `v` the score is q · k."""
        keys, values = keys.to(dtype).contiguous(), values.to(dtype).contiguous()
        spare = keys if v is None else v
        return cls(
            keys, values, visible.contiguous(), spare, spare if w is None else w, covers=w is not None, dot=v is None
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What a backward pass has to keep."""
        return self.keys, self.values, self.visible, self.v, self.w

    def no_coverage(self, steps: int) -> Float[Tensor, "steps batch source"]:
        """Room for the coverage before every step; nothing is covered before the first."""
        batch, source, _ = self.keys.shape
        return torch.zeros(steps + 1 if self.covers else 1, batch, source, device=self.keys.device)

    def step(self, query: Tensor, context: Tensor, weights: Tensor, coverage: Tensor, step: int) -> None:
        """Write the context and the weights of a step, and the coverage after it."""
        covered = coverage[step if self.covers else 0]
        (batch, source, hidden), width = self.keys.shape, self.values.shape[2]
        attend_step_kernel(
            (batch,), query, query.stride(0), self.keys, self.values, self.v, self.w, self.visible, covered, context,
            context.stride(0), weights, source, hidden, width, 0, **self.constants,
        )  # fmt: skip
        if self.covers:
            torch.add(covered, weights, out=coverage[step + 1])

    def step_backward(
        self, d_context: Tensor, d_context_given: Tensor, d_context_sum: Tensor, query: Tensor, weights: Tensor,
        d_weights: Tensor, coverage: Tensor, step: int, d_coverage: Tensor, d_query: Tensor, d_scores: Tensor,
    ) -> None:  # fmt: skip
        """Write the gradients of a step's context, query and scores, and with coverage of the coverage before it."""
        (batch, source, hidden), width = self.keys.shape, self.values.shape[2]
        after, before = (d_coverage[step + 1], d_coverage[step]) if self.covers else (d_coverage, d_coverage)
        attend_step_backward_kernel(
            (batch,), d_context, d_context.stride(0), d_context_given, d_context_sum, query, query.stride(0),
            self.keys, self.values, self.v, self.w, self.visible, coverage[step if self.covers else 0], weights,
            d_weights, after, before, d_query, d_query.stride(0), d_scores, source, hidden, width, 0, **self.constants,
        )  # fmt: skip

    @property
    def constants(self) -> dict[str, Any]:
        """What the kernels of a step are compiled for: tiles of all keys and as many features as registers hold."""
        hidden, width = self.keys.shape[2], self.values.shape[2]
        tile = STEP_TILE * 2 // self.keys.itemsize
        dims, values = self.features(hidden, tile), self.features(width, tile)
        whole = dims >= hidden and values >= width
        layout = {"EARLY": whole, "SPREAD": self._keys <= MOST_SPREAD, "warps": STEP_WARPS}
        return {"DOT": self.dot, "VALUES": values, **self.tile, "DIMS": dims, **layout}

    @property
    def tile(self) -> dict[str, Any]:
        """A tile of all keys and some features."""
        exact = self.keys.dtype == torch.float32
        return {
            "KEYS": self._keys,
            "DIMS": self.features(self.keys.shape[2], TILE),
            "COVERAGE": self.covers,
            "ASSEMBLY": 0 if INTERPRETED else 1 if exact else 2,
        }

    def features(self, width: int, tile: int) -> int:
        """How many features of a vector fit into a tile."""
        return max(min(next_power_of_two(width), tile // self._keys), 8)

    @property
    def _keys(self) -> int:
        return max(next_power_of_two(self.keys.shape[1]), 16)


def key_gradients(
    attention: Attention, queries: Float[Tensor, "steps batch at_least_hidden"], coverage: Tensor, d_scores: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of keys, v and w of the additive score, summed over all steps."""
    (batch, source, hidden), steps = attention.keys.shape, len(queries)
    d_keys = torch.empty_like(attention.keys)
    d_v = torch.empty(batch, hidden, dtype=torch.float32, device=d_keys.device)
    d_w = torch.empty_like(d_v) if attention.covers else d_v
    tile = attention.tile
    key_gradients_kernel(
        (batch, -(-hidden // tile["DIMS"])), queries, queries.stride(0), queries.stride(1), attention.keys,
        attention.v, attention.w, attention.visible, coverage, d_scores, d_keys, d_v, d_w, steps, batch, source, hidden,
        **tile,
    )  # fmt: skip
    return d_keys, d_v.sum(0), d_w.sum(0)


def value_gradients(
    weights: Float[Tensor, "steps batch source"], d_contexts: Float[Tensor, "steps batch encoder_width"]
) -> Float[Tensor, "batch source encoder_width"]:
    """Σ α dc over all steps."""
    return torch.bmm(weights.permute(1, 2, 0).to(d_contexts.dtype), d_contexts.transpose(0, 1))
