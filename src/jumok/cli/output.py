"""What commands print: JSON, tables, progress bars, and messages on standard error."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from jumok.errors import JumokError
from jumok.screen import to_screen

Item = TypeVar("Item")

DELAY = 2.0
"""Seconds of work before a progress bar appears."""


def say(message: str) -> None:
    """Print one line to standard error."""
    to_screen(message)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, with Hangul unescaped."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(headers: list[str], rows: list[list[str]]) -> None:
    """Print a table, folded at the width of a terminal and unfolded in a pipe; it is never cut."""
    table = Table(
        *(Column(header, overflow="fold") for header in headers), box=None, header_style="bold", pad_edge=False
    )
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, highlight=False, markup=False, soft_wrap=False).print(table)


def save_all(paths: Iterable[Path], save: Callable[[Path], object]) -> JumokError | None:
    """Save every file that can be saved, and return the first error: a missing font concerns only some of them."""
    first: JumokError | None = None
    for path in paths:
        try:
            save(path)
            say(f"wrote {path}")
        except JumokError as error:
            first = first or error
    return first


class ProgressBars:
    """Progress bars on standard error, shown once the work has taken two seconds, and only at a terminal.

    Call it to wrap the items of a loop: `for item in bars(items, "translating", total)`.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.at_terminal = sys.stderr.isatty()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # Results on standard output must not pass through the display, which is on standard error.
        self.display = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self.shares: dict[str, TaskID] = {}

    def __enter__(self) -> "ProgressBars":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def __call__(self, items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
        """Pass the items on, counting them in a bar."""
        bar = self.display.add_task(description, total=total)
        try:
            for item in items:
                self._show()
                yield item
                self.display.advance(bar)
        finally:
            self._remove(bar)

    def show_share(self, description: str, share: float) -> None:
        """Show the finished share of a single piece of work; the bar disappears when it reaches 1."""
        self._show()
        if share >= 1:
            if description in self.shares:
                self._remove(self.shares.pop(description))
            return
        if description not in self.shares:
            self.shares[description] = self.display.add_task(description, total=100)
        self.display.update(self.shares[description], completed=round(100 * share))

    def _remove(self, bar: TaskID) -> None:
        self.display.remove_task(bar)
        if not self.display.tasks:
            self._stop()

    def _stop(self) -> None:
        if self.display.live.is_started:
            self.display.stop()

    def _show(self) -> None:
        if self.at_terminal and time.monotonic() - self.started > DELAY:
            self.display.start()
