"""Whose work comes next: clients take turns, a batch a turn, and of a client's requests the one that had the least.

A long text is cut into pieces, and the pieces are what batches are made of. So a request that takes a minute shares the
server with all others from its first second, and a short one waits for about a batch, whatever else there is to do:
what it needs is little, and whoever has had more than that waits meanwhile (least attained service).
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

CROWD = 4
"""How many times the cost of a batch may be spent where many requests come with a piece each."""
Check = Callable[[], None]
"""Called between the steps of a computation; it raises where nobody waits for the result any more."""


@runtime_checkable
class Work(Hashable, Protocol):
    """A kind of work: pieces of equal work are done in one call."""

    @property
    def weight(self) -> int:
        """What a token costs: the hypotheses that are followed for it."""

    @property
    def engine(self) -> Hashable:
        """What does it; a unit of cost takes the same time in all work of one engine."""

    def size(self, item: Any, /) -> int:
        """How many tokens an item, or a piece of one, has."""

    def split(self, item: Any, /) -> Sequence[Any]:
        """The pieces of an item, one or more."""

    def join(self, item: Any, results: list[Any], /) -> Any:
        """The result for an item, of those for its pieces."""

    def __call__(self, pieces: list[Any], check: Check, /) -> Sequence[Any]:
        """What comes out for each piece."""


@dataclass(eq=False)
class Ticket:
    """An item in the queue; nobody waits for it any more when its future is cancelled."""

    work: Work
    item: Any
    cost: int
    future: Future[Any] = field(default_factory=Future)
    results: list[Any] = field(default_factory=list)
    """One for each piece, once the item is cut into them."""

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do for it: it was answered, has failed, or is not wanted."""
        return self.future.done()


class Piece(NamedTuple):
    """What is done at once, and which piece of its item it is."""

    ticket: Ticket
    number: int
    content: Any
    size: int


class Submission:
    """The items of one request, cut into pieces as their turn comes."""

    def __init__(self, client: Hashable, tickets: Iterable[Ticket]) -> None:
        self.client = client
        self.tickets = deque(tickets)
        self.work = self.tickets[0].work
        self.attained = 0
        """The tokens of it that were done, or are being done."""
        self._pieces: deque[Piece] = deque()

    @property
    def waiting(self) -> int:
        """How many items have not begun."""
        return sum(not ticket.over for ticket in list(self.tickets))

    @property
    def cost(self) -> int:
        """What is left to do, about: an item that has begun counts by the pieces that are left of it."""
        begun = sum(piece.size for piece in list(self._pieces) if not piece.ticket.over)
        return begun * self.work.weight + sum(ticket.cost for ticket in list(self.tickets) if not ticket.over)

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to be taken by somebody who wants it."""
        pieces = [piece.ticket for piece in list(self._pieces)]
        return all(ticket.over for ticket in [*list(self.tickets), *pieces])

    def next_piece(self) -> Piece | None:
        """The piece whose turn it is, which stays; only the thread that does the work asks."""
        while True:
            while self._pieces and self._pieces[0].ticket.over:
                self._pieces.popleft()
            if self._pieces or not self.tickets:
                return self._pieces[0] if self._pieces else None
            self._cut(self.tickets[0])
            self.tickets.popleft()  # only now: one of the two knows of it at every moment

    def take(self) -> Piece:
        """The same, and it goes."""
        piece = self._pieces.popleft()
        self.attained += piece.size
        return piece

    def _cut(self, ticket: Ticket) -> None:
        if ticket.over:
            return
        try:
            contents = list(self.work.split(ticket.item))
            pieces = [
                Piece(ticket, number, content, self.work.size(content)) for number, content in enumerate(contents)
            ]
        except Exception as error:
            fail(ticket, error)
            return
        ticket.results = [None] * len(pieces)
        self._pieces.extend(pieces)


class Turns:
    """The submissions of every client, in the order of their turns. Whoever calls sees to it that no two do at once."""

    def __init__(self) -> None:
        self.clients: dict[Hashable, deque[Submission]] = {}

    def __iter__(self) -> Iterator[Submission]:
        return (submission for mine in self.clients.values() for submission in mine)

    def add(self, submission: Submission) -> None:
        """At the end of its client's, whose turn comes after those of all who wait already."""
        self.clients.setdefault(submission.client, deque()).append(submission)

    def forget_finished(self) -> None:
        """Without the submissions that have nothing left to do, and the clients that have none."""
        for client, mine in list(self.clients.items()):
            left = deque(submission for submission in mine if not submission.over)
            if left:
                self.clients[client] = left
            else:
                del self.clients[client]

    def next_turn(self) -> list[list[Submission]]:
        """The submissions of the same work as the one whose turn it is, by client; its client comes first.

        That client then goes to the end.
        """
        if not self.clients:
            return []
        client, mine = next(iter(self.clients.items()))
        first = min(mine, key=lambda submission: submission.attained)
        same = [[submission for submission in mine if submission.work == first.work] for mine in self.clients.values()]
        self.clients[client] = self.clients.pop(client)
        return [mine for mine in same if mine]


def batch_of(alike: list[list[Submission]], *, tokens: int, cost: float) -> list[Piece]:
    """A piece of each client in turn, as many as the tokens and the cost of a batch allow; at least one.

    A first piece of every submission may go beyond the cost, by `CROWD`: whoever would wait for it is in the batch.
    """
    batch: list[Piece] = []
    begun: set[Submission] = set()
    turns = deque([(one.attained, number, one) for number, one in enumerate(mine)] for mine in alike)
    for mine in turns:
        heapq.heapify(mine)
    spent = 0
    while turns:
        mine = turns.popleft()
        _, number, submission = heapq.heappop(mine)
        piece = submission.next_piece()
        if piece is not None:
            tokens -= piece.size
            if batch and tokens < 0:
                break
            price = piece.size * submission.work.weight
            if not batch or spent + price <= (cost if submission in begun else CROWD * cost):
                spent += price
                begun.add(submission)
                batch.append(submission.take())
                heapq.heappush(mine, (submission.attained, number, submission))
            else:
                tokens += piece.size
        if mine:
            turns.append(mine)
    return batch


def answer(ticket: Ticket, result: Any) -> None:
    """Give the result to whoever still waits."""
    if ticket.future.set_running_or_notify_cancel():
        ticket.future.set_result(result)


def fail(ticket: Ticket, error: Exception) -> None:
    """Say what went wrong to whoever still waits."""
    if not ticket.over and ticket.future.set_running_or_notify_cancel():
        ticket.future.set_exception(error)
