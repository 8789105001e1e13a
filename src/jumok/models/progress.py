"""A progress bar on standard error that appears only when the work turns out to be long."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

PATIENCE = 2.0
"""Seconds of work before a bar is worth showing."""


@contextmanager
def progress(what: str, total: int, *, enabled: bool) -> Iterator[Callable[[], None]]:
    """What to call after each of `total` pieces of work; the bar comes once they took more than PATIENCE seconds."""
    if not enabled:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    with Progress(console=Console(stderr=True), disable=True) as bar:
        task = bar.add_task(what, total=total)

        def advance() -> None:
            if bar.disable and time.monotonic() - started > PATIENCE:
                bar.disable = False
                bar.start()
            bar.update(task, advance=1)

        yield advance
        bar.update(task, completed=total)


def shown(items: Sequence[Item], what: str, *, enabled: bool) -> Iterator[Item]:
    """The items one by one, with a bar once they have taken more than PATIENCE seconds."""
    with progress(what, len(items), enabled=enabled) as advance:
        for item in items:
            yield item
            advance()
