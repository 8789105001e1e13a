"""Kernel regression on a GPU: launches the Triton kernels for blocks of queries and the blocks of points near them.

Where the Gaussian is so wide that every query sees every point, a power series (fast_gauss_transform.py) is faster for
many of both.
"""

import importlib.util
import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from jumok.regression import fast_gauss_transform
from jumok.regression.sums import PointBlocks, gaps, surely_within, within

KERNELS = ("gaussian", "boxcar", "epanechnikov", "triangular")
MOST_DIMENSIONS = 8
MOST_VALUES = 8
"""With more values a matrix product is faster."""
LONGEST = 64
"""Largest number of points in a tile."""
VISITS = 2**24
"""Pairs of blocks compared at once."""
FLAT = 8.0
"""Largest exponent of the Gaussian at which exp of a sum may be a product: float32 weights keep 10⁻⁶."""


class Tiling(NamedTuple):
    """A tile's sides, the warps that share it, how far ahead Triton loads, and tiles taken in one turn of the loop."""

    rows: int = 64
    cols: int = 64
    warps: int = 4
    stages: int = 1
    unroll: int = 1


def why_not(x: Tensor, values: int, block: int = LONGEST) -> str | None:
    """Why points in blocks of that size cannot be summed by the kernels; None if they can."""
    if x.device.type != "cuda" and not (x.is_cpu and os.environ.get("TRITON_INTERPRET") == "1"):
        return f"the kernels run on a CUDA GPU and the points are on {x.device}"
    if x.dtype not in (torch.float32, torch.float64):
        return f"the kernels take float32 and float64 and the points are {x.dtype}"
    if x.shape[1] > MOST_DIMENSIONS or values > MOST_VALUES:
        return f"the kernels take {MOST_DIMENSIONS} dimensions and {MOST_VALUES} outputs, not {x.shape[1]} and {values}"
    if block % LONGEST:
        return f"blocks of {block} points cannot be divided into tiles of {LONGEST}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; pip install triton"
    if x.is_cuda and torch.cuda.get_device_properties(x.device).major < 8:
        return "the GPU is older than Ampere (compute capability 8.0)"
    return None


def kernel_sums(
    query: Float[Tensor, "query dim"],
    points: PointBlocks,
    values: Float[Tensor, "value place"],
    kernel: str,
    bandwidth: float,
    *,
    squares: bool = False,
    tiling: Tiling | None = None,
) -> Float[Tensor, "query sum"]:
    """Σ K, Σ K v of each value, and with `squares` Σ K²; the Gaussian's K is relative to the nearest point's.

    With a `tiling` the kernels do it, also where a series is faster.
    """
    pairwise, tiling = tiling is not None, tiling or tiling_for(query.dtype, len(values))
    low = torch.minimum(query.amin(0), points.low.amin(0))
    high = torch.maximum(query.amax(0), points.high.amax(0))
    if kernel == "gaussian" and float((high - low).square().sum()) <= FLAT * 2 * bandwidth * bandwidth:
        middle, digits = (low + high) / 2, torch.finfo(query.dtype).eps / 8
        terms = fast_gauss_transform.terms_for(((high - low) / (2 * bandwidth)).square().tolist(), digits)
        if not pairwise and fast_gauss_transform.worthwhile(points.points, len(query), terms, 1 + len(values)):
            return _series_sums(query, points, values, middle, bandwidth, squares)
        return _wide_sums(query, points, values, middle, bandwidth, squares, tiling)
    queries = PointBlocks.of(query, tiling.rows)
    x = queries.x.clone()
    x[queries.points :] = x[queries.points - 1]  # empty places ask what the last one does, and are dropped
    x = x.mT.contiguous()
    key = points.x.mT.contiguous()
    totals = x.new_empty(1 + len(values) + squares, x.shape[1])
    nearest = x.new_zeros(x.shape[1])
    reach = nearest.new_full((queries.count,), bandwidth * bandwidth)
    if kernel == "gaussian":
        nearest = nearest_squared(queries, x, points, key, tiling)
        slack = 2 * bandwidth * bandwidth * math.log(max(2, points.points) / torch.finfo(query.dtype).eps)
        reach = nearest.view(-1, tiling.rows).amax(1) + slack
    for boxes, starts, blocks in visits(queries, points, reach):
        rows = slice(boxes.start * tiling.rows, boxes.stop * tiling.rows)
        for first in range(0, len(values), 2):
            some_values, last = values[first : first + 2], first + 2 >= len(values)
            sums = _sums(
                x[:, rows], nearest[rows], key, some_values, starts, blocks, points.size, kernel, bandwidth,
                squares and last, tiling,
            )  # fmt: skip
            totals[0, rows] = sums[0]
            totals[1 + first : first + len(sums), rows] = sums[1:]
    return queries.of_points(totals.mT)


