"""A progress bar on standard error that appears only when the work turns out to be long."""

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

PATIENCE = 2.0
"""Seconds of work before a bar is worth showing."""


def shown(items: Sequence[Item], what: str, *, enabled: bool) -> Iterator[Item]:
    """The items one by one, with a bar once they have taken more than PATIENCE seconds."""
    if not enabled:
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    with Progress(console=Console(stderr=True), disable=True) as bar:
        task = bar.add_task(what, total=len(items))
        for done, item in enumerate(items):
            if bar.disable and time.monotonic() - started > PATIENCE:
                bar.disable = False
                bar.start()
            bar.update(task, completed=done)
            yield item
        bar.update(task, completed=len(items))
