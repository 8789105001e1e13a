"""The server with 64 clients, with and without dynamic batching: ids serve-throughput and serve-latency.

    python -m benchmarks.serve [MODEL]       defaults to the model that comes with jumok

Each client sends one text after another over its own connection, and the two servers take turns. Throughput is the
median over the rounds, latency is over all texts; the conditions contain the range of the rounds.
"""

import argparse
import http.client
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

from benchmarks.results import Row, cpu, write
from benchmarks.serving import running_server

SYSTEMS = {"jumok": [], "jumok, batches of one": ["--batch-tokens", "1", "--window", "0"]}


def client(address: str, texts: list[str]) -> list[float]:
    """The seconds of each response."""
    connection, taken = http.client.HTTPConnection(address), []
    for text in texts:
        started = time.perf_counter()
        body = json.dumps({"text": text})
        connection.request("POST", "/api/translate", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        assert answer["translations"][0]["source"] == text
        taken.append(time.perf_counter() - started)
    connection.close()
    return taken


def load(address: str, clients: int, texts: list[str]) -> tuple[float, list[float]]:
    """Texts per second, and the seconds of each text."""
    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        shares = [texts[number::clients] for number in range(clients)]
        taken = [seconds for times in pool.map(lambda share: client(address, share), shares) for seconds in times]
    return len(texts) / (time.perf_counter() - started), taken


def main() -> None:
    from jumok.data import corpus_pairs
    from jumok.model_folder import BUNDLED

    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default=str(BUNDLED))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    texts = [pair.source for pair in corpus_pairs("phrases", given.texts, split="test")]
    rounds: dict[str, list[tuple[float, list[float]]]] = {system: [] for system in SYSTEMS}
    for _ in range(given.rounds):
        for system, options in SYSTEMS.items():
            with running_server(given.model, *options) as server:
                address = server.url.removeprefix("http://")
                load(address, given.clients, texts[: given.clients])  # warm
                rounds[system].append(load(address, given.clients, texts))
                print(f"{system}: {rounds[system][-1][0]:.0f} texts/s", flush=True)
    rows = []
    for system, measured in rounds.items():
        speeds, taken = [speed for speed, _ in measured], [seconds for _, waits in measured for seconds in waits]
        how = (
            f"{Path(given.model).name}, {given.rounds} rounds of {given.texts} unseen values, long and short, "
            f"{os.cpu_count()} cores shared with other work: {min(speeds):.0f} to {max(speeds):.0f} texts/s"
        )
        rows.append(Row(f"serve-throughput/{given.clients} clients", system, round(median(speeds), 1), "texts/s", how))
        for name, share in (("median", 50), ("95% within", 95)):
            wait = 1000 * quantiles(taken, n=100)[share - 1]
            rows.append(Row(f"serve-latency/{name}", system, round(wait, 1), "ms", how))
    write("serve", rows, device=cpu(), packages=("torch", "fastapi", "uvicorn"))


if __name__ == "__main__":
    main()
