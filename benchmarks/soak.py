"""Mixed load on a server of this machine, then SIGTERM under load: ids soak-lost, soak-mixed, soak-p50, soak-p99.

    python -m benchmarks.soak [--seconds 75] [--clients 32] [MODEL]

`jumok serve` runs as users start it. Clients send short and long texts and ask for streams, maps, alignments and trees;
some hang up before the end of their request or of its answer, and bursts ask for more than there is room for. Every
answer is compared with what the model says offline. A lost request has no answer; a mixed one has that to another.
"""

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any, NamedTuple

from benchmarks.results import Row, cpu, write

JSON = {"Content-Type": "application/json"}
BEAMS = (1, 3, 5)
REFUSED = (413, 429, 503)
PATIENCE = 90.0
"""Seconds a client waits; a server of 30 seconds a request answers long before."""
IN_TIME = 1.0
"""Seconds before SIGTERM: what was sent earlier has been accepted, and must be answered."""
BURST, EVERY = 48, 10.0
AFTER = 2.0
"""Seconds that clients go on after SIGTERM."""


class Question(NamedTuple):
    """A text, and what the model says of it offline, by the width of the beam."""

    text: str
    said: dict[int, str]


@dataclass
class Tally:
    """What became of the requests."""

    outcomes: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    """Seconds of the requests of one to four short texts that were answered."""
    notes: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: str, note: str = "", seconds: float | None = None) -> None:
        with self.lock:
            self.outcomes[outcome] += 1
            if note and len(self.notes) < 20:
                self.notes.append(f"{outcome}: {note[:300]}")
            if seconds is not None:
                self.waits.append(seconds)


@dataclass
class Server:
    """A process of `jumok serve`, and when it was told to end."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    ended: float = float("inf")

    def memory(self) -> float:
        """Megabytes it holds."""
        status = Path(f"/proc/{self.process.pid}/status")
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(found[1]) / 1024 if found else float("nan")

    def end(self) -> int:
        """Its exit code."""
        self.ended = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def started(model: str) -> Iterator[Server]:
    """At a free port of 127.0.0.1, its messages in a file."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "jumok.cli", "serve", model, "--port", "0", "--device", "cpu"]
        with log.open("wb") as messages:
            process = subprocess.Popen(command, stderr=messages)
        try:
            deadline = time.monotonic() + PATIENCE
            while not (found := re.search(r"at http://127\.0\.0\.1:(\d+)", log.read_text())):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: {log.read_text().strip()}")
                time.sleep(0.1)
            yield Server(process, int(found[1]), log)
        finally:
            process.kill()
            process.wait()


def questions(model: str, short: int, long: int) -> tuple[list[Question], list[Question]]:
    """Texts the model never saw, alone and many in one, with their translations."""
    from jumok.data import corpus_pairs
    from jumok.tasks.translator import Translator

    translator = Translator.load(model, device="cpu")
    texts = list(dict.fromkeys(pair.source for pair in corpus_pairs("phrases", short + 20 * long, split="test")))
    pages = ["; ".join(texts[short + 15 * number :][:15]) for number in range(long)]

    def answered(chosen: list[str]) -> list[Question]:
        by_beam = {beam: translator.translate(chosen, beam=beam) for beam in BEAMS}
        return [Question(text, {b: by_beam[b][n].text for b in BEAMS}) for n, text in enumerate(chosen)]

    return answered(texts[:short]), answered(pages)


