"""Choosing a bandwidth by leave-one-out: the h that minimises Σᵢ ‖yᵢ − ŷ₋ᵢ(xᵢ)‖², where ŷ₋ᵢ does not see point i."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.regression.leave_one_out import Ladder
from jumok.regression.smoother import Smoother, SortedSmoother, chunks, progress

STEPS = {"gaussian": 8, "boxcar": 32, "epanechnikov": 32, "triangular": 32}
"""Bandwidths tried in each octave. The Gaussian's error is smooth between them, that of a kernel with an edge jumps."""
NODES = 10
"""Errors that a polynomial goes through, to find the bottom of a smooth valley."""
FINER = 64
"""Parts of a step in which it is found."""
SMOOTH = 1.1
"""A bottom deeper than so many times below the errors tried is not believed."""
AS_GOOD = 1.005
"""Errors up to so many times the least count as equal to it."""
DESCENTS, EVALUATIONS = 60, 75
"""Steps down the gradient, and passes over the points for them, at most; most learn in a few."""
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
    verbose: bool = False,
) -> Chosen:
    """The best multiple of the smoother's bandwidth, of all that make a difference, in one pass over the points.

    Of valleys as deep, that of the widest: a kernel with an edge has an error that jumps, and the deepest hole may be
    luck.
    """
    low, high = _range(smoother)
    steps = STEPS[smoother.kernel]
    ladder = Ladder(math.exp(high), steps, 1 + math.ceil((high - low) / math.log(2) * steps))
    errors = _in_units(smoother, order).loo_errors(rows, ladder, verbose=verbose)
    bottom = _bottom if smoother.kernel == "gaussian" else lambda errors, step: (step, errors[step])
    valleys = [bottom(errors, step) for step in _valleys(errors)]
    least = min(error for _, error in valleys)
    step, error = min(valley for valley in valleys if valley[1] <= AS_GOOD * least)
    return Chosen(smoother.bandwidth * ladder.at(step), error)


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
    best = start = search(smoother, rows, order, verbose=verbose)
    log_factor = torch.zeros_like(start.bandwidth, dtype=torch.float64, requires_grad=True)
    spread = float(_outputs(smoother).var(0, correction=0).sum()) or 1.0
    descent = torch.optim.LBFGS(
        [log_factor], max_iter=DESCENTS, max_eval=EVALUATIONS, tolerance_grad=1e-8, line_search_fn="strong_wolfe"
    )
    parts = list(_chunks(smoother, rows))

    @torch.enable_grad()
    def closure() -> float:
        nonlocal best
        descent.zero_grad()
        total = 0.0
        for part in parts:  # each part frees its graph before the next
            bandwidth = start.bandwidth * log_factor.clamp(-FAR, FAR).exp().to(start.bandwidth.dtype)
            error = _squared_errors(replace(smoother, bandwidth=bandwidth), part) / len(rows)
            (error / spread).backward()  # type: ignore[no-untyped-call]
            total += error.item()
            advance()
        if total < best.error:
            best = Chosen(bandwidth.detach(), total)
        return total / spread

    with progress("learning the bandwidth", EVALUATIONS * len(parts), enabled=verbose) as advance:
        descent.step(closure)  # type: ignore[no-untyped-call]
    return best


def _in_units(smoother: Smoother, order: Int[Tensor, " place"] | None = None) -> SortedSmoother:
    """Points divided by the bandwidth, so that what is tried are multiples of it."""
    one = torch.ones((), dtype=smoother.x.dtype, device=smoother.x.device)
    return SortedSmoother.of(smoother.kernel, one, smoother.x / smoother.bandwidth, smoother.y_and_one, order)


def _valleys(errors: list[float]) -> list[int]:
    """Where both neighbours are no better."""
    beside = zip([math.inf, *errors], errors, [*errors[1:], math.inf], strict=False)
    return [step for step, (one, here, other) in enumerate(beside) if here <= one and here <= other]


def _bottom(errors: list[float], step: int) -> tuple[float, float]:
    """The lowest place near a step, and how low it is, on the polynomial through the errors around (Lagrange)."""
    first = max(0, min(step + 1 - NODES // 2, len(errors) - NODES))
    found = torch.tensor(errors[first : first + NODES], dtype=torch.float64)
    nodes, parts = torch.arange(len(found), dtype=torch.float64), torch.arange(-FINER, FINER + 1) / FINER
    places = (step - first + parts.double()).clamp(0, len(found) - 1)
    same = torch.eye(len(found), dtype=torch.bool)
    factors = (places[:, None, None] - nodes) / (nodes[:, None] - nodes).masked_fill(same, 1.0)
    curve = factors.masked_fill(same, 1.0).prod(-1) @ found
    lowest = int(curve.argmin())
    if curve[lowest] < errors[step] / SMOOTH:  # errors that fall by powers of ten, as without noise, are no polynomial
        return step, errors[step]
    return first + float(places[lowest]), float(curve[lowest])


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
