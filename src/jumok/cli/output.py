"""Which model a command means when none is named: the tiny one that comes with jumok."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer import BadParameter

from jumok.errors import JumokError
from jumok.screen import to_screen

WIDEST_BEAM = 1000
"""That of `jumok.decoding.config`, which a command does not import, with torch, to tell its options."""

MAX_SOURCE = "Tokens read at once at most; longer texts go in parts. The model's own limit unless given."

COLUMNS = "Source and target in a file of pairs: columns of a TSV, 1,3, or keys, en,ko."


def say(message: str) -> None:
    """One line to standard error."""
    to_screen(message)


def named_folder(name: str) -> Path:
    """The folder that an option names; an empty name is a variable of the shell that was not set."""
    if not name:
        raise BadParameter('the name is empty: ""; name a folder, "." for the one you are in')
    return Path(name)


def save_all(paths: Iterable[Path], save: Callable[[Path], object]) -> JumokError | None:
    """Write all that can be written; gives what could not: a picture may lack a font where a page does not."""
    failed: JumokError | None = None
    for path in paths:
        try:
            save(path)
            say(f"wrote {path}")
        except JumokError as error:
            failed = failed or error
    return failed


def print_json(value: Any) -> None:
    """One JSON value on one line of standard output, Hangul as Hangul."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(heads: list[str], rows: list[list[str]]) -> None:
    """A table; in a pipe, as wide as it needs to be, and at a terminal folded where it is too wide, never cut."""
    from rich.console import Console
    from rich.table import Column, Table

    columns = [Column(head, overflow="fold") for head in heads]
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, highlight=False, markup=False, soft_wrap=False).print(table)


def group_progress(verb: str, unit: str) -> Callable[[range, float], None] | None:
    """Tells how far a group of items is that are done at once, such as one long line, so that nobody waits in silence.

    It writes where `progress` writes, and wipes that when the group is done; None where nobody watches.
    """
    if not sys.stderr.isatty():
        return None
    shown = started = time.monotonic()

    def tell(numbers: range, share: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - started > 2 and now - shown > 0.2:
            which = f"{unit}s {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{unit} {numbers[0]}"
            print(f"\r{verb}: {which}, {share:.0%} ".ljust(48), end="", file=sys.stderr, flush=True)
            shown = now
        if share == 1:
            print(f"\r{48 * ' '}\r", end="", file=sys.stderr, flush=True)

    return tell


@contextmanager
def stages() -> Iterator[Callable[[Iterable[Any], str, int], Iterable[Any]]]:
    """As `progress`, for work of many stages: the two seconds are those of all together, and all share one line.

    Gives a function of the items of a stage, of what is done with them and of how many there are.
    """
    began = time.monotonic()
    shown, widest = 0.0, 0

    def watch(items: Iterable[Any], verb: str, total: int) -> Iterator[Any]:
        nonlocal shown, widest
        for count, item in enumerate(items):
            now = time.monotonic()
            if now - began > 2 and now - shown > 0.2:
                line = f"{verb}: {count / total:.0%}"
                print(f"\r{line.ljust(widest)} ", end="", file=sys.stderr, flush=True)
                shown, widest = now, max(widest, len(line))
            yield item

    try:
        yield watch if sys.stderr.isatty() else lambda items, _verb, _total: items
    finally:
        if shown:
            print(f"\r{widest * ' '} \r", end="", file=sys.stderr, flush=True)


def check_written(option: str, place: Path | None, read: Iterable[str | Path | None]) -> None:
    """Refuse, before any work, a place where no file can be written, or one that is among the files a command reads.

    A model folder that is read stands for the files of the model; others may be written into it.
    """
    from jumok.errors import ArgumentError
    from jumok.files import check_file

    if place is None:
        return
    for path in _files(read):
        if are_same(place, path):
            also = "" if str(path) == str(place) else f" is the file {path}, and"
            raise ArgumentError(f"{option} {place}{also} would be overwritten, but it is read; name another file")
    check_file(place)


def _files(read: Iterable[str | Path | None]) -> Iterator[Path]:
    from jumok.model_folder import own_files

    for path in read:
        if path is not None:
            yield from own_files(Path(path)) if os.path.isdir(path) else [Path(path)]


def are_same(one: Path, other: Path) -> bool:
    """Whether two paths, perhaps links, lead to one file."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is not there yet, or no path
        return False


HELP = "Folder written by `jumok train`; without one, the tiny English-Korean model that comes with jumok."


def named_or_bundled(model: Path | None) -> Path:
    """The model named, or the bundled one, which is said."""
    from jumok.model_folder import BUNDLED

    if model is not None:
        return model
    say("no model is named: using the tiny one that comes with jumok (English dates, amounts and names into Korean)")
    return BUNDLED
