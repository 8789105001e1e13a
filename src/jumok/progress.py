"""Progress bars of long work, on standard error, once the work has taken two seconds."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")

DELAY = 2.0
"""Seconds of work before a progress bar appears."""


@runtime_checkable
class Watch(Protocol):
    """Passes the items of long work on and shows how far it is, as `progress` and `ProgressBars` do."""

    def __call__(self, items: Iterable[Item], description: str, total: int, /) -> Iterable[Item]: ...


def unwatched(items: Iterable[Item], _description: str, _total: int) -> Iterable[Item]:
    """Pass the items on without showing progress."""
    return items


TellProgress = Callable[[range, float], None]
"""Called while texts are translated at once with their numbers and the share of their tokens that is done."""


def progress(
    items: Iterable[Item], description: str, total: int | None = None, *, show: bool | None = None
) -> Iterator[Item]:
    """Pass the items on, counting them in a progress bar of their own."""
    if show is False:
        yield from items
        return
    with ProgressBars(show=show) as bars:
        yield from bars(items, description, total)


class ProgressBars:
    """Progress bars on standard error, shown once the work has taken two seconds.

    Call it to wrap the items of a loop: `for item in bars(items, "translating", total)`. By default, bars appear only
    at a terminal, and disappear with the work. `show=True` shows them in notebooks and files too, where they stay.
    """

    def __init__(self, *, show: bool | None = None) -> None:
        self.started = time.monotonic()
        self.shown = sys.stderr.isatty() if show is None else show
        self.stay = bool(show)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # Results on standard output must not pass through the display, which is on standard error.
        self.display = Progress(*columns, console=Console(stderr=True), transient=not self.stay, redirect_stdout=False)
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
        if self.stay:
            return
        self.display.remove_task(bar)
        if not self.display.tasks:
            self._stop()

    def _stop(self) -> None:
        if self.display.live.is_started:
            self.display.stop()

    def _show(self) -> None:
        if self.shown and time.monotonic() - self.started > DELAY:
            self.display.start()
