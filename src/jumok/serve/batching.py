"""Dynamic batching: what waits and is of one kind is done together, by one thread.

One thread, because a model on a CPU already uses every core, and on a GPU its stream. While it is busy requests gather,
so the busier the server, the larger its batches; when it is idle, a short window lets those that come at once meet.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jumok.serve.problems import QueueFullError


@runtime_checkable
class Work(Hashable, Protocol):
    """A kind of work: items of equal work are done in one call."""

    def size(self, item: Any, /) -> int:
        """How much of the budget of a batch an item takes."""

    def __call__(self, items: list[Any], /) -> Sequence[Any]:
        """What comes out for each item."""


@dataclass(eq=False)
class Ticket:
    """An item in the queue."""

    work: Work
    item: Any
    future: Future[Any] = field(default_factory=Future)


class Batcher:
    """A queue with room for `room` items, and the thread that empties it in batches of up to `budget`."""

    def __init__(
        self,
        *,
        budget: int = 4096,
        window: float = 0.003,
        room: int = 1024,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.budget, self.window, self.room, self.on_batch = budget, window, room, on_batch
        self._waiting: deque[Ticket] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="jumok-batches", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """How many items wait."""
        return len(self._waiting)

    def submit(self, work: Work, items: Sequence[Any]) -> list[Future[Any]]:
        """Queue all the items, or none of them where there is no room."""
        tickets = [Ticket(work, item) for item in items]
        with self._changed:
            if self._closing:
                raise QueueFullError("the server is shutting down; try again soon")
            if len(self._waiting) + len(tickets) > self.room:
                raise QueueFullError(f"{len(self._waiting)} texts are waiting already; try again soon")
            self._waiting.extend(tickets)
            self._changed.notify_all()
        return [ticket.future for ticket in tickets]

    def drop(self, futures: Sequence[Future[Any]]) -> None:
        """Forget what still waits; what has begun goes on."""
        dropped = {future for future in futures if future.cancel()}
        if dropped:
            with self._changed:
                self._waiting = deque(ticket for ticket in self._waiting if ticket.future not in dropped)

    def close(self) -> None:
        """Do what was accepted, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while self._something_waits():
            batch = self._take()
            if batch:
                self.on_batch(len(batch))
                _do([ticket for ticket in batch if ticket.future.set_running_or_notify_cancel()])

    def _something_waits(self) -> bool:
        """Wait for something, then a moment longer for company; False when closing with nothing left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
        if self.window and not self._closing:
            time.sleep(self.window)
        return bool(self._waiting or not self._closing)

    def _take(self) -> list[Ticket]:
        """The oldest, and what can be done with it; at least one, and then as many as the budget allows."""
        with self._changed:
            alike = [ticket for ticket in self._waiting if ticket.work == self._waiting[0].work]
        batch: list[Ticket] = []
        left = self.budget
        for ticket in alike:
            left -= self._size(ticket)
            if batch and left < 0:
                break
            batch.append(ticket)
        chosen = set(batch)
        with self._changed:
            self._waiting = deque(ticket for ticket in self._waiting if ticket not in chosen)
        return batch

    def _size(self, ticket: Ticket) -> int:
        """What cannot be measured goes by itself, and its error to whoever asked, not to the thread."""
        try:
            return ticket.work.size(ticket.item)
        except Exception:
            return self.budget + 1


def _do(batch: list[Ticket]) -> None:
    """Answer every ticket; where the batch fails as a whole, each alone, so that only the guilty fail."""
    if not batch:
        return
    try:
        results = list(batch[0].work([ticket.item for ticket in batch]))
    except Exception as error:
        if len(batch) == 1:
            batch[0].future.set_exception(error)
            return
        for ticket in batch:
            _do([ticket])
        return
    for ticket, result in zip(batch, results, strict=True):
        ticket.future.set_result(result)
