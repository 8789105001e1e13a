"""Dynamic batching: what waits and is of one kind is done together, by one thread.

One thread, because a model on a CPU already uses every core, and on a GPU its stream. While it is busy requests gather,
so the busier the server, the larger its batches, up to what takes half a second; when it is idle, a short window lets
those that come at once meet.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from math import ceil
from typing import Any, NamedTuple

from jumok.serve.problems import QueueFullError, TooCostlyError
from jumok.serve.turns import Check, Piece, Submission, Ticket, Turns, Work, answer, batch_of, fail

BATCH_SECONDS = 0.5
"""What a batch should take at most: about as long as a newcomer waits for its turn."""
FIRST_COST = 1024
"""Of the first batch, before anything is known."""
FADING = 0.98
"""What is left of the best rate after each batch that was slower: the half after about 35."""


class Rate(NamedTuple):
    """Cost done in a second."""

    recent: float
    """In the last batches, the last counting half."""
    best: float
    """In the best of them, less and less the longer ago that was."""
    steady: bool
    """Whether a batch was long enough to tell; short ones say only how fast it is at least."""


class Pace:
    """The rate of every engine; a unit of cost is a source token times the hypotheses followed for it."""

    def __init__(self) -> None:
        self._rates: dict[Hashable, Rate] = {}

    def batch_cost(self, engine: Hashable) -> float:
        """What a batch may cost."""
        rate = self._rates.get(engine)
        return FIRST_COST if rate is None else rate.recent * BATCH_SECONDS

    def rate(self, engine: Hashable) -> float | None:
        """Cost done in a second when all goes well; None as long as that is not known."""
        rate = self._rates.get(engine)
        return rate.best if rate is not None and rate.steady else None

    def seconds(self, engine: Hashable, cost: float) -> float:
        """How long it takes when all goes well; 0 as long as that is not known."""
        rate = self.rate(engine)
        return 0.0 if rate is None else cost / rate

    def learn(self, engine: Hashable, cost: float, seconds: float) -> None:
        """A batch of this cost took so long. A small one tells nothing: its tokens take longer than those of others."""
        if cost < self.batch_cost(engine) / 2:
            return
        value = cost / max(seconds, 1e-6)
        before = self._rates.get(engine, Rate(value, value, steady=False))
        self._rates[engine] = Rate(
            recent=(before.recent + value) / 2,
            best=max(value, FADING * before.best),
            steady=before.steady or seconds >= BATCH_SECONDS / 3,
        )


class NobodyWaitsError(Exception):
    """Everyone who asked for a batch has hung up, or their time is over."""


class Batcher:
    """A queue with room for `room` items, and the thread that empties it in batches of up to `budget` tokens.

    A request that could not be done within `seconds`, by the pace of the batches so far, is refused when it comes.
    """

    def __init__(
        self,
        *,
        budget: int = 4096,
        window: float = 0.003,
        room: int = 1024,
        seconds: float = 30.0,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.budget, self.window, self.room, self.seconds, self.on_batch = budget, window, room, seconds, on_batch
        self.pace = Pace()
        self._turns = Turns()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="jumok-batches", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """How many items wait."""
        with self._changed:
            return _waiting(self._turns)

    def submit(self, work: Work, items: Sequence[Any], client: Hashable = None) -> list[Future[Any]]:
        """Queue all the items of a client's request, or none of them where there is no room or no time."""
        tickets = [Ticket(work, item, work.size(item) * work.weight) for item in items]
        if not tickets:
            return []
        cost = sum(ticket.cost for ticket in tickets)
        self._check_cost(work, cost)
        with self._changed:
            if self._closing:
                raise QueueFullError("the server is shutting down; try again soon")
            self._check_time(work, cost, client)
            self._make_room(len(tickets), client)
            self._turns.add(Submission(client, tickets))
            self._changed.notify_all()
        return [ticket.future for ticket in tickets]

    def drop(self, futures: Sequence[Future[Any]]) -> None:
        """Forget what is not done yet; a batch that nobody waits for any more stops at its next step."""
        cancelled = [future.cancel() for future in futures]
        if any(cancelled):
            with self._changed:
                self._turns.forget_finished()

    def close(self) -> None:
        """Do what was accepted, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _check_cost(self, work: Work, cost: int) -> None:
        """Refuse what takes longer than a request may, even alone."""
        rate = self.pace.rate(work.engine)
        if rate is not None and cost > rate * self.seconds:
            raise TooCostlyError(
                f"the request costs {cost} (its tokens times the beam), more than the {int(rate * self.seconds)} that "
                f"this server can do in {self.seconds:g} seconds; send fewer or shorter texts, or a narrower beam"
            )

    def _check_time(self, work: Work, cost: int, client: Hashable) -> None:
        """Refuse what would not be done in time, while the others take their turns as long as they have work."""
        own = self.pace.seconds(work.engine, cost)
        left = {name: list(map(self._seconds, mine)) for name, mine in self._turns.clients.items()}
        of_client = own + sum(min(seconds, own) for seconds in left.pop(client, ()))
        in_all = of_client + sum(min(sum(mine), of_client) for mine in left.values())
        if in_all > self.seconds:
            raise QueueFullError(
                f"there is work for {in_all:.0f} seconds before this is done, more than the {self.seconds:g} that a "
                "request may take; try again soon",
                retry_after=ceil(in_all - self.seconds),
            )

    def _make_room(self, items: int, client: Hashable) -> None:
        """Refuse what there is no room for, unless another client has more waiting: then that one loses its newest."""
        while (waiting := _waiting(self._turns)) + items > self.room:
            counts = {name: _waiting(mine) for name, mine in self._turns.clients.items()}
            greediest = max(counts, key=lambda name: counts[name], default=client)
            if greediest == client or counts[greediest] <= counts.get(client, 0) + items:
                raise QueueFullError(f"{waiting} texts are waiting already; try again soon")
            self._turn_away(next(newest for newest in reversed(self._turns.clients[greediest]) if newest.waiting))

    def _turn_away(self, submission: Submission) -> None:
        for ticket in list(submission.tickets):
            fail(ticket, QueueFullError("others ask for less and go first while the queue is full; try again soon"))
        self._turns.forget_finished()

    def _seconds(self, submission: Submission) -> float:
        return self.pace.seconds(submission.work.engine, submission.cost)

    def _work(self) -> None:
        while self._something_waits():
            batch = self._take()
            if batch:
                self.on_batch(len(batch))
                self._do(batch)

    def _something_waits(self) -> bool:
        """Wait for something, then a moment longer for company; False when closing with nothing left."""
        with self._changed:
            self._changed.wait_for(lambda: self._turns.clients or self._closing)
        if self.window and not self._closing:
            time.sleep(self.window)
        return bool(self._turns.clients or not self._closing)

    def _take(self) -> list[Piece]:
        """The pieces whose turn it is. Texts are cut into pieces outside of the lock, for that takes time."""
        with self._changed:
            alike = self._turns.next_turn()
        if not alike:
            return []
        work = alike[0][0].work
        batch = batch_of(alike, tokens=self.budget, cost=self.pace.batch_cost(work.engine))
        with self._changed:
            self._turns.forget_finished()
        return batch

    def _do(self, batch: list[Piece]) -> None:
        """Answer every ticket; where the batch fails as a whole, each alone, so that only the guilty fail."""
        work, started = batch[0].ticket.work, time.perf_counter()
        try:
            results = list(work([piece.content for piece in batch], _check(batch)))
        except NobodyWaitsError:
            return
        except Exception as error:
            if len(batch) == 1:
                return fail(batch[0].ticket, error)
            for piece in batch:
                if not piece.ticket.over:
                    self._do([piece])
            return
        self.pace.learn(work.engine, sum(piece.size for piece in batch) * work.weight, time.perf_counter() - started)
        for piece, result in zip(batch, results, strict=True):
            _put(piece, result)


def _waiting(submissions: Iterable[Submission]) -> int:
    return sum(submission.waiting for submission in submissions)


def _check(batch: list[Piece]) -> Check:
    tickets = list({piece.ticket: None for piece in batch})

    def check() -> None:
        if all(ticket.over for ticket in tickets):
            raise NobodyWaitsError

    return check


def _put(piece: Piece, result: Any) -> None:
    """Keep the result of a piece; with the last one, answer."""
    ticket = piece.ticket
    ticket.results[piece.number] = (result,)
    if all(ticket.results) and not ticket.over:
        try:
            answer(ticket, ticket.work.join(ticket.item, [found for (found,) in ticket.results]))
        except Exception as error:
            fail(ticket, error)
