"""API keys: the header that carries one, and a pause for addresses that send wrong ones."""

import hmac
import re
import time
from collections import deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader
from starlette.types import Scope

from jumok.errors import ArgumentError
from jumok.serve.errors import TooManyKeysError, UnauthorisedError

KEY_HEADER = "X-API-Key"
MAX_WRONG_KEYS, PERIOD = 10, 60.0
"""Wrong keys that a client may send within so many seconds."""
MAX_CLIENTS = 10_000
"""Clients whose wrong keys are remembered; beyond it, the oldest are forgotten."""


def require_key(key: str | None) -> list[Any]:
    """FastAPI dependencies that check the API key of a request; none if the server has no key."""
    if key is None:
        return []
    expected = checked_key(key).encode()
    wrong_keys = WrongKeys()
    scheme = APIKeyHeader(
        name=KEY_HEADER, scheme_name="key", description="The API key of this server.", auto_error=False
    )

    async def check(request: Request, sent_key: Annotated[str | None, Security(scheme)]) -> None:
        client = client_address(request.scope)
        wrong_keys.check(client)
        if hmac.compare_digest((sent_key or "").encode("utf-8", "replace"), expected):
            return
        headers = {"WWW-Authenticate": KEY_HEADER}
        if not sent_key:  # the page sends no key first to find out whether it needs one
            raise UnauthorisedError(f"this server requires an API key in the header {KEY_HEADER}", headers=headers)
        wrong_keys.add(client)
        raise UnauthorisedError(f"the API key in the header {KEY_HEADER} is wrong", headers=headers)

    return [Depends(check)]


def checked_key(key: str) -> str:
    """The key, if every client can send it: headers hold ASCII and lose spaces at their ends."""
    if not re.fullmatch("[!-~]+", key):
        raise ArgumentError("the API key may contain only ASCII letters, digits and punctuation, and no spaces")
    return key


def client_address(scope: Scope) -> str:
    """The IP address of a client, or its /64 network for IPv6, where one machine has all of these addresses."""
    host: str = (scope.get("client") or ("", 0))[0]
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))


class WrongKeys:
    """The times of each client's wrong keys; after too many, the client has to wait, whatever key it sends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._times: dict[str, deque[float]] = {}

    def check(self, client: str) -> None:
        """Reject a client that has to wait; even its right key, or it could go on guessing."""
        times = self._times.get(client)
        if times is not None and len(times) == MAX_WRONG_KEYS and times[0] + PERIOD > self.clock():
            raise TooManyKeysError(times[0] + PERIOD - self.clock())

    def add(self, client: str) -> None:
        """Record a wrong key."""
        times = self._times.pop(client, None) or deque(maxlen=MAX_WRONG_KEYS)
        times.append(self.clock())
        self._times[client] = times
        if len(self._times) > MAX_CLIENTS:
            del self._times[next(iter(self._times))]
