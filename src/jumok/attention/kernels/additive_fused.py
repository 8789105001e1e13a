"""Launches the Triton kernels of fused additive attention: sizes, padding, tiles, and how the work is cut.

All tensors are [batch, time, dim] here. Memory is linear in time: the exponentials of queries and keys, and planes
[some queries, keys] of at most PLANES bytes whatever the length. Scores written to such a plane, which mostly stays in
the L2 cache, beat one pass that keeps them in registers: that left too few for several tiles on a multiprocessor, and
took 0.41 ms where the loop over features alone takes 0.22.
"""

import os
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jumok.attention.kernels import additive_passes, additive_tiles

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
FEW = 4
"""So many queries read their keys straight from memory; a tile would stand almost empty."""
WIDEST = 4096
"""Values of few queries up to this width are mixed in the pass that makes the weights."""
BLOCK = 128
"""The backward pass takes multiples of so many queries at a time: whole tiles."""
PLANES = 256 * 2**20
"""How many bytes the planes may take."""


class Tiling(NamedTuple):
    """How a kernel is cut: a tile's sides, the warps that share it, and how far ahead Triton loads."""

    rows: int
    cols: int
    warps: int
    stages: int = 1


@dataclass(frozen=True)
class Reach:
    """What each query sees: keys from `first` to before `beyond`, and those that `mask` shows; None: no limit."""

    first: Tensor | None = None
    beyond: Tensor | None = None
    mask: Tensor | None = None

    def arguments(self, stand_in: Tensor) -> tuple[Any, ...]:
        """What the kernels call it."""
        mask = stand_in if self.mask is None else self.mask.view(torch.uint8)
        strides = (0, 0, 0) if self.mask is None else broadcast_strides(self.mask)
        limits = (stand_in, stand_in) if self.first is None else (self.first, self.beyond)
        return (*limits, mask, *strides)

    @property
    def switches(self) -> dict[str, bool]:
        """Which of it there is."""
        return {"INTERVAL": self.first is not None, "MASK": self.mask is not None}


@dataclass(frozen=True)
class Exponentials:
    """e²ˣ of queries or keys and the largest |x| of each, padded to multiples of 16."""

    grown: Tensor
    """Flat: [batch, tile, dim, time] or [batch, time, dim], and some room, since loops read ahead."""
    peaks: Tensor
    times: int
    dims: int


def exponentials(x: Tensor, tile: int = 0) -> Exponentials:
    """The exponentials of queries or keys: tile by tile for the scores, by time for the gradients."""
    batches, time, dim = x.shape
    times, dims = padded(time, tile or 16), padded(dim)
    room = 8 * max(tile, dims) + 256
    grown = torch.empty(batches * times * dims + room, dtype=torch.float32, device=x.device)
    peaks = torch.empty(batches, times, dtype=torch.float32, device=x.device)
    height = min(32, tile or 16)
    additive_tiles.exponentials_kernel[(batches * blocks(times, height),)](
        x, *x.stride(), grown, peaks, time, dim, times,
        DIMS=dims, STEP=tile, BLOCK_TIME=height, BLOCK_DIM=min(64, power_of_two(dims)), num_warps=4,
    )  # fmt: skip
    return Exponentials(grown, peaks, times, dims)


def coefficients(v: Tensor) -> tuple[Tensor, int]:
    """u = −2 v log₂e, padded with zeros, then −½ Σ u; and the step from one entry of the batch to the next."""
    (batches, dim), dims = v.shape, padded(v.shape[1])
    u = torch.empty(batches, dims + 16, dtype=torch.float32, device=v.device)
    additive_tiles.coefficients_kernel[(batches,)](
        v, *v.stride(), u, dim, DIMS=dims, WIDTH=dims + 16, BLOCK=power_of_two(dims)
    )
    return u, (dims + 16 if batches > 1 else 0)


