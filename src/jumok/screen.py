"""Messages of a running program: lines on standard error."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def to_screen(message: str) -> None:
    """Print a line to standard error; if it cannot be written, it is dropped.

    A message must never end the work that it reports on.
    """
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:  # the pipe is broken, the terminal is closed, or the disk of the log file is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def progress(items: Iterable[Item], verb: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Pass items on; when it takes longer than two seconds and somebody watches, show how far it is."""
    if not sys.stderr.isatty():
        yield from items
        return
    started, shown = time.monotonic(), 0.0
    count = 0
    for count, item in enumerate(items, start=1):
        now = time.monotonic()
        if now - started > 2 and now - shown > 0.2:
            of = f" of {total}" if total is not None else ""
            pace = count / (now - started)
            print(f"\r{verb}: {count}{of} {unit}, {pace:.0f}/s ", end="", file=sys.stderr, flush=True)
            shown = now
        yield item
    if shown:
        print(f"\r{verb}: {count} {unit} in {time.monotonic() - started:.0f} s      ", file=sys.stderr, flush=True)
