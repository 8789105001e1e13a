"""A log that cannot be flooded: of messages that repeat, the first few a minute, and how many were left out."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

FEW, SECONDS = 5, 60.0
MOST_KINDS = 1000


@dataclass
class _Seen:
    since: float
    count: int = 0


class Repeats(logging.Filter):
    """Lets `FEW` messages of a kind through in `SECONDS`; the next one after that says how many there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self._seen: dict[object, _Seen] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it. Of one kind is what comes from one line of a program, about one kind of error."""
        kind = (record.pathname, record.lineno, record.exc_info[0] if record.exc_info else None)
        now = self.clock()
        seen = self._seen.get(kind)
        if seen is None or now - seen.since > SECONDS:
            if len(self._seen) >= MOST_KINDS:
                self._seen.clear()
            self._seen[kind] = _Seen(now, 1)
            left_out = 0 if seen is None else max(seen.count - FEW, 0)
            if left_out:
                record.msg = f"{record.getMessage().rstrip()} ({left_out} more like it were not written)"
                record.args = None
            return True
        seen.count += 1
        return seen.count <= FEW


def limit_repeats(*names: str) -> None:
    """Filter what these loggers write."""
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(one, Repeats) for one in logger.filters):
            logger.addFilter(Repeats())
