"""All steps of a decoder with additive attention before its cell (Bahdanau et al. 2015) as one operator.

    q = W s(t-1),  α = softmax(v · tanh(q + U h)),  c = Σ αᵢ hᵢ,  s(t) = f(s(t-1), y(t-1), c)

The forward pass runs four kernels a step: a product with [W; the cell's recurrent matrix], attention, the product of
the context, and the gates. The backward pass runs as many. Gradients of weights, keys and values are one product each
after the last step. `BahdanauStep.step` is the reference, with the same results.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from jumok.layers.gpu.recurrence import CELLS, cell_launch
from jumok.models.rnn.gpu.steps import Attention, DecoderStates, key_gradients, value_gradients


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
    states = _BahdanauSteps.apply(  # type: ignore[no-untyped-call]
        cell, word_gates, keys, values, visible, state, memory, to_query, v, recurrent, recurrent_bias, for_context,
        for_coverage,
    )  # fmt: skip
    return DecoderStates(*states)


class _BahdanauSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cell: str, word_gates: Tensor, keys: Tensor, values: Tensor, visible: Tensor, state: Tensor,
        memory: Tensor | None, to_query: Tensor, v: Tensor, recurrent: Tensor, recurrent_bias: Tensor,
        for_context: Tensor, for_coverage: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        word_gates = word_gates.contiguous()
        dtype, (steps, batch, gates) = word_gates.dtype, word_gates.shape
        attention = Attention.of(keys, values, visible, v, for_coverage, dtype)
        hidden, width = keys.shape[2], state.shape[1]
        of_state = torch.cat([to_query, recurrent]).to(dtype)  # [hidden + gates, width]
        of_context = for_context.to(dtype)
        states = word_gates.new_empty(steps + 1, batch, width)
        states[0] = state
        memories = states
        if memory is not None:
            memories = torch.empty_like(states, dtype=torch.float32)
            memories[0] = memory
        from_state = word_gates.new_empty(steps, batch, hidden + gates)
        contexts = word_gates.new_empty(steps, batch, values.shape[2])
        context_gates = torch.empty_like(word_gates)
        weights = torch.empty(steps, batch, keys.shape[1], dtype=torch.float32, device=keys.device)
        coverage = attention.no_coverage(steps)
        grid, constants = cell_launch(batch * width, dtype)
        for step in range(steps):
            torch.mm(states[step], of_state.t(), out=from_state[step])
            attention.step(from_state[step], contexts[step], weights[step], coverage, step)
            torch.mm(contexts[step], of_context.t(), out=context_gates[step])
            CELLS[cell].forward(
                grid, word_gates[step], context_gates[step], from_state[step, :, hidden:], hidden + gates,
                recurrent_bias, batch, states[step], width, memories[step], states[step + 1], memories[step + 1],
                batch * width, width, FED=1, **constants,
            )  # fmt: skip
        ctx.save_for_backward(
            word_gates, *attention.tensors, of_state, of_context, recurrent_bias, states, memories, from_state,
            contexts, context_gates, weights, coverage,
        )  # fmt: skip
        ctx.cell, ctx.covers = cell, for_coverage is not None
        ctx.dtypes = [
            None if part is None else part.dtype
            for part in (state, memory, to_query, v, recurrent, recurrent_bias, for_context, for_coverage)
        ]
        return states[1:], contexts, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_contexts: Tensor, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        (
            word_gates, keys, values, visible, v, w, of_state, of_context, recurrent_bias, states, memories,
            from_state, contexts, context_gates, weights, coverage,
        ) = ctx.saved_tensors  # fmt: skip
        attention = Attention(keys, values, visible, v, w, covers=ctx.covers)
        kernels, hidden, (steps, batch, row) = CELLS[ctx.cell], keys.shape[2], from_state.shape
        d_states, d_contexts, d_weights = d_states.contiguous(), d_contexts.contiguous(), d_weights.contiguous()
        d_from_state, d_gates = torch.empty_like(from_state), torch.empty_like(context_gates)
        d_context, d_scores = torch.empty_like(contexts), torch.empty_like(weights)
        back = torch.empty_like(states[0])
        carried, d_memory = (torch.zeros_like(back, dtype=torch.float32) for _ in range(2))
        d_coverage, by_cell = torch.zeros_like(coverage), torch.empty_like(contexts[0])
        count, width = back.numel(), back.shape[1]
        grid, constants = cell_launch(count, word_gates.dtype)
        for step in reversed(range(steps)):
            kernels.backward(
                grid, word_gates[step], context_gates[step], from_state[step, :, hidden:], row, recurrent_bias, batch,
                states[step], width, memories[step], memories[step + 1], d_states[step], width, back, width, back,
                width, carried, d_memory, d_gates[step], d_from_state[step, :, hidden:], count, width,
                LAST=step == steps - 1, MORE=False, FED=1, **constants,
            )  # fmt: skip
            torch.mm(d_gates[step], of_context, out=by_cell)
            attention.step_backward(
                by_cell, d_contexts[step], d_context[step], from_state[step], weights[step], d_weights[step], coverage,
                step, d_coverage, d_from_state[step], d_scores[step],
            )  # fmt: skip
            torch.mm(d_from_state[step], of_state, out=back)
        d_keys, d_v, d_w = key_gradients(attention, from_state, coverage, d_scores)
        d_of_state = d_from_state.flatten(0, 1).t() @ states[:-1].flatten(0, 1)
        gradients = (
            carried + back if kernels.carries else back,
            d_memory,
            d_of_state[:hidden],
            d_v,
            d_of_state[hidden:],
            d_from_state[:, :, hidden:].sum((0, 1), dtype=torch.float32),
            d_gates.flatten(0, 1).t() @ contexts.flatten(0, 1),
            d_w,
        )
        rest = (None if dtype is None else part.to(dtype) for part, dtype in zip(gradients, ctx.dtypes, strict=True))
        return None, d_gates, d_keys, value_gradients(weights, d_context), None, *rest
