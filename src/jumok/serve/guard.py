"""Before a request reaches a route: its key, its type and its size; on every answer: headers that protect the page."""

import asyncio
import hmac
import re
import time
from collections.abc import Collection, MutableMapping
from typing import Any

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jumok.errors import ArgumentError
from jumok.serve.clients import WrongKeys, client_of
from jumok.serve.metrics import Metrics
from jumok.serve.problems import RequestError, TooBigError

SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
KEY = "X-API-Key"
LOCKED = ("/api", "/openapi.json", "/metrics")
"""Where the key is asked for, besides all that is below /api."""


class UnauthorisedError(RequestError):
    """The key is missing or wrong."""

    status = 401
    headers = {"WWW-Authenticate": KEY}  # noqa: RUF012


class NotJsonError(RequestError):
    """A body that is not said to be JSON."""

    status = 415


class SlowBodyError(RequestError):
    """A body that does not come to its end."""

    status = 408


def checked_key(key: str) -> str:
    """A key that every client can send: a header holds no other letters, and loses spaces at its ends."""
    if not re.fullmatch("[!-~]+", key):
        raise ArgumentError("the API key may hold only letters, digits and signs of ASCII, and no spaces")
    return key


class Observed:
    """Counts and times every answer, and puts the protecting headers on it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Collection[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, set(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is not HTTP."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.perf_counter(), 500

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _protect(message)
            await send(message)

        try:
            await self.app(scope, receive, observe)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.count(path, status, time.perf_counter() - started)


class Guarded:
    """Turns away what has no key, is not JSON, or is too large, before anything reads it."""

    def __init__(self, app: ASGIApp, *, key: str | None, most_bytes: int, seconds: float) -> None:
        self.app, self.most_bytes, self.seconds = app, most_bytes, seconds
        self.key = None if key is None else checked_key(key)
        self.wrong_keys = WrongKeys()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body here, as far as it may go, and hand it on whole."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            self._check_head(scope)
            body = await self._body(receive)
        except RequestError as error:
            return await problem(error)(scope, receive, send)
        if body is not None:
            await self.app(scope, _with_body(body, receive), send)

    def _check_head(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        locked = scope["path"] in LOCKED or scope["path"].startswith("/api/")
        if self.key is not None and locked:
            self._check_key(self.key, headers.get(KEY, ""), client_of(scope))
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.most_bytes:
            raise self._too_big()
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and locked and kind != "application/json":
            raise NotJsonError(f"the body must be application/json, but its content type is {kind[:60]!r}")

    def _check_key(self, key: str, given: str, client: str) -> None:
        self.wrong_keys.check(client)
        if not hmac.compare_digest(given.encode("utf-8", "replace"), key.encode()):
            if given:  # without a key nothing is tried: the page asks so whether there is one
                self.wrong_keys.add(client)
                raise UnauthorisedError(f"the key in the header {KEY} is wrong")
            raise UnauthorisedError(f"this server asks for a key in the header {KEY}")

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None if the client hung up before its end."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self.most_bytes:
                        raise self._too_big()
        except TimeoutError:
            raise SlowBodyError(f"the body did not arrive within {self.seconds:g} seconds") from None
        return bytes(body)

    def _too_big(self) -> TooBigError:
        return TooBigError(f"the request is larger than the {self.most_bytes} bytes allowed")


def problem(error: RequestError) -> JSONResponse:
    """The answer that says what is wrong."""
    return JSONResponse({"error": one_line(str(error))}, error.status, headers=error.headers)


def one_line(text: str) -> str:
    """Whatever was said, on one line, and nothing that JSON could not carry."""
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _protect(message: MutableMapping[str, Any]) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in SAFE.items():
        headers[name] = value
    headers.setdefault("Cache-Control", "no-store")


def _with_body(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, then whatever comes after it: the client hanging up."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again
