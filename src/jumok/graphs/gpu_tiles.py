"""Pieces of the kernels of graph attention: the edges of a node, and rows of numbers in parts.

A program reads the rows of several neighbours at once. Each row is read in PARTS, so that few threads share a row: they
then add up a row's numbers in fewer steps, and compute what concerns the whole row fewer times.
"""

import triton
import triton.language as tl

SLACK = tl.constexpr(16.0)
"""The running softmax counts from a level that follows the highest score only when that is so much higher: its sums
have room for exp(16), and need not be scaled for every new maximum."""


@triton.jit
def kept(seed, head, edge, DROPOUT: tl.constexpr):
    """The factor of an edge's weight: 0 where it is dropped. It depends on the edge alone, the same in every pass.

    The number drawn is MurmurHash3's finaliser of edge, head and seed: tl.rand took as long as all else in a pass.
    """
    drawn = edge.to(tl.uint32) * 0x9E3779B1 + (tl.load(seed).to(tl.uint32) + head.to(tl.uint32) * 0x7FEB352D)
    drawn = (drawn ^ (drawn >> 16)) * 0x85EBCA6B
    drawn = (drawn ^ (drawn >> 13)) * 0xC2B2AE35
    uniform = ((drawn ^ (drawn >> 16)) >> 8).to(tl.float32) * (1.0 / (1 << 24))
    return tl.where(uniform >= DROPOUT, 1.0 / (1.0 - DROPOUT), 0.0)


@triton.jit
def edges_of(node, starts, LOOPS: tl.constexpr):
    """The first edge of a node, the place after its last, and that after the edge to itself which it may be given."""
    end = tl.load(starts + node + 1)
    return tl.load(starts + node), end, end + LOOPS


@triton.jit
def is_short(node, starts, LONGEST: tl.constexpr):
    """Whether a node has so few edges that a small program takes it."""
    return tl.load(starts + node + 1) - tl.load(starts + node) <= LONGEST


@triton.jit
def neighbours_of(node, slots, end, others, edges, edge_count, looped, LOOPS: tl.constexpr, EDGES: tl.constexpr):
    """The other ends of some edges, the edges' numbers, their places in this order, which there are, and whether one
    was a loop. The loop that a node is given has a place, and a number, after all edges.
    """
    inside = slots < end
    other = tl.load(others + slots, mask=inside, other=0)
    edge = slots
    if EDGES:
        edge = tl.load(edges + slots, mask=inside, other=0)
    if LOOPS:
        looped = tl.maximum(looped, tl.max((inside & (other == node)).to(tl.int32), 0))
        own = (slots == end) & (looped == 0)
        other = tl.where(inside, other, node)
        edge = tl.where(inside, edge, edge_count + node)
        slots = tl.where(inside, slots, edge_count + node)
        inside = inside | own
    return other, edge, slots, inside, looped


@triton.jit
def two_numbers(packed):
    """Two numbers of single precision that stand together, read as one of 64 bits."""
    first = (packed & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
    return first, (packed >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def leaky(x, slope):
    """LeakyReLU."""
    return tl.where(x > 0, x, slope * x)


@triton.jit
def zeros(BLOCK: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Rows of zeros."""
    rows = (tl.zeros([BLOCK, WIDTH], tl.float32),)
    for _ in tl.static_range(1, PARTS):
        rows += (tl.zeros([BLOCK, WIDTH], tl.float32),)
    return rows


@triton.jit
def load_row(at, DIM: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """One row of DIM numbers."""
    dims = tl.arange(0, WIDTH)
    row = (tl.load(at + dims, mask=dims < DIM, other=0.0).to(tl.float32),)
    for part in tl.static_range(1, PARTS):
        dims = part * WIDTH + tl.arange(0, WIDTH)
        row += (tl.load(at + dims, mask=dims < DIM, other=0.0).to(tl.float32),)
    return row


@triton.jit
def load_rows(at, visible, DIM: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """A row for each pointer, 0 where it is not visible."""
    dims = tl.arange(0, WIDTH)
    inside = visible[:, None] & (dims < DIM)[None, :]
    rows = (tl.load(at[:, None] + dims[None, :], mask=inside, other=0.0).to(tl.float32),)
    for part in tl.static_range(1, PARTS):
        dims = part * WIDTH + tl.arange(0, WIDTH)
        inside = visible[:, None] & (dims < DIM)[None, :]
        rows += (tl.load(at[:, None] + dims[None, :], mask=inside, other=0.0).to(tl.float32),)
    return rows


@triton.jit
def store_row(at, row, DIM: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Write one row."""
    for part in tl.static_range(PARTS):
        dims = part * WIDTH + tl.arange(0, WIDTH)
        tl.store(at + dims, row[part].to(at.dtype.element_ty), mask=dims < DIM)


@triton.jit
def plus(rows, row, PARTS: tl.constexpr):
    """Rows, to each of which one row is added."""
    found = (rows[0] + row[0][None, :],)
    for part in tl.static_range(1, PARTS):
        found += (rows[part] + row[part][None, :],)
    return found


@triton.jit
def dots(rows, row, PARTS: tl.constexpr):
    """The product of each row with one row."""
    total = rows[0] * row[0][None, :]
    for part in tl.static_range(1, PARTS):
        total += rows[part] * row[part][None, :]
    return tl.sum(total, 1)


@triton.jit
def dot(one, other, PARTS: tl.constexpr):
    """The product of two rows."""
    total = one[0] * other[0]
    for part in tl.static_range(1, PARTS):
        total += one[part] * other[part]
    return tl.sum(total, 0)


@triton.jit
def add_weighted(sums, weights, rows, PARTS: tl.constexpr):
    """sums + weights · rows."""
    found = (sums[0] + weights[:, None] * rows[0],)
    for part in tl.static_range(1, PARTS):
        found += (sums[part] + weights[:, None] * rows[part],)
    return found


@triton.jit
def slopes(rows, SLOPE: tl.constexpr, PARTS: tl.constexpr):
    """The slope of LeakyReLU at each number."""
    found = (tl.where(rows[0] > 0, 1.0, SLOPE),)
    for part in tl.static_range(1, PARTS):
        found += (tl.where(rows[part] > 0, 1.0, SLOPE),)
    return found


@triton.jit
def products(one, other, PARTS: tl.constexpr):
    """Numbers times numbers."""
    found = (one[0] * other[0],)
    for part in tl.static_range(1, PARTS):
        found += (one[part] * other[part],)
    return found


@triton.jit
def sum_rows(rows, PARTS: tl.constexpr):
    """One row, the sum of all."""
    found = (tl.sum(rows[0], 0),)
    for part in tl.static_range(1, PARTS):
        found += (tl.sum(rows[part], 0),)
    return found


@triton.jit
def combine(one, a, other, b, PARTS: tl.constexpr):
    """a · one + b · other of two rows."""
    found = (a * one[0] + b * other[0],)
    for part in tl.static_range(1, PARTS):
        found += (a * one[part] + b * other[part],)
    return found


@triton.jit
def scaled(row, factor, PARTS: tl.constexpr):
    """A row times a number."""
    found = (row[0] * factor,)
    for part in tl.static_range(1, PARTS):
        found += (row[part] * factor,)
    return found
