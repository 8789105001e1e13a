"""Lines of standard input in groups as they come: many at once from a quick writer, one by one from a slow one."""

import os
import select
import stat
import sys
import time
from collections.abc import Iterator

from jumok.data.files import STDIN, decode_line

AT_ONCE = 1 << 16
PATIENCE = 0.02
"""Seconds without another line after which those that are there are not kept waiting."""
LONGEST_WAIT = 0.2
"""Seconds that the first line of a group waits for others, however steadily they come."""


def is_live() -> bool:
    """Whether standard input is a terminal, a pipe or a socket, whose writer may wait for an answer."""
    if sys.stdin is None or os.name != "posix":  # elsewhere a pipe cannot be asked whether it has more
        return False
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # it is closed, or no file of the system at all
        return False
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def live_groups(most: int) -> Iterator[list[str]]:
    """Groups of at most `most` lines; none waits for a line that is not there yet."""
    number = 0
    for lines in _raw_groups(sys.stdin.fileno(), most):
        yield [decode_line(line, STDIN, number + at) for at, line in enumerate(lines, start=1)]
        number += len(lines)


def _raw_groups(handle: int, most: int) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    begun = b""  # a line whose end has not come
    deadline = 0.0
    while read := os.read(handle, AT_ONCE):
        *whole, begun = (begun + read).split(b"\n")
        deadline = deadline if lines else time.monotonic() + LONGEST_WAIT
        lines += [line + b"\n" for line in whole]
        while len(lines) >= most:
            yield lines[:most]
            lines = lines[most:]
        if lines and not _more(handle, deadline):
            yield lines
            lines = []
    if begun:
        lines.append(begun)
    if lines:
        yield lines


def _more(handle: int, deadline: float) -> bool:
    """Whether there is more to read, now or in a moment."""
    wait = max(0.0, min(PATIENCE, deadline - time.monotonic()))
    return wait > 0 and bool(select.select([handle], [], [], wait)[0])
