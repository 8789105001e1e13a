"""Reading the batches of the next step while the current one is computed; processes exchange their counts meanwhile."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from jumok.errors import DataError
from jumok.training.objective import BatchSource
from jumok.training.processes import current_processes


class Position(NamedTuple):
    """The position in the data: the next batch is this `number` of this `epoch`."""

    epoch: int
    number: int


class StepBatches(NamedTuple):
    """The batches of one step, and where the next begins."""

    batches: list[Any]
    """This process's share of them."""
    after: Position


class StopReasons(NamedTuple):
    """Why a process wants training to end."""

    stop: bool = False
    """It received a signal."""
    late: bool = False
    """Its clock says that training.minutes are over; that of the leading process counts."""


class AgreedStep(NamedTuple):
    """The batches of one step, and what all processes agreed on when they had read theirs."""

    share: StepBatches
    tokens: int
    """Tokens, or whatever the task counts, of the batches of all processes."""
    stop_reasons: StopReasons
    """The reasons of any process at that time, one or two steps ago; the same in all."""


Ready = Callable[[Any], Any]


def read_step(source: BatchSource, position: Position, count: int, *, ready: Ready | None = None) -> StepBatches:
    """This process's share of `count` batches from `position` on, over the end of an epoch into the next.

    Every world-th batch is its own, so that all processes together read what one would read alone. `ready` makes them
    fit for a GPU.
    """
    (epoch, number), places = position, list[Position]()
    while len(places) < count:
        if number >= (steps := source.steps(epoch)):
            if steps == 0:
                raise DataError(f"epoch {epoch} of the training data has no batches; is the corpus empty?")
            epoch, number = epoch + 1, 0
            continue
        places.append(Position(epoch, number))
        number += 1
    batches = [source.batch(*place) for place in current_processes().share(places)]
    return StepBatches(batches if ready is None else [ready(batch) for batch in batches], Position(epoch, number))


class ReadAhead:
    """`next()` gives the batches of one step after another; the following ones are being read meanwhile.

    The thread that reads them also asks the other processes for their numbers of `items` and their reasons to stop, so
    that neither the main thread nor a GPU waits for an answer.
    """

    def __init__(
        self,
        source: BatchSource,
        position: Position,
        count: int,
        *,
        items: Callable[[Any], int],
        stop_reasons: Callable[[], StopReasons] = StopReasons,
        ready: Ready | None = None,
    ) -> None:
        self._source, self._count, self._items, self._ready = source, count, items, ready
        self._stop_reasons = stop_reasons
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jumok-batches")
        self._coming: Future[AgreedStep] = self._thread.submit(self._read, position)

    def next(self) -> AgreedStep:
        """The batches of the next step."""
        agreed = self._coming.result()
        self._coming = self._thread.submit(self._read, agreed.share.after)
        return agreed

    def _read(self, position: Position) -> AgreedStep:
        share = read_step(self._source, position, self._count, ready=self._ready)
        stop, late = self._stop_reasons()
        tokens, stops, lates = current_processes().agree(
            [sum(self._items(batch) for batch in share.batches), stop, late and current_processes().leads]
        )
        return AgreedStep(share, max(tokens, 1), StopReasons(stops > 0, lates > 0))

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)
