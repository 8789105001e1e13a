"""Messages of a running program: lines on standard error."""

import os
import sys


def to_screen(message: str) -> None:
    """Print a line to standard error; if it cannot be written, it is dropped.

    A message must never end the work that it reports on.
    """
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:  # the pipe is broken, the terminal is closed, or the disk of the log file is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