def forward(
    query: Tensor, key: Tensor, value: Tensor, v: Tensor, reach: Reach, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mixed values [batch, query, value_dim] and the log-sum-exp in two parts [2, batch, query]."""
    if query.shape[1] <= FEW and value.shape[2] <= WIDEST:
        return forward_of_few(query, key, value, v, reach, seed, dropout)
    (batches, queries, _), keys = query.shape, key.shape[1]
    out = torch.empty(batches, queries, value.shape[2], dtype=query.dtype, device=query.device)
    lse = torch.empty(2, batches, queries, dtype=torch.float32, device=query.device)
    scorer = Scorer(query, key, v)
    for some, rows in cuts(batches, queries, keys, planes=1):
        plane = scorer.scores(some, rows, reach)
        softmax(plane, lse, reach, seed, dropout, some, rows, keys)
        torch.bmm(plane[:, :, :keys].to(value.dtype), value[some], out=out[some, rows])
    return out, lse


def softmax(
    plane: Tensor, lse: Tensor, reach: Reach, seed: Tensor | None, dropout: float, some: slice, rows: slice, keys: int
) -> None:
    """Scores to weights in place; writes their log-sum-exp."""
    additive_passes.softmax_kernel[(plane.shape[0] * plane.shape[1],)](
        plane, *plane.stride()[:2], *reach.arguments(plane), plane if seed is None else seed, lse,
        lse.shape[1], some.start, rows.start, plane.shape[1], lse.shape[2], keys,
        COLS=min(1024, power_of_two(keys)), **reach.switches, DROPOUT=dropout, num_warps=4 if keys > 256 else 1,
    )  # fmt: skip


def forward_of_few(
    query: Tensor, key: Tensor, value: Tensor, v: Tensor, reach: Reach, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    """The same in one pass over keys and values, a program for each query and part of the keys."""
    (batches, queries, dim), (keys, values) = query.shape, value.shape[1:]
    u, u_step = coefficients(v)
    tiling = few_tiling(values)
    parts = parts_for(batches * queries, blocks(keys, tiling.cols), query.device)
    kind = query.dtype if parts == 1 else torch.float32
    out = torch.empty(parts, batches, queries, values, device=query.device, dtype=kind)
    lse = torch.empty(2, parts, batches, queries, device=query.device, dtype=torch.float32)
    additive_passes.few_queries_kernel[(batches * queries, parts)](
        query, *query.stride(), key, *key.stride(), value, *value.stride(), u, u_step,
        *reach.arguments(u), u if seed is None else seed,
        out, lse, batches, queries, keys, dim, padded(dim), values, parts,
        BLOCK_DIM=min(128, power_of_two(dim)), VALUES=power_of_two(values), COLS=tiling.cols, **reach.switches,
        DROPOUT=dropout, ASSEMBLY=not INTERPRETED, num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
    return (out[0], lse.squeeze(1)) if parts == 1 else joined(out, lse, query.dtype)


def joined(out: Tensor, lse: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The answer of all keys from those of their parts."""
    highest = lse[0].amax(0)
    share = torch.exp2(lse[0] - highest.masked_fill(highest == -torch.inf, 0) + lse[1])
    total = share.sum(0)
    total = total.masked_fill(total == 0, 1)
    return ((share[..., None] * out).sum(0) / total[..., None]).to(dtype), torch.stack((highest, total.log2()))


class Scorer:
    """Writes out scores of some queries at a time; what all of them share is made once."""

    def __init__(self, query: Tensor, key: Tensor, v: Tensor, tiling: Tiling | None = None) -> None:
        self.query, self.key = query, key
        self.u, self.u_step = coefficients(v)
        self.few = query.shape[1] <= FEW
        if not self.few:
            self.tiling = tiling or score_tiling(query.shape[1], key.shape[1])
            self.up, self.down = exponentials(query, self.tiling.rows), exponentials(key, self.tiling.cols)

    def scores(self, some: slice, rows: slice, reach: Reach | None = None) -> Tensor:
        """Scores of [some batches, some queries, keys], the last axis padded; where nobody can see, anything."""
        query, key, u = self.query[some, rows], self.key[some], self.u[some.start if self.u_step else 0 :]
        batches, queries, dim = query.shape
        keys = key.shape[1]
        plane = empty_plane(batches, queries, keys, query.device)
        shape = (plane, *plane.stride()[:2], queries, keys)
        if self.few:
            additive_passes.few_scores_kernel[(batches * queries, blocks(keys, 32))](
                query, *query.stride(), key, *key.stride(), u, self.u_step, *shape, dim, padded(dim),
                BLOCK_DIM=min(128, power_of_two(dim)), COLS=32, ASSEMBLY=not INTERPRETED, num_warps=4,
            )  # fmt: skip
            return plane
        up, down, tiling = self.up, self.down, self.tiling
        interval = reach is not None and reach.first is not None
        limits: tuple[Any, ...] = (u, u, 0)
        if reach is not None and reach.first is not None and reach.beyond is not None:
            limits = (reach.first[some, rows], reach.beyond[some, rows], reach.first.stride(0))
        start = (some.start * up.times + rows.start) * up.dims
        additive_tiles.scores_kernel[(batches * blocks(queries, tiling.rows), blocks(keys, tiling.cols))](
            up.grown[start:], up.peaks[some].view(-1)[rows.start :], query, *query.stride(),
            down.grown[some.start * down.dims * down.times :], down.peaks[some], key, *key.stride(),
            u, self.u_step, *limits, *shape, up.times, down.times, dim,
            INTERVAL=interval, DIM=up.dims, ROWS=tiling.rows, COLS=tiling.cols, ASSEMBLY=not INTERPRETED,
            num_warps=tiling.warps, num_stages=tiling.stages,
        )  # fmt: skip
        return plane


def empty_plane(batches: int, rows: int, cols: int, device: torch.device) -> Tensor:
    """Room for [batch, rows, cols], both padded, and some more, since loops read ahead."""
    down, across = padded(rows), padded(cols)
    flat = torch.empty(batches * down * across + 8 * across + 256, dtype=torch.float32, device=device)
    return flat[: batches * down * across].view(batches, down, across)[:, :rows]


def cuts(batches: int, queries: int, keys: int, *, planes: int) -> list[tuple[slice, slice]]:
    """The batch and the queries in pieces whose planes stay within PLANES bytes."""
    row = 4 * planes * padded(keys)
    rows = min(queries, max(BLOCK, PLANES // (batches * row) // BLOCK * BLOCK))
    some = min(batches, max(1, PLANES // (padded(rows) * row)))
    return [
        (slice(start, min(start + some, batches)), slice(at, min(at + rows, queries)))
        for start in range(0, batches, some)
        for at in range(0, queries, rows)
    ]


def score_tiling(queries: int, keys: int) -> Tiling:
    """As many rows as there are queries, up to 64."""
    cols = min(64, max(16, power_of_two(keys)))
    return Tiling(16 if queries <= 16 else 32 if queries <= 32 else 64, cols, 4)


def few_tiling(values: int) -> Tiling:
    """Small enough that a tile of values fits in registers."""
    return Tiling(1, 32 if values <= 256 else 16 if values <= 1024 else 4, 4 if values <= 1024 else 8)


def parts_for(programs: int, most: int, device: torch.device) -> int:
    """Into how many parts the keys are cut so that the card is full; one if it is without."""
    wanted = multiprocessors(device)
    return 1 if programs >= 0.75 * wanted else max(1, min(most, 2 * wanted // programs))


@cache
def multiprocessors(device: torch.device) -> int:
    """How many there are; the interpreter plays 4."""
    return 4 if device.type == "cpu" else torch.cuda.get_device_properties(device).multi_processor_count


def broadcast_strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides, 0 along axes of size 1."""
    return tuple(0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def padded(size: int, multiple: int = 16) -> int:
    """The next multiple of 16: loads of 16 bytes stay aligned, and loops may take four at a time."""
    return -(-size // multiple) * multiple


def power_of_two(size: int) -> int:
    """The next power of two."""
    return 1 << max(0, size - 1).bit_length()


def blocks(size: int, block: int) -> int:
    """How many blocks cover it."""
    return -(-size // block)
