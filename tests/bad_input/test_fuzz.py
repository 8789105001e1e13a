"""A small campaign of damaged inputs; `python -m benchmarks.fuzz` is the large one."""

import json
import sys

import pytest

from benchmarks.fuzz import Crash, campaign, outcome
from benchmarks.results import FOLDER
from jumok.errors import DataError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what memory an input took")


@pytest.mark.long
def test_damaged_inputs_of_every_format_are_read_or_refused_in_one_line():
    found = campaign(inputs=200, say=lambda line: None)
    assert sum(of.inputs for of in found.values()) > 180
    assert [crash for of in found.values() for crash in of.crashes] == []


@pytest.mark.long
def test_everything_but_a_result_and_an_error_of_ours_in_one_line_is_a_crash():
    def raising(error):
        def read():
            raise error

        return read

    assert outcome(lambda: None) == ""
    assert outcome(raising(DataError("line 3 is wrong"))) == "refused"
    assert outcome(raising(DataError(""))).startswith("a message of 0 lines")
    assert outcome(raising(ValueError("raw"))) == "ValueError at no line of jumok: raw"
    hidden = DataError("it is damaged")
    hidden.__context__ = MemoryError()
    assert outcome(raising(hidden)) == "MemoryError"


@pytest.mark.long
def test_a_process_that_dies_is_a_crash_of_its_input_and_the_next_goes_on(monkeypatch):
    import os

    from benchmarks import fuzz
    from benchmarks.fuzz_formats import Format

    def read(name, content):
        if content == b"":
            os._exit(3)

    monkeypatch.setattr(fuzz, "_input", lambda name, of, number, count: ("a", b"" if number == 2 else b"x"))
    tally = fuzz._in_processes("deadly", lambda: Format({"a": b"x"}, read, fuzz.INPUTS), 5)
    assert tally == (5, 4, [Crash("deadly", 2, "the process died, or hung where nothing could stop it")])


@pytest.mark.long
def test_the_last_large_campaign_ended_without_a_crash():
    rows = {row["id"]: row["value"] for row in json.loads((FOLDER / "fuzz.json").read_text(encoding="utf-8"))["rows"]}
    assert rows["fuzz-inputs"] >= 40_000
    assert rows["fuzz-crashes"] == 0
