"""Server-sent events: the best output so far after every step of the search, then the translation."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from jumok.errors import JumokError
from jumok.serve.auth import client_address
from jumok.serve.errors import INTERNAL_ERROR, TimeLimitError, one_line
from jumok.serve.jobs import SearchWatcher, TranslationJob
from jumok.serve.messages import TranslationAnswer
from jumok.serve.service import Service

Event = str | Future[Any]
"""The output so far, or the future when it is done."""


@dataclass(frozen=True)
class EventStream:
    """The events of a search that have not been sent."""

    first: Event
    rest: asyncio.Queue[Event]
    future: Future[Any]
    deadline: float


async def open_stream(service: Service, job: TranslationJob, text: str, request: Request) -> EventStream:
    """Start the search and wait for the first event: until then, an error can still be sent as a status."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event] = asyncio.Queue()

    def put(event: Event) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, event)

    source = job.source(text, SearchWatcher(job.model, on_change=put))
    (future,) = service.batcher.submit(job, [source], client_address(request.scope))
    future.add_done_callback(put)
    deadline = loop.time() + service.limits.seconds
    try:
        first = await service.wait_for(request, asyncio.ensure_future(queue.get()))
    except JumokError:
        service.batcher.cancel([future])
        raise
    if isinstance(first, Future):
        first.result()  # raises an error from before the first step
    return EventStream(first, queue, future, deadline)


async def send_events(service: Service, job: TranslationJob, stream: EventStream) -> AsyncIterator[str]:
    """The text of the events, as they come."""
    try:
        event: Event | None = stream.first
        while isinstance(event, str):
            yield _event("partial", {"text": event})
            event = await _next_event(stream)
        yield _last_event(service, job, event)
    finally:  # also if the client disconnects
        service.batcher.cancel([stream.future])


async def _next_event(stream: EventStream) -> Event | None:
    """The next event; None after the deadline."""
    try:
        async with asyncio.timeout_at(stream.deadline):
            return await stream.rest.get()
    except TimeoutError:
        return None


def _last_event(service: Service, job: TranslationJob, future: Future[Any] | None) -> str:
    if future is None:
        return _error_event(TimeLimitError(service.limits.seconds))
    try:
        translation = future.result()
    except Exception as error:
        return _error_event(error)
    service.count(job.model, [translation])
    return _event("done", {"model": job.model.name, **TranslationAnswer.of(translation, job.model).model_dump()})


def _error_event(error: Exception) -> str:
    """The status and the message that a response would have had."""
    if isinstance(error, JumokError):
        return _event("error", {"status": getattr(error, "status", 422), "error": one_line(str(error))})
    logging.getLogger("uvicorn.error").error("a stream failed", exc_info=error)
    return _event("error", {"status": 500, "error": INTERNAL_ERROR})


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
