"""`jumok bench`: what attention, training, graphs, regression and decoding take on this machine, beside others."""

import datetime
import json as json_format
import platform
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import torch
from typer import Argument, Option

from jumok import __version__
from jumok.bench.timing import JUMOK, Size, Timing, time_work
from jumok.cli.arguments import Device, check_output_path
from jumok.cli.output import print_table, say
from jumok.devices import find_device
from jumok.files import atomic_write
from jumok.progress import ProgressBars

Subject = Literal["attention", "training", "graphs", "regression", "decoding"]
PEERS = ("transformers", "ctranslate2", "torch_geometric", "scikit-learn", "statsmodels", "triton")
"""Packages whose versions matter beside those of Python, jumok and PyTorch."""


def bench(
    subject: Annotated[Subject, Argument(help="What to time.")],
    size: Annotated[Size, Option(help="Size of the models and inputs.")] = "medium",
    seconds: Annotated[float, Option(min=0, help="Seconds to time each system for.")] = 1.0,
    device: Device = "auto",
    json: Annotated[Path | None, Option(help="Also write the numbers to this file.")] = None,
) -> None:
    """Time jumok on this machine, side by side with PyTorch and the libraries that are installed.

    The systems take turns, times are medians, and the last column compares a system with jumok in the same round:
    above 1 jumok is faster.
    """
    where = find_device(device)
    check_output_path("--json", json, [])
    with ProgressBars() as bars:
        works = list(import_module(f"jumok.bench.{subject}").works(where, size))
        timings = [
            timing for work in bars(works, subject, len(works)) for timing in time_work(work, where, seconds=seconds)
        ]
    _print(timings, gpu=where.type == "cuda")
    if json is not None:
        with atomic_write(json) as file:
            file.write(_results(subject, timings, where, size).encode())
        say(f"wrote {json}")


def _print(timings: Sequence[Timing], *, gpu: bool) -> None:
    """A line for each system; the first line of each piece of work names it."""
    columns: dict[str, Callable[[Timing], str]] = {
        "work": lambda timing: timing.work if timing.system == JUMOK else "",
        "system": lambda timing: timing.system,
        "time": _time,
    }
    if any(timing.tokens_per_second is not None for timing in timings):
        columns["tokens/s"] = _rate
    if gpu:
        columns["memory"] = _memory
    columns["time / jumok's"] = _ratio
    print_table(list(columns), [[cell(timing) for cell in columns.values()] for timing in timings])


def _time(timing: Timing) -> str:
    if timing.seconds is None:
        return timing.problem
    return f"{timing.seconds:.3g} s" if timing.seconds >= 1 else f"{1e3 * timing.seconds:.3g} ms"


def _rate(timing: Timing) -> str:
    return "" if timing.tokens_per_second is None else f"{timing.tokens_per_second:,.0f}"


def _memory(timing: Timing) -> str:
    return "" if timing.memory is None else f"{timing.memory / 2**20:,.0f} MiB"


def _ratio(timing: Timing) -> str:
    return "" if timing.ratio is None or timing.system == JUMOK else f"{timing.ratio:.2f}"


def _results(subject: Subject, timings: Sequence[Timing], device: torch.device, size: Size) -> str:
    """As the files in benchmarks/results: where, with which versions and when, and a row for every number."""
    rows = [
        {"id": f"{subject}/{timing.work}", "system": timing.system, "value": value, "unit": unit, "conditions": size}
        for timing in timings
        for unit, value in _values(timing).items()
    ]
    head = {"device": _device_name(device), "versions": _versions(), "date": _today(), "rows": rows}
    return json_format.dumps(head, ensure_ascii=False, indent=1) + "\n"


def _values(timing: Timing) -> dict[str, float | None]:
    if timing.seconds is None:
        return {"ms": None}
    values: dict[str, float | None] = {"ms": 1e3 * timing.seconds, "times jumok's": timing.ratio}
    values |= {} if timing.tokens_per_second is None else {"tok/s": timing.tokens_per_second}
    return values | ({} if timing.memory is None else {"MiB": timing.memory / 2**20})


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "jumok": __version__, "torch": torch.__version__}
    for package in PEERS:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
