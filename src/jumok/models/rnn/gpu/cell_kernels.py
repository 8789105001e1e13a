"""Triton kernels of the recurrent cells: what follows the matrix products of a step, forward and backward.

`inputs` and `fed` are the two parts of W x + b, `recurrent` is U h without its bias `bias`; each row has the gates one
after another, in PyTorch's order. The forward pass keeps nothing: the backward pass computes the gates again.
"""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel
from jumok.models.rnn.gpu.attention_kernels import tanh


@triton.jit
def sigmoid(x):
    """1 / (1 + e⁻ˣ)."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def gate(inputs, fed, row, at, inside, GATES, number, width):
    """One gate's share of W x + b."""
    place = row * GATES + number * width + at
    found = tl.load(inputs + place, mask=inside, other=0.0).to(tl.float32)
    return found + tl.load(fed + place, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def state_gate(recurrent, ROW, bias, row, at, inside, number, width):
    """One gate's share of U h + b."""
    found = tl.load(recurrent + row * ROW + number * width + at, mask=inside, other=0.0).to(tl.float32)
    return found + tl.load(bias + number * width + at, mask=inside, other=0.0).to(tl.float32)


@kernel
def gru_kernel(
    inputs, fed, recurrent, ROW, bias, state, cell, after, cell_after, count, width,
    BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """h' = (1 − z) n + z h, n = tanh(W x + r · U h)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, at, G = (place // width).to(tl.int64), place % width, 3 * width
    r = sigmoid(gate(inputs, fed, row, at, inside, G, 0, width)
                + state_gate(recurrent, ROW, bias, row, at, inside, 0, width))  # fmt: skip
    z = sigmoid(gate(inputs, fed, row, at, inside, G, 1, width)
                + state_gate(recurrent, ROW, bias, row, at, inside, 1, width))  # fmt: skip
    n = tanh(gate(inputs, fed, row, at, inside, G, 2, width)
             + r * state_gate(recurrent, ROW, bias, row, at, inside, 2, width), ASSEMBLY)  # fmt: skip
    h = tl.load(state + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(after + place, (n + z * (h - n)).to(after.dtype.element_ty), mask=inside)


@kernel
def gru_backward_kernel(
    inputs, fed, recurrent, ROW, bias, state, cell, cell_after, d_given, d_back, carried, d_cell,
    d_inputs, d_recurrent, count, width, LAST: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of both parts of the gates, and what of that of h' is that of h (`carried`)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, at, G = (place // width).to(tl.int64), place % width, 3 * width
    r = sigmoid(gate(inputs, fed, row, at, inside, G, 0, width)
                + state_gate(recurrent, ROW, bias, row, at, inside, 0, width))  # fmt: skip
    z = sigmoid(gate(inputs, fed, row, at, inside, G, 1, width)
                + state_gate(recurrent, ROW, bias, row, at, inside, 1, width))  # fmt: skip
    from_state = state_gate(recurrent, ROW, bias, row, at, inside, 2, width)
    n = tanh(gate(inputs, fed, row, at, inside, G, 2, width) + r * from_state, ASSEMBLY)
    h = tl.load(state + place, mask=inside, other=0.0).to(tl.float32)
    d_h = gradient_of_state(d_given, d_back, carried, place, inside, LAST, True)
    d_new = d_h * (1.0 - z) * (1.0 - n * n)
    d_update = d_h * (h - n) * z * (1.0 - z)
    d_reset = d_new * from_state * r * (1.0 - r)
    tl.store(carried + place, d_h * z, mask=inside)
    store_gate(d_inputs, row, G, at, inside, 0, width, d_reset)
    store_gate(d_inputs, row, G, at, inside, 1, width, d_update)
    store_gate(d_inputs, row, G, at, inside, 2, width, d_new)
    store_gate(d_recurrent, row, ROW, at, inside, 0, width, d_reset)
    store_gate(d_recurrent, row, ROW, at, inside, 1, width, d_update)
    store_gate(d_recurrent, row, ROW, at, inside, 2, width, d_new * r)


@kernel
def lstm_kernel(
    inputs, fed, recurrent, ROW, bias, state, cell, after, cell_after, count, width,
    BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """c' = f · c + i · g, h' = o · tanh(c')."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, at = (place // width).to(tl.int64), place % width
    i, f, g, o = lstm_gates(inputs, fed, recurrent, ROW, bias, row, at, inside, width, ASSEMBLY)
    c = f * tl.load(cell + place, mask=inside, other=0.0).to(tl.float32) + i * g
    tl.store(cell_after + place, c.to(cell_after.dtype.element_ty), mask=inside)
    tl.store(after + place, (o * tanh(c, ASSEMBLY)).to(after.dtype.element_ty), mask=inside)


@triton.jit
def lstm_gates(inputs, fed, recurrent, ROW, bias, row, at, inside, width, ASSEMBLY: tl.constexpr):
    """i, f, g, o."""
    G = 4 * width
    i = sigmoid(gate(inputs, fed, row, at, inside, G, 0, width)
                + state_gate(recurrent, ROW, bias, row, at, inside, 0, width))  # fmt: skip
    f = sigmoid(gate(inputs, fed, row, at, inside, G, 1, width)
                + state_gate(recurrent, ROW, bias, row, at, inside, 1, width))  # fmt: skip
    g = tanh(gate(inputs, fed, row, at, inside, G, 2, width)
             + state_gate(recurrent, ROW, bias, row, at, inside, 2, width), ASSEMBLY)  # fmt: skip
    o = sigmoid(gate(inputs, fed, row, at, inside, G, 3, width)
                + state_gate(recurrent, ROW, bias, row, at, inside, 3, width))  # fmt: skip
    return i, f, g, o


@kernel
def lstm_backward_kernel(
    inputs, fed, recurrent, ROW, bias, state, cell, cell_after, d_given, d_back, carried, d_cell,
    d_inputs, d_recurrent, count, width, LAST: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of both parts of the gates; `d_cell`, the gradient of c', becomes that of c."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, at, G = (place // width).to(tl.int64), place % width, 4 * width
    i, f, g, o = lstm_gates(inputs, fed, recurrent, ROW, bias, row, at, inside, width, ASSEMBLY)
    y = tanh(tl.load(cell_after + place, mask=inside, other=0.0).to(tl.float32), ASSEMBLY)
    d_h = gradient_of_state(d_given, d_back, carried, place, inside, LAST, False)
    d_c = d_h * o * (1.0 - y * y)
    if not LAST:
        d_c += tl.load(d_cell + place, mask=inside, other=0.0)
    c = tl.load(cell + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(d_cell + place, d_c * f, mask=inside)
    for number in tl.static_range(4):
        if number == 0:
            found = d_c * g * i * (1.0 - i)
        elif number == 1:
            found = d_c * c * f * (1.0 - f)
        elif number == 2:
            found = d_c * i * (1.0 - g * g)
        else:
            found = d_h * y * o * (1.0 - o)
        store_gate(d_inputs, row, G, at, inside, number, width, found)
        store_gate(d_recurrent, row, ROW, at, inside, number, width, found)


@kernel
def rnn_kernel(
    inputs, fed, recurrent, ROW, bias, state, cell, after, cell_after, count, width,
    BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """h' = tanh(W x + U h)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, at = (place // width).to(tl.int64), place % width
    found = gate(inputs, fed, row, at, inside, width, 0, width)
    found += state_gate(recurrent, ROW, bias, row, at, inside, 0, width)
    tl.store(after + place, tanh(found, ASSEMBLY).to(after.dtype.element_ty), mask=inside)


@kernel
def rnn_backward_kernel(
    inputs, fed, recurrent, ROW, bias, state, cell, cell_after, d_given, d_back, carried, d_cell,
    d_inputs, d_recurrent, count, width, LAST: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradient of both parts, which is the same."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, at = (place // width).to(tl.int64), place % width
    found = gate(inputs, fed, row, at, inside, width, 0, width)
    y = tanh(found + state_gate(recurrent, ROW, bias, row, at, inside, 0, width), ASSEMBLY)
    d_h = gradient_of_state(d_given, d_back, carried, place, inside, LAST, False)
    store_gate(d_inputs, row, width, at, inside, 0, width, d_h * (1.0 - y * y))
    store_gate(d_recurrent, row, ROW, at, inside, 0, width, d_h * (1.0 - y * y))


@triton.jit
def gradient_of_state(d_given, d_back, carried, place, inside, LAST: tl.constexpr, CARRIED: tl.constexpr):
    """The gradient of h': of the decoder's outputs, and from the step after, if this is not the last."""
    found = tl.load(d_given + place, mask=inside, other=0.0).to(tl.float32)
    if not LAST:
        found += tl.load(d_back + place, mask=inside, other=0.0).to(tl.float32)
        if CARRIED:
            found += tl.load(carried + place, mask=inside, other=0.0)
    return found


@triton.jit
def store_gate(out, row, ROW, at, inside, number, width, found):
    """The gradient of one gate."""
    tl.store(out + row * ROW + number * width + at, found.to(out.dtype.element_ty), mask=inside)
