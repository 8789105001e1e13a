"""All steps of a decoder with additive attention before its cell (Bahdanau et al. 2015) as one operator.

    q = W s(t-1),  α = softmax(v · tanh(q + U h)),  c = Σ αᵢ hᵢ,  s(t) = f(s(t-1), y(t-1), c)

The forward pass runs four kernels a step: a product with [W; the cell's recurrent matrix], attention, the product of
the context, and the gates. The backward pass runs as many. Gradients of weights, keys and values are one product each
after the last step. `BahdanauStep.step` is the reference, with the same results.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from jumok.attention.triton_launch import INTERPRETED, Kernel
from jumok.models.rnn.gpu.attention_kernels import (
    attend_step_backward_kernel,
    attend_step_kernel,
    key_gradients_kernel,
)
from jumok.models.rnn.gpu.cell_kernels import (
    gru_backward_kernel,
    gru_kernel,
    lstm_backward_kernel,
    lstm_kernel,
    rnn_backward_kernel,
    rnn_kernel,
)

BLOCK = 512
"""Numbers of a state that one program of a cell computes."""


class DecoderStates(NamedTuple):
    """What every step of a decoder made."""

    states: Float[Tensor, "target batch width"]
    contexts: Float[Tensor, "target batch encoder_width"]
    weights: Float[Tensor, "target batch source"]


class CellKernels(NamedTuple):
    """The two kernels of a cell, and the number of its gates."""

    forward: Kernel
    backward: Kernel
    gates: int


CELLS = {
    "rnn": CellKernels(rnn_kernel, rnn_backward_kernel, 1),
    "gru": CellKernels(gru_kernel, gru_backward_kernel, 3),
    "lstm": CellKernels(lstm_kernel, lstm_backward_kernel, 4),
}


def bahdanau_steps(
    cell: str,
    word_gates: Float[Tensor, "target batch gates"],
    keys: Float[Tensor, "batch source hidden"],
    values: Float[Tensor, "batch source encoder_width"],
    visible: Bool[Tensor, "batch source"],
    first: tuple[Float[Tensor, "batch width"], ...],
    to_query: Float[Tensor, "hidden width"],
    v: Float[Tensor, " hidden"],
    recurrent: Float[Tensor, "gates width"],
    recurrent_bias: Float[Tensor, " gates"],
    for_context: Float[Tensor, "gates encoder_width"],
    for_coverage: Float[Tensor, " hidden"] | None = None,
) -> DecoderStates:
    """Every step from the state `first`; matrices are multiplied in the dtype of `word_gates`."""
    state, memory = first if cell == "lstm" else (*first, None)
    found = _Steps.apply(  # type: ignore[no-untyped-call]
        cell, word_gates, keys, values, visible, state, memory, to_query, v, recurrent, recurrent_bias, for_context,
        for_coverage,
    )  # fmt: skip
    return DecoderStates(*found)


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call, and how its kernels are launched."""

    steps: int
    batch: int
    keys: int
    hidden: int
    values: int
    width: int
    coverage: bool
    exact: bool

    @property
    def tile(self) -> dict[str, Any]:
        """The constants of the kernels of attention: a tile of all keys and some features."""
        keys = max(power_of_two(self.keys), 16)
        return {
            "KEYS": keys,
            "DIMS": max(min(power_of_two(self.hidden), 4096 // keys), 8),
            "COVERAGE": self.coverage,
            "ASSEMBLY": self.assembly,
            "warps": 4,
        }

    @property
    def value_tile(self) -> int:
        """Features of a value that are read at once."""
        return max(min(power_of_two(self.values), 4096 // max(power_of_two(self.keys), 16)), 8)

    @property
    def assembly(self) -> int:
        """How tanh is computed."""
        return 0 if INTERPRETED else 1 if self.exact else 2


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cell: str, word_gates: Tensor, keys: Tensor, values: Tensor, visible: Tensor, state: Tensor,
        memory: Tensor | None, to_query: Tensor, v: Tensor, recurrent: Tensor, recurrent_bias: Tensor,
        for_context: Tensor, for_coverage: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        dtype, kernels = word_gates.dtype, CELLS[cell]
        steps, batch, gates = word_gates.shape
        size = Sizes(
            steps, batch, keys.shape[1], keys.shape[2], values.shape[2], state.shape[1], for_coverage is not None,
            dtype == torch.float32,
        )  # fmt: skip
        word_gates, keys, values = word_gates.contiguous(), keys.to(dtype).contiguous(), values.to(dtype).contiguous()
        visible = visible.contiguous()
        of_state = torch.cat([to_query, recurrent]).to(dtype)  # [hidden + gates, width]
        of_context = for_context.to(dtype)
        w = v if for_coverage is None else for_coverage
        states = word_gates.new_empty(steps + 1, batch, size.width)
        states[0] = state
        memories = states if memory is None else torch.empty_like(states, dtype=torch.float32)
        if memory is not None:
            memories[0] = memory
        from_state = word_gates.new_empty(steps, batch, size.hidden + gates)
        contexts = word_gates.new_empty(steps, batch, size.values)
        context_gates = word_gates.new_empty(steps, batch, gates)
        weights = torch.empty(steps, batch, size.keys, dtype=torch.float32, device=keys.device)
        coverage = torch.zeros(steps + 1 if size.coverage else 1, batch, size.keys, device=keys.device)
        count = batch * size.width
        for step in range(steps):
            torch.mm(states[step], of_state.t(), out=from_state[step])
            covered = coverage[step if size.coverage else 0]
            attend_step_kernel(
                (batch,), from_state[step], size.hidden + gates, keys, values, v, w, visible, covered,
                contexts[step], weights[step], size.keys, size.hidden, size.values, VALUES=size.value_tile, **size.tile,
            )  # fmt: skip
            if size.coverage:
                torch.add(covered, weights[step], out=coverage[step + 1])
            torch.mm(contexts[step], of_context.t(), out=context_gates[step])
            kernels.forward(
                (-(-count // BLOCK),), word_gates[step], context_gates[step], from_state[step, :, size.hidden :],
                size.hidden + gates, recurrent_bias, states[step], memories[step], states[step + 1],
                memories[step + 1], count, size.width, BLOCK=BLOCK, ASSEMBLY=size.assembly,
            )  # fmt: skip
        ctx.save_for_backward(
            word_gates, keys, values, visible, of_state, of_context, v, w, recurrent_bias, states, memories,
            from_state, contexts, context_gates, weights, coverage,
        )  # fmt: skip
        ctx.cell, ctx.size, ctx.has_memory = cell, size, memory is not None
        ctx.dtypes = [
            None if part is None else part.dtype
            for part in (state, memory, to_query, v, recurrent, recurrent_bias, for_context, for_coverage)
        ]
        return states[1:], contexts, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_contexts: Tensor, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        (
            word_gates, keys, values, visible, of_state, of_context, v, w, recurrent_bias, states, memories,
            from_state, contexts, context_gates, weights, coverage,
        ) = ctx.saved_tensors  # fmt: skip
        size, kernels = ctx.size, CELLS[ctx.cell]
        d_states, d_contexts, d_weights = d_states.contiguous(), d_contexts.contiguous(), d_weights.contiguous()
        d_from_state, d_gates = torch.empty_like(from_state), torch.empty_like(context_gates)
        d_context, d_scores = torch.empty_like(contexts), torch.empty_like(weights)
        back = torch.empty_like(states[0])
        carried, d_memory = (torch.zeros_like(back, dtype=torch.float32) for _ in range(2))
        d_covered = torch.zeros_like(coverage[0])
        count, row = back.numel(), from_state.shape[2]
        for step in reversed(range(size.steps)):
            kernels.backward(
                (-(-count // BLOCK),), word_gates[step], context_gates[step], from_state[step, :, size.hidden :],
                row, recurrent_bias, states[step], memories[step], memories[step + 1], d_states[step], back,
                carried, d_memory, d_gates[step], d_from_state[step, :, size.hidden :], count, size.width,
                LAST=step == size.steps - 1, BLOCK=BLOCK, ASSEMBLY=size.assembly,
            )  # fmt: skip
            torch.mm(d_gates[step], of_context, out=d_context[step])
            attend_step_backward_kernel(
                (size.batch,), d_context[step], d_contexts[step], from_state[step], row, keys, values, v, w, visible,
                coverage[step if size.coverage else 0], weights[step], d_weights[step], d_covered,
                d_from_state[step], d_scores[step], size.keys, size.hidden, size.values,
                VALUES=size.value_tile, **size.tile,
            )  # fmt: skip
            torch.mm(d_from_state[step], of_state, out=back)
        d_first = carried + back if ctx.cell == "gru" else back
        d_keys, d_v, d_w = key_gradients(from_state, keys, v, w, visible, coverage, d_scores, size)
        d_values = torch.bmm(weights.permute(1, 2, 0).to(values.dtype), d_context.transpose(0, 1))
        d_of_state = d_from_state.flatten(0, 1).t() @ states[:-1].flatten(0, 1)
        d_of_context = d_gates.flatten(0, 1).t() @ contexts.flatten(0, 1)
        d_bias = d_from_state[:, :, size.hidden :].sum((0, 1), dtype=torch.float32)
        found = (
            d_first, d_memory if ctx.has_memory else None, d_of_state[: size.hidden], d_v, d_of_state[size.hidden :],
            d_bias, d_of_context, d_w if size.coverage else None,
        )  # fmt: skip
        rest = (None if part is None else part.to(dtype) for part, dtype in zip(found, ctx.dtypes, strict=True))
        return None, d_gates, d_keys, d_values, None, *rest


def key_gradients(
    from_state: Tensor, keys: Tensor, v: Tensor, w: Tensor, visible: Tensor, coverage: Tensor, d_scores: Tensor,
    size: Sizes,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of keys, v and w, summed over all steps."""
    d_keys = torch.empty_like(keys)
    d_v = torch.empty(size.batch, size.hidden, dtype=torch.float32, device=keys.device)
    d_w = torch.empty_like(d_v) if size.coverage else d_v
    tile = size.tile
    key_gradients_kernel(
        (size.batch, -(-size.hidden // tile["DIMS"])), from_state, from_state.stride(0), from_state.stride(1), keys, v,
        w, visible, coverage, d_scores, d_keys, d_v, d_w, size.steps, size.batch, size.keys, size.hidden, **tile,
    )  # fmt: skip
    return d_keys, d_v.sum(0), d_w.sum(0)


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below a size."""
    return 1 << max(size - 1, 0).bit_length()
