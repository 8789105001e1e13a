"""The queue: what is of one kind and waits is done together, and nothing is lost."""

from concurrent.futures import wait
from dataclasses import dataclass, field

import pytest

from jumok.serve.batching import Batcher
from jumok.serve.errors import QueueFullError
from support.serving import Blocker, results


@dataclass(frozen=True)
class Doubling:
    """Doubles numbers and remembers the batches they came in."""

    name: str = ""
    batches: list = field(default_factory=list, compare=False)
    weight = 1
    engine = "doubling"

    def size(self, item):
        return 1 * item

    def split(self, item, size):
        return [(item, size)]

    def join(self, item, results):
        return results[0]

    def __call__(self, items, check):
        self.batches.append(items)
        if 13 in items:
            raise ValueError("13 is not to be doubled")
        return [2 * item for item in items]


@pytest.fixture
def batcher():
    made = Batcher(batch_tokens=10, window=0, capacity=8)
    yield made
    made.close()


def test_what_waits_is_done_in_one_batch(batcher, held):
    work = Doubling()
    futures = [future for n in (1, 2, 3) for future in batcher.submit(work, [n])]
    assert batcher.depth == 3
    held.go_on.set()
    assert results(futures) == [2, 4, 6]
    assert work.batches == [[1, 2, 3]]


def test_a_batch_keeps_to_its_budget_but_takes_at_least_one(batcher, held):
    work = Doubling()
    futures = batcher.submit(work, [4, 5, 2, 99, 1])
    held.go_on.set()
    assert results(futures) == [8, 10, 4, 198, 2]
    assert work.batches == [[4, 5], [2], [99], [1]]


def test_different_work_is_not_mixed_and_the_oldest_goes_first(batcher, held):
    one, other = Doubling("one"), Doubling("other")
    futures = [*batcher.submit(one, [1]), *batcher.submit(other, [2]), *batcher.submit(one, [3])]
    held.go_on.set()
    assert results(futures) == [2, 4, 6]
    assert (one.batches, other.batches) == ([[1, 3]], [[2]])


def test_a_full_queue_takes_all_of_a_request_or_nothing(batcher, held):
    work = Doubling()
    first = batcher.submit(work, [1] * 6)
    with pytest.raises(QueueFullError, match="6 texts are already waiting"):
        batcher.submit(work, [1, 1, 1])
    assert batcher.depth == 6
    held.go_on.set()
    wait(first)
    assert results(batcher.submit(work, [1, 1, 1])) == [2, 2, 2]


def test_what_is_dropped_makes_room_and_is_never_done(batcher, held):
    work = Doubling()
    dropped = batcher.submit(work, [3] * 8)
    batcher.cancel(dropped)
    assert batcher.depth == 0
    kept = batcher.submit(work, [1])
    held.go_on.set()
    assert results(kept) == [2]
    assert work.batches == [[1]]


def test_only_what_fails_fails(batcher, held):
    futures = [future for n in (1, 13, 2) for future in batcher.submit(Doubling("small"), [n])]
    batcher.batch_tokens = 100
    held.go_on.set()
    assert [futures[0].result(10), futures[2].result(10)] == [2, 4]
    with pytest.raises(ValueError, match="13 is not"):
        futures[1].result(10)


def test_what_cannot_be_measured_is_refused_and_the_thread_goes_on(batcher, held):
    work = Doubling()
    with pytest.raises(TypeError):
        batcher.submit(work, [None])
    right = batcher.submit(work, [2])
    held.go_on.set()
    assert results(right) == [4]


def test_closing_does_what_was_accepted_and_takes_no_more():
    batcher, blocker = Batcher(window=0), Blocker()
    batcher.submit(blocker, [None])
    futures = batcher.submit(Doubling(), [1, 2])
    blocker.go_on.set()
    batcher.close()
    assert [future.result(0) for future in futures] == [2, 4]
    with pytest.raises(QueueFullError, match="shutting down"):
        batcher.submit(Doubling(), [1])
