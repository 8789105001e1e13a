"""Timings of a subject, as `jumok bench` takes them, and as plain data with where and when they were taken."""

import datetime
import platform
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from jumok import __version__
from jumok.bench import Size, Subject
from jumok.bench.timing import Timing, time_work
from jumok.progress import Watch, unwatched

PEERS = ("transformers", "ctranslate2", "torch_geometric", "scikit-learn", "statsmodels", "triton")
"""Packages whose versions matter beside those of Python, jumok and PyTorch."""


def measure(
    subject: Subject, device: torch.device, size: Size = "medium", *, seconds: float = 1.0, watch: Watch = unwatched
) -> list[Timing]:
    """Time every system of a subject for about `seconds` seconds for each piece of work."""
    works = list(import_module(f"jumok.bench.{subject}").works(device, size))
    return [timing for work in watch(works, subject, len(works)) for timing in time_work(work, device, seconds=seconds)]


def results(subject: Subject, timings: Sequence[Timing], device: torch.device, size: Size) -> dict[str, Any]:
    """As the files in benchmarks/results: where, with which versions and when, and a row for every number."""
    rows = [
        {"id": f"{subject}/{timing.work}", "system": timing.system, "value": value, "unit": unit, "conditions": size}
        for timing in timings
        for unit, value in _values(timing).items()
    ]
    return {"device": _device_name(device), "versions": _versions(), "date": _today(), "rows": rows}


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
    versions = {"python": platform.python_version(), "jumok": __version__, "torch": torch.__version__}
    for package in PEERS:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
