"""Small training runs of every kind in processes that kill themselves with SIGKILL at a chosen point.

All are forked from one process that has imported everything, so a run of a dozen steps takes about a second.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch._dynamo

from jumok.tasks.run import train
from jumok.training import metrics

PLACES = ("preparation", "checkpoint", "publishing", "metrics")
"""Where files are written: data/, checkpoints/, the model's own files, metrics.jsonl."""
ANY_MOMENT = "any moment"
FORKED = get_context("forkserver")
FORKED.set_forkserver_preload(["benchmarks.crash_run"])
GRAPH = "graph.npz"
ONE_AT_A_TIME = threading.Lock()  # starting a process also asks how all others are, and an exit code is told only once


class Kill(NamedTuple):
    """Where a run is killed: at the n-th event of a place, or after some seconds."""

    place: str
    number: int = 0
    seconds: float = 0.0
    left: float = 1.0
    """Share of a file's contents that is there by then, as if the kill came while it was written."""


TRAINING = {
    "steps": 14, "validate_every": 4, "save_every": 3, "log_every": 2, "keep": 2,
    "warmup": 2, "learning_rate": 0.01, "metric": "loss",
}  # fmt: skip
TEXTS = {
    "data": {"corpus": "reverse", "size": 60, "valid_size": 6, "longest": 5},
    "tokenizer": {"kind": "char"},
    "batch": {"tokens": 40},
    "decoding": {"beam": 2, "max_length": 8},
}
KINDS: dict[str, dict[str, dict[str, Any]]] = {
    "rnn": TEXTS
    | {
        "encoder": {"kind": "rnn", "width": 8, "embedding": 6, "dropout": 0.1},
        "decoder": {"kind": "rnn", "width": 8, "embedding": 6, "dropout": 0.1},
        "training": TRAINING | {"metric": "chrf", "average": 2},
    },
    "transformer": TEXTS
    | {
        "encoder": {"kind": "transformer", "width": 8, "heads": 2, "hidden": 8, "layers": 1},
        "decoder": {"kind": "transformer", "width": 8, "heads": 2, "hidden": 8, "layers": 1},
        "training": TRAINING | {"ema": 0.9, "accumulate": 2},
    },
    "captions": {
        "images": {"scenes": "ko", "count": 8, "valid_count": 2, "size": 16},
        "tokenizer": {"kind": "char"},
        "encoder": {"stem": "large", "blocks": [1], "channels": 4, "width": 8},
        "decoder": {"kind": "rnn", "width": 8, "embedding": 6},
        "batch": {"tokens": 200},
        "training": TRAINING,
    },
    "graphs": {
        "graph": {},
        "network": {"width": 4, "heads": 2, "dropout": 0.1},
        "training": TRAINING | {"metric": "accuracy"},
    },
}


def write_graph_file(folder: Path) -> None:
    """A graph of thirty nodes whose features tell their classes; one for all runs, which know it by its time."""
    draws = np.random.default_rng(0)
    labels = draws.integers(3, size=30)
    features = (np.eye(3)[labels] + 0.5 * draws.normal(size=(30, 3))).astype(np.float32)
    np.savez(folder / GRAPH, edges=draws.integers(30, size=(2, 90)), features=features, labels=labels)


def train_in_process(kind: str, folder: Path, kill: Kill | None, *, resume: bool, seconds: float) -> int | None:
    """Train into `folder` until the process ends or kills itself; its exit code, None if it outlasts the seconds."""
    process = FORKED.Process(target=_train, args=(kind, folder, kill, resume))
    with ONE_AT_A_TIME:
        process.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with ONE_AT_A_TIME:
            code = process.exitcode
        if code is not None:
            return code
        time.sleep(0.01)
    process.kill()
    return None


def events_file(folder: Path) -> Path:
    """Where a run that is not killed writes how long it took and how many events each place had."""
    return folder.with_name(f"{folder.name}.events.json")


def errors_file(folder: Path) -> Path:
    """What a run wrote to standard error."""
    return folder.with_name(f"{folder.name}.stderr.txt")


def _train(kind: str, folder: Path, kill: Kill | None, resume: bool) -> None:
    with open(errors_file(folder), "wb") as errors:
        os.dup2(errors.fileno(), 2)
    torch.set_num_threads(1)
    metrics._tensorboard = lambda folder, step: None  # type: ignore[assignment]  # its files tell every start apart
    started, events = time.monotonic(), Events(folder, kill)
    events.watch()
    tables = {
        name: table | ({"path": str(folder.parent / GRAPH)} if name == "graph" else {})
        for name, table in KINDS[kind].items()
    }
    train(tables, out=folder, resume=resume, device="cpu", draw=False)
    events.killing = None
    seconds = time.monotonic() - started
    events_file(folder).write_text(json.dumps({"seconds": seconds, "counts": events.counts}), encoding="ascii")


class Events:
    """Counts what a process does to the files of a folder, and kills it at the event asked for."""

    def __init__(self, folder: Path, kill: Kill | None) -> None:
        self.folder, self.killing = os.path.realpath(folder) + os.sep, kill
        self.counts: Counter[str] = Counter()

    def watch(self) -> None:
        """From now on."""
        if self.killing is not None and self.killing.place == ANY_MOMENT:
            timer = threading.Timer(self.killing.seconds, _die)
            timer.daemon = True  # a run that has ended does not wait to be killed
            timer.start()
        sys.addaudithook(self._audited)
        synced, written = os.fsync, metrics.Metrics.write

        def fsync(handle: int) -> None:
            path = os.readlink(f"/proc/self/fd/{handle}")
            self._happens(path, lambda left: os.path.isfile(path) and _cut(path, left))
            synced(handle)

        def write(of: metrics.Metrics, record: metrics.Record) -> None:
            line = json.dumps(record) + "\n"
            self._happens(str(of.path), lambda left: _append(of.path, line[: int(left * len(line))]))
            written(of, record)

        os.fsync = fsync
        metrics.Metrics.write = write  # type: ignore[method-assign]

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A file is opened to be written, renamed, linked or removed; nothing of it has happened yet."""
        if event == "open":
            mode, flags = arguments[1] or "", arguments[2]
            if not (set(mode) & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR)):
                return
        elif event not in ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir"):
            return
        if isinstance(arguments[0], str | os.PathLike):
            self._happens(os.path.realpath(os.fspath(arguments[0])), lambda left: None)

    def _happens(self, path: str, tear: Callable[[float], object]) -> None:
        if not path.startswith(self.folder):
            return
        place = _place(path.removeprefix(self.folder))
        self.counts[place] += 1
        if self.killing is not None and (place, self.counts[place]) == self.killing[:2]:
            tear(self.killing.left)
            _die()


def _place(path: str) -> str:
    first = path.partition(os.sep)[0]
    named = {"data": "preparation", "checkpoints": "checkpoint"}.get(first, "publishing")
    return "metrics" if "metrics.jsonl" in first else named


def _cut(path: str, left: float) -> None:
    os.truncate(path, int(left * os.path.getsize(path)))


def _append(path: Path, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
