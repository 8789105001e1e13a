"""Where a command may write: at a place that can be written to, and never over what it reads."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def check_written(option: str, place: Path | None, read: Iterable[str | Path | None]) -> None:
    """Refuse, before any work, a place where no file can be written, or one that is among the files a command reads.

    A model folder that is read stands for the files of the model; others may be written into it.
    """
    from jumok.data.files import check_file
    from jumok.errors import ArgumentError

    if place is None:
        return
    for path in _files(read):
        if are_same(place, path):
            also = "" if str(path) == str(place) else f" is the file {path}, and"
            raise ArgumentError(f"{option} {place}{also} would be overwritten, but it is read; name another file")
    check_file(place)


def _files(read: Iterable[str | Path | None]) -> Iterator[Path]:
    from jumok.sealed_folder import own_files

    for path in read:
        if path is not None:
            yield from own_files(Path(path)) if os.path.isdir(path) else [Path(path)]


def are_same(one: Path, other: Path) -> bool:
    """Whether two paths, perhaps links, lead to one file."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is not there yet, or no path
        return False
