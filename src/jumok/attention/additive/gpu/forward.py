"""Forward pass of fused additive attention: launches the Triton kernels, with sizes, padding, tiles and pieces.

All tensors are contiguous [batch, time, dim] here. Memory is linear in time: the exponentials of queries and keys, and
score planes [some queries, keys] of at most PLANES bytes, or of BLOCK queries if these take more. Writing scores to
such a plane, which mostly stays in the L2 cache, is faster than one pass that keeps them in registers, because that
leaves too few registers for several tiles per multiprocessor. There are few launches, because each costs the host as
much time as the kernels of a small problem.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from jumok.attention.additive.gpu import few_query_kernels, forward_kernels, prepare_kernels, score_kernels
from jumok.attention.additive.gpu.mask_intervals import EVERYWHERE, MaskIntervals
from jumok.attention.triton_launch import INTERPRETED, next_power_of_two

FEW = 4
"""Up to this many queries read keys directly from memory, because a tile would be almost empty."""
WIDEST = 4096
"""For few queries, values up to this width are summed in the pass that computes the weights."""
TILE = 32
"""Queries and keys per score tile if such tiles fill the GPU; no other size was faster."""
WIDE_VALUES = (8, 8)
"""Keys read at a time, and warps, for few queries with values wider than 256."""
TOGETHER, SUMS = 64, 4
"""Features per partial sum, and the maximum number of partial sums."""
FULL = 6
"""Tiles per multiprocessor from which the GPU is full, so that tiles hide each other's latency."""
SMALL_TILE, AHEAD = 16, 16
"""Tile size below that, and how far the loop over features is unrolled, so that loads are issued early."""
AT_ONCE, REGISTERS = 8, 255
"""Small tiles that run on a multiprocessor at once, each a warp whose threads use as many registers as they can."""
BLOCK = 128
"""Planes hold a multiple of this many queries: whole tiles."""
PLANES = 256 * 2**20
"""Maximum size of the planes in bytes."""


@dataclass(frozen=True)
class Inputs:
    """Queries, keys, values and v [batch or 1, dim] of one call."""

    query: Tensor
    key: Tensor
    value: Tensor
    v: Tensor

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Batch, queries, keys, and the widths of scores and values."""
        return (*self.query.shape[:2], *self.value.shape[1:2], self.query.shape[2], self.value.shape[2])

    @property
    def v_step(self) -> int:
        """Stride from one batch entry's v to the next."""
        return self.v.stride(0) if self.v.shape[0] > 1 else 0


