"""Errors of requests, each with its HTTP status, and the response that reports one."""

from math import ceil

from fastapi.responses import JSONResponse

from jumok.errors import JumokError

INTERNAL_ERROR = "internal server error; the server's log has the details"


class RequestError(JumokError):
    """A request that is answered with an error status and a one-line message."""

    status = 422

    def __init__(self, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.headers = headers or {}


class UnauthorisedError(RequestError):
    """The API key is missing or wrong."""

    status = 401


class UnknownModelError(RequestError):
    """The server has no such model."""

    status = 404


class SlowBodyError(RequestError):
    """The body did not arrive in time."""

    status = 408


class TooLargeError(RequestError):
    """The body has too many bytes, or the request needs more work than the time limit allows."""

    status = 413


class NotJsonError(RequestError):
    """The content type is not application/json."""

    status = 415


class WrongHostError(RequestError):
    """The Host header names another server."""

    status = 421


class TooManyKeysError(RequestError):
    """The client sent too many wrong keys."""

    status = 429

    def __init__(self, seconds: float) -> None:
        message = f"too many wrong keys came from this address; try again in {ceil(seconds)} seconds"
        super().__init__(message, headers={"Retry-After": str(ceil(seconds))})


class ClientGoneError(RequestError):
    """The client disconnected; nobody reads the response."""

    status = 499


class QueueFullError(RequestError):
    """The server has more work waiting than it can finish soon."""

    status = 503

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message, headers={"Retry-After": str(retry_after)})


class TimeLimitError(RequestError):
    """The request took longer than the time limit."""

    status = 504

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} seconds; send less at once, or try again later")


def error_response(error: RequestError) -> JSONResponse:
    """The JSON response for an error."""
    return JSONResponse({"error": one_line(str(error))}, error.status, headers=error.headers)


def one_line(text: str) -> str:
    """A message without line breaks and without lone surrogates, which JSON in UTF-8 cannot carry."""
    return " ".join(text.encode("utf-8", "replace").decode().split())
