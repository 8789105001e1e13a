"""Choosing a bandwidth by leave-one-out: the h that minimises Σᵢ ‖yᵢ − ŷ₋ᵢ(xᵢ)‖², where ŷ₋ᵢ does not see point i."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.models.smoother import Smoother, chunks
from jumok.models.sorted_smoother import SortedSmoother

SWEEPS = 3
"""Sweeps over the points that narrow the best bandwidth down, after the first."""
CANDIDATES = 15
"""Bandwidths that each of them tries: an eighth of the distance between those of the sweep before."""
AS_GOOD = 1.005
"""Errors up to so many times the least count as equal to it."""
FAR = math.log(1000)
"""How far a learned log h may go from its start: further out nothing changes any more, and exp would overflow."""


class Chosen(NamedTuple):
    """A bandwidth and its mean squared leave-one-out error."""

    bandwidth: Float[Tensor, "*dim"]
    error: float


def search(
    smoother: Smoother,
    rows: Int[Tensor, " row"],
    order: Int[Tensor, " place"] | None = None,
    *,
    sweeps: int = SWEEPS,
    verbose: bool = False,
) -> Chosen:
    """The best multiple of the smoother's bandwidth.

    One sweep over the points scores all that make a difference, each 1/√2 of the one before; a few more look closer
    into the two deepest valleys. Of valleys as deep, that of the widest: a kernel with an edge has an error that jumps,
    and the deepest hole may be luck.
    """
    unit, points = smoother.bandwidth, _in_units(smoother, order)
    low, high = _range(smoother)
    step = math.log(2) / 2
    logs = [high - step * i for i in range(1 + math.ceil((high - low) / step))]
    errors = _errors(points, rows, logs, verbose)
    for _ in range(sweeps):
        around, step = _valleys(errors)[:2], step * 2 / (CANDIDATES + 1)
        logs = [log + step * (CANDIDATES // 2 - i) for log in around for i in range(CANDIDATES)]
        errors |= _errors(points, rows, [log for log in sorted(set(logs), reverse=True) if log not in errors], verbose)
    best = max(log for log in _valleys(errors) if errors[log] <= AS_GOOD * min(errors.values()))
    return Chosen(unit * math.exp(best), errors[best])


def learn(
    smoother: Smoother,
    rows: Int[Tensor, " row"],
    order: Int[Tensor, " place"] | None = None,
    *,
    verbose: bool = False,
) -> Chosen:
    """Descend the gradient of the leave-one-out error in log h, from the best multiple on the grid.

    The error has several valleys, so the descent does not start just anywhere. With one h per dimension it stretches
    the dimensions that do not matter until they no longer count.
    """
    best = start = search(smoother, rows, order, sweeps=0, verbose=verbose)
    log_factor = torch.zeros_like(start.bandwidth, dtype=torch.float64, requires_grad=True)
    spread = float(_outputs(smoother).var(0, correction=0).sum()) or 1.0
    descent = torch.optim.LBFGS([log_factor], max_iter=60, tolerance_grad=1e-8, line_search_fn="strong_wolfe")

    @torch.enable_grad()
    def closure() -> float:
        nonlocal best
        descent.zero_grad()
        total = 0.0
        for part in _chunks(smoother, rows):  # each part frees its graph before the next
            bandwidth = start.bandwidth * log_factor.clamp(-FAR, FAR).exp().to(start.bandwidth.dtype)
            error = _squared_errors(replace(smoother, bandwidth=bandwidth), part) / len(rows)
            (error / spread).backward()  # type: ignore[no-untyped-call]
            total += error.item()
        if total < best.error:
            best = Chosen(bandwidth.detach(), total)
        return total / spread

    descent.step(closure)  # type: ignore[no-untyped-call]
    return best


def loo_errors(smoother: Smoother, rows: Int[Tensor, " row"], bandwidths: Sequence[float]) -> list[float]:
    """Mean over `rows` of ‖yᵢ − ŷ₋ᵢ(xᵢ)‖² at each multiple of the bandwidth, in one sweep over the points."""
    points = _in_units(smoother)
    descending = sorted(set(bandwidths), reverse=True)
    found = dict(zip(descending, points.loo_errors(rows, descending), strict=True))
    return [found[bandwidth] for bandwidth in bandwidths]


def _in_units(smoother: Smoother, order: Int[Tensor, " place"] | None = None) -> SortedSmoother:
    """Points divided by the bandwidth, so that what is tried are multiples of it."""
    one = torch.ones((), dtype=smoother.x.dtype, device=smoother.x.device)
    return SortedSmoother.of(smoother.kernel, one, smoother.x / smoother.bandwidth, smoother.y_and_one, order)


def _errors(points: SortedSmoother, rows: Int[Tensor, " row"], logs: list[float], verbose: bool) -> dict[float, float]:
    """The error at the log of each bandwidth, given from the largest down."""
    return dict(zip(logs, points.loo_errors(rows, [math.exp(log) for log in logs], verbose=verbose), strict=True))


def _valleys(errors: dict[float, float]) -> list[float]:
    """Where both neighbours are no better, the best first."""
    logs = sorted(errors)
    found = [errors[log] for log in logs]
    beside = zip([math.inf, *found], found, [*found[1:], math.inf], strict=False)
    return sorted(
        (log for log, (one, here, other) in zip(logs, beside, strict=True) if here <= one and here <= other),
        key=lambda log: errors[log],
    )


def _squared_errors(smoother: Smoother, rows: Int[Tensor, " row"]) -> Float[Tensor, ""]:
    others = rows[:, None] != torch.arange(len(smoother.x), device=rows.device)
    return (_outputs(smoother)[rows] - smoother(smoother.x[rows], others)).square().sum()


def _chunks(smoother: Smoother, rows: Int[Tensor, " row"]) -> Iterator[Int[Tensor, " chunk"]]:
    return chunks(rows, len(smoother.x), smoother.x.element_size())


def _outputs(smoother: Smoother) -> Float[Tensor, "point output"]:
    return smoother.y_and_one[:, :-1]


def _range(smoother: Smoother) -> tuple[float, float]:
    """log of the multiples from half the spacing of points on a line to twice the diagonal of their bounding box."""
    scaled = smoother.x / smoother.bandwidth
    diagonal = float((scaled.amax(0) - scaled.amin(0)).norm()) or 1.0
    return math.log(diagonal / len(scaled) / 2), math.log(2 * diagonal)
