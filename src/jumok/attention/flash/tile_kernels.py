"""What the kernels of flash attention share: ranges of visible keys, loads, scores and dropout of one tile.

A mask of the kernels is a range of keys for every row, found by arithmetic: from lengths, a band around the diagonal
(causal masks and windows) and the segments of packed sequences. The rows that see a key are a range too.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
CAREFUL = tl.constexpr(16)
"""Width of a block where a tile is computed again: small, so that the registers of the usual case decide."""
FAR = tl.constexpr(2**30)


@triton.jit
def key_range(
    rows, queries, keys, key_length, query_length, low, high, segments, LOW: tl.constexpr, HIGH: tl.constexpr,
    SEGMENTS: tl.constexpr,
):  # fmt: skip
    """The keys from `first` to before `beyond` that each row sees; rows beyond the last behave as the last."""
    rows = tl.minimum(rows, queries - 1)
    first, beyond = tl.zeros_like(rows), tl.zeros_like(rows) + key_length
    if LOW:
        first = tl.maximum(first, rows + low)
    if HIGH:
        beyond = tl.minimum(beyond, rows + high)
    if SEGMENTS:
        first = tl.maximum(first, tl.load(segments + rows))
        beyond = tl.minimum(beyond, tl.load(segments + queries + rows))
    return first, tl.where(rows < query_length, beyond, 0)


@triton.jit
def row_range(
    cols, queries, keys, key_length, query_length, low, high, segments, LOW: tl.constexpr, HIGH: tl.constexpr,
    SEGMENTS: tl.constexpr,
):  # fmt: skip
    """The rows from `first` to before `beyond` that see each key; keys beyond the last behave as the last."""
    cols = tl.minimum(cols, keys - 1)
    first, beyond = tl.zeros_like(cols), tl.zeros_like(cols) + query_length
    if LOW:
        beyond = tl.minimum(beyond, cols - low + 1)
    if HIGH:
        first = tl.maximum(first, cols - high + 1)
    if SEGMENTS:
        segments += 2 * queries
        first = tl.maximum(first, tl.load(segments + cols))
        beyond = tl.minimum(beyond, tl.load(segments + keys + cols))
    return first, tl.where(cols < key_length, beyond, 0)


@triton.jit
def block_range(first, beyond, BLOCK: tl.constexpr):
    """The positions in any of the ranges, from `start` to `stop`, and the blocks that all ranges hold whole."""
    some = beyond > first
    stop = tl.max(tl.where(some, beyond, 0), 0)
    start = tl.minimum(tl.min(tl.where(some, first, FAR), 0) // BLOCK * BLOCK, stop)
    inner_start = tl.minimum((tl.max(first, 0) + BLOCK - 1) // BLOCK * BLOCK, FAR)
    inner_start = tl.maximum(inner_start, start)
    inner_stop = tl.minimum(tl.min(beyond, 0), stop) // BLOCK * BLOCK
    # Without a common block, the first of the three loops runs through all.
    inner_stop = tl.maximum(inner_stop, inner_start)
    return start, tl.minimum(inner_start, stop), tl.minimum(inner_stop, stop), stop


@triton.jit
def load_rows(base, rows, step, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """Rows of a matrix, filled up with zeros to BLOCK_DIM numbers."""
    dims = tl.arange(0, BLOCK_DIM)
    at = base + rows[:, None] * step + dims[None, :]
    if DIM == BLOCK_DIM:
        return tl.load(at)
    return tl.load(at, mask=(dims < DIM)[None, :], other=0.0)


@triton.jit
def store_rows(base, rows, step, values, height, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """Store rows below `height`."""
    dims = tl.arange(0, BLOCK_DIM)
    at = base + rows[:, None] * step + dims[None, :]
    inside = (rows < height)[:, None]
    if DIM != BLOCK_DIM:
        inside = inside & (dims < DIM)[None, :]
    tl.store(at, values.to(base.dtype.element_ty), mask=inside)


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
