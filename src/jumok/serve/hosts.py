"""Which names a server answers to.

A page of another web site may make its own name point at this machine (DNS rebinding); its browser then takes our
answers for that site's own, and no rule about origins stops it. But it sends the name it looked up, which is not ours.
A number cannot be pointed elsewhere, so that every IP address is good.
"""

import re
import socket
from collections.abc import Iterable
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from jumok.errors import ArgumentError
from jumok.serve.guard import problem
from jumok.serve.problems import RequestError

NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


class WrongHostError(RequestError):
    """A request that was meant for someone else."""

    status = 421


class KnownHosts:
    """Answers only requests for an address, for localhost, for this machine by its name, and for the names given."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self.app = app
        self.names = {"localhost", socket.gethostname().lower(), *map(checked_name, names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is not HTTP."""
        given = Headers(scope=scope).get("host", "") if scope["type"] == "http" else "localhost"
        if self.knows(_without_port(given)):
            return await self.app(scope, receive, send)
        said = f"this server does not answer to the name {given[:80]!r}; it would with --allow-host and that name"
        await problem(WrongHostError(said))(scope, receive, send)

    def knows(self, name: str) -> bool:
        """Whether a name is ours."""
        return name in self.names or name.endswith(".localhost") or _is_address(name)


def checked_name(name: str) -> str:
    """A name as browsers send it, in small letters; not an address of a page."""
    if not NAME.fullmatch(name.lower()) and not _is_address(name):
        raise ArgumentError(
            f"--allow-host {name!r} must be a name alone, without http:// and port: translate.example.org"
        )
    return name.lower()


def checked_address(address: str) -> str:
    """The IP address of a proxy; a name could be pointed elsewhere."""
    if not _is_address(address):
        raise ArgumentError(f"--trust-proxy {address!r} must be an IP address, such as 127.0.0.1")
    return address


def _without_port(host: str) -> str:
    """The name of a Host header; of [::1]:8000 it is ::1."""
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    return name.lower().rstrip(".").removeprefix("[").removesuffix("]")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
