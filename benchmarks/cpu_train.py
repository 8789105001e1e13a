"""Training on a CPU, compared with other toolkits: ids cpu-train-rnn, cpu-train-rnn-luong and cpu-train-transformer.

    JUMOK_DATA=path/to/data python -m benchmarks.cpu_train [--models transformer] [--systems jumok Eole]
        [--steps 40] [--threads 1] [--peers opennmt=path/to/python eole=path/to/python joeynmt=path/to/python]

Every system trains the same small models on the same tokens of Multi30k (a joint BPE of 8,000, 64 sentences per batch,
Adam, label smoothing 0.1, dropout 0.1, float32 unless its name says bf16), one after another, each in a process of its
own. The result is target tokens per second of CPU time, which other programs on the same cores affect little; the
system's own log has the tokens. "PyTorch" is a plain loop around torch.nn.Transformer, or around torch.nn.GRUCell,
without a mask of the padding in the source. Hugging Face's Marian is measured if transformers is installed. OpenNMT-py,
Eole and JoeyNMT have environments of their own, whose Python --peers names (benchmarks/cpu_train_peers.py).

Writes cpu_train.json. Rows of systems and models that were not run again stay; if this processor is another one, they
say where they were measured. The CPU time is read from /proc, which only Linux has.
"""

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import cpu_train_peers, results
from benchmarks.results import Row, cpu, installed, version_in, write

IDS = {"rnn-mlp": "cpu-train-rnn", "rnn-luong": "cpu-train-rnn-luong", "transformer": "cpu-train-transformer"}
MARIAN = "Marian in Hugging Face"
PEERS = {"opennmt": "OpenNMT-py", "eole": "Eole", "joeynmt": "JoeyNMT"}
OWN = ("jumok", "jumok, bf16", "PyTorch", MARIAN)
SYSTEMS = (*OWN, *PEERS.values())
VOCABULARY, SENTENCES, EVERY = 8000, 64, 10
SPECIALS = ("<unk>", "<pad>", "<s>", "</s>")
UNK, PAD, BOS, EOS = range(4)
PATIENCE = 1800.0
"""Seconds after which a system is ended."""

RNN = {"kind": "rnn", "cell": "gru", "width": 512, "embedding": 256, "dropout": 0.1}
TRANSFORMER = {
    "kind": "transformer",
    "width": 256,
    "heads": 4,
    "hidden": 1024,
    "layers": 3,
    "dropout": 0.1,
    "attention_dropout": 0.1,
}
MODELS = {
    "rnn-mlp": (RNN, RNN | {"attention": "additive", "readout": 512}),
    "rnn-luong": (RNN, RNN | {"attention": "general", "input_feeding": True}),
    "transformer": (TRANSFORMER, TRANSFORMER | {"tied": "all"}),
}


def write_text(folder: Path) -> None:
    """Write the training and validation text as pieces with spaces between them, and the joint vocabulary."""
    import sentencepiece

    data = Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k"
    text = {
        f"{split}.{language}": gzip.decompress((data / f"{split}.{language}.gz").read_bytes()).decode().splitlines()
        for split in ("train", "val")
        for language in ("en", "de")
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text["train.en"] + text["train.de"]), model_prefix=str(folder / "bpe"),
        model_type="bpe", vocab_size=VOCABULARY, character_coverage=1.0, unk_id=UNK, pad_id=PAD, bos_id=BOS, eos_id=EOS,
        num_threads=1, minloglevel=2,
    )  # fmt: skip
    bpe = sentencepiece.SentencePieceProcessor(model_file=str(folder / "bpe.model"))
    for name, lines in text.items():
        write_lines(folder / name, [" ".join(bpe.encode(line, out_type=str)) for line in lines])
    words = [bpe.id_to_piece(id) for id in range(len(SPECIALS), bpe.get_piece_size())]
    write_lines(folder / "vocabulary", [*SPECIALS, *words])
    write_lines(folder / "counts", [f"{word}\t1" for word in words])


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# In the process of a system


def work(system: str, model: str, steps: int, text: Path, out: Path) -> None:
    """Train, and print the step and the target tokens per second every EVERY steps."""
    if system.startswith("jumok"):
        train_ours(model, steps, text, out, "bf16" if "bf16" in system else "float32")
    else:
        train_plainly(system, model, steps, text)


