"""Connections: how many there may be, how long one may be silent, and which one is closed if there are too many."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from jumok.serve.auth import client_address

BACKLOG = 128
"""Connections accepted at once; each has an open file before any of them can be refused."""
OTHER_FILES = 64
"""Approximate number of open files besides connections: the listening socket, the event loop, libraries."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error": "there are too many connections; try again soon"}'
)
MAX_REFUSALS = 32
"""Connections beyond the limit that get this response; any more are closed without one."""
LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The limits of connections."""

    count: int = 1000
    """Connections at the same time."""
    head_seconds: float = 10.0
    """Time for the request line and the headers, from the first byte or from the connection on."""
    request_seconds: float = 70.0
    """Time from the headers of a request to the last byte of its response."""


def possible_connections(wanted: int) -> int:
    """The number of connections wanted, or what the limit of open files allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(files - BACKLOG - OTHER_FILES, files // 4, 1))


class Connection(H11Protocol):
    """A connection that is closed if it is silent for too long, or if others need its place."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limits = limits
        self.refused = False
        self.address = ""
        self._timer: asyncio.TimerHandle | None = None
        self._timed: object = None
        """What the timer is for: the current request, or this connection while it waits for one."""
        self.since = self.loop.time()

    @property
    def busy(self) -> bool:
        """Whether a complete request has arrived and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or close one if there are too many."""
        super().connection_made(transport)
        self.address = client_address({"client": self.client})
        self._set_timer()
        if len(self.connections) > self.limits.count:
            closing = connection_to_close(list(self.connections), self)
            if closing is self and len(self.connections) <= self.limits.count + MAX_REFUSALS:
                self.refused = True
                self._abort_later(seconds=1.0)
            else:
                self.connections.discard(closing)  # it is closed only at the next turn of the loop
                closing.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on, and set the time limit for what comes next."""
        if self.refused:  # only now: closing before the client sends anything would show it a reset instead
            self.transport.write(FULL)
            return self.transport.close()
        super().data_received(data)
        self._set_timer()

    def on_response_complete(self) -> None:
        """A response was sent."""
        self.since = self.loop.time()
        super().on_response_complete()
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def timeout_keep_alive_handler(self) -> None:
        """No other request came."""
        super().timeout_keep_alive_handler()
        self._abort_later(self.limits.head_seconds)

    def _set_timer(self) -> None:
        """Limit the time of the headers, then that of the request; between requests, uvicorn has its own limit."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        timed: object = self.cycle if under_way else self if self.timeout_keep_alive_task is None else None
        if timed is self._timed:
            return  # more bytes of the same request get no more time
        if self._timer is not None:
            self._timer.cancel()
        seconds = self.limits.request_seconds if under_way else self.limits.head_seconds
        self._timed = timed
        self._timer = None if timed is None else self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        if self._timed is self and not self.transport.is_closing():
            self.transport.write(LATE)
            self.transport.close()
            self._abort_later(self.limits.head_seconds)
        else:
            self.transport.abort()

    def _abort_later(self, seconds: float) -> None:
        """Abort after a while: closing waits until all is sent, which a client that does not read can delay forever."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.transport.abort)


def connection_to_close(connections: Iterable[Any], newcomer: Connection) -> Connection:
    """The connection of the busiest client that has been without a complete request for longest.

    If all have one, a client with more connections than that of the newcomer loses its newest; otherwise the newcomer.
    """
    admitted: list[Connection] = [connection for connection in connections if not connection.refused]
    counts = Counter(connection.address for connection in admitted)
    silent = [connection for connection in admitted if not connection.busy and connection is not newcomer]
    if silent:
        return max(silent, key=lambda connection: (counts[connection.address], -connection.since))
    newest = max(admitted, key=lambda connection: (counts[connection.address], connection.since))
    return newest if counts[newest.address] > counts[newcomer.address] else newcomer
