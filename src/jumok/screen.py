"""Messages of a running program: lines on standard error."""

import os
import sys

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun puts into the environment of every process it starts."""


def is_launched() -> bool:
    """Whether torchrun, or something like it, started this process."""
    return all(name in os.environ for name in LAUNCHED)


def prints_messages() -> bool:
    """Whether this process prints messages: it was started alone, or is the first of those started together."""
    return not is_launched() or os.environ["RANK"] == "0"


def to_screen(message: str) -> None:
    """Print a line to standard error; if it cannot be written, it is dropped.

    A message must never end the work that it reports on.
    """
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:  # the pipe is broken, the terminal is closed, or the disk of the log file is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