def train_ours(model: str, steps: int, text: Path, out: Path, precision: str) -> None:
    """What `jumok train` does."""
    from jumok.tasks import make_recipe
    from jumok.tasks.run import train
    from jumok.training.progress import Report

    class Lines(Report):
        def record(self, record: Any) -> None:
            if "validation" not in record:
                print_speed(record["step"], record["tokens_per_second"])

    encoder, decoder = MODELS[model]
    recipe = make_recipe(
        {
            "data": {"source": str(text / "train.en"), "target": str(text / "train.de"), "valid_size": 64},
            "tokenizer": {"kind": "word", "size": VOCABULARY},
            "filter": {"duplicates": False},
            "encoder": encoder,
            "decoder": decoder,
            "batch": {"tokens": 100_000, "sentences": SENTENCES},
            "training": {
                "steps": steps,
                "learning_rate": 0.0005,
                "warmup": 200,
                "log_every": EVERY,
                "metric": "loss",
                "validate_every": 10**6,
                "precision": precision,
            },
        }
    )
    train(recipe, out=out / "run", device="cpu", report=Lines(), draw=False)


def train_plainly(system: str, model: str, steps: int, text: Path) -> None:
    """The loop that a user of PyTorch writes, around layers of PyTorch or Hugging Face's Marian."""
    import torch
    import torch.nn.functional as F

    from jumok.bench import peers

    torch.manual_seed(1)
    if model != "transformer":
        rnn = peers.RnnShape(embedding=256, width=512, vocabulary=VOCABULARY)
        trained: Any = peers.PlainRnn(rnn, "additive" if model == "rnn-mlp" else "general")
    else:
        shape = peers.TransformerShape(layers=3, width=256, vocabulary=VOCABULARY)
        trained = peers.marian(shape) if system == MARIAN else peers.PlainTransformer(shape)
    adam = torch.optim.Adam(trained.train().parameters(), lr=5e-4)
    began, tokens = time.perf_counter(), 0
    for step, rows in zip(range(1, steps + 1), batches(text), strict=False):
        source, target = (
            torch.nn.utils.rnn.pad_sequence([torch.tensor(row[side]) for row in rows], True, PAD) for side in (0, 1)
        )
        target_in = torch.cat([torch.full((len(rows), 1), BOS), target[:, :-1]], 1)
        if system == MARIAN:
            given = {"attention_mask": source.ne(PAD).long(), "decoder_input_ids": target_in, "use_cache": False}
            logits = trained(input_ids=source, **given).logits
        else:
            logits = trained(source, target_in)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1)
        adam.zero_grad()
        loss.backward()
        adam.step()
        tokens += int(target.ne(PAD).sum())
        if step % EVERY == 0:
            print_speed(step, tokens / (time.perf_counter() - began))
            began, tokens = time.perf_counter(), 0


