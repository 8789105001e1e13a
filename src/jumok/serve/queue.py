"""The order of work: clients take turns, one batch each, and of a client's requests the one with the least work done.

Long texts are cut into pieces, and batches consist of pieces. A request that takes a minute therefore shares the server
with all others from its first second, and a short one waits for about one batch (least attained service).
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

CROWD = 4
"""How many times the cost of a batch it may have if many requests come with one piece each."""
CancelCheck = Callable[[], None]
"""Called between the steps of a computation; raises if nobody waits for the result any more."""


@runtime_checkable
class Job(Hashable, Protocol):
    """A computation with its settings; pieces of equal jobs are computed in one call."""

    @property
    def weight(self) -> int:
        """The cost of a token: the number of hypotheses that the search keeps."""

    @property
    def engine(self) -> Hashable:
        """What computes it; a unit of cost takes the same time in all jobs of one engine."""

    def size(self, item: Any, /) -> int:
        """The number of tokens of an item."""

    def split(self, item: Any, size: int, /) -> Sequence[tuple[Any, int]]:
        """The pieces of an item of this size, one or more, each with its own size."""

    def join(self, item: Any, results: list[Any], /) -> Any:
        """The result of an item from the results of its pieces."""

    def __call__(self, pieces: list[Any], check: CancelCheck, /) -> Sequence[Any]:
        """The result of each piece."""


@dataclass(eq=False)
class Ticket:
    """An item in the queue, with the future of its result; a cancelled future means that nobody waits for it."""

    job: Job
    item: Any
    size: int
    """The number of tokens of the item."""
    future: Future[Any] = field(default_factory=Future)
    results: list[Any] = field(default_factory=list)
    """A result for each piece, once the item is split."""

    @property
    def cost(self) -> int:
        """The tokens times the cost of each."""
        return self.size * self.job.weight

    @property
    def done(self) -> bool:
        """Whether it was answered, has failed, or was cancelled."""
        return self.future.done()

    def answer(self, result: Any) -> None:
        """Set the result, if somebody still waits for it."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        """Set the error, if somebody still waits."""
        if not self.done and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class WorkPiece(NamedTuple):
    """A part of an item, computed in one call."""

    ticket: Ticket
    number: int
    content: Any
    size: int


class Submission:
    """The items of one request, split into pieces when their turn comes."""

    def __init__(self, client: Hashable, tickets: Iterable[Ticket]) -> None:
        self.client = client
        self.tickets = deque(tickets)
        self.job = self.tickets[0].job
        self.attained = 0
        """The tokens computed so far, or being computed."""
        self._pieces: deque[WorkPiece] = deque()

    @property
    def waiting(self) -> int:
        """The number of items that have not begun."""
        return sum(not ticket.done for ticket in list(self.tickets))

    @property
    def cost(self) -> int:
        """The approximate cost of what is left; an item that has begun counts by its remaining pieces."""
        begun = sum(piece.size for piece in list(self._pieces) if not piece.ticket.done)
        return begun * self.job.weight + sum(ticket.cost for ticket in list(self.tickets) if not ticket.done)

    @property
    def done(self) -> bool:
        """Whether no piece is left that somebody waits for."""
        pieces = [piece.ticket for piece in list(self._pieces)]
        return all(ticket.done for ticket in [*list(self.tickets), *pieces])

    def next_piece(self) -> WorkPiece | None:
        """The next piece, which stays in the queue; called only by the thread that computes."""
        while True:
            while self._pieces and self._pieces[0].ticket.done:
                self._pieces.popleft()
            if self._pieces or not self.tickets:
                return self._pieces[0] if self._pieces else None
            self._split(self.tickets[0])
            self.tickets.popleft()  # only now: one of the two deques has it at every moment

    def take(self) -> WorkPiece:
        """Remove the next piece and return it."""
        piece = self._pieces.popleft()
        self.attained += piece.size
        return piece

    def _split(self, ticket: Ticket) -> None:
        if ticket.done:
            return
        try:
            pieces = list(self.job.split(ticket.item, ticket.size))
        except Exception as error:
            ticket.fail(error)
            return
        ticket.results = [None] * len(pieces)
        self._pieces.extend(WorkPiece(ticket, number, *piece) for number, piece in enumerate(pieces))


class ClientQueues:
    """The submissions of every client, in the order of their turns. Not thread-safe: the caller holds a lock."""

    def __init__(self) -> None:
        self.clients: dict[Hashable, deque[Submission]] = {}

    def __iter__(self) -> Iterator[Submission]:
        return (submission for submissions in self.clients.values() for submission in submissions)

    def add(self, submission: Submission) -> None:
        """Append a submission to those of its client; a new client comes last."""
        self.clients.setdefault(submission.client, deque()).append(submission)

    def remove_done(self) -> None:
        """Remove submissions that are done, and clients that have no others."""
        for client, submissions in list(self.clients.items()):
            left = deque(submission for submission in submissions if not submission.done)
            if left:
                self.clients[client] = left
            else:
                del self.clients[client]

    def next_turn(self) -> list[list[Submission]]:
        """The submissions that share the job of the client whose turn it is, by client, this client first.

        The client then moves to the end.
        """
        if not self.clients:
            return []
        client, submissions = next(iter(self.clients.items()))
        first = min(submissions, key=lambda submission: submission.attained)
        alike = [
            [waiting for waiting in submissions if waiting.job == first.job] for submissions in self.clients.values()
        ]
        self.clients[client] = self.clients.pop(client)
        return [submissions for submissions in alike if submissions]


def next_batch(alike: list[list[Submission]], *, tokens: int, cost: float) -> list[WorkPiece]:
    """Pieces of each client in turn, as many as the tokens and the cost of a batch allow; at least one.

    The first piece of every submission may exceed the cost, up to `CROWD` times: whoever would wait is in the batch.
    """
    batch: list[WorkPiece] = []
    begun: set[Submission] = set()
    turns = deque([(one.attained, number, one) for number, one in enumerate(submissions)] for submissions in alike)
    for waiting in turns:
        heapq.heapify(waiting)
    spent = 0
    while turns:
        waiting = turns.popleft()
        _, number, submission = heapq.heappop(waiting)
        piece = submission.next_piece()
        if piece is not None:
            tokens -= piece.size
            if batch and tokens < 0:
                break
            price = piece.size * submission.job.weight
            if not batch or spent + price <= (cost if submission in begun else CROWD * cost):
                spent += price
                begun.add(submission)
                batch.append(submission.take())
                heapq.heappush(waiting, (submission.attained, number, submission))
            else:
                tokens += piece.size
        if waiting:
            turns.append(waiting)
    return batch
