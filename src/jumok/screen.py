"""What a program says while it works: lines on standard error, and no harm done if nobody is there to read them."""

import os
import sys


def to_screen(message: str) -> None:
    """A line on standard error; where nobody can read it, as the other end of a pipe has gone, it goes nowhere.

    A message must never end the work it tells of.
    """
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:  # the pipe is broken, the terminal closed, or the disk of the log full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
