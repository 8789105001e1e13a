"""The batches of every step, read by a thread while the step before is computed."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from jumok.errors import DataError
from jumok.training.loss import BatchSource


class Position(NamedTuple):
    """Where reading stands: the next batch is this `number` of this `epoch`."""

    epoch: int
    number: int


class StepBatches(NamedTuple):
    """The batches of one step, and where the next begins."""

    batches: list[Any]
    after: Position


def read_step(source: BatchSource, position: Position, count: int, *, pinned: bool = False) -> StepBatches:
    """`count` batches from `position` on, over the end of an epoch into the next.

    From `pinned` memory they can be copied to a GPU while it computes.
    """
    epoch, number = position
    batches: list[Any] = []
    while len(batches) < count:
        if number >= (steps := source.steps(epoch)):
            if steps == 0:
                raise DataError(f"epoch {epoch} of the training data has no batches; is the corpus empty?")
            epoch, number = epoch + 1, 0
            continue
        batch = source.batch(epoch, number)
        batches.append(batch.pinned() if pinned else batch)
        number += 1
    return StepBatches(batches, Position(epoch, number))


class ReadAhead:
    """`next()` gives the batches of one step after another; the following ones are being read meanwhile."""

    def __init__(self, source: BatchSource, position: Position, count: int, *, pinned: bool = False) -> None:
        self._source, self._count, self._pinned = source, count, pinned
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jumok-batches")
        self._coming: Future[StepBatches] = self._read(position)

    def next(self) -> StepBatches:
        """The batches of the next step."""
        found = self._coming.result()
        self._coming = self._read(found.after)
        return found

    def _read(self, position: Position) -> Future[StepBatches]:
        return self._thread.submit(read_step, self._source, position, self._count, pinned=self._pinned)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=True, cancel_futures=True)
