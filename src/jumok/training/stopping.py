"""Ctrl-C: asked once, training finishes its step and saves; asked twice, it quits at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

MESSAGE = b"\nfinishing this step and saving; once more to quit at once\n"


class StopRequest:
    """While entered, the first SIGINT or SIGTERM sets `asked`, and a second one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False
        self._abandon = False
        self._before: dict[int, Any] = {}

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block already the first signal raises KeyboardInterrupt: nothing is lost by leaving it."""
        self._abandon = True
        try:
            yield
        finally:
            self._abandon = False

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():  # only there can signals be received
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if again or self._abandon:
            raise KeyboardInterrupt
        with suppress(OSError):  # Ctrl-C ends the other end of a pipe, too
            os.write(2, MESSAGE)  # print() may be in the middle of a line
