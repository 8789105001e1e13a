"""Middleware around the application: host names, body limits, security headers and metrics."""

import asyncio
import re
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jumok.errors import ArgumentError
from jumok.serve.errors import (
    NotJsonError,
    QueueFullError,
    RequestError,
    SlowBodyError,
    TooLargeError,
    WrongHostError,
    error_response,
)
from jumok.serve.metrics import ServerMetrics

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
MAX_BUFFERED = 256 << 20
"""Bytes of the bodies in memory at the same time; beyond it, only small ones are read."""
SMALL_BODY = 64 << 10
HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


class ResponseMiddleware:
    """Counts and times responses, and adds the security headers."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics, paths: Collection[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, set(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.count_response(path, status, time.perf_counter() - started)


class HostMiddleware:
    """Rejects requests whose Host header is neither an IP address nor a name of this server.

    This protects against DNS rebinding: another web site can make its own name point at this machine, and browsers then
    take our responses for those of that site. But they send the name that they looked up.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self.app = app
        self.names = {"localhost", socket.gethostname().lower(), *map(checked_host, names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        host = Headers(scope=scope).get("host", "")
        if self.is_known(_without_port(host)):
            return await self.app(scope, receive, send)
        error = WrongHostError(f"this server has no name {host[:80]!r}; the option --allow-host adds a name")
        await error_response(error)(scope, receive, send)

    def is_known(self, name: str) -> bool:
        """Whether a name is one of this server."""
        return name in self.names or name.endswith(".localhost") or _is_address(name)


class BodyMiddleware:
    """Reads the body of a request before the application does, within limits of size and time.

    `larger` has limits for the paths that need others than `max_bytes`.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, larger: Mapping[str, int], seconds: float) -> None:
        self.app, self.max_bytes, self.larger, self.seconds = app, max_bytes, larger, seconds
        self.buffered = 0
        """Bytes of the bodies of all requests that are not answered yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        body = bytearray()
        try:
            limit = self.larger.get(scope["path"], self.max_bytes)
            _check_headers(scope, limit)
            if await self._read(body, receive, limit):
                await self.app(scope, _replay(bytes(body), receive), send)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
        finally:
            self.buffered -= len(body)

    async def _read(self, body: bytearray, receive: Receive, max_bytes: int) -> bool:
        """Append the whole body; False if the client disconnects."""
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return False
                    chunk = message.get("body", b"")
                    body += chunk
                    self.buffered += len(chunk)
                    if len(body) > max_bytes:
                        raise _too_large(max_bytes)
                    if len(body) > SMALL_BODY and self.buffered > MAX_BUFFERED:
                        raise QueueFullError("the server is receiving too many large requests; try again soon")
                    if not message.get("more_body", False):
                        return True
        except TimeoutError:
            raise SlowBodyError(f"the body did not arrive within {self.seconds:g} seconds") from None


def checked_host(name: str) -> str:
    """A host name in lower case, as browsers send it."""
    if not HOST_NAME.fullmatch(name.lower()) and not _is_address(name):
        raise ArgumentError(
            f"--allow-host {name!r} must be a host name without http:// and port, such as translate.example.org"
        )
    return name.lower()


def checked_proxy(address: str) -> str:
    """The IP address of a proxy; a name could point elsewhere."""
    if not _is_address(address):
        raise ArgumentError(f"--trust-proxy {address!r} must be an IP address, such as 127.0.0.1")
    return address


def _check_headers(scope: Scope, max_bytes: int) -> None:
    headers = Headers(scope=scope)
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if scope["method"] == "POST" and scope["path"].startswith("/api/") and content_type != "application/json":
        raise NotJsonError(f"the content type must be application/json, but it is {content_type[:60]!r}")


def _too_large(max_bytes: int) -> TooLargeError:
    return TooLargeError(f"the request has more than the {max_bytes} bytes allowed")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body first, then what comes after it: a disconnect."""
    unread = [body]

    async def replay() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replay


def _without_port(host: str) -> str:
    """The name in a Host header; ::1 for [::1]:8000."""
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    return name.lower().rstrip(".").removeprefix("[").removesuffix("]")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
