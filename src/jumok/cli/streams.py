"""Standard input and output of a command: UTF-8 whatever the locale, and clear errors where writing fails."""

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

CHUNK = 1 << 16
PATIENCE = 0.02
"""Seconds to wait for another line before a group is complete."""
LONGEST_WAIT = 0.2
"""Seconds that the first line of a group waits at most, however steadily others arrive."""


def is_live() -> bool:
    """Whether standard input is a terminal, a pipe or a socket, whose writer may be waiting for an answer."""
    if sys.stdin is None or os.name != "posix":  # other systems cannot poll a pipe
        return False
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # it is closed, or not a file of the operating system
        return False
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def is_typed(path: str) -> bool:
    """Whether texts come from standard input, and this is a terminal."""
    return path == STDIN and sys.stdin is not None and sys.stdin.isatty()


def live_groups(most: int) -> Iterator[list[str]]:
    """Groups of at most `most` lines of standard input; a group never waits long for another line."""
    read = 0
    for lines in _raw_groups(sys.stdin.fileno(), most):
        yield [decode_line(line, STDIN, number) for number, line in enumerate(lines, start=read + 1)]
        read += len(lines)


def _raw_groups(handle: int, most: int) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    partial = b""  # a line without its end so far
    deadline = 0.0
    while read := os.read(handle, CHUNK):
        *complete, partial = (partial + read).split(b"\n")
        deadline = deadline if lines else time.monotonic() + LONGEST_WAIT
        lines += [line + b"\n" for line in complete]
        while len(lines) >= most:
            yield lines[:most]
            lines = lines[most:]
        if lines and not _has_more(handle, deadline):
            yield lines
            lines = []
    if partial:
        lines.append(partial)
    if lines:
        yield lines


def _has_more(handle: int, deadline: float) -> bool:
    """Whether there is more to read, now or shortly."""
    wait = max(0.0, min(PATIENCE, deadline - time.monotonic()))
    return wait > 0 and bool(select.select([handle], [], [], wait)[0])


STDERR = 2
"""File descriptor of standard error."""

STDOUT = "standard output"

PIPE_CLOSED = 128 + getattr(signal, "SIGPIPE", 13)
"""Exit code of a program that wrote to a closed pipe, by the convention of shells."""

WITH_QUESTION_MARKS = "jumok.question-marks"
"""Name of an error handler for characters a terminal lacks: question marks, and one line that says why."""


class Results(TextIOWrapper):
    """Standard output whose errors name it as their file; those of Python name none."""

    def write(self, text: str, /) -> int:
        """Write a text."""
        try:
            return super().write(text)
        except OSError as error:
            raise _named(error) from None

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            super().flush()
        except OSError as error:
            raise _named(error) from None

    def close(self) -> None:
        """Flush, and leave the underlying file open: Python closes it."""
        self.flush()


def _named(error: OSError) -> OSError:
    return OSError(error.errno, error.strerror, STDOUT)


def open_streams() -> None:
    """Send messages to nowhere if standard error is closed; end the program if standard output is."""
    if sys.stderr is None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDERR)  # so that no other file gets this descriptor, to which libraries write
        sys.stderr = os.fdopen(STDERR, "w", encoding="utf-8", closefd=False)
    if sys.stdout is None:
        print(
            "jumok: standard output is closed, and results are written there; open it or redirect it: > output.txt",
            file=sys.stderr,
        )
        sys.exit(1)
    _write_utf8()


def _write_utf8() -> None:
    """Write UTF-8 into files and pipes; only a terminal keeps its own encoding."""
    codecs.register_error(WITH_QUESTION_MARKS, _question_marks)
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(encoding=None if sys.stderr.isatty() else "utf-8", errors="replace")
    if isinstance(stream := sys.stdout, TextIOWrapper):
        at_terminal = stream.isatty()
        sys.stdout = Results(
            stream.buffer,
            encoding=stream.encoding if at_terminal else "utf-8",
            errors=WITH_QUESTION_MARKS if at_terminal else "replace",  # some file names hold lone surrogates
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    _warn_once(error.encoding)
    return "?" * (error.end - error.start), error.end


@cache
def _warn_once(encoding: str) -> None:
    print(
        f"jumok: the output has characters that the encoding of this terminal, {encoding}, lacks; they are shown as ?, "
        "and a file has them all: > output.txt",
        file=sys.stderr,
    )


def is_from_stdout(error: BaseException | None) -> bool:
    """Whether writing to standard output failed.

    If so, it is redirected to nowhere: Python would try to write the rest again at exit.
    """
    if not (isinstance(error, OSError) and error.filename == STDOUT):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
