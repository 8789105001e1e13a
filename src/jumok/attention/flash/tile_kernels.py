"""What the kernels of flash attention share: ranges of visible keys, loads, scores and dropout of one tile.

A mask of the kernels is a range of keys for every row, found by arithmetic: from lengths, a band around the diagonal
(causal masks and windows) and the ends of packed sequences. The rows that see a key are a range too.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
CAREFUL = tl.constexpr(16)
"""Width of a block where a tile is computed again: small, so that the registers of the usual case decide."""
NUMBERS = ("heads", "queries", "keys", "sequences", "low", "high", "shift", "time")
"""Arguments for whose values kernels are not compiled separately: batches of every size run the same kernels."""
FAR = tl.constexpr(2**30)


@triton.jit
def key_range(
    rows, queries, key_length, query_length, low, high, query_ends, key_ends, sequences, LOW: tl.constexpr,
    HIGH: tl.constexpr, SEARCH: tl.constexpr,
):  # fmt: skip
    """The keys from `first` to before `beyond` that each row sees; rows beyond the last behave as the last."""
    rows = tl.minimum(rows, queries - 1)
    first, beyond = tl.zeros_like(rows), tl.zeros_like(rows) + key_length
    if LOW:
        first = tl.maximum(first, rows + low)
    if HIGH:
        beyond = tl.minimum(beyond, rows + high)
    if SEARCH > 0:
        start, end = partner(rows, query_ends, key_ends, sequences, SEARCH)
        first, beyond = tl.maximum(first, start), tl.minimum(beyond, end)
    return first, tl.where(rows < query_length, beyond, 0)


@triton.jit
def row_range(
    cols, keys, key_length, query_length, low, high, query_ends, key_ends, sequences, LOW: tl.constexpr,
    HIGH: tl.constexpr, SEARCH: tl.constexpr,
):  # fmt: skip
    """The rows from `first` to before `beyond` that see each key; keys beyond the last behave as the last."""
    cols = tl.minimum(cols, keys - 1)
    first, beyond = tl.zeros_like(cols), tl.zeros_like(cols) + query_length
    if LOW:
        beyond = tl.minimum(beyond, cols - low + 1)
    if HIGH:
        first = tl.maximum(first, cols - high + 1)
    if SEARCH > 0:
        start, end = partner(cols, key_ends, query_ends, sequences, SEARCH)
        first, beyond = tl.maximum(first, start), tl.minimum(beyond, end)
    return first, tl.where(cols < key_length, beyond, 0)


@triton.jit
def partner(position, ends, other_ends, sequences, SEARCH: tl.constexpr):
    """Start and end, on the other side, of the packed sequence that holds each position: a binary search."""
    sequence = tl.zeros_like(position)
    for bit in tl.static_range(SEARCH):
        probe = sequence + (1 << (SEARCH - 1 - bit))
        inside = probe <= sequences
        end = tl.load(ends + probe - 1, mask=inside, other=FAR)
        sequence = tl.where(inside & (end <= position), probe, sequence)
    start = tl.load(other_ends + sequence - 1, mask=sequence > 0, other=0)
    return start, tl.load(other_ends + sequence, mask=sequence < sequences, other=0)


@triton.jit
def length_of(lengths, longest, offset, GIVEN: tl.constexpr):
    """The length of a sequence, or the longest where no lengths are given."""
    if GIVEN:
        return tl.minimum(tl.load(lengths + offset).to(tl.int32), longest)
    return longest


@triton.jit
def block_range(first, beyond, BLOCK: tl.constexpr, MASK: tl.constexpr):
    """The positions in any of the ranges, from `start` to `stop`, and the blocks that all ranges hold whole.

    With a boolean mask, no block counts as whole.
    """
    nonempty = beyond > first
    stop = tl.max(tl.where(nonempty, beyond, 0), 0)
    start = tl.minimum(tl.min(tl.where(nonempty, first, FAR), 0) // BLOCK * BLOCK, stop)
    inner_start = tl.minimum((tl.max(first, 0) + BLOCK - 1) // BLOCK * BLOCK, FAR)
    inner_start = tl.maximum(inner_start, start)
    inner_stop = tl.minimum(tl.min(beyond, 0), stop) // BLOCK * BLOCK
    # Without a common block, the first of the three loops runs through all.
    inner_stop = tl.maximum(inner_stop, inner_start)
    if MASK != 0:
        inner_start, inner_stop = start, start
    return start, tl.minimum(inner_start, stop), tl.minimum(inner_stop, stop), stop


@triton.jit
def within(positions, first, beyond, LOWER: tl.constexpr, UPPER: tl.constexpr):
    """Which positions, a row of them, lie within each range; comparisons that always hold are left out."""
    inside = tl.full([first.shape[0], positions.shape[0]], 1, tl.int1)
    if LOWER and UPPER:
        inside = (positions[None, :] >= first[:, None]) & (positions[None, :] < beyond[:, None])
    elif LOWER:
        inside = positions[None, :] >= first[:, None]
    elif UPPER:
        inside = positions[None, :] < beyond[:, None]
    return inside


@triton.jit
def seen(visible, mask, rows, cols, mask_row, mask_key, MASK: tl.constexpr):
    """What is visible by its range, and by a boolean mask. `rows` and `cols` are a column and a row, or reversed."""
    if MASK == 1:  # the same for all rows
        visible = visible & (tl.load(mask + cols * mask_key) != 0)
    if MASK == 2:
        visible = visible & (tl.load(mask + rows * mask_row + cols * mask_key, mask=visible, other=0) != 0)
    return visible


@triton.jit
def load_rows(base, rows, step, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """Rows of a matrix, filled up with zeros to BLOCK_DIM numbers."""
    dims = tl.arange(0, BLOCK_DIM)
    pointers = base + rows[:, None] * step + dims[None, :]
    if DIM == BLOCK_DIM:
        return tl.load(pointers)
    return tl.load(pointers, mask=(dims < DIM)[None, :], other=0.0)


@triton.jit
def store_rows(base, rows, step, values, height, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """Store rows below `height`."""
    dims = tl.arange(0, BLOCK_DIM)
    pointers = base + rows[:, None] * step + dims[None, :]
    inside = (rows < height)[:, None]
    if DIM != BLOCK_DIM:
        inside = inside & (dims < DIM)[None, :]
    tl.store(pointers, values.to(base.dtype.element_ty), mask=inside)


@triton.jit
def finite(x):
    """Whether each number is neither NaN nor infinite."""
    return tl.abs(x.to(tl.float32)) < float("inf")


@triton.jit
def any_nonfinite(x):
    """Whether a tile holds a number that is not finite."""
    return tl.max(tl.max(tl.where(finite(x), 0, 1), 1), 0) > 0


@triton.jit
def cleaned(x):
    """NaN and infinity replaced by 0."""
    return tl.where(finite(x), x, tl.zeros_like(x))


@triton.jit
def modified(
    raw, rows, cols, slope, bias, bias_row, bias_key, shift, SCALE: tl.constexpr, SOFT_CAP: tl.constexpr,
    SLOPES: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """cap · tanh(scale · q·k / cap) − slope · |distance| + bias, to base 2; and the slope of the first by q·k.

    `rows` and `cols` are a column and a row of positions, or the other way round.
    """
    scores, change = raw * SCALE, 1.0
    if SOFT_CAP > 0:
        # tanh x = 1 − 2 / (1 + e²ˣ), exact to single precision for caps far above 1, as they are
        scores = 1 - 2 / (1 + tl.exp2(scores * (2 * LOG2E / SOFT_CAP)))
        change = 1 - scores * scores
        scores = scores * SOFT_CAP
    if SLOPES:
        scores -= slope * tl.abs((rows + shift - cols).to(tl.float32))
    if BIAS:
        scores += tl.load(bias + rows * bias_row + cols * bias_key).to(tl.float32)
    return scores * LOG2E, change


@triton.jit
def mixed_bits(x):
    """A good 32-bit hash (Wellons' lowbias32)."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def kept(seed, plane, rows, cols, DROPOUT: tl.constexpr):
    """Which weights dropout keeps: a function of seed, head, row and key, so that the gradient finds the same."""
    key = tl.load(seed)
    low, high = key.to(tl.uint32), (key >> 32).to(tl.uint32)
    by_row = mixed_bits(mixed_bits(rows.to(tl.uint32) ^ low) + plane.to(tl.uint32) * 0x9E3779B9)
    by_key = mixed_bits(cols.to(tl.uint32) ^ high)
    bits = mixed_bits(by_row ^ by_key)
    return (bits >> 8).to(tl.float32) * (1.0 / 16777216.0) >= DROPOUT
