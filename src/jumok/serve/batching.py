"""Dynamic batching: one thread computes waiting requests of the same job together.

One thread, because a model on a CPU already uses every core, and on a GPU its stream. Requests gather while it is busy,
so batches grow with the load, up to half a second of work. When it is idle, a short window lets requests that arrive
together share a batch.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from math import ceil
from typing import Any, NamedTuple

from jumok.serve.errors import QueueFullError, TooLargeError
from jumok.serve.queue import CancelCheck, ClientQueues, Job, Submission, Ticket, WorkPiece, next_batch

BATCH_SECONDS = 0.5
"""The time a batch should take at most, which is about how long a new request waits for its turn."""
FIRST_COST = 1024
"""The cost of the first batch, before any speed is known."""
DECAY = 0.98
"""Factor of the best speed after each slower batch; it halves after about 35 of them."""


class Speed(NamedTuple):
    """Cost per second."""

    recent: float
    """Average over the last batches, the last one counting half."""
    best: float
    """The best of the batches, decaying."""
    reliable: bool
    """Whether a batch was long or large enough to measure; others give only a lower bound."""


class SpeedMeter:
    """The measured speed of every engine; a unit of cost is a source token times the hypotheses kept for it."""

    def __init__(self) -> None:
        self._speeds: dict[Hashable, Speed] = {}

    def batch_cost(self, engine: Hashable) -> float:
        """The cost that a batch may have."""
        speed = self._speeds.get(engine)
        return FIRST_COST if speed is None else speed.recent * BATCH_SECONDS

    def best(self, engine: Hashable) -> float | None:
        """The cost per second under good conditions; None while it is unknown."""
        speed = self._speeds.get(engine)
        return speed.best if speed is not None and speed.reliable else None

    def seconds(self, engine: Hashable, cost: float) -> float:
        """The time it takes under good conditions; 0 while that is unknown."""
        best = self.best(engine)
        return 0.0 if best is None else cost / best

    def record(self, engine: Hashable, cost: float, seconds: float, largest: float) -> None:
        """Record the time of a batch; no batch costs more than `largest`.

        Small batches are ignored: their tokens take longer.
        """
        if cost < min(self.batch_cost(engine), largest) / 2:
            return
        value = cost / max(seconds, 1e-6)
        before = self._speeds.get(engine, Speed(value, value, reliable=False))
        self._speeds[engine] = Speed(
            recent=(before.recent + value) / 2,
            best=max(value, DECAY * before.best),
            reliable=before.reliable or seconds >= BATCH_SECONDS / 3 or cost >= largest / 2,
        )


class CancelledBatchError(Exception):
    """All clients of a batch have disconnected or run out of time."""


class Batcher:
    """A queue of at most `capacity` items, and a thread that computes them in batches of up to `batch_tokens`.

    A request that cannot finish within `seconds`, by the speed measured so far, is rejected at once.
    """

    def __init__(
        self,
        *,
        batch_tokens: int = 4096,
        window: float = 0.003,
        capacity: int = 1024,
        seconds: float = 30.0,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.batch_tokens, self.window, self.capacity, self.seconds = batch_tokens, window, capacity, seconds
        self.on_batch = on_batch
        self.speed = SpeedMeter()
        self._queues = ClientQueues()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="jumok-batches", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """The number of waiting items."""
        with self._changed:
            return _waiting(self._queues)

    def submit(self, job: Job, items: Sequence[Any], client: Hashable = None) -> list[Future[Any]]:
        """Queue all items of a request, or none of them if there is no room or no time."""
        tickets = [Ticket(job, item, job.size(item)) for item in items]
        if not tickets:
            return []
        cost = sum(ticket.cost for ticket in tickets)
        self._check_cost(job, cost)
        with self._changed:
            if self._closing:
                raise QueueFullError("the server is shutting down; try again soon")
            self._check_time(job, cost, client)
            self._make_room(len(tickets), client)
            self._queues.add(Submission(client, tickets))
            self._changed.notify_all()
        return [ticket.future for ticket in tickets]

    def cancel(self, futures: Sequence[Future[Any]]) -> None:
        """Drop what is not finished; a batch that nobody waits for any more stops at its next step."""
        cancelled = [future.cancel() for future in futures]
        if any(cancelled):
            with self._changed:
                self._queues.remove_done()

    def close(self) -> None:
        """Finish what was accepted, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _check_cost(self, job: Job, cost: int) -> None:
        """Reject a request that would take too long even alone."""
        best = self.speed.best(job.engine)
        if best is not None and cost > best * self.seconds:
            raise TooLargeError(
                f"the request costs {cost} (tokens times beam), more than the {int(best * self.seconds)} that this "
                f"server can compute in {self.seconds:g} seconds; send fewer or shorter texts, or use a smaller beam"
            )

    def _check_time(self, job: Job, cost: int, client: Hashable) -> None:
        """Reject a request that would not finish in time, given that others take their turns while they have work."""
        own = self.speed.seconds(job.engine, cost)
        left = {name: list(map(self._seconds, queue)) for name, queue in self._queues.clients.items()}
        of_client = own + sum(min(seconds, own) for seconds in left.pop(client, ()))
        total = of_client + sum(min(sum(others), of_client) for others in left.values())
        if total > self.seconds:
            raise QueueFullError(
                f"the work waiting in the queue takes {total:.0f} seconds, more than the {self.seconds:g} that a "
                "request may take; try again soon",
                retry_after=ceil(total - self.seconds),
            )

    def _make_room(self, items: int, client: Hashable) -> None:
        """If the queue is full, reject the newest request of the client with the most items waiting."""
        while (waiting := _waiting(self._queues)) + items > self.capacity:
            counts = {name: _waiting(queue) for name, queue in self._queues.clients.items()}
            busiest = max(counts, key=lambda name: counts[name], default=client)
            if busiest == client or counts[busiest] <= counts.get(client, 0) + items:
                raise QueueFullError(f"{waiting} texts are already waiting; try again soon")
            self._reject(next(newest for newest in reversed(self._queues.clients[busiest]) if newest.waiting))

    def _reject(self, submission: Submission) -> None:
        for ticket in list(submission.tickets):
            ticket.fail(QueueFullError("the queue is full and smaller requests go first; try again soon"))
        self._queues.remove_done()

    def _seconds(self, submission: Submission) -> float:
        return self.speed.seconds(submission.job.engine, submission.cost)

    def _run(self) -> None:
        while self._wait():
            batch = self._next_batch()
            if batch:
                self.on_batch(len(batch))
                self._compute(batch)

    def _wait(self) -> bool:
        """Wait for an item, then a moment longer for others; False when closing with nothing left."""
        with self._changed:
            self._changed.wait_for(lambda: self._queues.clients or self._closing)
        if self.window and not self._closing:
            time.sleep(self.window)
        return bool(self._queues.clients or not self._closing)

    def _next_batch(self) -> list[WorkPiece]:
        """The next pieces. Texts are split outside the lock, because that takes time."""
        with self._changed:
            alike = self._queues.next_turn()
        if not alike:
            return []
        cost = self.speed.batch_cost(alike[0][0].job.engine)
        batch = next_batch(alike, tokens=self.batch_tokens, cost=cost)
        with self._changed:
            self._queues.remove_done()
        return batch

    def _compute(self, batch: list[WorkPiece]) -> None:
        """Answer every ticket; if the batch fails, compute its pieces one by one, so that only the faulty ones fail."""
        job, started = batch[0].ticket.job, time.perf_counter()
        try:
            results = list(job([piece.content for piece in batch], _cancel_check(batch)))
        except CancelledBatchError:
            return
        except Exception as error:
            if len(batch) == 1:
                return batch[0].ticket.fail(error)
            for piece in batch:
                if not piece.ticket.done:
                    self._compute([piece])
            return
        seconds, cost = time.perf_counter() - started, sum(piece.size for piece in batch) * job.weight
        self.speed.record(job.engine, cost, seconds, largest=self.batch_tokens * job.weight)
        for piece, result in zip(batch, results, strict=True):
            _store(piece, result)


def _waiting(submissions: Iterable[Submission]) -> int:
    return sum(submission.waiting for submission in submissions)


def _cancel_check(batch: list[WorkPiece]) -> CancelCheck:
    tickets = list({piece.ticket: None for piece in batch})

    def check() -> None:
        if all(ticket.done for ticket in tickets):
            raise CancelledBatchError

    return check


def _store(piece: WorkPiece, result: Any) -> None:
    """Store the result of a piece; the last one answers the ticket."""
    ticket = piece.ticket
    ticket.results[piece.number] = (result,)
    if all(ticket.results) and not ticket.done:
        try:
            ticket.answer(ticket.job.join(ticket.item, [value for (value,) in ticket.results]))
        except Exception as error:
            ticket.fail(error)
