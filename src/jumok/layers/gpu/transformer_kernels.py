"""Kernels between the matrix products of a Transformer layer."""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel


@triton.jit
def kept(seed, place, DROPOUT: tl.constexpr):
    """The factor of dropout: 0 or 1 / (1 - DROPOUT). It depends on seed and place alone, the same in every pass.

    The number drawn is MurmurHash3's finaliser of place and seed.
    """
    drawn = place.to(tl.uint32) * 0x9E3779B1 + tl.load(seed).to(tl.uint32)
    drawn = (drawn ^ (drawn >> 16)) * 0x85EBCA6B
    drawn = (drawn ^ (drawn >> 13)) * 0xC2B2AE35
    uniform = ((drawn ^ (drawn >> 16)) >> 8).to(tl.float32) * (1.0 / (1 << 24))
    return tl.where(uniform >= DROPOUT, 1.0 / (1.0 - DROPOUT), 0.0)


@kernel
def add_norm_kernel(
    x, change, change_bias, weight, bias, seed, y, normed, means, scales, width,
    EPS: tl.constexpr, DROPOUT: tl.constexpr, X: tl.constexpr, CHANGE: tl.constexpr, FACTOR: tl.constexpr,
    BIASES: tl.constexpr, POST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: y = x + dropout(FACTOR · change + its bias), and its norm; with POST, y is that norm as precise as x.

    Rows take turns with the BIASES biases; there may be none. Without X, x is zero.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    place = row * width + column
    value = tl.zeros((BLOCK,), tl.float32)
    if X:
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if CHANGE:
        added = tl.load(change + place, mask=inside, other=0.0).to(tl.float32) * FACTOR
        if BIASES > 0:
            added += tl.load(change_bias + row % BIASES * width + column, mask=inside, other=0.0).to(tl.float32)
        if DROPOUT > 0:
            added *= kept(seed, place, DROPOUT)
        value += added
        if not POST:
            tl.store(y + place, value, mask=inside)
    mean = tl.sum(value, 0) / width
    centred = tl.where(inside, value - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + EPS)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    result = centred * scale * factor + shift
    tl.store(normed + place, result, mask=inside)
    if POST:
        tl.store(y + place, result, mask=inside)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)


@kernel
def add_norm_backward_kernel(
    d_y, d_normed, y, change, change_bias, weight, seed, means, scales, d_x, d_change, sums, rows, width,
    DROPOUT: tl.constexpr, D_Y: tl.constexpr, X: tl.constexpr, CHANGE: tl.constexpr, FACTOR: tl.constexpr,
    CHANGE_BIAS: tl.constexpr, POST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Every so many rows: gradients of x and the change, and their share of those of weight, bias and change_bias.

    `y` is x + dropout(FACTOR · change + its bias); with POST it is x, and the sum is computed again. Without D_Y, y has
    no gradient of its own; without X, x has none. `sums` has a row of each program for weight, then for bias, then for
    change_bias if it has a gradient.
    """
    column = tl.arange(0, BLOCK)
    inside = column < width
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    d_weight = tl.zeros((BLOCK,), tl.float32)
    d_bias = tl.zeros((BLOCK,), tl.float32)
    d_change_bias = tl.zeros((BLOCK,), tl.float32)
    if CHANGE_BIAS and POST:
        shift = tl.load(change_bias + column, mask=inside, other=0.0).to(tl.float32)
    first = tl.program_id(0).to(tl.int64)
    for turn in range(0, tl.cdiv(rows, tl.num_programs(0))):
        row = first + turn * tl.num_programs(0)
        here = inside & (row < rows)
        place = row * width + column
        upstream = tl.load(d_normed + place, mask=here, other=0.0).to(tl.float32)
        value = tl.load(y + place, mask=here, other=0.0).to(tl.float32)
        gradient = tl.zeros((BLOCK,), tl.float32)
        if D_Y:
            gradient = tl.load(d_y + place, mask=here, other=0.0).to(tl.float32)
        if POST:
            added = tl.load(change + place, mask=here, other=0.0).to(tl.float32) * FACTOR
            if CHANGE_BIAS:
                added += shift
            if DROPOUT > 0:
                added *= kept(seed, place, DROPOUT)
            value += added
            upstream += gradient
            gradient = tl.zeros_like(gradient)
        scale = tl.load(scales + row, mask=row < rows, other=0.0)
        unit = tl.where(here, (value - tl.load(means + row, mask=row < rows, other=0.0)) * scale, 0.0)
        d_weight += upstream * unit
        d_bias += upstream
        upstream *= factor
        along = tl.sum(upstream * unit, 0) / width
        mean = tl.sum(upstream, 0) / width
        gradient += scale * (upstream - mean - unit * along)
        if X:
            tl.store(d_x + place, gradient, mask=here)
        if CHANGE:
            if DROPOUT > 0:
                gradient *= kept(seed, place, DROPOUT)
            tl.store(d_change + place, gradient * FACTOR, mask=here)
            if CHANGE_BIAS:
                d_change_bias += tl.where(here, gradient, 0.0)
    share = sums + tl.program_id(0) * width + column
    plane = tl.num_programs(0) * width
    tl.store(share, d_weight, mask=inside)
    tl.store(share + plane, d_bias, mask=inside)
    if CHANGE_BIAS:
        tl.store(share + 2 * plane, d_change_bias, mask=inside)


@kernel
def column_sums_kernel(x, sums, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums of some columns of a matrix over every so many rows, for each of several matrices."""
    plane = tl.program_id(2).to(tl.int64)
    x += plane * rows * width
    sums += plane * tl.num_programs(1) * width
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    turn = tl.num_programs(1) * ROWS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for number in range(0, tl.cdiv(rows, turn)):
        row = first + number * turn
        inside = (row < rows)[:, None] & (column < width)[None]
        total += tl.load(x + row[:, None] * width + column[None], mask=inside, other=0.0).to(tl.float32)
    tl.store(sums + tl.program_id(1) * width + column, tl.sum(total, 0), mask=column < width)


@triton.jit
def slope(x, ACTIVATION: tl.constexpr):
    """The derivative of silu(x) = x σ(x), or of gelu(x) = x Φ(x)."""
    if ACTIVATION == "silu":
        share = tl.sigmoid(x)
        return share * (1.0 + x * (1.0 - share))
    else:
        density = tl.exp(-0.5 * x * x) * 0.3989422804014327  # 1 / sqrt(2π)
        return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476)) + x * density


@kernel
def activation_backward_kernel(
    d_out, saved, d_hidden, sums, rows, width, ACTIVATION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """One tile: the gradient before an activation function, and its sums over the rows of the tile.

    `saved` is the output of a ReLU, and the input of other functions.
    """
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None]
    place = row[:, None] * width + column[None]
    gradient = tl.load(d_out + place, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(saved + place, mask=inside, other=0.0)
    if ACTIVATION == "relu":
        gradient = tl.where(value > 0, gradient, 0.0)
    else:
        gradient *= slope(value.to(tl.float32), ACTIVATION)
    tl.store(d_hidden + place, gradient, mask=inside)
    tl.store(sums + tl.program_id(1) * width + column, tl.sum(gradient, 0), mask=column < width)
