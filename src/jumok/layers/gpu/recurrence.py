"""All steps of a recurrent layer, in one direction or several side by side, as one operator.

A step is a product with the recurrent matrices and a kernel for the gates, forward and backward; the gradients of the
matrices are one product after the last step. `layers.recurrent` has the equations.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from jumok.attention.triton_launch import INTERPRETED, Kernel
from jumok.layers.gpu.cell_kernels import (
    gru_backward_kernel,
    gru_kernel,
    lstm_backward_kernel,
    lstm_kernel,
    rnn_backward_kernel,
    rnn_kernel,
)

BLOCK = 512
"""Numbers of a state that one program computes."""


class CellKernels(NamedTuple):
    """The two kernels of a cell, and whether a share of its state is carried to the next as it is."""

    forward: Kernel
    backward: Kernel
    carries: bool


CELLS = {
    "rnn": CellKernels(rnn_kernel, rnn_backward_kernel, False),
    "gru": CellKernels(gru_kernel, gru_backward_kernel, True),
    "lstm": CellKernels(lstm_kernel, lstm_backward_kernel, False),
}


def cell_launch(count: int, dtype: torch.dtype) -> tuple[tuple[int], dict[str, int]]:
    """The grid and the constants of a cell's kernels, for `count` numbers of a state."""
    assembly = 0 if INTERPRETED else 1 if dtype == torch.float32 else 2
    return (-(-count // BLOCK),), {"BLOCK": BLOCK, "ASSEMBLY": assembly}


def recurrent_steps(
    cell: str,
    gates: Float[Tensor, "time direction batch gates"],
    first: tuple[Float[Tensor, "direction batch width"], ...],
    recurrent: Float[Tensor, "direction gates width"],
    bias: Float[Tensor, "direction gates"],
) -> Float[Tensor, "time direction batch width"]:
    """The state after every step from the state `first`; `gates` are W x + b, whose dtype the products have."""
    state, memory = first if cell == "lstm" else (*first, None)
    states: Tensor = _RecurrentSteps.apply(cell, gates, state, memory, recurrent, bias)  # type: ignore[no-untyped-call]
    return states


class _RecurrentSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cell: str, gates: Tensor, state: Tensor, memory: Tensor | None, recurrent: Tensor, bias: Tensor
    ) -> Tensor:
        gates, bias = gates.contiguous(), bias.contiguous()
        steps, directions, batch, _ = gates.shape
        width, matrices = state.shape[-1], recurrent.to(gates.dtype)
        states = gates.new_empty(steps + 1, directions, batch, width)
        states[0] = state
        memories = states
        if memory is not None:
            memories = torch.empty_like(states, dtype=torch.float32)
            memories[0] = memory
        from_state = torch.empty_like(gates)
        count = directions * batch * width
        grid, constants = cell_launch(count, gates.dtype)
        for step in range(steps):
            torch.bmm(states[step], matrices.transpose(1, 2), out=from_state[step])
            CELLS[cell].forward(
                grid, gates[step], gates, from_state[step], gates.shape[3], bias, batch, states[step], width,
                memories[step], states[step + 1], memories[step + 1], count, width, FED=0, **constants,
            )  # fmt: skip
        ctx.save_for_backward(gates, states, memories, from_state, matrices, bias)
        ctx.cell, ctx.dtypes = cell, [None if part is None else part.dtype for part in (state, memory, recurrent, bias)]
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor | None, ...]:
        gates, states, memories, from_state, matrices, bias = ctx.saved_tensors
        d_states, kernels = d_states.contiguous(), CELLS[ctx.cell]
        d_gates, d_from_state = torch.empty_like(gates), torch.empty_like(from_state)
        back = torch.empty_like(states[0])
        carried, d_memory = (torch.zeros_like(back, dtype=torch.float32) for _ in range(2))
        steps, _, batch, row = gates.shape
        count, width = back.numel(), back.shape[-1]
        grid, constants = cell_launch(count, gates.dtype)
        for step in reversed(range(steps)):
            kernels.backward(
                grid, gates[step], gates, from_state[step], row, bias, batch, states[step], width, memories[step],
                memories[step + 1], d_states[step], width, back, width, back, width, carried, d_memory, d_gates[step],
                d_from_state[step], count, width, LAST=step == steps - 1, MORE=False, FED=0, **constants,
            )  # fmt: skip
            torch.bmm(d_from_state[step], matrices, out=back)
        d_matrices = torch.einsum("tdbg,tdbw->dgw", d_from_state, states[:-1])
        gradients = (
            carried + back if kernels.carries else back,
            d_memory,
            d_matrices,
            d_from_state.sum((0, 2), dtype=torch.float32),
        )
        rest = (None if dtype is None else part.to(dtype) for part, dtype in zip(gradients, ctx.dtypes, strict=True))
        return None, d_gates, *rest
