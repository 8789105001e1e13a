"""What can go wrong with a request, each with the status that says so; the message is one line."""

from jumok.errors import JumokError

BROKEN = "something is wrong with the server; its log says more"
"""What is said of a fault of ours."""


class RequestError(JumokError):
    """A request that gets no answer but a status and a message."""

    status = 422
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


class UnknownModelError(RequestError):
    """A model that is not served here."""

    status = 404


class TooBigError(RequestError):
    """More bytes than one request may have."""

    status = 413


class QueueFullError(RequestError):
    """More waits than the server can do soon."""

    status = 503

    def __init__(self, said: str, *, retry_after: int = 1) -> None:
        super().__init__(said)
        self.headers = {"Retry-After": str(retry_after)}


class TooCostlyError(RequestError):
    """More than the server can do in the time of a request."""

    status = 413


class TooSlowError(RequestError):
    """The time for one request is over."""

    status = 504


class ClientGoneError(RequestError):
    """Whoever asked has hung up; nobody reads the answer."""

    status = 499
