"""Side-by-side timings: the systems take turns, and a ratio compares calls of the same round.

Whatever else the machine does then slows all of them alike, so ratios are steadier than the times they come from.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from jumok.bench import JUMOK

Call = Callable[[], object]
"""What is timed."""
Prepare = Callable[[], Call]
"""Builds the model and the inputs of a system. Raises ImportError if its library is not installed."""

ROUNDS = range(3, 100)
"""Fewest and most rounds."""
SAMPLE = 0.005
"""Seconds below which a call is repeated within a round, because the clock and a GPU's queue would disturb it."""


class Work(NamedTuple):
    """A piece of work that several systems can do; the first of them is jumok."""

    name: str
    systems: Mapping[str, Prepare]
    tokens: int = 0
    """Tokens that one call processes, from which tokens per second are computed; 0 if it has none."""


class Timing(NamedTuple):
    """How long a system takes for a piece of work."""

    work: str
    system: str
    seconds: float | None = None
    """Median time of a call; None if it could not run."""
    ratio: float | None = None
    """Median over the rounds of its time divided by jumok's; above 1 jumok is faster."""
    tokens_per_second: float | None = None
    memory: float | None = None
    """Peak GPU memory of a call in bytes, beyond what it was given; None on a CPU."""
    problem: str = ""
    """Why it could not run."""


class _Runner(NamedTuple):
    call: Call
    repeats: int
    memory: float | None


def time_work(work: Work, device: torch.device, *, seconds: float) -> list[Timing]:
    """Time every system for about `seconds` seconds, one after another in rounds."""
    runners: dict[str, _Runner] = {}
    problems: dict[str, str] = {}
    for system, prepare in work.systems.items():
        try:
            runners[system] = _warm_up(prepare(), device)
        except ImportError as error:
            problems[system] = f"not installed: {error.name}" if error.name else str(error)
        except (torch.OutOfMemoryError, MemoryError):
            problems[system] = "out of memory"
        except Exception as error:  # another version of a library may have another interface
            if system == JUMOK:
                raise
            problems[system] = f"failed: {str(error).partition(chr(10))[0][:80]}"
    rounds = list(_rounds(runners, device, seconds=seconds * len(runners)))
    return [
        Timing(work.name, system, problem=problems[system])
        if system in problems
        else _timing(work, system, rounds, runners[system].memory)
        for system in work.systems
    ]


def _warm_up(call: Call, device: torch.device) -> _Runner:
    """The first calls compile kernels and allocate memory; the last of them says how often to repeat the call."""
    for _ in range(2):
        call()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    taken = _seconds(call, 1, device)
    memory = float(torch.cuda.max_memory_allocated(device) - before) if on_gpu else None
    return _Runner(call, max(1, int(SAMPLE / max(taken, 1e-7))), memory)


def _rounds(runners: Mapping[str, _Runner], device: torch.device, *, seconds: float) -> Iterator[dict[str, float]]:
    """The time of a call of each system in each round; every other round goes backwards, against slow drifts."""
    end = time.perf_counter() + seconds
    order = list(runners.items())
    for number in range(ROUNDS.stop):
        if not order or (number >= ROUNDS.start and time.perf_counter() > end):
            return
        yield {system: _seconds(runner.call, runner.repeats, device) for system, runner in order}
        order.reverse()


def _seconds(call: Call, repeats: int, device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    _wait(device)
    return (time.perf_counter() - start) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _timing(work: Work, system: str, rounds: list[dict[str, float]], memory: float | None) -> Timing:
    seconds = statistics.median(round_[system] for round_ in rounds)
    ratio = statistics.median(round_[system] / round_[JUMOK] for round_ in rounds) if JUMOK in rounds[0] else None
    rate = work.tokens / seconds if work.tokens else None
    return Timing(work.name, system, seconds, ratio, rate, memory)