def forward(
    query: Tensor, key: Tensor, value: Tensor, v: Tensor, mask: MaskIntervals, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The mixed values [batch, query, value_dim], the log-sum-exp as two numbers [2, batch, query], and perhaps scores.

    Scores that take no more memory than the queries and keys are worth keeping for the backward pass.
    """
    inputs = Inputs(query, key, value, v)
    batches, queries, keys, _, values = inputs.sizes
    if queries <= FEW and values <= WIDEST:
        return *forward_of_few(inputs, mask, seed, dropout), None
    out = torch.empty(batches, queries, values, dtype=query.dtype, device=query.device)
    lse = torch.empty(2, batches, queries, dtype=torch.float32, device=query.device)
    scorer = Scorer(query, key, v)
    for entries, rows in cuts(batches, queries, keys, planes=1):
        plane = scorer.scores(entries, rows, mask)
        mix(plane, value, out, lse, mask, seed, dropout, entries, rows)
    whole = len(cuts(batches, queries, keys, planes=3)) == 1
    return out, lse, plane if whole and plane.numel() <= query.numel() + key.numel() else None


def mix(
    plane: Tensor, value: Tensor, out: Tensor, lse: Tensor, mask: MaskIntervals, seed: Tensor | None, dropout: float,
    entries: slice, rows: slice,
) -> None:  # fmt: skip
    """Write Σ softmax(scores) v and the log-sum-exp of some queries."""
    (batches, count), (keys, values) = plane.shape[:2], value.shape[1:]
    width = min(128, max(16, next_power_of_two(values)))
    # 32 queries share the values that are read and split; 16 if every block then has its own multiprocessor.
    alone = batches * blocks(count, 16) * blocks(values, width) <= multiprocessors(plane.device)
    height = 16 if count <= 16 or alone else 32
    forward_kernels.mix_kernel(
        (batches * blocks(count, height), blocks(values, width)), plane, plane.stride(0), plane.stride(1), value,
        out, lse, *mask.arguments(lse, lse.shape[1]), lse if seed is None else seed,
        lse.shape[1], entries.start, rows.start, count, lse.shape[2], keys, values, **mask.switches, DROPOUT=dropout,
        ROWS=height, COLS=min(32, max(16, next_power_of_two(keys))), VALUES=width, PRECISION=precision(value), stages=3,
    )  # fmt: skip


def forward_of_few(inputs: Inputs, mask: MaskIntervals, seed: Tensor | None, dropout: float) -> tuple[Tensor, Tensor]:
    """`forward` in one pass over keys and values, with a program for each query and part of the keys."""
    query, (batches, queries, keys, dim, values) = inputs.query, inputs.sizes
    cols, warps = (32, 4) if values <= 256 else WIDE_VALUES if values <= 1024 else (4, 8)
    parts = parts_for(batches * queries, blocks(keys, cols), query.device)
    shape = (batches, queries) if parts == 1 else (parts, batches, queries)
    out = torch.empty(*shape, values, device=query.device, dtype=query.dtype if parts == 1 else torch.float32)
    lse = torch.empty(2, *shape, device=query.device, dtype=torch.float32)
    few_query_kernels.few_queries_kernel(
        (batches * queries, parts), query, inputs.key, inputs.value, inputs.v, inputs.v_step,
        *mask.arguments(lse, batches), lse if seed is None else seed, out, lse,
        batches, queries, keys, dim, values, parts, **mask.switches, DROPOUT=dropout,
        BLOCK_DIM=min(128, next_power_of_two(dim)), VALUES=next_power_of_two(values), COLS=cols,
        ASSEMBLY=not INTERPRETED, warps=warps,
    )  # fmt: skip
    return (out, lse) if parts == 1 else joined(out, lse, query.dtype)


def joined(out: Tensor, lse: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The result over all keys from the results over their parts."""
    highest = lse[0].amax(0)
    share = torch.exp(lse[0] - highest.masked_fill(highest == -torch.inf, 0)) * lse[1]
    total = share.sum(0)
    total = total.masked_fill(total == 0, 1)
    return ((share[..., None] * out).sum(0) / total[..., None]).to(dtype), torch.stack((highest, total))


class Scorer:
    """Computes scores of some queries at a time; what all queries share is computed once (see `workspace`)."""

    def __init__(self, query: Tensor, key: Tensor, v: Tensor, *, tiled: bool = True, by_time: bool = False) -> None:
        self.query, self.key, self.tiled = query, key, tiled
        batches, queries, dim = query.shape
        keys, self.vectors, self.dims = key.shape[1], v.shape[0], padded(dim, 32)
        tiles = batches * blocks(queries, TILE) * blocks(keys, TILE)
        full = tiles >= FULL * multiprocessors(query.device)
        # In the backward pass the host is the bottleneck, so one launch for all tiles beats a faster one for most.
        self.at_once = by_time or not full
        self.tile, self.ahead, self.registers = TILE, 1, None
        if not full:
            self.tile, self.ahead = SMALL_TILE, min(AHEAD, part_of(self.dims) // 4)
            tiles = batches * blocks(queries, SMALL_TILE) * blocks(keys, SMALL_TILE)
            self.registers = REGISTERS if tiles <= AT_ONCE * multiprocessors(query.device) else None
        self.times = up_times, down_times = padded(queries, TILE), padded(keys, TILE)
        size = (
            batches * (up_times + down_times) * (1 + 2 * self.dims * (tiled + by_time)) + 3 * self.vectors * self.dims
        )
        # Gradients read 64 features at a time, so a row of 96 is read as 128: that memory must exist.
        self.room = torch.empty(size + 32, device=query.device)
        prepare_kernels.prepare_kernel(
            (batches * (up_times + down_times) // self.tile + self.vectors,),
            query, key, v, self.room, batches, self.vectors, queries, keys, up_times, down_times, dim,
            DIM=self.dims, TILE=self.tile, TILED=tiled, BY_TIME=by_time,
            BLOCK_DIM=exponentials_at_once(self.dims, by_time), FEATURES=next_power_of_two(self.dims), warps=4,
        )  # fmt: skip

    def scores(self, entries: slice, rows: slice, mask: MaskIntervals = EVERYWHERE) -> Tensor:
        """Scores [batch entries, queries, keys], the last axis padded; undefined where no query sees the key."""
        (batches, queries, dim), keys = self.query.shape, self.key.shape[1]
        number, count = entries.stop - entries.start, rows.stop - rows.start
        plane = empty_plane(number, count, keys, self.query.device)
        height, width = number * blocks(count, self.tile), blocks(keys, self.tile)
        arguments = (
            self.room, *mask.limits(plane), plane, plane.stride(0), plane.stride(1),
            batches, self.vectors, entries.start, rows.start, count, queries, keys, *self.times,
        )  # fmt: skip
        constants = dict(
            **mask.bounds,
            DIM=self.dims,
            PART=part_of(self.dims),
            TILE=self.tile,
            ASSEMBLY=not INTERPRETED,
            warps=self.tile // 16,
            stages=1,
        )
        if not self.at_once:
            score_kernels.scores_kernel((height, width), *arguments, **constants)
        score_kernels.other_scores_kernel(
            (height, width), self.query, self.key, *arguments, dim, **constants,
            ALL=self.at_once, AHEAD=self.ahead, registers=self.registers,
        )  # fmt: skip
        return plane


def scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Every query with every key, [batch, query, key]."""
    (batches, queries, dim), keys = query.shape, key.shape[1]
    if queries > FEW:
        return first_keys(Scorer(query, key, v).scores(slice(0, batches), slice(0, queries)), keys)
    plane = torch.empty(batches, queries, keys, device=query.device)
    few_query_kernels.few_scores_kernel(
        (batches * queries, blocks(keys, 32)), query, key, v, v.stride(0) if v.shape[0] > 1 else 0,
        plane, plane.stride(0), plane.stride(1), queries, keys, dim,
        BLOCK_DIM=min(128, next_power_of_two(dim)), COLS=32, ASSEMBLY=not INTERPRETED, warps=4,
    )  # fmt: skip
    return plane


def exponentials_at_once(dims: int, by_time: bool) -> int:
    """Features computed at once: all, so that loads are waited for only once, or as many as registers hold."""
    return min(64 if by_time else 128 if dims > 256 else 256, next_power_of_two(dims))


@cache
def part_of(dims: int) -> int:
    """Features per partial sum: equal parts, in whole groups of four."""
    fewest = min(SUMS, blocks(dims, TOGETHER))
    return next(dims // parts for parts in range(fewest, dims) if dims % (4 * parts) == 0)


def empty_plane(batches: int, rows: int, cols: int, device: torch.device) -> Tensor:
    """Memory for [batch, rows, cols], padded so that kernels may read whole tiles of 32 × 64."""
    plane = torch.empty(batches, padded(rows, 32), padded(cols, 64), dtype=torch.float32, device=device)
    return first_rows(plane, rows)


def first_rows(plane: Tensor, rows: int) -> Tensor:
    """plane[:, :rows]; the plane itself if these are all, because a view costs the host as much as an allocation."""
    return plane if plane.shape[1] == rows else plane[:, :rows]


def first_keys(plane: Tensor, keys: int) -> Tensor:
    """plane[:, :, :keys]."""
    return plane if plane.shape[2] == keys else plane[:, :, :keys]


def in_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """tensor.to(dtype), which takes time even if the dtype is the same."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def cuts(batches: int, queries: int, keys: int, *, planes: int) -> list[tuple[slice, slice]]:
    """Pieces of batch and queries whose planes stay within PLANES bytes."""
    row = 4 * planes * padded(keys, 64)
    rows = min(queries, max(BLOCK, PLANES // (batches * row) // BLOCK * BLOCK))
    entries = min(batches, max(1, PLANES // (padded(rows, 32) * row)))
    return [
        (slice(start, min(start + entries, batches)), slice(top, min(top + rows, queries)))
        for start in range(0, batches, entries)
        for top in range(0, queries, rows)
    ]


def parts_for(programs: int, most: int, device: torch.device) -> int:
    """The number of parts of the keys that fills the GPU; one if keys are few, because joining parts takes time."""
    wanted = multiprocessors(device)
    return 1 if programs >= 0.75 * wanted or most < 8 else max(1, min(most // 2, 2 * wanted // programs))


@cache
def multiprocessors(device: torch.device) -> int:
    """The number of multiprocessors; 4 in the interpreter."""
    return 4 if device.type == "cpu" else torch.cuda.get_device_properties(device).multi_processor_count


def precision(value: Tensor) -> str:
    """How tensor cores multiply: three passes for single precision, one for half precision, which fits in 11 bits."""
    return forward_kernels.SPLIT.value if value.dtype == torch.float32 else "tf32"


def padded(size: int, multiple: int = 16) -> int:
    """The next multiple: loads of 16 bytes stay aligned, and loops may take four at a time."""
    return -(-size // multiple) * multiple


def blocks(size: int, block: int) -> int:
    """The number of blocks that cover the size."""
    return -(-size // block)
