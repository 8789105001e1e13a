"""A uvicorn server on a port: it runs until a signal, finishes what it has accepted, and keeps its log short."""

import errno
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from jumok.errors import ArgumentError
from jumok.serve.connections import BACKLOG, Connection, ConnectionLimits, possible_connections

SENDING_SECONDS = 10.0
"""Time to send a response, in addition to the time for reading the request and for computing."""
MAX_REPEATS, PERIOD = 5, 60.0
"""Copies of a message that are logged within so many seconds."""
MAX_MESSAGES = 1000
"""Messages whose repetitions are counted."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ArgumentError(f"host = {host!r} is not an address of this machine: {error.strerror or error}") from None
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        cure = "choose another port with --port, or stop the program that uses it"
        if error.errno == errno.EADDRNOTAVAIL:
            cure = "this machine has no such address: use --host 127.0.0.1 for this machine alone, 0.0.0.0 for all"
        reason = (error.strerror or str(error)).lower()
        raise ArgumentError(f"cannot listen at {host}, port {port}: {reason}; {cure}") from None
    return listening


def server_config(
    app: ASGIApp, *, seconds: float, connections: int = 1000, head_seconds: float = 10.0, proxies: Sequence[str] = ()
) -> uvicorn.Config:
    """The settings of uvicorn; a request has `seconds` to arrive and as many to be answered."""
    limits = ConnectionLimits(
        count=possible_connections(connections),
        head_seconds=head_seconds,
        request_seconds=2 * seconds + SENDING_SECONDS,
    )
    config = uvicorn.Config(
        app,
        http=partial(Connection, limits=limits),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        backlog=BACKLOG,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=math.ceil(seconds) + 5,
    )
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, RepeatFilter) for log_filter in logger.filters):
            logger.addFilter(RepeatFilter())
    return config


def run(config: uvicorn.Config, listening: socket.socket, *, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGINT or SIGTERM, then finish all requests that have begun."""
    server = _Server(config, ready)
    # uvicorn raises the signal again after its shutdown; by then all is done, and it need not kill the process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Calls `ready` when it has started; a second signal ends it at once."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


@dataclass
class _Repeats:
    since: float
    count: int = 1


class RepeatFilter(logging.Filter):
    """Passes `MAX_REPEATS` copies of a message per `PERIOD`; the next one says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self._repeats: dict[object, _Repeats] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a message. Copies come from the same line of code, about the same class of error."""
        kind = (record.pathname, record.lineno, record.exc_info[0] if record.exc_info else None)
        now = self.clock()
        repeats = self._repeats.get(kind)
        if repeats is not None and now - repeats.since <= PERIOD:
            repeats.count += 1
            return repeats.count <= MAX_REPEATS
        if len(self._repeats) >= MAX_MESSAGES:
            self._repeats.clear()
        self._repeats[kind] = _Repeats(now)
        if repeats is not None and repeats.count > MAX_REPEATS:
            left_out = repeats.count - MAX_REPEATS
            record.msg, record.args = f"{record.getMessage().rstrip()} ({left_out} more were not logged)", None
        return True
