"""`jumok bench`: time attention, training, graphs, regression and decoding on this machine, beside other libraries."""

import json as json_format
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from jumok.bench import JUMOK, Size, Subject
from jumok.cli import library
from jumok.cli.arguments import Device
from jumok.cli.output import print_table, say
from jumok.devices import find_device
from jumok.files import atomic_write
from jumok.progress import ProgressBars

if TYPE_CHECKING:
    from jumok.bench.timing import Timing


def bench(
    subject: Annotated[Subject, Argument(help="What to measure.")],
    size: Annotated[Size, Option(help="Size of the models and inputs.")] = "medium",
    seconds: Annotated[float, Option(min=0, help="Time to measure each system, in seconds.")] = 1.0,
    device: Device = "auto",
    json: Annotated[Path | None, Option(help="Also write the numbers to this file.")] = None,
) -> None:
    """Time jumok on this machine, side by side with PyTorch and the libraries that are installed.

    The systems take turns, and times are medians. The last column is the time of a system divided by jumok's in the
    same round: above 1, jumok is faster.
    """
    where = find_device(device)
    library.model_folder.check_output_path("--json", json, [])
    with ProgressBars() as bars:
        timings = library.bench_results.measure(subject, where, size, seconds=seconds, watch=bars)
    _print(timings, gpu=where.type == "cuda")
    if json is not None:
        text = json_format.dumps(
            library.bench_results.results(subject, timings, where, size), ensure_ascii=False, indent=1
        )
        with atomic_write(json) as file:
            file.write(f"{text}\n".encode())
        say(f"wrote {json}")


def _print(timings: Sequence["Timing"], *, gpu: bool) -> None:
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


def _time(timing: "Timing") -> str:
    if timing.seconds is None:
        return timing.problem
    return f"{timing.seconds:.3g} s" if timing.seconds >= 1 else f"{1e3 * timing.seconds:.3g} ms"


def _rate(timing: "Timing") -> str:
    return "" if timing.tokens_per_second is None else f"{timing.tokens_per_second:,.0f}"


def _memory(timing: "Timing") -> str:
    return "" if timing.memory is None else f"{timing.memory / 2**20:,.0f} MiB"


def _ratio(timing: "Timing") -> str:
    return "" if timing.ratio is None or timing.system == JUMOK else f"{timing.ratio:.2f}"
