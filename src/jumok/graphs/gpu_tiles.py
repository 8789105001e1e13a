"""Pieces of the kernels of graph attention: the edges of a node, and sums over its neighbours.

Sums over the rows of neighbours are kept in one of two ways. Usually the rows of a block are added up at once, which
leaves registers for rows that are on their way. A node with very many edges gets a program of many warps; there each
place in a block keeps sums of its own (APART), and the warps need not wait for each other until the end.
"""

import triton
import triton.language as tl


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
def last_of(node, starts, ends, LOOPS: tl.constexpr):
    """Where a small program stops: after the loop that the node may be given, unless it is a long one."""
    end = tl.load(ends + node)
    if LOOPS:
        end += (tl.load(starts + node + 1) == end).to(tl.int32)
    return end


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
def load_rows(pointer, row, visible, dims, DIM: tl.constexpr):
    """Rows of DIM numbers, 0 where they are not visible."""
    inside = visible[:, None] & (dims < DIM)[None, :]
    return tl.load(pointer + row[:, None] + dims[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def load_row(pointer, dims, DIM: tl.constexpr):
    """One row of DIM numbers."""
    return tl.load(pointer + dims, mask=dims < DIM, other=0.0).to(tl.float32)


@triton.jit
def store_row(pointer, row, dims, DIM: tl.constexpr):
    """Write one row."""
    tl.store(pointer + dims, row.to(pointer.dtype.element_ty), mask=dims < DIM)


@triton.jit
def no_rows(BLOCK: tl.constexpr, WIDTH: tl.constexpr, APART: tl.constexpr):
    """A sum of no rows."""
    if APART:
        return tl.zeros([BLOCK, WIDTH], tl.float32)
    else:
        return tl.zeros([WIDTH], tl.float32)


@triton.jit
def add_rows(total, rows, APART: tl.constexpr):
    """A sum of rows and those of a block."""
    if APART:
        return total + rows
    else:
        return total + tl.sum(rows, 0)


@triton.jit
def sum_of_rows(total, APART: tl.constexpr):
    """The sum itself."""
    if APART:
        return tl.sum(total, 0)
    else:
        return total


@triton.jit
def no_level(BLOCK: tl.constexpr, APART: tl.constexpr):
    """What a running softmax counts from before it has seen a score."""
    if APART:
        return tl.full([BLOCK], float("-inf"), tl.float32)
    else:
        return tl.full([], float("-inf"), tl.float32)


@triton.jit
def next_level(level, scores, APART: tl.constexpr):
    """What it counts from with more scores, and the factor of all sums so far."""
    higher = tl.maximum(level, scores if APART else tl.max(scores, 0))
    return higher, tl.exp(level - tl.where(higher == float("-inf"), 0.0, higher))


@triton.jit
def scaled(total, factor, APART: tl.constexpr):
    """A sum of rows times a factor."""
    if APART:
        return total * factor[:, None]
    else:
        return total * factor


@triton.jit
def last_level(level, APART: tl.constexpr):
    """The highest level of all places, and the factors that make their sums count from it."""
    if APART:
        highest = tl.max(level, 0)
        return highest, tl.exp(level - tl.where(highest == float("-inf"), 0.0, highest))
    else:
        return level, 1.0
