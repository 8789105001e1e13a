"""Choosing a bandwidth by leave-one-out: the h that minimises Σᵢ ‖yᵢ − ŷ₋ᵢ(xᵢ)‖², where ŷ₋ᵢ does not see point i."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.models.smoother import Smoother, chunks

GRID = 24
"""Candidates of the first search, evenly spaced in log h."""
REFINEMENTS = 20
"""Steps of the golden section after it: each narrows the bracket to 0.62 of its width."""
FAR = math.log(1000)
"""How far a learned log h may go from its start: further out nothing changes any more, and exp would overflow."""
GOLDEN = (math.sqrt(5) - 1) / 2


class Chosen(NamedTuple):
    """A bandwidth and its mean squared leave-one-out error."""

    bandwidth: Float[Tensor, "*dim"]
    error: float


def search(smoother: Smoother, rows: Int[Tensor, " row"], *, refinements: int = REFINEMENTS) -> Chosen:
    """The best multiple of the smoother's bandwidth: a grid over all that make a difference, then golden section."""
    seen: dict[float, float] = {}

    def error(log_factor: float) -> float:
        if log_factor not in seen:
            seen[log_factor] = loo_error(_scaled(smoother, log_factor), rows)
        return seen[log_factor]

    low, high = _range(smoother)
    step = (high - low) / (GRID - 1)
    best = min((low + step * i for i in range(GRID)), key=error)
    golden_section(error, best - step, best + step, refinements)
    best = min(seen, key=error)
    return Chosen(_scaled(smoother, best).bandwidth, seen[best])


def learn(smoother: Smoother, rows: Int[Tensor, " row"]) -> Chosen:
    """Descend the gradient of the leave-one-out error in log h, from the best multiple on the grid.

    The error has several valleys, so the descent does not start just anywhere. With one h per dimension it stretches
    the dimensions that do not matter until they no longer count.
    """
    best = start = search(smoother, rows, refinements=0)
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


@torch.no_grad()
def loo_error(smoother: Smoother, rows: Int[Tensor, " row"]) -> float:
    """Mean over `rows` of ‖yᵢ − ŷ₋ᵢ(xᵢ)‖²; the other points only answer."""
    return sum(_squared_errors(smoother, part).item() for part in _chunks(smoother, rows)) / len(rows)


def golden_section(function: Callable[[float], float], low: float, high: float, steps: int) -> None:
    """Evaluate a function at ever closer points around its minimum in [low, high] (Kiefer 1953)."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    for _ in range(steps):
        if function(left) <= function(right):
            high, right, left = right, left, right - GOLDEN * (right - low)
        else:
            low, left, right = left, right, left + GOLDEN * (high - left)


def _squared_errors(smoother: Smoother, rows: Int[Tensor, " row"]) -> Float[Tensor, ""]:
    others = rows[:, None] != torch.arange(len(smoother.x), device=rows.device)
    return (_outputs(smoother)[rows] - smoother(smoother.x[rows], others)).square().sum()


def _chunks(smoother: Smoother, rows: Int[Tensor, " row"]) -> Iterator[Int[Tensor, " chunk"]]:
    return chunks(rows, len(smoother.x), smoother.x.element_size())


def _outputs(smoother: Smoother) -> Float[Tensor, "point output"]:
    return smoother.y_and_one[:, :-1]


def _scaled(smoother: Smoother, log_factor: float) -> Smoother:
    return replace(smoother, bandwidth=smoother.bandwidth * math.exp(log_factor))


def _range(smoother: Smoother) -> tuple[float, float]:
    """log of the multiples from half the spacing of points on a line to twice the diagonal of their bounding box."""
    scaled = smoother.x / smoother.bandwidth
    diagonal = float((scaled.amax(0) - scaled.amin(0)).norm()) or 1.0
    return math.log(diagonal / len(scaled) / 2), math.log(2 * diagonal)
