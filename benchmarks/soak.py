"""Mixed load on a local server, then SIGTERM under load: ids soak-lost, soak-mixed, soak-p50, soak-p99.

    python -m benchmarks.soak [--seconds 75] [--clients 32] [MODEL]

Starts `jumok serve` as users do. Clients send short and long texts and request streams, attention maps, alignments and
beam search trees; some disconnect early, and bursts exceed the capacity of the queue. Every response is compared with
the offline output of the model. A lost request has no response; a mixed one has the response to another request.
"""

import argparse
import http.client
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from statistics import quantiles
from typing import Any, NamedTuple

from benchmarks.results import Row, cpu, write
from benchmarks.serving import PATIENCE, Server, running_server

JSON = {"Content-Type": "application/json"}
BEAMS = (1, 3, 5)
REFUSED = (413, 429, 503)
IN_TIME = 1.0
"""Seconds before SIGTERM: requests sent earlier were accepted and must be answered."""
BURST, EVERY = 48, 10.0
AFTER = 2.0
"""Seconds that clients continue after SIGTERM."""


class Question(NamedTuple):
    """A text and its translations offline, by beam size."""

    text: str
    translations: dict[int, str]


@dataclass
class Tally:
    """The outcomes of the requests."""

    outcomes: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    """Seconds of the answered requests of one to four short texts."""
    notes: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: str, note: str = "", seconds: float | None = None) -> None:
        with self.lock:
            self.outcomes[outcome] += 1
            if note and len(self.notes) < 20:
                self.notes.append(f"{outcome}: {note[:300]}")
            if seconds is not None:
                self.waits.append(seconds)


def questions(model: str, short: int, long: int) -> tuple[list[Question], list[Question]]:
    """Test texts, short and long, with their translations."""
    from jumok.data import corpus_pairs
    from jumok.tasks import TRANSLATION

    translator = TRANSLATION.load(model, device="cpu")
    texts = list(dict.fromkeys(pair.source for pair in corpus_pairs("phrases", short + 20 * long, split="test")))
    pages = ["; ".join(texts[short + 15 * number :][:15]) for number in range(long)]

    def answered(chosen: list[str]) -> list[Question]:
        by_beam = {beam: translator.translate(chosen, beam=beam) for beam in BEAMS}
        return [Question(text, {b: by_beam[b][n].text for b in BEAMS}) for n, text in enumerate(chosen)]

    return answered(texts[:short]), answered(pages)


class Client:
    """Sends one request after another, each over its own connection."""

    def __init__(self, server: Server, tally: Tally, short: list[Question], long: list[Question], seed: int) -> None:
        self.server, self.tally, self.short, self.long, self.draws = server, tally, short, long, Random(seed)

    def work(self, until: Callable[[], bool]) -> None:
        """Send random requests until the time is over."""
        kinds = {
            self.few: 68,
            self.page: 7,
            self.stream: 7,
            self.tree: 3,
            self.attention: 4,
            self.align: 3,
            self.information: 3,
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
        """A streamed translation."""
        asked = self.draws.choice(self.short)
        last = re.compile(r"event: done\ndata: (.*)")
        self._ask(
            "stream",
            {"text": asked.text, "beam": 3},
            lambda body: json.loads(last.search(body)[1])["text"] == asked.translations[3],  # type: ignore[index]
        )

    def tree(self) -> None:
        """The search tree."""
        asked = self.draws.choice(self.short)
        self._ask(
            "beam", {"text": asked.text, "beam": 3}, lambda body: json.loads(body)["text"] == asked.translations[3]
        )

    def attention(self) -> None:
        """An attention map."""
        asked = self.draws.choice(self.short)
        self._ask(
            "attention", {"text": asked.text, "beam": 5}, lambda body: json.loads(body)["text"] == asked.translations[5]
        )

    def align(self) -> None:
        """Links between words."""
        asked = self.draws.choice(self.short)
        pair = {"source": asked.text, "target": asked.translations[3]}
        self._ask("align", pair, lambda body: json.loads(body)["target"] == asked.translations[3].split())

    def information(self) -> None:
        """Information about the server."""
        self._ask(self.draws.choice(["/health", "/metrics", "/api/models", "/"]), None, lambda body: bool(body))

    def hang_up(self) -> None:
        """Disconnect in the middle of the request, or while waiting for the response."""
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
            time.sleep(0.1)  # too many connections, or the server has stopped
        finally:
            connection.close()
        self.tally.add("hung up")

    def _translate(self, asked: list[Question], *, timed: bool = False) -> None:
        beam = self.draws.choice(BEAMS)

        def right(body: str) -> bool:
            found = [(one["source"], one["text"]) for one in json.loads(body)["translations"]]
            return found == [(one.text, one.translations[beam]) for one in asked]

        self._ask("translate", {"text": [one.text for one in asked], "beam": beam}, right, timed=timed)

    def _ask(self, path: str, body: Any, right: Callable[[str], bool], *, timed: bool = False) -> None:
        """Send a request, wait, and check the response."""
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
            late = before > self.server.stopped - IN_TIME
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


class SoakResult(NamedTuple):
    """The measurements of a run."""

    tally: Tally
    exit_code: int
    memory_growth: float
    """Megabytes from a fifth of the time to its end."""
    log_bytes: int


def soak(
    model: str, *, seconds: float, clients: int, burst: int = BURST, short: int = 120, long: int = 6
) -> SoakResult:
    """Send requests for so many seconds, then stop the server while the clients continue."""
    asked, pages = questions(model, short, long)
    tally, over = Tally(), threading.Event()
    with running_server(model) as server:
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
                growth = server.memory() - before
                threading.Timer(AFTER, over.set).start()
                code = server.stop()
            finally:
                over.set()
            for one in (*busy, *bursts):
                one.result(PATIENCE)
        return SoakResult(tally, code, growth, server.log.stat().st_size)


def rows(result: SoakResult, clients: int, seconds: float) -> Iterator[Row]:
    """The rows of the results file."""
    outcomes = result.tally.outcomes
    how = (
        f"{clients} clients for {seconds:g} s, {BURST} more with 64 texts each every {EVERY:g} s, SIGTERM under load; "
        f"{outcomes['answered']} answered, {outcomes['refused']} refused, {outcomes['too late']} too late, "
        f"{outcomes['hung up']} hung up; {os.cpu_count()} cores shared with other work"
    )
    for name in ("answered", "lost", "mixed", "refused", "too late"):
        yield Row(f"soak-{name.replace(' ', '-')}", "jumok", outcomes[name], "requests", how)
    waits = quantiles(result.tally.waits, n=100)
    for name, percent in (("p50", 50), ("p99", 99)):
        yield Row(f"soak-{name}", "jumok", round(1000 * waits[percent - 1], 1), "ms", f"of 1 to 4 short texts; {how}")
    yield Row("soak-memory", "jumok", round(result.memory_growth, 1), "MB", how)
    yield Row("soak-log", "jumok", result.log_bytes, "bytes", how)
    yield Row("soak-exit", "jumok", result.exit_code, "", how)


def main() -> None:
    from jumok.model_folder import BUNDLED

    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default=str(BUNDLED))
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--clients", type=int, default=32)
    given = parser.parse_args()
    result = soak(given.model, seconds=given.seconds, clients=given.clients)
    measured = list(rows(result, given.clients, given.seconds))
    print(
        *(f"{row.id}: {row.value} {row.unit}" for row in measured), *result.tally.notes, result.tally.outcomes, sep="\n"
    )
    write("soak", measured, device=cpu(), packages=("torch", "fastapi", "uvicorn"))


if __name__ == "__main__":
    main()
