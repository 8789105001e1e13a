"""The command line called from a test: the same `main` as the program, its streams kept apart."""

import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple
from unittest import mock

RECIPE = """
[data]
corpus = "reverse"
size = 2000
valid_size = 40
longest = 6

[tokenizer]
kind = "char"

[encoder]
kind = "rnn"
width = 64
embedding = 32
dropout = 0.0

[decoder]
kind = "rnn"
width = 64
embedding = 32
dropout = 0.0

[batch]
tokens = 500

[filter]
max_length = 8

[training]
steps = 120
learning_rate = 0.01
warmup = 20
validate_every = 60
label_smoothing = 0.0
metric = "exact_match"
"""
"""Learns in two seconds to write digits backwards; what it has learned of is at most eight tokens long."""

BRIEFLY = [
    f"--set={change}"
    for change in ("training.steps=4", "training.validate_every=2", "data.valid_size=8", "decoding.beam=2")
]


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def jumok(*arguments: object, stdin: str | bytes = b"", encoding: str = "utf-8") -> Done:
    """Run `jumok ARGUMENTS`; `encoding` is what a locale would have standard output and error be in."""
    from jumok.cli import main

    given = stdin.encode() if isinstance(stdin, str) else stdin
    streams = {name: TextIOWrapper(BytesIO(), encoding=encoding, write_through=True) for name in ("stdout", "stderr")}
    streams["stdin"] = TextIOWrapper(BytesIO(given), encoding="utf-8")
    code = 0
    with mock.patch.multiple(sys, argv=["jumok", *map(str, arguments)], **streams):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    out, err = (streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr"))
    return Done(code, out, err)


def well(*arguments: object, stdin: str | bytes = b"") -> Done:
    """Run a command that must succeed."""
    done = jumok(*arguments, stdin=stdin)
    assert done.code == 0, done.err
    return done


def write(path: Path, text: str) -> Path:
    """A file with this text."""
    path.write_text(text, encoding="utf-8")
    return path
