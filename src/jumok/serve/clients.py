"""Who asks: clients are told apart by their addresses; and those who try keys are slowed down."""

import time
from collections import deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

from starlette.types import Scope

from jumok.serve.problems import RequestError

WRONG_KEYS, SECONDS = 10, 60.0
"""So many wrong keys within so many seconds are allowed to a client."""
MOST_CLIENTS = 10_000
"""Whose wrong keys are remembered; beyond it the oldest are forgotten."""


class ThrottledError(RequestError):
    """A client that sent too many wrong keys."""

    status = 429

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many wrong keys came from this address; try again in {ceil(seconds)} seconds")
        self.headers = {"Retry-After": str(ceil(seconds))}


def client_of(scope: Scope) -> str:
    """The address of whoever asks; of IPv6 the network, for a single machine has all of its addresses."""
    host = (scope.get("client") or ("", 0))[0]
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))


class WrongKeys:
    """When each client sent wrong keys; after too many of them it has to wait, with whatever key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._times: dict[str, deque[float]] = {}

    def check(self, client: str) -> None:
        """Refuse a client that has to wait: else the one right key among a thousand would still come through."""
        times = self._times.get(client)
        if times is not None and len(times) == WRONG_KEYS and times[0] + SECONDS > self.clock():
            raise ThrottledError(times[0] + SECONDS - self.clock())

    def add(self, client: str) -> None:
        """One more."""
        times = self._times.pop(client, None) or deque(maxlen=WRONG_KEYS)
        times.append(self.clock())
        self._times[client] = times
        if len(self._times) > MOST_CLIENTS:
            del self._times[next(iter(self._times))]
