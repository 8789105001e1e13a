"""Damaged inputs of every format: each must give a result or a one-line error of jumok's own.

    python -m benchmarks.fuzz                                   40,000 inputs; writes results/fuzz.json
    python -m benchmarks.fuzz --inputs 2000 --only npz images   some of them; writes nothing
    python -m benchmarks.fuzz --only npz --number 417           one input again, with its traceback

Anything else is a crash: another exception, a message of several lines or of more than 1,000 characters, more than
SECONDS, more than BYTES of memory, or a process that dies. The inputs are the same in every run of the same size.
Every format is read in its own process with limited memory; if it dies or hangs, a new one continues with the next
input.
"""

import argparse
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from benchmarks.fuzz_formats import Format, formats, trained
from benchmarks.fuzz_mutations import mutated
from benchmarks.results import Row, cpu, write
from jumok.errors import LONGEST, JumokError

INPUTS = 40_000
SECONDS = 10
BYTES = 1_200_000_000
"""Of memory that one input may take: an image is decoded in 1 GiB at most."""
MEMORY = Path("/dev/shm")
"""Where files lie that need not be forced to disk."""


class TooLongError(BaseException):
    """An input took more than SECONDS; no `except Exception` is to catch it."""


class Crash(NamedTuple):
    """An input that was neither read nor refused."""

    format: str
    number: int
    what: str


class Tally(NamedTuple):
    """What came of the inputs of one format."""

    inputs: int
    read: int
    crashes: list[Crash]


