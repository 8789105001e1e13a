"""Ctrl-C or a closed terminal: at the first signal training finishes its step and saves, at the second it quits."""

import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

from jumok.torchrun import is_launched
from jumok.training.processes import current_processes, may_stop_alone

MESSAGE = b"\nfinishing this step and saving; press Ctrl-C again to quit at once\n"
MESSAGE_TO_ALL = b"\nfinishing this step in all processes and saving\n"


HANGUP: int | None = getattr(signal, "SIGHUP", None)  # not on Windows


class StopRequest:
    """While entered, the first SIGINT, SIGTERM or SIGHUP sets `asked`, and a second one raises KeyboardInterrupt.

    A SIGHUP that is ignored, as `nohup` has it, stays so. In processes that torchrun started only the first signal
    counts, for torchrun repeats those of a terminal, and no process leaves what others wait for.
    """

    def __init__(self) -> None:
        self.asked = False
        self._abandon = False
        self._before: dict[int, Any] = {}

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block, which loses nothing by being left, the first signal already raises KeyboardInterrupt."""
        self._abandon = True
        try:
            yield
        finally:
            self._abandon = False

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():  # only there can signals be received
            for number in (signal.SIGINT, signal.SIGTERM, *_hangup()):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == HANGUP:
            _leave_terminal()
            if self.asked:
                return  # closing a window can send it twice
        again, self.asked = self.asked, True
        if not is_launched():
            at_once = again or self._abandon
        else:
            at_once = self._abandon and not again and (current_processes().world == 1 or may_stop_alone())
        if at_once:
            raise KeyboardInterrupt
        if again or not current_processes().leads:
            return
        with suppress(OSError):  # Ctrl-C ends the other end of a pipe, too
            os.write(2, MESSAGE_TO_ALL if is_launched() else MESSAGE)  # print() may be in the middle of a line


def _hangup() -> list[int]:
    return [HANGUP] if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN else []


def _leave_terminal() -> None:
    """Stop writing to a terminal that is gone: an error there would keep training from saving."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                os.dup2(nowhere, number)
    os.close(nowhere)
