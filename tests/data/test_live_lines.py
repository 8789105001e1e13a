"""Lines of an open pipe: none waits for one that has not been written yet."""

import os
import sys

import pytest

from jumok.cli.streams import is_live, live_groups
from jumok.errors import DataError


@pytest.fixture
def pipe(monkeypatch):
    """Standard input is a pipe; this is its other end."""
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield writer


def test_lines_are_given_as_soon_as_no_other_is_there(pipe):
    groups = live_groups(100)
    for written, group in ((b"one\n", ["one"]), ("둘\r\nthree\n\n".encode(), ["둘", "three", ""]), (b"4\n", ["4"])):
        pipe.write(written)
        assert next(groups) == group
    pipe.close()
    assert list(groups) == []


def test_a_line_is_given_when_it_is_whole_and_the_last_one_without_an_end(pipe):
    groups = live_groups(100)
    pipe.write(b"half")
    pipe.write(b" and half\nno e")
    assert next(groups) == ["half and half"]
    pipe.write(b"nd")
    pipe.close()
    assert list(groups) == [["no end"]]


def test_a_quick_writer_fills_the_groups(pipe):
    pipe.write(b"".join(b"%d\n" % number for number in range(1000)))
    pipe.close()
    groups = list(live_groups(300))
    assert [len(group) for group in groups] == [300, 300, 300, 100]
    assert [line for group in groups for line in group] == [str(number) for number in range(1000)]


def test_a_line_that_is_not_utf_8_is_counted_from_the_first(pipe):
    groups = live_groups(100)
    pipe.write(b"\xef\xbb\xbfone\ntwo\n")
    assert next(groups) == ["one", "two"]
    pipe.write(b"\xff\n")
    with pytest.raises(DataError, match="standard input, line 3: byte 1"):
        next(groups)


def test_a_pipe_and_a_terminal_are_live_and_a_file_is_not(pipe, monkeypatch, tmp_path):
    assert is_live()
    with open(tmp_path / "file", "w+") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert not is_live()
    assert not is_live()  # closed
    monkeypatch.setattr(sys, "stdin", None)
    assert not is_live()
