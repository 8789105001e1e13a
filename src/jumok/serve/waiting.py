"""How a request waits for the batch it is in: no longer than it may, and only while somebody still wants the answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request

from jumok.serve.batching import Batcher
from jumok.serve.clients import client_of
from jumok.serve.problems import ClientGoneError, TooSlowError
from jumok.serve.turns import Work

Found = TypeVar("Found")


async def results(request: Request, batcher: Batcher, work: Work, items: Sequence[Any], *, seconds: float) -> list[Any]:
    """What `work` gives for the items; they leave the queue when time is up or the client hangs up."""
    futures = batcher.submit(work, items, client_of(request.scope))
    try:
        return await wanted(request, asyncio.gather(*map(asyncio.wrap_future, futures)), seconds=seconds)
    finally:
        batcher.drop(futures)


async def wanted(request: Request, answer: asyncio.Future[Found], *, seconds: float) -> Found:
    """The answer, unless time is up or the client, whose body must have been read, hangs up."""
    gone = asyncio.ensure_future(_hung_up(request))
    either: set[asyncio.Future[Any]] = {answer, gone}
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio logs what comes too late
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientGoneError("the client hung up") if gone.done() else too_slow(seconds)
    finally:
        gone.cancel()
        answer.cancel()


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Several waits that may take so long in all."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise too_slow(seconds) from None


def too_slow(seconds: float) -> TooSlowError:
    """Time is up."""
    return TooSlowError(f"no answer within {seconds:g} seconds; send less at once, or try again when fewer ask")


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
