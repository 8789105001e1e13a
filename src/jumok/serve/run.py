"""A server on a port, until it is told to end; then it finishes what it has accepted."""

import errno
import math
import os
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from jumok.errors import ArgumentError
from jumok.serve.connections import BACKLOG, Connection, ConnectionLimits, connections_possible, limit_repeats

SENDING = 10.0
"""Seconds for an answer to be sent, after those for its request to be read and to be done."""


def listen(host: str, port: int) -> socket.socket:
    """A socket at that address; port 0 takes any that is free."""
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
        cure = "choose another with --port, or end the program that has it"
        if error.errno == errno.EADDRNOTAVAIL:
            cure = "this machine has no such address: --host 127.0.0.1 is this machine alone, 0.0.0.0 all it has"
        said = (error.strerror or str(error)).lower()
        raise ArgumentError(f"cannot listen at {host}, port {port}: {said}; {cure}") from None
    return listening


def configured(
    app: ASGIApp, *, seconds: float, connections: int = 1000, head_seconds: float = 10.0, proxies: Sequence[str] = ()
) -> uvicorn.Config:
    """How uvicorn serves the application: with so many connections, and `seconds` for a request to come and to go."""
    limits = ConnectionLimits(
        count=connections_possible(connections), head_seconds=head_seconds, request_seconds=2 * seconds + SENDING
    )
    config = uvicorn.Config(
        app,
        http=partial(Connection, limits=limits),  # type: ignore[arg-type]  # all that is done with it is to call it
        ws="none",
        backlog=BACKLOG,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=math.ceil(seconds) + 5,
    )
    limit_repeats("uvicorn.error", "asyncio")
    return config


def run(config: uvicorn.Config, listening: socket.socket, *, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGINT or SIGTERM, then let every request that has begun come to its end."""
    server = _Server(config, ready)
    # uvicorn raises the signal again once it has shut down; by then all is done, and it need not kill us.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Says when it is ready; asked a second time to end, it does so at once."""

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