def campaign(inputs: int = INPUTS, only: tuple[str, ...] = (), say: Callable[[str], None] = print) -> dict[str, Tally]:
    """Read damaged inputs of every format, or of some."""
    trained()  # once, as the imports, before there are several processes
    for module in (
        "jumok.serve.app",
        "jumok.tasks",
        "PIL.Image",
    ):
        import_module(module)
    place = Path(tempfile.mkdtemp(prefix="jumok-fuzz-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        made = formats(place)
        tallies = {}
        for name in only or made:
            begun = time.monotonic()
            tallies[name] = _in_processes(name, made[name], inputs)
            tally = tallies[name]
            say(
                f"{name:14} {tally.inputs:6,} inputs, {tally.read:6,} read, {len(tally.crashes):5,} crashes, "
                f"{time.monotonic() - begun:6.1f} s"
            )
            for what, count in Counter(crash.what for crash in tally.crashes).most_common(12):
                first = next(crash.number for crash in tally.crashes if crash.what == what)
                say(f"    {count:5} × {what}; first --number {first}")
        return tallies
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _count(of: Format, inputs: int) -> int:
    return max(1, of.inputs * inputs // INPUTS)


def _input(name: str, of: Format, number: int, count: int) -> tuple[str, bytes]:
    """The sample that is damaged, and what becomes of it."""
    names, samples = list(of.samples), list(of.samples.values())
    which, own = number % len(names), number // len(names)
    draws = Random(f"{name} {number}")
    return names[which], mutated(samples, which, own, -(-count // len(names)), draws)


def _in_processes(name: str, make: Callable[[], Format], inputs: int) -> Tally:
    """All inputs of a format, by as many processes one after another as it takes."""
    first, read, crashes, count = 0, 0, [], 1
    while first < count:
        process, pipe = _forked(lambda say, first=first: _work(name, make, first, inputs, say))  # type: ignore[misc]
        last = first - 1
        for kind, number, what in _reports(pipe):
            last = number
            if kind == "count":
                count, last = number, first - 1
            elif kind == "crash":
                crashes.append(Crash(name, number, what))
            elif kind == "read":
                read += 1
        _end(process)
        if last < count - 1:  # it died or hung at the next one
            crashes.append(Crash(name, last + 1, "the process died, or hung where nothing could stop it"))
        first = last + 2
    return Tally(count, read, crashes)


def _forked(work: Callable[[Callable[[str, int, str], None]], None]) -> tuple[int, int]:
    """A process that reports through a pipe: its id, and the pipe's end to read."""
    out, into = os.pipe()
    process = os.fork()
    if process:
        os.close(into)
        return process, out
    os.close(out)
    status = 1
    try:
        with open(into, "w", encoding="utf-8", buffering=1) as pipe:
            work(lambda kind, number, what: print(json.dumps([kind, number, what]), file=pipe) and None)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _reports(pipe: int) -> Iterator[tuple[str, int, str]]:
    """What a process reports, until it ends or says nothing for far too long."""
    begun = b""
    try:
        while select.select([pipe], [], [], 6 * SECONDS)[0] and (read := os.read(pipe, 1 << 16)):
            *lines, begun = (begun + read).split(b"\n")
            for line in lines:
                kind, number, what = json.loads(line)
                yield kind, number, what
    finally:
        os.close(pipe)


def _end(process: int) -> None:
    """Its reports have come to an end; so has it, or it hangs."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def _work(name: str, make: Callable[[], Format], first: int, inputs: int, say: Callable[[str, int, str], None]) -> None:
    """Read the inputs from number `first` on, and report of each."""
    warnings.simplefilter("ignore")
    of = make()
    count = _count(of, inputs)
    for sample, content in of.samples.items():  # as they are, they must be read; the first takes long, for its imports
        of.read(sample, content)
    say("count", count, "")
    _limit_memory()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries tell of damage there, too
    for number in range(first, count):
        sample, content = _input(name, of, number, count)
        what = outcome(lambda sample=sample, content=content: of.read(sample, content))  # type: ignore[misc]
        say({"": "read", "refused": "refused"}.get(what, "crash"), number, what)


def outcome(read: Callable[[], None]) -> str:
    """ "" if it was read, "refused" if an error of ours says why, else what went wrong."""
    before = _reset_peak()
    try:
        with _deadline():
            read()
    except JumokError as error:
        what = _wrong_message(str(error)) or ("MemoryError" if _of_memory(error) else "refused")
    except TooLongError:
        what = f"more than {SECONDS} seconds"
    except Exception as error:
        what = f"{type(error).__name__} at {_where(error)}: {' '.join(str(error).split())[:80]}"
    else:
        what = ""
    taken = _peak() - before
    return f"{taken / 1e6:,.0f} MB of memory" if taken > BYTES else what


def _wrong_message(message: str) -> str:
    if not message or "\n" in message:
        return f"a message of {len(message.splitlines())} lines: {message[:60]!r}"
    return f"a message of {len(message):,} letters: {message[:60]!r}" if len(message) > LONGEST else ""


def _of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out first, and the refusal only hides it."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__context__
    return error is not None


def _where(error: BaseException) -> str:
    """The last line of jumok's own that the error went through."""
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if "/jumok/" in frame.filename]
    return f"{places[-1].filename.rpartition('/jumok/')[2]}:{places[-1].lineno}" if places else "no line of jumok"


@contextmanager
def _deadline() -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> None:
        raise TooLongError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit_memory() -> None:
    """No more than twice BYTES above what the process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + 2 * BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    """The most memory the process had since the last reset."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return 0


def _again(name: str, number: int, inputs: int) -> None:
    """One input, its error shown in full."""
    with tempfile.TemporaryDirectory(prefix="jumok-fuzz-") as place:
        of = formats(Path(place))[name]()
        sample, content = _input(name, of, number, _count(of, inputs))
        print(f"{sample}, {len(content)} bytes: {content[:300]!r}")
        of.read(sample, content)


def _rows(tallies: dict[str, Tally], seconds: float) -> list[Row]:
    condition = f"1 process, at most {SECONDS} s and {BYTES / 1e9:.1f} GB an input; all of it in {seconds / 60:.0f} min"
    rows = [
        Row("fuzz-inputs", "jumok", sum(of.inputs for of in tallies.values()), "inputs", condition),
        Row("fuzz-crashes", "jumok", sum(len(of.crashes) for of in tallies.values()), "crashes", condition),
    ]
    for name, of in tallies.items():
        read = f"{of.read:,} read all the same, {of.inputs - of.read - len(of.crashes):,} refused"
        rows.append(Row(f"fuzz-format-inputs/{name}", "jumok", of.inputs, "inputs", read))
        rows.append(Row(f"fuzz-format-crashes/{name}", "jumok", len(of.crashes), "crashes", read))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--only", nargs="+", default=[], metavar="FORMAT")
    parser.add_argument("--number", type=int)
    given: Any = parser.parse_args()
    if given.number is not None:
        _again(given.only[0], given.number, given.inputs)
        return
    begun = time.monotonic()
    tallies = campaign(given.inputs, tuple(given.only))
    crashes = sum(len(of.crashes) for of in tallies.values())
    print(f"{sum(of.inputs for of in tallies.values()):,} inputs, {crashes:,} crashes")
    if not given.only and given.inputs == INPUTS:
        rows = _rows(tallies, time.monotonic() - begun)
        print(write("fuzz", rows, device=cpu(), packages=("torch", "numpy", "pillow")))
    sys.exit(crashes > 0)


if __name__ == "__main__":
    main()