class Client:
    """Asks one thing after another, each over a connection of its own."""

    def __init__(self, server: Server, tally: Tally, short: list[Question], long: list[Question], seed: int) -> None:
        self.server, self.tally, self.short, self.long, self.draws = server, tally, short, long, Random(seed)

    def work(self, until: Callable[[], bool]) -> None:
        """Until the time is over."""
        kinds = {
            self.few: 68,
            self.page: 7,
            self.stream: 7,
            self.tree: 3,
            self.attention: 4,
            self.align: 3,
            self.itself: 3,
            self.hang_up: 5,
        }
        while not until():
            self.draws.choices(list(kinds), list(kinds.values()))[0]()

    def few(self) -> None:
        """One to four short texts."""
        self._translate(self.draws.sample(self.short, self.draws.randint(1, 4)), timed=True)

    def page(self) -> None:
        """A long text, which is translated in parts."""
        self._translate([self.draws.choice(self.long)])

    def burst(self) -> None:
        """As many texts as a request may have, some of them long."""
        self._translate(self.draws.choices(self.short, k=60) + self.draws.choices(self.long, k=4))

    def stream(self) -> None:
        """A translation while it grows."""
        asked = self.draws.choice(self.short)
        last = re.compile(r"event: done\ndata: (.*)")
        self._ask(
            "stream",
            {"text": asked.text, "beam": 3},
            lambda body: json.loads(last.search(body)[1])["text"] == asked.said[3],  # type: ignore[index]
        )

    def tree(self) -> None:
        """The beam as a tree."""
        asked = self.draws.choice(self.short)
        self._ask("beam", {"text": asked.text, "beam": 3}, lambda body: json.loads(body)["text"] == asked.said[3])

    def attention(self) -> None:
        """A map."""
        asked = self.draws.choice(self.short)
        self._ask("attention", {"text": asked.text, "beam": 5}, lambda body: json.loads(body)["text"] == asked.said[5])

    def align(self) -> None:
        """Links between words."""
        asked = self.draws.choice(self.short)
        pair = {"source": asked.text, "target": asked.said[3]}
        self._ask("align", pair, lambda body: json.loads(body)["target"] == asked.said[3].split())

    def itself(self) -> None:
        """What the server says of itself."""
        self._ask(self.draws.choice(["/health", "/metrics", "/api/models", "/"]), None, lambda body: bool(body))

    def hang_up(self) -> None:
        """In the middle of the request, or of waiting for the answer."""
        body = json.dumps({"text": [one.text for one in self.draws.choices(self.short, k=8)]})
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        try:
            connection.putrequest("POST", "/api/translate")
            for name, value in {**JSON, "Content-Length": str(len(body.encode()))}.items():
                connection.putheader(name, value)
            connection.endheaders()
            connection.send(body.encode()[: self.draws.choice([10, len(body.encode())])])
            time.sleep(self.draws.random() / 5)
        except OSError:
            time.sleep(0.1)  # full, or at its end
        finally:
            connection.close()
        self.tally.add("hung up")

    def _translate(self, asked: list[Question], *, timed: bool = False) -> None:
        beam = self.draws.choice(BEAMS)

        def right(body: str) -> bool:
            found = [(one["source"], one["text"]) for one in json.loads(body)["translations"]]
            return found == [(one.text, one.said[beam]) for one in asked]

        self._ask("translate", {"text": [one.text for one in asked], "beam": beam}, right, timed=timed)

    def _ask(self, path: str, body: Any, right: Callable[[str], bool], *, timed: bool = False) -> None:
        """Send, wait, and judge what came back."""
        before = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        try:
            if body is None:
                connection.request("GET", path)
            else:
                connection.request("POST", f"/api/{path}", json.dumps(body), JSON)
            answer = connection.getresponse()
            status, said = answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            late = before > self.server.ended - IN_TIME
            time.sleep(0.1)
            return self.tally.add("after the end") if late else self.tally.add("lost", f"{path}: {error!r}")
        finally:
            connection.close()
        self._judge(path, status, said, right, time.monotonic() - before if timed else None)

    def _judge(self, path: str, status: int, said: str, right: Callable[[str], bool], seconds: float | None) -> None:
        if status in REFUSED:
            self.tally.add("refused")
            time.sleep(self.draws.random())
        elif status == 504:
            self.tally.add("too late")
        elif status != 200:
            self.tally.add("lost", f"{path}: {status} {said}")
        elif right(said):
            self.tally.add("answered", seconds=seconds)
        else:
            self.tally.add("mixed", f"{path}: {said}")


class Soaked(NamedTuple):
    """What was measured."""

    tally: Tally
    exit_code: int
    grown: float
    """Megabytes of memory between a fifth of the time and its end."""
    log_bytes: int


def soak(model: str, *, seconds: float, clients: int, burst: int = BURST, short: int = 120, long: int = 6) -> Soaked:
    """Ask for so many seconds, then end the server while the clients go on."""
    asked, pages = questions(model, short, long)
    tally, over = Tally(), threading.Event()
    with started(model) as server:
        workers = [Client(server, tally, asked, pages, seed) for seed in range(clients + burst)]
        with ThreadPoolExecutor(clients + burst) as pool:
            try:
                busy = [pool.submit(worker.work, over.is_set) for worker in workers[:clients]]
                time.sleep(seconds / 5)
                before = server.memory()
                end = time.monotonic() + 0.8 * seconds
                while time.monotonic() < end:
                    bursts = [pool.submit(worker.burst) for worker in workers[clients:]]
                    time.sleep(max(0.0, min(EVERY, end - time.monotonic())))
                grown = server.memory() - before
                threading.Timer(AFTER, over.set).start()
                code = server.end()
            finally:
                over.set()
            for one in (*busy, *bursts):
                one.result(PATIENCE)
        return Soaked(tally, code, grown, server.log.stat().st_size)


def rows(found: Soaked, clients: int, seconds: float) -> Iterator[Row]:
    """As they are written."""
    outcomes = found.tally.outcomes
    how = (
        f"{clients} clients for {seconds:g} s, {BURST} more with 64 texts each every {EVERY:g} s, SIGTERM under load; "
        f"{outcomes['answered']} answered, {outcomes['refused']} refused, {outcomes['too late']} too late, "
        f"{outcomes['hung up']} hung up; {os.cpu_count()} cores shared with other work"
    )
    for name in ("answered", "lost", "mixed", "refused", "too late"):
        yield Row(f"soak-{name.replace(' ', '-')}", "jumok", outcomes[name], "requests", how)
    waits = quantiles(found.tally.waits, n=100)
    for name, percent in (("p50", 50), ("p99", 99)):
        yield Row(f"soak-{name}", "jumok", round(1000 * waits[percent - 1], 1), "ms", f"of 1 to 4 short texts; {how}")
    yield Row("soak-memory", "jumok", round(found.grown, 1), "MB more", how)
    yield Row("soak-log", "jumok", found.log_bytes, "bytes", how)
    yield Row("soak-exit", "jumok", found.exit_code, "exit code", how)


def main() -> None:
    from jumok.model_folder import BUNDLED

    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default=str(BUNDLED))
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--clients", type=int, default=32)
    given = parser.parse_args()
    found = soak(given.model, seconds=given.seconds, clients=given.clients)
    measured = list(rows(found, given.clients, given.seconds))
    print(
        *(f"{row.id}: {row.value} {row.unit}" for row in measured), *found.tally.notes, found.tally.outcomes, sep="\n"
    )
    write("soak", measured, device=cpu(), packages=("torch", "fastapi", "uvicorn"))


if __name__ == "__main__":
    main()
