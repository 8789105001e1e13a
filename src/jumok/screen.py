"""What a program says while it works: lines on standard error, and no harm done if nobody is there to read them."""

import os
import sys


def to_screen(message: str) -> None:
    """A line on standard error; once whoever read it has gone, a terminal or the end of a pipe, it goes nowhere.

    A message must never end the work it tells of.
    """
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
