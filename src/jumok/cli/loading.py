"""Imports during which Ctrl-C ends the program with one line, and its exit code.

This file is loaded first and imports next to nothing itself.
"""

import _signal as signal  # type: ignore[import-not-found]  # without enum, which takes longer to load than all else here
import os

INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells; typer uses the same one."""


def load(module: str) -> None:
    """Import a module; Ctrl-C meanwhile ends the program at once.

    An exception would not do: what is being imported may catch it or replace it with another.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:  # the caller of the program handles Ctrl-C in another way
        __import__(module)
        return
    signal.signal(signal.SIGINT, _quit)
    try:
        __import__(module)
    finally:
        signal.signal(signal.SIGINT, handler)


def _quit(*_: object) -> None:
    report_interrupt()
    os._exit(INTERRUPTED)


def report_interrupt() -> None:
    """Say on standard error that Ctrl-C ended the program."""
    try:  # noqa: SIM105  # contextlib would have to be loaded
        os.write(2, b"jumok: interrupted\n")
    except OSError:  # standard error is closed
        pass
