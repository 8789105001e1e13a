"""Side-by-side timings: who is called when, and what becomes of a system that cannot run."""

import itertools

import pytest
import torch

from jumok.bench import timing
from jumok.bench.timing import Work, time_work

CPU = torch.device("cpu")


def record(calls, name):
    """A system that notes when it is called."""
    return lambda: lambda: calls.append(name)


def test_systems_take_turns_and_every_other_round_goes_backwards(monkeypatch):
    monkeypatch.setattr(timing, "SAMPLE", 0.0)  # a call is not repeated within a round
    calls: list[str] = []
    time_work(Work("work", {name: record(calls, name) for name in ("jumok", "a", "b")}), CPU, seconds=0)
    assert calls[:9] == ["jumok"] * 3 + ["a"] * 3 + ["b"] * 3
    assert calls[9:] == ["jumok", "a", "b", "b", "a", "jumok", "jumok", "a", "b"]


def test_a_short_call_is_repeated_within_a_round():
    calls: list[str] = []
    time_work(Work("work", {"jumok": record(calls, "jumok")}), CPU, seconds=0)
    assert len(calls) > 100


def test_a_ratio_compares_calls_of_the_same_round(monkeypatch):
    # The machine is ten times slower in the last two of three rounds; the peer takes twice as long in each.
    seconds = iter([1, 1, 1, 2, 20, 10, 10, 20])
    monkeypatch.setattr(timing, "_seconds", lambda *_: float(next(seconds)))
    ours, theirs = time_work(
        Work("work", {name: record([], name) for name in ("jumok", "peer")}, tokens=50), CPU, seconds=0
    )
    assert (ours.seconds, ours.ratio, ours.tokens_per_second) == (10, 1, 5)
    assert (theirs.seconds, theirs.ratio, theirs.tokens_per_second) == (20, 2, 2.5)


def test_a_library_that_is_missing_fails_or_has_no_memory_is_reported_and_the_others_are_timed():
    def missing():
        import a_library_that_is_not_there  # noqa: F401

    def fails():
        raise TypeError("unexpected argument\nmore")

    def large():
        raise torch.OutOfMemoryError

    systems = {"jumok": record([], ""), "missing": missing, "fails": fails, "large": large, "peer": record([], "")}
    found = {one.system: one for one in time_work(Work("work", systems), CPU, seconds=0)}
    assert found["missing"].problem == "not installed: a_library_that_is_not_there"
    assert found["fails"].problem == "failed: unexpected argument"
    assert found["large"].problem == "out of memory"
    assert found["fails"].seconds is found["fails"].ratio is None
    assert found["peer"].seconds > 0


def test_an_error_of_jumok_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        time_work(Work("work", {"jumok": lambda: 1 / 0}), CPU, seconds=0)


def test_rounds_end_when_the_time_is_up(monkeypatch):
    clock = itertools.count(0.0, 0.5)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(timing, "SAMPLE", 0.0)
    calls: list[str] = []
    time_work(Work("work", {"jumok": record(calls, "jumok")}), CPU, seconds=6)
    assert 6 < len(calls) < 12
