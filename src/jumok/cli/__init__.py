"""The command line: one file per command; each parses, calls and prints.

This file is loaded first, and loads next to nothing itself: from here on Ctrl-C ends the program with one line, not
with a traceback through whatever is being imported.
"""

import _signal as signal  # type: ignore[import-not-found]  # without enum, which takes longer to load than all else here
import os

INTERRUPTED = 130
"""What a program ends with after Ctrl-C, by the custom of shells; typer keeps to it."""


def main() -> None:
    """The command `jumok`."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else whoever started the program wants something else
        signal.signal(signal.SIGINT, _quit)
    from jumok.cli.app import run

    try:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
        run()
    except KeyboardInterrupt:
        _say_interrupted()
        raise SystemExit(INTERRUPTED) from None


def _quit(*_: object) -> None:
    """Leave at once: an exception would be caught, or turned into another, by what is being imported."""
    _say_interrupted()
    os._exit(INTERRUPTED)


def _say_interrupted() -> None:
    try:  # noqa: SIM105  # contextlib would have to be loaded
        os.write(2, b"jumok: interrupted\n")
    except OSError:  # nobody reads it
        pass
