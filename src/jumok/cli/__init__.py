"""The command line: one file per command, which parses its arguments, calls the library and prints the result."""

import sys

from jumok.cli.loading import INTERRUPTED, load, report_interrupt


def main() -> None:
    """Run the command `jumok`."""
    try:
        load("jumok.cli.app")
        sys.modules["jumok.cli.app"].run()
    except KeyboardInterrupt:
        report_interrupt()
        raise SystemExit(INTERRUPTED) from None
