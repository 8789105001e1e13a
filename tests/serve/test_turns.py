"""Who is served next: clients and their requests take turns, long texts in pieces, and nobody works for nobody."""

import threading
from dataclasses import dataclass, field

import pytest

from jumok.serve.batching import BATCH_SECONDS, FIRST_COST, Batcher, SpeedMeter
from jumok.serve.errors import QueueFullError, TooLargeError
from support.serving import Blocker, results, until


@dataclass(frozen=True)
class Upper:
    """Writes words in capitals, a word a piece."""

    weight: int = 1
    batches: list = field(default_factory=list, compare=False)
    engine = "upper"

    def size(self, text):
        return len(text.split())

    def split(self, text, size):
        return [(word, 1) for word in text.split()]

    def join(self, text, words):
        return " ".join(words)

    def __call__(self, words, check):
        self.batches.append(" ".join(words))
        return [word.upper() for word in words]


@pytest.fixture
def batcher():
    made = Batcher(batch_tokens=2, window=0, capacity=8)
    yield made
    made.close()


def test_a_long_text_is_done_in_pieces_and_comes_back_whole(batcher):
    work = Upper()
    assert results(batcher.submit(work, ["a b c d e", "f"])) == ["A B C D E", "F"]
    assert work.batches == ["a b", "c d", "e f"]


def test_a_short_text_does_not_wait_for_the_end_of_a_long_one(batcher, held):
    long, short = Upper(weight=1), Upper(weight=2)
    futures = batcher.submit(long, ["a b c d e f"]) + batcher.submit(short, ["x"])
    done: list[str] = []
    for name, future in zip(("long", "short"), futures, strict=True):
        future.add_done_callback(lambda _, name=name: done.append(name))
    held.go_on.set()
    results(futures)
    assert (done, long.batches) == (["short", "long"], ["a b", "c d", "e f"])


def test_the_clients_of_a_batch_take_turns_and_so_do_the_requests_of_each(batcher, held):
    work, batcher.batch_tokens = Upper(), 5
    futures = batcher.submit(work, ["a1 a2 a3 a4"], "a") + batcher.submit(work, ["aa"], "a")
    futures += batcher.submit(work, ["b1 b2 b3"], "b")
    held.go_on.set()
    assert results(futures) == ["A1 A2 A3 A4", "AA", "B1 B2 B3"]
    assert work.batches == ["a1 b1 aa b2 a2", "b3 a3 a4"]


def test_a_client_with_many_requests_gets_as_many_turns_as_one_with_a_single(batcher, held):
    many, single = [Upper(weight) for weight in (2, 3, 4)], Upper(5)
    futures = [future for work in many for future in batcher.submit(work, ["a b c"], "many")]
    futures += batcher.submit(single, ["x y z"], "single")
    order: list[str] = []
    for work in (*many, single):
        object.__setattr__(work, "batches", order)
    held.go_on.set()
    results(futures)
    assert order[:4] == ["a b", "x y", "a b", "z"]


def test_a_batch_has_a_piece_of_everyone_before_it_has_more_of_anyone_than_half_a_second(batcher, held):
    work, batcher.batch_tokens = Upper(weight=FIRST_COST // 2), 100
    futures = batcher.submit(work, ["a b c d"]) + [batcher.submit(work, [name])[0] for name in "vwxyz"]
    held.go_on.set()
    results(futures)
    assert work.batches == ["a v w x y z", "b c d"]


def test_of_a_full_queue_the_client_with_the_most_loses_its_newest(batcher, held):
    work = Upper()
    first, newest = batcher.submit(work, ["a"] * 4, "greedy"), batcher.submit(work, ["b"] * 4, "greedy")
    modest = batcher.submit(work, ["c"], "modest")
    with pytest.raises(QueueFullError, match="already waiting"):
        batcher.submit(work, ["d"] * 5, "greedy")
    held.go_on.set()
    assert results(first + modest) == ["A"] * 4 + ["C"]
    with pytest.raises(QueueFullError, match="smaller requests go first"):
        newest[0].result(10)


def test_a_request_that_could_not_be_done_in_time_even_alone_is_refused_with_its_cost(batcher):
    batcher.speed.record("upper", cost=2000, seconds=1, largest=4000)
    with pytest.raises(TooLargeError, match=r"costs 60003 .*more than the 60000 .* in 30 seconds"):
        batcher.submit(Upper(weight=3), ["a " * 20_001])


def test_a_request_that_would_be_late_is_refused_and_a_short_one_goes_before_what_is_long(batcher, held):
    batcher.speed.record("upper", cost=2000, seconds=1, largest=4000)
    waiting = batcher.submit(Upper(), ["a " * 40_000])
    with pytest.raises(QueueFullError, match="40 seconds") as refused:
        batcher.submit(Upper(), ["a " * 40_000])
    assert refused.value.headers == {"Retry-After": "10"}
    waiting += batcher.submit(Upper(), ["a " * 2000])
    batcher.cancel(waiting)


class Endless(Blocker):
    """Work of steps without end."""

    def __init__(self):
        super().__init__()
        self.stopped = threading.Event()

    def __call__(self, items, check):
        self.begun.set()
        try:
            until(lambda: check() is not None)  # it never says anything; it raises
        finally:
            self.stopped.set()


def test_work_stops_at_its_next_step_when_nobody_waits_for_it_any_more(batcher):
    work = Endless()
    futures = batcher.submit(work, [1, 2])
    assert work.begun.wait(10)
    batcher.cancel(futures[:1])
    assert not work.stopped.wait(0.05)
    batcher.cancel(futures)
    assert work.stopped.wait(10)
    assert results(batcher.submit(Upper(), ["on"])) == ["ON"]


def test_a_batch_is_made_to_take_half_a_second_and_small_ones_say_nothing_of_the_pace():
    speed = SpeedMeter()
    assert speed.batch_cost("m") == FIRST_COST
    speed.record("m", cost=FIRST_COST / 3, seconds=9, largest=1e6)
    assert (speed.batch_cost("m"), speed.best("m")) == (FIRST_COST, None)
    speed.record("m", cost=FIRST_COST, seconds=0.01, largest=1e6)  # too short to tell how fast it would be with more
    assert speed.best("m") is None
    for _ in range(20):
        speed.record("m", cost=speed.batch_cost("m"), seconds=speed.batch_cost("m") / 5000, largest=1e6)
    assert speed.batch_cost("m") == pytest.approx(5000 * BATCH_SECONDS, rel=0.01)
    assert speed.best("m") is not None


def test_the_speed_of_an_engine_whose_largest_batch_is_quick_is_known_all_the_same():
    speed = SpeedMeter()
    for _ in range(5):
        speed.record(
            "m", cost=min(speed.batch_cost("m"), 4096), seconds=min(speed.batch_cost("m"), 4096) / 1e6, largest=4096
        )
    assert speed.best("m") == pytest.approx(1e6)