def nearest_squared(
    queries: PointBlocks,
    x: Float[Tensor, "dim query"],
    points: PointBlocks,
    key: Float[Tensor, "dim place"],
    tiling: Tiling,
) -> Float[Tensor, " query"]:
    """The squared distance from each query to its nearest point."""
    from jumok.regression import gpu_kernels

    squared = x.new_empty(x.shape[1])
    parts = [surely_within(low, high, points) for low, high in _some_boxes(queries, points)]
    for boxes, starts, blocks in visits(queries, points, torch.cat(parts)):
        rows = slice(boxes.start * tiling.rows, boxes.stop * tiling.rows)
        gpu_kernels.nearest_kernel(
            (boxes.stop - boxes.start,), x[:, rows], x.stride(0), key, key.shape[1], starts, blocks, squared[rows],
            DIM=len(x), BLOCK=points.size, ROWS=tiling.rows, COLS=tiling.cols, warps=tiling.warps,
        )  # fmt: skip
    return squared


def visits(
    queries: PointBlocks, points: PointBlocks, reach: Float[Tensor, " block"]
) -> Iterator[tuple[slice, Int[Tensor, " start"], Int[Tensor, " visit"]]]:
    """Some blocks of queries at a time: which blocks of points are within reach, and where each one's list begins."""
    start = 0
    for low, high in _some_boxes(queries, points):
        stop = start + len(low)
        near = within(gaps(low, high, points), reach[start:stop, None])
        starts = torch.zeros(len(low) + 1, dtype=torch.int32, device=low.device)
        starts[1:] = near.sum(1).cumsum(0)
        yield slice(start, stop), starts, near.nonzero()[:, 1].to(torch.int32)
        start = stop


def tiling_for(dtype: torch.dtype, values: int) -> Tiling:
    """Sums of a tile must fit in registers."""
    if dtype == torch.float64:
        return Tiling(32, 32, 4)
    return Tiling(64, LONGEST, 4) if values == 1 else Tiling(64, 32, 4)


