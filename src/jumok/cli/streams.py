"""The streams of a command: results leave as UTF-8 whatever the locale, and what cannot be written is said so."""

import codecs
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from functools import cache
from io import TextIOWrapper

from jumok.files import STDIN, decode_line

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


STDERR = 2
"""The number of standard error among the open files of a process."""

STDOUT = "standard output"

PIPE_CLOSED = 128 + getattr(signal, "SIGPIPE", 13)
"""What a shell says of a program that wrote to a pipe nobody reads any more."""

SAID = "jumok.said"
"""What becomes of letters that a terminal has not: question marks, and once a line that says why."""


class Results(TextIOWrapper):
    """Standard output, whose errors say that they are its own: those of Python name no file."""

    def write(self, text: str, /) -> int:
        """Write a text."""
        try:
            return super().write(text)
        except OSError as error:
            raise _own(error) from None

    def flush(self) -> None:
        """Write what waits to be written."""
        try:
            super().flush()
        except OSError as error:
            raise _own(error) from None

    def close(self) -> None:
        """Leave what is below open: Python opened it, and closes it."""
        self.flush()


def _own(error: OSError) -> OSError:
    return OSError(error.errno, error.strerror, STDOUT)


def open_streams() -> None:
    """Give messages that nobody reads a place to go; refuse where results have none."""
    if sys.stderr is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDERR)  # so that no file gets its number, at which libraries write
        sys.stderr = os.fdopen(STDERR, "w", encoding="utf-8", closefd=False)
    if sys.stdout is None:
        print(
            "jumok: standard output is closed, and results go there; open it, or give it a file: > output.txt",
            file=sys.stderr,
        )
        sys.exit(1)
    _write_utf8()


def _write_utf8() -> None:
    """Texts are read as UTF-8 and so written, into files and pipes; only a terminal has letters of its own."""
    codecs.register_error(SAID, _question_marks)
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(encoding=None if sys.stderr.isatty() else "utf-8", errors="replace")
    if isinstance(given := sys.stdout, TextIOWrapper):
        shown = given.isatty()
        sys.stdout = Results(
            given.buffer,
            encoding=given.encoding if shown else "utf-8",
            errors=SAID if shown else "replace",  # the names of odd files hold half characters
            line_buffering=given.line_buffering,
            write_through=given.write_through,
        )


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    _say_that_letters_are_lost(error.encoding)
    return "?" * (error.end - error.start), error.end


@cache
def _say_that_letters_are_lost(encoding: str) -> None:
    print(
        f"jumok: the output has letters that {encoding}, the encoding of this terminal, has not; they are shown as ?, "
        "but a file gets them all: > output.txt",
        file=sys.stderr,
    )


def is_of_stdout(error: BaseException | None) -> bool:
    """Whether results could not be written. Nothing waits for it then, or Python would try again at its end."""
    if not (isinstance(error, OSError) and error.filename == STDOUT):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
