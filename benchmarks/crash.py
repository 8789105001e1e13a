"""Kill training runs again and again and resume them: each must end bit for bit like an uninterrupted run.

    python -m benchmarks.crash [--kills 1000] [--seconds 3000] [--workers 2]     writes results/crash.json

Kills small runs of every kind (recurrent and Transformer translators, captioners, graph networks) with SIGKILL at
random moments, and while they prepare data, write checkpoints, publish a model and write metrics: before a file is
opened, renamed, linked or removed, and with a file half written. After every kill, the model folder must contain no
model yet or a complete one that loads, and never go back from the second to the first.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.crash_run import (
    ANY_MOMENT,
    KINDS,
    PLACES,
    Kill,
    errors_file,
    events_file,
    train_in_process,
    write_graph_file,
)
from benchmarks.results import Row, cpu, write
from jumok.errors import ModelError
from jumok.model_folder import WEIGHTS
from jumok.tasks import load

MEMORY = Path("/dev/shm")
"""A disk in memory, where there is one: a kill leaves the same files on every disk."""
MOST_KILLS = 12
"""Of one run, after which it is left alone."""
PATIENCE = 120
"""Seconds after which a run that should have ended counts as failed."""


@dataclass
class Tally:
    """What became of a campaign."""

    kills: Counter[str] = field(default_factory=Counter)
    """By place."""
    runs: int = 0
    identical: int = 0
    whole: int = 0
    """Kills after which the folder held a whole model."""
    absent: int = 0
    """Kills after which it held none yet."""
    failures: list[str] = field(default_factory=list)


class Whole:
    """A run that nobody killed, for the others of its kind to be compared with."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, folder = kind, place / f"whole-{kind}"
        _ended(kind, folder, None, resume=False)
        report = json.loads(events_file(folder).read_text(encoding="ascii"))
        self.seconds: float = report["seconds"]
        self.events: dict[str, int] = report["counts"]
        self.files = contents(folder)

    def kill(self, draws: random.Random, *, prepared: bool, published: bool) -> Kill:
        """Where to kill a run of this kind next; an early event, so that most kills come before the run ends.

        What can go wrong once only, the preparation of data and the first publishing, is chosen more often.
        """
        places = [ANY_MOMENT, *PLACES[1:], *([] if published else ["publishing"] * 3)]
        place = draws.choice(places if prepared else [ANY_MOMENT, "preparation", "preparation"])
        if place == ANY_MOMENT:
            return Kill(place, seconds=draws.uniform(0, self.seconds))
        events = max(int(self.events[place] * (0.8 if place == "preparation" else 0.2)), 3)
        return Kill(place, draws.randint(1, events), left=draws.random())


def campaign(kinds: list[str], kills: int, seconds: float, *, workers: int = 1) -> Tally:
    """Kill runs of these kinds in turn, `workers` at a time, until there are enough kills or no time is left."""
    with tempfile.TemporaryDirectory(prefix="crash-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        place = Path(name)
        write_graph_file(place)
        whole, tally = [Whole(kind, place) for kind in kinds], Tally()
        end = time.monotonic() + seconds

        def work(first: int) -> None:
            for number in count(first, workers):
                if tally.kills.total() >= kills or time.monotonic() >= end:
                    return
                reference, folder = whole[number % len(whole)], place / f"run-{number}"
                try:
                    _killed_run(reference, folder, random.Random(number), tally)
                except AssertionError as error:
                    tally.failures.append(f"run {number}, {reference.kind}: {error}")
                    print(tally.failures[-1], file=sys.stderr, flush=True)
                tally.runs += 1
                if tally.runs % 20 == 0:
                    print(f"{tally.kills.total()} kills, {tally.identical} of {tally.runs} runs identical", flush=True)
                shutil.rmtree(folder)

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, range(workers)))
    return tally