def _some_boxes(queries: PointBlocks, points: PointBlocks) -> Iterator[tuple[Tensor, Tensor]]:
    size = max(1, VISITS // points.count)
    yield from zip(torch.split(queries.low, size), torch.split(queries.high, size), strict=True)


def _sums(
    x: Float[Tensor, "dim query"],
    nearest: Float[Tensor, " query"],
    key: Float[Tensor, "dim place"],
    values: Float[Tensor, "value place"],
    starts: Int[Tensor, " start"],
    blocks: Int[Tensor, " visit"],
    block: int,
    kernel: str,
    bandwidth: float,
    squares: bool,
    tiling: Tiling,
) -> Float[Tensor, "sum query"]:
    from jumok.regression import gpu_kernels

    sums = x.new_empty(1 + len(values) + squares, x.shape[1])
    gpu_kernels.sums_kernel(
        (x.shape[1] // tiling.rows,), x, nearest, x.stride(0), key, values, key.shape[1], starts, blocks, sums,
        sums.shape[1], x.new_full((1,), _scale(kernel, bandwidth, x.dtype)),
        KERNEL=KERNELS.index(kernel), SQUARES=squares, DIM=len(x), VALUES=len(values), BLOCK=block,
        ROWS=tiling.rows, COLS=tiling.cols, ASSEMBLY=x.is_cuda and x.dtype == torch.float32,
        warps=tiling.warps, stages=tiling.stages, multiply_add=kernel != "boxcar",  # its squares are smoothing's
    )  # fmt: skip
    return sums


def _series_sums(
    query: Float[Tensor, "query dim"],
    points: PointBlocks,
    values: Float[Tensor, "value place"],
    middle: Float[Tensor, " dim"],
    bandwidth: float,
    squares: bool,
) -> Float[Tensor, "query sum"]:
    """The Gaussian's sums over all points where it is nearly flat, for many points and queries."""
    there = points.x[:, 0].isfinite()
    sees = torch.cat([there[None].to(values.dtype), values]).mT
    key = (points.x - middle).masked_fill(~there[:, None], 0.0)
    sums = [fast_gauss_transform.gaussian_sums(query - middle, key, sees, bandwidth)]
    if squares:  # K² is the Gaussian of a bandwidth of h/√2
        sums.append(fast_gauss_transform.gaussian_sums(query - middle, key, sees[:, :1], bandwidth / 2**0.5))
    return torch.cat(sums, 1).to(query.dtype)


def _wide_sums(
    query: Float[Tensor, "query dim"],
    points: PointBlocks,
    values: Float[Tensor, "value place"],
    middle: Float[Tensor, " dim"],
    bandwidth: float,
    squares: bool,
    tiling: Tiling,
) -> Float[Tensor, "query sum"]:
    """The Gaussian's sums over all points where it is nearly flat, without a search for neighbours."""
    from jumok.regression import gpu_kernels

    unit = math.log2(math.e) ** 0.5 / bandwidth  # half a squared length in this unit is a power of two
    x = F.pad((query - middle).mul_(unit), (0, 0, 0, -len(query) % tiling.rows)).mT.contiguous()
    key = (points.x - middle).mul_(unit).masked_fill_(points.x.isinf(), 0.0).mT
    lengths = (key.square().sum(0) / -2).masked_fill_(points.x[:, 0].isinf(), -torch.inf)
    key = torch.cat([key, lengths[None]]).contiguous()
    totals = x.new_empty(1 + len(values) + squares, x.shape[1])
    for first in range(0, len(values), 2):
        some_values, last = values[first : first + 2], first + 2 >= len(values)
        sums = totals.new_empty(1 + len(some_values) + (squares and last), x.shape[1])
        gpu_kernels.wide_kernel(
            (x.shape[1] // tiling.rows,), x, x.stride(0), key, some_values, key.shape[1], sums, sums.shape[1],
            SQUARES=squares and last, DIM=len(x), VALUES=len(some_values), ROWS=tiling.rows, COLS=tiling.cols,
            STAGES=tiling.stages, UNROLL=tiling.unroll, ASSEMBLY=x.is_cuda and x.dtype == torch.float32,
            warps=tiling.warps,
        )  # fmt: skip
        totals[0], totals[1 + first : first + len(sums)] = sums[0], sums[1:]
    totals *= (x.square().sum(0) / -2).exp2()
    if squares:
        totals[-1] *= (x.square().sum(0) / -2).exp2()
    return totals.mT[: len(query)]


def _scale(kernel: str, bandwidth: float, dtype: torch.dtype) -> float:
    """log₂e / 2h² for the Gaussian, neither infinite nor 0; h² for the boxcar kernel, h for the others."""
    if kernel != "gaussian":
        return bandwidth * bandwidth if kernel == "boxcar" else bandwidth
    limits, square = torch.finfo(dtype), 2 * bandwidth * bandwidth
    return min(limits.max, max(limits.tiny, math.log2(math.e) / square)) if square else limits.max
