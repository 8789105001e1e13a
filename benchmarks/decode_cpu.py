"""Decoding per second of CPU time, compared with other toolkits.

    JUMOK_DATA=path/to/data python -m benchmarks.decode_cpu TRANSFORMER [--rounds 2] [--shapes base]
        [--peers opennmt=path/to/python eole=path/to/python joeynmt=path/to/python]

The models, sentences and systems of benchmarks.decoding, each with one thread. Instead of the clock, this counts the
CPU time of each process, which other programs on the same cores affect little. TRANSFORMER is the folder of a model
trained on Multi30k en-de. Only its vocabulary and its training text count, so a few steps of training are enough:

    jumok train multi30k-en-de-transformer --set training.steps=10 --set training.warmup=5 --out TRANSFORMER

Every output is forced to 30 tokens. The systems take turns, and the best round of each counts. Slow systems translate
fewer sentences. Writes decode_cpu.json after each shape.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.decoding import BATCH, BEAMS, LENGTH, PEERS, SLOW, SYSTEMS, WORKERS, PeerWorker, Task, Worker
from benchmarks.results import Row, cpu, installed, version_in, write

SENTENCES = 2 * BATCH
FEWER = dict.fromkeys(SLOW, BATCH) | {"JoeyNMT": BATCH // 2}
"""Slow systems translate the first of the sentences."""


def started(shape: str, model: str, peers: Mapping[str, str], folder: Path) -> Iterator[Worker]:
    """A process for each system; one thread makes WORKERS the same as CTranslate2's defaults."""
    for system in (*SYSTEMS[shape], *peers):
        task = Task(system, shape, 1, model, FEWER.get(system, SENTENCES))
        if system in peers:
            yield PeerWorker(task, peers[system], folder / f"{system}-{shape}")
        elif system != WORKERS:
            yield Worker(task)


def speed(shape: str, model: str, rounds: int, peers: Mapping[str, str], folder: Path) -> Iterator[Row]:
    """Tokens per second of CPU time of batches, and CPU time of a sentence alone."""
    workers = list(started(shape, model, peers, folder))
    about = f"random weights, {LENGTH} tokens out, one thread on shared cores, by processor time; best of {rounds}"
    for what in ("many", "one"):
        for beam in BEAMS:
            runs = [[worker.run(f"{what} {beam}")["busy"] for worker in workers] for _ in range(rounds)]
            for worker, own in zip(workers, zip(*runs, strict=True), strict=True):
                system, sentences = worker.task.system, worker.task.sentences
                if what == "many":
                    rate = round(sentences * LENGTH / min(own), 1)
                    conditions = f"{sentences} sentences of Multi30k, {about}"
                    yield Row(f"many-{shape}-beam-{beam}", system, rate, "tok/CPU s", conditions)
                else:
                    conditions = f"median of 4 sentences one by one, {about}"
                    yield Row(f"one-{shape}-beam-{beam}", system, round(1000 * min(own), 1), "ms", conditions)
    for worker in workers:
        worker.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a model trained on Multi30k en-de")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", choices=[*SYSTEMS], default=[*SYSTEMS])
    parser.add_argument("--peers", nargs="*", default=[], help="other toolkits and their Python, NAME=PYTHON")
    options = parser.parse_args()
    peers = {PEERS[name]: python for name, _, python in (peer.partition("=") for peer in options.peers)}
    rows: list[Row] = []
    packages = installed("torch", "ctranslate2", "transformers")
    others = {name: version_in(python, name) for name, python in peers.items()}
    with tempfile.TemporaryDirectory() as folder:
        for shape in options.shapes:
            for row in speed(shape, options.model, options.rounds, peers, Path(folder)):
                print(f"{row.id:28}{row.system:44}{row.value:>10} {row.unit}", flush=True)
                rows.append(row)
            print(write("decode_cpu", rows, device=cpu(), packages=packages, others=others))


if __name__ == "__main__":
    main()
