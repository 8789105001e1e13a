"""What commands print: JSON and tables on standard output, messages on standard error."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from jumok.cli.usage import with_options
from jumok.errors import JumokError
from jumok.screen import to_screen


def say(message: str) -> None:
    """Print one line to standard error."""
    to_screen(with_options(message))


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, with Hangul unescaped."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(headers: list[str], rows: list[list[str]]) -> None:
    """Print a table, folded at the width of a terminal; in a pipe unfolded and without spaces at the ends of lines."""
    table = Table(
        *(Column(header, overflow="fold") for header in headers), box=None, header_style="bold", pad_edge=False
    )
    for row in rows:
        table.add_row(*row)
    if sys.stdout.isatty():
        Console(highlight=False, markup=False, soft_wrap=False).print(table)
        return
    console = Console(width=10_000, highlight=False, markup=False, soft_wrap=False)
    with console.capture() as text:
        console.print(table)
    print("\n".join(line.rstrip() for line in text.get().rstrip("\n").split("\n")), flush=True)


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
