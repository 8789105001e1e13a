"""Connections: how many there may be, how long one may be silent, and who has to go when there are too many."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from jumok.serve.clients import client_of

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


BACKLOG = 128
"""Connections accepted in one go; each has a file open before any of them can be turned away."""
OTHER_FILES = 64
"""Files that are open besides connections, about: what is listened at, the loop's own, libraries."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error": "there are too many connections; try again soon"}'
)
TOLD = 32
"""Connections beyond the limit that are told so; any more are closed without a word."""
LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The most of everything."""

    count: int = 1000
    """Connections at once."""
    head_seconds: float = 10.0
    """Time for the first line and the headers of a request, from its first byte or from the connection on."""
    request_seconds: float = 70.0
    """Time from the headers of a request to the last byte of its answer, however slowly a client sends and reads."""


def connections_possible(wanted: int) -> int:
    """As many connections as are wanted, or as the limit of open files allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(files - BACKLOG - OTHER_FILES, files // 4, 1))


class Connection(H11Protocol):
    """A connection that is closed when it is silent for too long, or has to make room for another."""

    def __init__(self, *given: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*given, **named)
        self.limits = limits
        self.refused = False
        self.address = ""
        self._timer: asyncio.TimerHandle | None = None
        self._timed: object = None
        """What the timer is for: a request under way, or this connection, which waits for one."""
        self.since = self.loop.time()

    @property
    def busy(self) -> bool:
        """Whether a request has come as a whole and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let it in, or turn somebody away."""
        super().connection_made(transport)
        self.address = client_of({"client": self.client})
        self._set_timer()
        if len(self.connections) > self.limits.count:
            leaver = who_leaves(list(self.connections), self)
            if leaver is self and len(self.connections) <= self.limits.count + TOLD:
                self.refused = True
                self._abort_later(seconds=1.0)
            else:
                self.connections.discard(leaver)  # it takes until the next turn of the loop to be closed
                leaver.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on, and see what time there is for what comes next."""
        if self.refused:  # only now: had we closed before it sent anything, it would see no answer but a reset
            self.transport.write(FULL)
            return self.transport.close()
        super().data_received(data)
        self._set_timer()

    def on_response_complete(self) -> None:
        """An answer was sent."""
        self.since = self.loop.time()
        super().on_response_complete()
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        """A time for the head of a request, another for the rest; between requests uvicorn has its own."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        timed: object = self.cycle if under_way else self if self.timeout_keep_alive_task is None else None
        if timed is self._timed:
            return  # every byte that comes is no new beginning
        if self._timer is not None:
            self._timer.cancel()
        seconds = self.limits.request_seconds if under_way else self.limits.head_seconds
        self._timed = timed
        self._timer = None if timed is None else self.loop.call_later(seconds, self._time_is_over)

    def timeout_keep_alive_handler(self) -> None:
        """No other request came."""
        super().timeout_keep_alive_handler()
        self._abort_later(self.limits.head_seconds)

    def _time_is_over(self) -> None:
        if self._timed is self and not self.transport.is_closing():
            self.transport.write(LATE)
            self.transport.close()
            self._abort_later(self.limits.head_seconds)
        else:
            self.transport.abort()

    def _abort_later(self, seconds: float) -> None:
        """Closing waits until all is sent, which a client that does not read can put off for ever."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.transport.abort)


def who_leaves(connections: Iterable[Any], newcomer: Connection) -> Connection:
    """Of the client with the most connections the one that has sent no whole request for longest; else the newcomer.

    Where all have sent one, a client with more connections than the newcomer's loses its newest.
    """
    admitted: list[Connection] = [connection for connection in connections if not connection.refused]
    counts = Counter(connection.address for connection in admitted)
    silent = [connection for connection in admitted if not connection.busy and connection is not newcomer]
    if silent:
        return max(silent, key=lambda connection: (counts[connection.address], -connection.since))
    newest = max(admitted, key=lambda connection: (counts[connection.address], connection.since))
    return newest if counts[newest.address] > counts[newcomer.address] else newcomer
