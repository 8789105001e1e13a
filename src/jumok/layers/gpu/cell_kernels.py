"""Triton kernels of the recurrent cells: what follows the matrix products of a step, forward and backward.

Each row of `inputs`, W x + b, and `recurrent`, U h without its `bias`, has the gates one after another, in PyTorch's
order. What is fed back beside the state either comes as a tensor `fed` like `inputs` (FED = 1), or the product already
holds its sum with U h (FED = 2); then the row of a GRU ends with n's two parts, which r separates. `bias` has one row
for every `batch` rows of the others. The forward pass keeps nothing: the backward pass computes the gates again.
"""

import triton
import triton.language as tl

from jumok.attention.additive.gpu.prepare_kernels import half_tanh
from jumok.attention.triton_launch import kernel

PLAIN, EXACT, FAST = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""How tanh is computed: for the interpreter, in single precision, or by one instruction, exact enough for bfloat16."""


@triton.jit
def tanh(x, ASSEMBLY: tl.constexpr):
    """tanh(x)."""
    if ASSEMBLY == FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return -2.0 * half_tanh(x, ASSEMBLY == EXACT)


@triton.jit
def sigmoid(x):
    """1 / (1 + e⁻ˣ)."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def read(pointer, place, inside):
    """Numbers in single precision."""
    return tl.load(pointer + place, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def input_gate(inputs, fed, row, GATES, column, inside, FED: tl.constexpr):
    """One gate's W x + b, with what is fed; `column` is its place in the row."""
    gate = read(inputs, row * GATES + column, inside)
    if FED == 1:
        gate += read(fed, row * GATES + column, inside)
    return gate


@triton.jit
def summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, GATES, column, inside, FED: tl.constexpr):
    """One gate's W x + b + U h + b."""
    gate = input_gate(inputs, fed, row, GATES, column, inside, FED)
    return gate + read(recurrent, row * ROW + column, inside) + read(bias, row // batch * GATES + column, inside)


@triton.jit
def gru_gates(inputs, fed, recurrent, ROW, bias, batch, row, column, inside, width, FED: tl.constexpr, ASSEMBLY: tl.constexpr):  # fmt: skip # noqa: E501
    """r, z, n, and U h of n."""
    G = 3 * width
    r = sigmoid(summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, G, column, inside, FED))
    z = sigmoid(summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, G, width + column, inside, FED))
    from_input = input_gate(inputs, fed, row, G, 2 * width + column, inside, FED)
    last = 2 * width + column
    if FED == 2:
        from_input += read(recurrent, row * ROW + last, inside)
        last += width
    from_state = read(recurrent, row * ROW + last, inside) + read(bias, row // batch * G + 2 * width + column, inside)
    return r, z, tanh(from_input + r * from_state, ASSEMBLY), from_state


@kernel
def gru_kernel(
    inputs, fed, recurrent, ROW, bias, batch, state, STATE_ROW, cell, after, cell_after, count, width,
    FED: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """h' = (1 − z) n + z h, n = tanh(W x + r · U h)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, column = (place // width).to(tl.int64), place % width
    _r, z, n, _ = gru_gates(inputs, fed, recurrent, ROW, bias, batch, row, column, inside, width, FED, ASSEMBLY)
    h = read(state, row * STATE_ROW + column, inside)
    tl.store(after + row * STATE_ROW + column, (n + z * (h - n)).to(after.dtype.element_ty), mask=inside)


@kernel
def gru_backward_kernel(
    inputs, fed, recurrent, ROW, bias, batch, state, STATE_ROW, cell, cell_after, d_given, GIVEN_ROW, d_more, MORE_ROW,
    d_back, BACK_ROW, carried, d_cell, d_inputs, d_recurrent, count, width,
    LAST: tl.constexpr, MORE: tl.constexpr, FED: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of both parts of the gates, and of what of h' is h (`carried`)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, column, G = (place // width).to(tl.int64), place % width, 3 * width
    r, z, n, from_state = gru_gates(inputs, fed, recurrent, ROW, bias, batch, row, column, inside, width, FED, ASSEMBLY)
    h = read(state, row * STATE_ROW + column, inside)
    d_h = d_state(d_given, GIVEN_ROW, d_more, MORE_ROW, d_back, BACK_ROW, row, column, inside, LAST, MORE)
    if not LAST:
        d_h += read(carried, place, inside)
    d_new = d_h * (1.0 - z) * (1.0 - n * n)
    d_update = d_h * (h - n) * z * (1.0 - z)
    d_reset = d_new * from_state * r * (1.0 - r)
    tl.store(carried + place, d_h * z, mask=inside)
    write(d_inputs, row * G + column, d_reset, inside)
    write(d_inputs, row * G + width + column, d_update, inside)
    write(d_inputs, row * G + 2 * width + column, d_new, inside)
    write(d_recurrent, row * ROW + column, d_reset, inside)
    write(d_recurrent, row * ROW + width + column, d_update, inside)
    last = row * ROW + 2 * width + column
    if FED == 2:
        write(d_recurrent, last, d_new, inside)
        last += width
    write(d_recurrent, last, d_new * r, inside)


@triton.jit
def lstm_gates(inputs, fed, recurrent, ROW, bias, batch, row, column, inside, width, FED: tl.constexpr, ASSEMBLY: tl.constexpr):  # fmt: skip # noqa: E501
    """i, f, g, o."""
    G = 4 * width
    i = sigmoid(summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, G, column, inside, FED))
    f = sigmoid(summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, G, width + column, inside, FED))
    g = tanh(summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, G, 2 * width + column, inside, FED), ASSEMBLY)
    o = sigmoid(summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, G, 3 * width + column, inside, FED))
    return i, f, g, o


@kernel
def lstm_kernel(
    inputs, fed, recurrent, ROW, bias, batch, state, STATE_ROW, cell, after, cell_after, count, width,
    FED: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """c' = f · c + i · g, h' = o · tanh(c')."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, column = (place // width).to(tl.int64), place % width
    i, f, g, o = lstm_gates(inputs, fed, recurrent, ROW, bias, batch, row, column, inside, width, FED, ASSEMBLY)
    c = f * read(cell, place, inside) + i * g
    tl.store(cell_after + place, c, mask=inside)
    tl.store(after + row * STATE_ROW + column, (o * tanh(c, ASSEMBLY)).to(after.dtype.element_ty), mask=inside)


@kernel
def lstm_backward_kernel(
    inputs, fed, recurrent, ROW, bias, batch, state, STATE_ROW, cell, cell_after, d_given, GIVEN_ROW, d_more, MORE_ROW,
    d_back, BACK_ROW, carried, d_cell, d_inputs, d_recurrent, count, width,
    LAST: tl.constexpr, MORE: tl.constexpr, FED: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of both parts of the gates, which are equal; `d_cell`, the gradient of c', becomes that of c."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, column, G = (place // width).to(tl.int64), place % width, 4 * width
    i, f, g, o = lstm_gates(inputs, fed, recurrent, ROW, bias, batch, row, column, inside, width, FED, ASSEMBLY)
    y = tanh(read(cell_after, place, inside), ASSEMBLY)
    d_h = d_state(d_given, GIVEN_ROW, d_more, MORE_ROW, d_back, BACK_ROW, row, column, inside, LAST, MORE)
    d_c = d_h * o * (1.0 - y * y)
    if not LAST:
        d_c += read(d_cell, place, inside)
    d_i, d_f = d_c * g * i * (1.0 - i), d_c * read(cell, place, inside) * f * (1.0 - f)
    d_g, d_o = d_c * i * (1.0 - g * g), d_h * y * o * (1.0 - o)
    tl.store(d_cell + place, d_c * f, mask=inside)
    write(d_inputs, row * G + column, d_i, inside)
    write(d_inputs, row * G + width + column, d_f, inside)
    write(d_inputs, row * G + 2 * width + column, d_g, inside)
    write(d_inputs, row * G + 3 * width + column, d_o, inside)
    write(d_recurrent, row * ROW + column, d_i, inside)
    write(d_recurrent, row * ROW + width + column, d_f, inside)
    write(d_recurrent, row * ROW + 2 * width + column, d_g, inside)
    write(d_recurrent, row * ROW + 3 * width + column, d_o, inside)


@kernel
def rnn_kernel(
    inputs, fed, recurrent, ROW, bias, batch, state, STATE_ROW, cell, after, cell_after, count, width,
    FED: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """h' = tanh(W x + U h)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, column = (place // width).to(tl.int64), place % width
    h = tanh(summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, width, column, inside, FED), ASSEMBLY)
    write(after, row * STATE_ROW + column, h, inside)


@kernel
def rnn_backward_kernel(
    inputs, fed, recurrent, ROW, bias, batch, state, STATE_ROW, cell, cell_after, d_given, GIVEN_ROW, d_more, MORE_ROW,
    d_back, BACK_ROW, carried, d_cell, d_inputs, d_recurrent, count, width,
    LAST: tl.constexpr, MORE: tl.constexpr, FED: tl.constexpr, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradients of both parts, which are equal."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, column = (place // width).to(tl.int64), place % width
    y = tanh(summed_gate(inputs, fed, recurrent, ROW, bias, row, batch, width, column, inside, FED), ASSEMBLY)
    d_h = d_state(d_given, GIVEN_ROW, d_more, MORE_ROW, d_back, BACK_ROW, row, column, inside, LAST, MORE)
    write(d_inputs, row * width + column, d_h * (1.0 - y * y), inside)
    write(d_recurrent, row * ROW + column, d_h * (1.0 - y * y), inside)


@triton.jit
def d_state(
    d_given, GIVEN_ROW, d_more, MORE_ROW, d_back, BACK_ROW, row, column, inside, LAST: tl.constexpr, MORE: tl.constexpr
):
    """The gradient of h': of what was made of it, and from the step after, if this is not the last."""
    d_h = read(d_given, row * GIVEN_ROW + column, inside)
    if MORE:
        d_h += read(d_more, row * MORE_ROW + column, inside)
    if not LAST:
        d_h += read(d_back, row * BACK_ROW + column, inside)
    return d_h


@triton.jit
def write(pointer, place, numbers, inside):
    """Numbers in the precision of a tensor."""
    tl.store(pointer + place, numbers.to(pointer.dtype.element_ty), mask=inside)


@kernel
def tanh_backward_kernel(
    d_given, d_back, BACK_ROW, state, STATE_ROW, out, count, width, LAST: tl.constexpr, BLOCK: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """The gradient of x where tanh(x) is `state`: of what was made of it, and of what the step after made of it."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    row, column = (place // width).to(tl.int64), place % width
    d_y = read(d_given, place, inside)
    if not LAST:
        d_y += read(d_back, row * BACK_ROW + column, inside)
    y = read(state, row * STATE_ROW + column, inside)
    write(out, place, d_y * (1.0 - y * y), inside)