def batches(text: Path) -> Iterator[list[tuple[list[int], list[int]]]]:
    """Batches of ids of sentences of similar length, in random order, without end."""
    ids = {word: id for id, word in enumerate((text / "vocabulary").read_text(encoding="utf-8").splitlines())}
    sides = [(text / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    encoded = [[[ids.get(word, UNK) for word in line.split()] + [EOS] for line in side] for side in sides]
    pairs, draws = list(zip(*encoded, strict=True)), random.Random(1)
    draws.shuffle(pairs)
    pairs.sort(key=lambda pair: len(pair[1]))
    order = list(range(0, len(pairs) - SENTENCES, SENTENCES))
    while True:
        draws.shuffle(order)
        for start in order:
            yield pairs[start : start + SENTENCES]


def print_speed(step: int, rate: float) -> None:
    print(f"step {step} tok/s {rate:.1f}", flush=True)


SPEED = r"^step (\d+) tok/s ([\d.]+)"


# In the process that compares


class Reading(NamedTuple):
    """A line of the log of a system: the step, target tokens per second since the line before, and when it came."""

    step: int
    rate: float
    clock: float
    busy: float
    """Seconds of CPU time of the process so far."""


class Speed(NamedTuple):
    """Target tokens per second of CPU time, and over how many steps."""

    rate: float
    steps: int


def speed(readings: Sequence[Reading], warmup: int) -> Speed | None:
    """The speed after the warm-up; None if the log ends before."""
    first = max((place for place, reading in enumerate(readings) if reading.step <= warmup), default=0)
    measured = readings[first:]
    if len(measured) < 2:
        return None
    tokens = sum(after.rate * (after.clock - before.clock) for before, after in pairwise(measured))
    return Speed(tokens / (measured[-1].busy - measured[0].busy), measured[-1].step - measured[0].step)


def cpu_seconds(process: int) -> float:
    """CPU time of a process so far, in all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(process: int) -> int:
    """The most memory that a process has had, in MiB; 0 once it has ended."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) // 1024 if found else 0


def command_of(system: str, model: str, steps: int, text: Path, out: Path, peers: Mapping[str, str]) -> tuple:
    """The program of a system, and the pattern of a line of its log with the step and the tokens per second."""
    if system in OWN:
        worker = json.dumps({"system": system, "model": model, "steps": steps, "text": str(text), "out": str(out)})
        return [sys.executable, "-W", "ignore", "-m", "benchmarks.cpu_train", "--worker", worker], SPEED
    (toolkit,) = (key for key, name in PEERS.items() if name == system)
    return cpu_train_peers.command(toolkit, peers[toolkit], model, steps, text, out)


def measure(command: Sequence[str], pattern: str, *, steps: int, warmup: int, threads: int) -> tuple[Speed | None, int]:
    """Run a system until its last step; its speed, and its peak of memory in MiB."""
    environment = os.environ | {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    environment |= {"PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    readings, last, memory = [], deque[str](maxlen=5), 0
    try:
        process = subprocess.Popen(command, env=environment, **pipes)
    except OSError as error:
        print(f"failed: {error}", file=sys.stderr, flush=True)
        return None, 0
    limit = threading.Timer(PATIENCE, process.kill)
    limit.start()
    try:
        for line in process.stdout or ():
            last.append(line)
            if found := re.search(pattern, line):
                readings.append(Reading(int(found[1]), float(found[2]), time.perf_counter(), cpu_seconds(process.pid)))
                memory = max(memory, peak_memory(process.pid))
                if readings[-1].step >= steps:
                    break
    finally:
        limit.cancel()
        process.kill()
        process.communicate()
    found_speed = speed(readings, warmup)
    if found_speed is None:
        print(f"failed: {''.join(last)}", file=sys.stderr, flush=True)
    return found_speed, memory


def with_kept(rows: Sequence[Row], device: str) -> list[Row]:
    """These rows, and those of cpu_train.json that none of them replaces."""
    path = results.FOLDER / "cpu_train.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"device": device, "rows": []}
    new = {(row.id, row.system) for row in rows}
    kept = [Row(**row) for row in before["rows"] if (row["id"], row["system"]) not in new]
    if before["device"] != device:
        where = f"; measured on {before['device']}, {before['date']}"
        unmarked = [row for row in kept if "; measured on " not in row.conditions]
        kept = [row._replace(conditions=row.conditions + where) if row in unmarked else row for row in kept]
    return sorted([*rows, *kept], key=lambda row: ([*IDS.values()].index(row.id), SYSTEMS.index(row.system)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10, help="steps that are not measured; a multiple of 10")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", nargs="*", default=[], help="other toolkits and their Python, NAME=PYTHON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        task = json.loads(options.worker)
        work(task["system"], task["model"], task["steps"], Path(task["text"]), Path(task["out"]))
        return
    peers = dict(peer.split("=", 1) for peer in options.peers)
    if unknown := peers.keys() - PEERS.keys():
        parser.error(f"{', '.join(unknown)} is not known; the other toolkits are {', '.join(PEERS)}")
    present = {*OWN, *(PEERS[name] for name in peers)} - ({MARIAN} if not installed("transformers") else set())
    systems = [name for name in SYSTEMS if name in present and name in options.systems]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        text = Path(name)
        write_text(text)
        for number, (model, system) in enumerate((model, system) for model in options.models for system in systems):
            if system == MARIAN and model != "transformer":
                continue
            (out := text / str(number)).mkdir()
            command, pattern = command_of(system, model, options.steps, text, out, peers)
            limits = {"steps": options.steps, "warmup": options.warmup, "threads": options.threads}
            found, memory = measure(command, pattern, **limits)
            measured = "failed" if found is None else f"{found.rate:,.1f} tok/CPU s"
            print(f"{IDS[model]:24}{system:28}{measured}", flush=True)
            if found is not None:
                conditions = (
                    f"{SENTENCES} sentences a batch, {options.threads} thread{'s' * (options.threads > 1)}, "
                    f"{found.steps} steps on shared cores, by processor time, peak {memory} MiB"
                )
                rows.append(Row(IDS[model], system, round(found.rate, 1), "tok/CPU s", conditions))
    if not rows:
        sys.exit("nothing was measured, so cpu_train.json stays as it is")
    others = {PEERS[name]: version_in(python, PEERS[name]) for name, python in peers.items()}
    about = {"device": cpu(), "packages": installed("torch", "transformers"), "others": others}
    print(write("cpu_train", with_kept(rows, cpu()), **about))


if __name__ == "__main__":
    main()
