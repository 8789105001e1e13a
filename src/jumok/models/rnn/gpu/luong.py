"""All steps of a decoder with Luong's attention and input feeding (Luong et al. 2015) as one operator.

    s(t) = f(s(t-1), y(t-1), s̃(t-1)),  α = softmax(score(s(t), h)),  c = Σ αᵢ hᵢ,  s̃(t) = tanh(W [c; s(t)])

s̃, s and c of a step stand side by side in one row, so that the cell's product with [s̃; s] and the last one with [s; c]
both read neighbours. Gradients of weights, keys and values are one product each after the last step. `LuongStep.step`
is the reference, with the same results.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from jumok.layers.gpu.cell_kernels import tanh_backward_kernel
from jumok.layers.gpu.recurrence import CELLS, cell_launch
from jumok.models.rnn.gpu.steps import Attention, DecoderStates, key_gradients, value_gradients


def luong_steps(
    cell: str,
    word_gates: Float[Tensor, "target batch gates"],
    keys: Float[Tensor, "batch source hidden"],
    values: Float[Tensor, "batch source encoder_width"],
    visible: Bool[Tensor, "batch source"],
    first: tuple[Float[Tensor, "batch width"], ...],
    recurrent: Float[Tensor, "gates width"],
    recurrent_bias: Float[Tensor, " gates"],
    for_fed: Float[Tensor, "gates width"],
    to_state: Float[Tensor, "width encoder_width_and_width"],
    to_query: Float[Tensor, "hidden width"] | None = None,
    v: Float[Tensor, " hidden"] | None = None,
) -> DecoderStates:
    """Every step from the state `first`, where its states are s̃; matrices are multiplied in the dtype of `word_gates`.

    With `to_query` and `v` the score is v · tanh(q + k), otherwise s · k.
    """
    state, memory = first if cell == "lstm" else (*first, None)
    states = _LuongSteps.apply(  # type: ignore[no-untyped-call]
        cell, word_gates, keys, values, visible, state, memory, recurrent, recurrent_bias, for_fed, to_state, to_query,
        v,
    )  # fmt: skip
    return DecoderStates(*states)


def gate_matrix(cell: str, for_fed: Tensor, recurrent: Tensor) -> Tensor:
    """What [s̃; s] is multiplied by: a GRU needs the two parts of its last gate apart."""
    if cell != "gru":
        return torch.cat([for_fed, recurrent], 1)
    width = recurrent.shape[1]
    both = torch.cat([for_fed, recurrent], 1)[: 2 * width]
    nothing = torch.zeros_like(recurrent[:width])
    new_fed = torch.cat([for_fed[2 * width :], nothing], 1)
    return torch.cat([both, new_fed, torch.cat([nothing, recurrent[2 * width :]], 1)])


def split_gate_matrix(cell: str, matrix: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """`for_fed` and `recurrent` of a gate matrix, or their gradients of its gradient."""
    fed, recurrent = matrix[:, :width], matrix[:, width:]
    if cell != "gru":
        return fed, recurrent
    return fed[: 3 * width], torch.cat([recurrent[: 2 * width], recurrent[3 * width :]])


class _LuongSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cell: str, word_gates: Tensor, keys: Tensor, values: Tensor, visible: Tensor, state: Tensor,
        memory: Tensor | None, recurrent: Tensor, recurrent_bias: Tensor, for_fed: Tensor, to_state: Tensor,
        to_query: Tensor | None, v: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        word_gates = word_gates.contiguous()
        dtype, (steps, batch, _) = word_gates.dtype, word_gates.shape
        attention = Attention.of(keys, values, visible, v, None, dtype)
        width, source, context_width = state.shape[1], keys.shape[1], values.shape[2]
        of_both = gate_matrix(cell, for_fed, recurrent).to(dtype)
        of_state = torch.cat([to_state[:, context_width:], to_state[:, :context_width]], 1).to(dtype)  # of [s; c]
        of_query = None if to_query is None else to_query.to(dtype)
        joint = word_gates.new_zeros(steps + 1, batch, 2 * width + context_width)  # [s̃; s; c]
        joint[0, :, width : 2 * width] = state
        memories = joint
        if memory is not None:
            memories = torch.empty(steps + 1, batch, width, dtype=torch.float32, device=keys.device)
            memories[0] = memory
        products = word_gates.new_empty(steps, batch, len(of_both))
        queries = joint[1:, :, width : 2 * width]
        if of_query is not None:
            queries = word_gates.new_empty(steps, batch, len(of_query))
        weights = torch.empty(steps, batch, source, dtype=torch.float32, device=keys.device)
        coverage, before = attention.no_coverage(steps), word_gates.new_empty(batch, width)
        grid, constants = cell_launch(batch * width, dtype)
        for step in range(steps):
            torch.mm(joint[step, :, : 2 * width], of_both.t(), out=products[step])
            CELLS[cell].forward(
                grid, word_gates[step], word_gates, products[step], len(of_both), recurrent_bias, batch,
                joint[step, :, width:], joint.stride(1), memories[step], joint[step + 1, :, width:],
                memories[step + 1], batch * width, width, FED=2, **constants,
            )  # fmt: skip
            if of_query is not None:
                torch.mm(joint[step + 1, :, width : 2 * width], of_query.t(), out=queries[step])
            attention.step(queries[step], joint[step + 1, :, 2 * width :], weights[step], coverage, step)
            torch.mm(joint[step + 1, :, width:], of_state.t(), out=before)
            torch.tanh(before, out=joint[step + 1, :, :width])
        ctx.save_for_backward(
            word_gates, *attention.tensors, of_both, of_state, of_query, recurrent_bias, joint, memories, products,
            queries, weights, coverage,
        )  # fmt: skip
        ctx.cell, ctx.dot = cell, v is None
        ctx.dtypes = [
            None if part is None else part.dtype
            for part in (state, memory, recurrent, recurrent_bias, for_fed, to_state, to_query, v)
        ]
        return joint[1:, :, :width], joint[1:, :, 2 * width :], weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_contexts: Tensor, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        (
            word_gates, keys, values, visible, v, w, of_both, of_state, of_query, recurrent_bias, joint, memories,
            products, queries, weights, coverage,
        ) = ctx.saved_tensors  # fmt: skip
        attention, kernels = Attention(keys, values, visible, v, w, dot=ctx.dot), CELLS[ctx.cell]
        (steps, batch, row), width = products.shape, len(of_state)
        d_states, d_contexts, d_weights = d_states.contiguous(), d_contexts.contiguous(), d_weights.contiguous()
        d_gates, d_products, d_before = (torch.empty_like(part) for part in (word_gates, products, d_states))
        d_pairs = word_gates.new_empty(steps, batch, joint.shape[2] - width)  # of [s; c]
        d_queries = word_gates.new_empty(steps, batch, keys.shape[2])
        d_scores, d_context = torch.empty_like(weights), torch.empty_like(d_contexts, dtype=word_gates.dtype)
        back = word_gates.new_empty(batch, 2 * width)  # of [s̃; s]
        carried, d_memory = (torch.zeros(batch, width, dtype=torch.float32, device=keys.device) for _ in range(2))
        of_queries = word_gates.new_empty(batch, width)
        grid, constants = cell_launch(batch * width, word_gates.dtype)
        for step in reversed(range(steps)):
            last = step == steps - 1
            tanh_backward_kernel(
                grid, d_states[step], back, 2 * width, joint[step + 1], joint.stride(1), d_before[step], batch * width,
                width, LAST=last, **constants,
            )  # fmt: skip
            torch.mm(d_before[step], of_state, out=d_pairs[step])
            attention.step_backward(
                d_pairs[step, :, width:], d_contexts[step], d_context[step], queries[step], weights[step],
                d_weights[step], coverage, step, coverage, d_queries[step], d_scores[step],
            )  # fmt: skip
            d_query = d_queries[step]
            if of_query is not None:
                d_query = torch.mm(d_query, of_query, out=of_queries)
            kernels.backward(
                grid, word_gates[step], word_gates, products[step], row, recurrent_bias, batch,
                joint[step, :, width:], joint.stride(1), memories[step], memories[step + 1], d_pairs[step],
                d_pairs.stride(1), d_query, width, back[:, width:], 2 * width, carried, d_memory, d_gates[step],
                d_products[step], batch * width, width, LAST=last, MORE=True, FED=2, **constants,
            )  # fmt: skip
            torch.mm(d_products[step], of_both, out=back)
        d_first = back[:, width:] + carried if kernels.carries else back[:, width:]
        d_fed, d_recurrent = split_gate_matrix(ctx.cell, joined(d_products, joint[:-1, :, : 2 * width]), width)
        sums = d_products.sum((0, 1), dtype=torch.float32)
        d_bias = torch.cat([sums[: 2 * width], sums[3 * width :]]) if ctx.cell == "gru" else sums
        d_of_state = joined(d_before, joint[1:, :, width:])
        d_to_state = torch.cat([d_of_state[:, width:], d_of_state[:, :width]], 1)
        if ctx.dot:
            d_keys = torch.bmm(d_scores.permute(1, 2, 0).to(queries.dtype), queries.transpose(0, 1))
            d_to_query = d_v = None
        else:
            d_keys, d_v, _ = key_gradients(attention, queries, coverage, d_scores)
            d_to_query = joined(d_queries, joint[1:, :, width : 2 * width])
        gradients = (d_first, d_memory, d_recurrent, d_bias, d_fed, d_to_state, d_to_query, d_v)
        rest = (
            None if part is None or dtype is None else part.to(dtype)
            for part, dtype in zip(gradients, ctx.dtypes, strict=True)
        )
        return None, d_gates, d_keys, value_gradients(weights, d_context), None, *rest


def joined(
    d_outputs: Float[Tensor, "steps batch outputs"], inputs: Float[Tensor, "steps batch inputs"]
) -> Float[Tensor, "outputs inputs"]:
    """The gradient of a matrix that every step multiplied its inputs by."""
    return d_outputs.flatten(0, 1).t() @ inputs.flatten(0, 1)
