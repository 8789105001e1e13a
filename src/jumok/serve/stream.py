"""Server-sent events: the best output so far after every step of the search, then the translation."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from jumok.decoding import Node
from jumok.errors import JumokError
from jumok.serve.answers import translation_answer
from jumok.serve.clients import client_of
from jumok.serve.guard import one_line
from jumok.serve.models import Served
from jumok.serve.problems import BROKEN
from jumok.serve.service import Service
from jumok.serve.tree import Watched
from jumok.serve.waiting import too_slow, wanted
from jumok.serve.work import Asked, Translate

Event = str | Future[Any]
"""A text so far, or the future that has come to its end."""


class Told(Watched):
    """Says the best output so far whenever it changes."""

    def __init__(self, model: Served, say: Callable[[str], None]) -> None:
        super().__init__(model)
        self.say, self.said = say, ""

    def grow(self, part: int, nodes: list[Node]) -> None:
        """One more step of the search for a part."""
        super().grow(part, nodes)
        if self.text() != self.said:
            self.said = self.text()
            self.say(self.said)


@dataclass(frozen=True)
class Events:
    """What the search has said and not yet sent."""

    first: Event
    rest: asyncio.Queue[Event]
    future: Future[Any]
    deadline: float


async def first_event(service: Service, work: Translate, text: str, request: Request) -> Events:
    """Begin, and wait for the first event: until then whatever is wrong can still be said by a status."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event] = asyncio.Queue()

    def say(event: Event) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, event)

    asked = Asked(text, Told(work.model, say))
    (future,) = service.batcher.submit(work, [asked], client_of(request.scope))
    future.add_done_callback(say)
    deadline = loop.time() + service.limits.seconds
    try:
        first = await wanted(request, asyncio.ensure_future(queue.get()), seconds=service.limits.seconds)
    except JumokError:
        service.batcher.drop([future])
        raise
    if isinstance(first, Future):
        first.result()  # raises what went wrong before the first step
    return Events(first, queue, future, deadline)


async def stream_events(service: Service, work: Translate, events: Events) -> AsyncIterator[str]:
    """The events as they are sent."""
    try:
        event: Event | None = events.first
        while isinstance(event, str):
            yield _sent("partial", {"text": event})
            event = await _next(events.rest, events.deadline)
        yield _end(service, work, event)
    finally:  # also when the client hangs up
        service.batcher.drop([events.future])


def _end(service: Service, work: Translate, future: Future[Any] | None) -> str:
    if future is None:
        return _problem(too_slow(service.limits.seconds))
    try:
        found = future.result()
    except Exception as error:
        return _problem(error)
    service.metrics.count_tokens(work.model, [found])
    return _sent("done", {"model": work.model.name, **translation_answer(found).model_dump()})


def _problem(error: Exception) -> str:
    """What would have been the status and the message of an answer, had it not begun."""
    if isinstance(error, JumokError):
        return _sent("error", {"status": getattr(error, "status", 422), "error": one_line(str(error))})
    logging.getLogger("uvicorn.error").error("a stream broke off", exc_info=error)
    return _sent("error", {"status": 500, "error": BROKEN})


async def _next(queue: asyncio.Queue[Event], deadline: float) -> Event | None:
    """The next event, or None if it comes too late."""
    try:
        async with asyncio.timeout_at(deadline):
            return await queue.get()
    except TimeoutError:
        return None


def _sent(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
