"""Files that may come from a stranger: only plain ones are opened, never larger than expected, never outside a folder.

A pipe never ends, a device such as /dev/zero has no end, and a sparse file of a few kilobytes can say it holds
gigabytes. All three are refused here by what the system says of the open file, before anything of it is read.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from jumok.errors import DataError

MOST_JSON = 2**20
"""Bytes of a file of facts, such as checksums."""
KINDS = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISDIR: "a folder",
}


@contextmanager
def open_plain(path: str | Path, *, within: Path | None = None) -> Iterator[BufferedReader]:
    """The bytes of a plain file; `within` is the folder that links must not lead out of. All else is a DataError."""
    path = Path(path)
    try:
        if within is not None and not (target := _resolved(path)).is_relative_to(_resolved(within)):
            raise DataError(f"{path} is a link to {target}, outside {within}; copy the file itself there")
        # Without O_NONBLOCK, opening a pipe waits for somebody to write into it.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                kind = next((name for is_kind, name in KINDS.items() if is_kind(mode)), "something else")
                raise DataError(f"{path} is {kind}, not a plain file; put a plain file in its place")
            yield file
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not a plain file; put a plain file in its place") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def read_plain(path: str | Path, *, most: int, within: Path | None = None) -> bytes:
    """All bytes of a plain file of at most `most` bytes."""
    with open_plain(path, within=within) as file:
        _check_size(file, path, most)
        return file.read(most)


def check_plain(path: str | Path, *, most: int, within: Path | None = None) -> None:
    """Raise a DataError for what `read_plain` would refuse; nothing is read."""
    with open_plain(path, within=within) as file:
        _check_size(file, path, most)


def _check_size(file: BufferedReader, path: str | Path, most: int) -> None:
    if (size := os.fstat(file.fileno()).st_size) > most:
        raise DataError(f"{path} holds {size:,} bytes; {most:,} are the most it may hold")


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve has an error of its own for a link to itself