def _killed_run(reference: Whole, folder: Path, draws: random.Random, tally: Tally) -> None:
    """One run, killed so many times at most, then left to end."""
    resume = published = False
    for _ in range(MOST_KILLS):
        kill = reference.kill(draws, prepared=(folder / "checkpoints").exists(), published=published)
        if _ended(reference.kind, folder, kill, resume=resume):
            break
        tally.kills[kill.place] += 1
        published = _published(reference.kind, folder, kill, before=published)
        tally.whole += published
        tally.absent += not published
        resume = True
    else:
        _ended(reference.kind, folder, None, resume=resume)
    differing = differences(reference.files, contents(folder))
    assert not differing, f"the run differs from one that nobody killed in {', '.join(differing)}"
    tally.identical += 1


def _ended(kind: str, folder: Path, kill: Kill | None, *, resume: bool) -> bool:
    """Whether a run came to its end; False if it was killed."""
    code = train_in_process(kind, folder, kill, resume=resume, seconds=PATIENCE)
    if code == -signal.SIGKILL and kill is not None:
        return False
    errors = errors_file(folder).read_text(encoding="utf-8", errors="replace")
    assert code is not None, f"still running after {PATIENCE} s; it was to be killed at {kill}:\n{errors}"
    assert code == 0, f"ended with code {code}; it was to be killed at {kill}:\n{errors}"
    return True


def _published(kind: str, folder: Path, kill: Kill, *, before: bool) -> bool:
    """Whether the folder holds a model, which must be whole; one that was there must not have gone."""
    try:
        load(folder, device="cpu")
    except ModelError as error:
        if before or (folder / WEIGHTS).exists():
            raise AssertionError(f"after {kill} the folder is not whole: {error}") from None
        return False
    return True


def contents(folder: Path) -> dict[str, Any]:
    """All files of a run by name, without the times that differ from run to run."""
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name in ("state.json", "metrics.jsonl"):
            text = path.read_text(encoding="utf-8")
            files[name] = [
                _timeless(json.loads(line)) for line in ([text] if path.suffix == ".json" else text.splitlines())
            ]
        elif path.name == "manifest.json":
            files[name] = sorted(json.loads(path.read_bytes())["files"])
        elif path.name == "sources.json":
            files[name] = None  # the place and time of the files that were read
        elif path.is_file():
            files[name] = path.read_bytes()
    return files


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """The names of files that only one of two runs has, or that are not the same."""
    return [
        name
        for name in sorted({*first, *second})
        if name not in first or name not in second or first[name] != second[name]
    ]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(part) for name, part in value.items() if "second" not in name}
    return value


def rows(tally: Tally, kinds: list[str]) -> list[Row]:
    """The results, as documents show them."""
    conditions = f"SIGKILL, then --resume, at most {MOST_KILLS} times a run; {', '.join(kinds)}; shared CPU cores"
    values = {
        "resume-kills": (tally.kills.total(), "kills"),
        **{f"kills-by-place/{place}": (tally.kills[place], "kills") for place in (ANY_MOMENT, *PLACES)},
        "resume-runs": (tally.runs, "runs"),
        "resume-runs/identical": (tally.identical, "runs"),
        "resume-folders/whole": (tally.whole, "kills"),
        "resume-folders/no model yet": (tally.absent, "kills"),
        "resume-folders/broken": (tally.kills.total() - tally.whole - tally.absent, "kills"),
    }
    return [Row(name, "jumok", value, unit, conditions) for name, (value, unit) in values.items()]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("--kills", type=int, default=1000)
    options.add_argument("--seconds", type=float, default=3000, help="start no further run after this time")
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options.add_argument("--workers", type=int, default=1, help="runs at a time")
    asked = options.parse_args()
    tally = campaign(asked.kinds, asked.kills, asked.seconds, workers=asked.workers)
    print(
        f"{tally.kills.total()} kills, {tally.identical} of {tally.runs} runs identical, {len(tally.failures)} failures"
    )
    for failure in tally.failures:
        print(failure, file=sys.stderr)
    print(write("crash", rows(tally, asked.kinds), device=cpu()))
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
