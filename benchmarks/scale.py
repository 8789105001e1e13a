"""Cost of training on 10⁸ pairs with 8 and 64 GPUs, from the measured speed of one GPU and a model of communication.

    python -m benchmarks.scale gpu        scale_gpu.json: `jumok train` alone and under torchrun, with DDP and FSDP2
    python -m benchmarks.scale prepare    scale_prepare.json: pairs per second that one CPU core prepares
    python -m benchmarks.scale            scale.json: the cost in docs/scale.md, from scale_prepare.json and the speed
                                          of one GPU in train_gpu.json (python -m benchmarks.train_gpu)

The model: every GPU computes its batches at the measured speed, and all GPUs sum their gradients once per update. A
ring all-reduce sends 2 (N - 1) / N · P · 4 bytes through the link of each GPU, where P is the number of weights
(Patarasuk & Yuan 2009), over NVLink within a machine and over InfiniBand between machines. After a step that is a CUDA
graph, the GPUs wait for all of it. Otherwise, as with several batches per update, communication overlaps the backward
pass of the last batch, except for the last bucket.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.results import FOLDER, Row, cpu, write
from jumok.data import Batch, DataConfig, FilterConfig, TokenizerConfig, prepare, tokenise
from jumok.layers.gpu.stack import fused_layers
from jumok.models import (
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.torchrun import is_launched
from jumok.training import TrainingConfig, loop
from jumok.training.checkpoint import publish_weights
from jumok.training.cuda_graph import ready_for
from jumok.training.objective import SEQUENCES
from jumok.training.parallel import BUCKET, Alone, Replicas, Shards
from jumok.training.processes import joined
from jumok.training.progress import LineReport
from jumok.training.state import Origin

PAIRS = 100_000_000
TOKENS = 30
"""Target tokens of a pair."""
NVLINK, INFINIBAND = 450e9, 50e9
"""Bytes a second and GPU, each way: NVLink 4 within a machine, NDR InfiniBand (400 Gbit/s) between machines."""
REACHED = 0.8
"""The share of that which NCCL reaches with large messages."""
BATCH = 400 * 64
"""Target tokens of a batch, as `transformer-train` has them."""
UPDATE = 16 * BATCH
"""Target tokens of an update that is shared by any number of GPUs."""
MACHINE = 8
"""GPUs of a machine."""
BACKWARD = 2 / 3
"""The share of the backward pass in the time of a batch: two products of matrices for one of the forward pass."""

ONE_PROCESS = ("-m", "torch.distributed.run", "--nproc-per-node", "1")
WAYS = ("alone", "ddp", "fsdp")
"""One process under torchrun: as it trains there, with the sums of gradients that several would need, and in parts."""
VOCABULARY = 32_000
RNN, WRITTEN, FUSED = "RNNsearch, CUDA graphs", "Transformer, as written", "Transformer, fused"
ROUNDS = 5
REPEATS = 7


class Step(NamedTuple):
    """One update of a number of GPUs, in seconds."""

    gpus: int
    computing: float
    sending: float
    hidden: float
    """The part of `sending` that a backward pass can hide."""
    tokens: float

    @property
    def seconds(self) -> float:
        """From one update to the next, with nothing hidden."""
        return self.computing + self.sending

    @property
    def rate(self) -> float:
        """Tokens a second of all GPUs together."""
        return self.tokens / self.seconds


def update(gpus: int, batches: float, *, rate: float, weights: float) -> Step:
    """An update of `batches` batches on each GPU, which computes `rate` tokens a second; of 1/4, a smaller batch."""
    link = REACHED * (NVLINK if gpus <= MACHINE else INFINIBAND)
    sending = 2 * (gpus - 1) / gpus * 4 * weights / link
    hidden = min(BACKWARD * min(batches, 1) * BATCH / rate, sending * (1 - min(BUCKET / weights, 1)))
    return Step(gpus, batches * BATCH / rate, sending, hidden, gpus * batches * BATCH)


def rows_of(step: Step, prefix: str, conditions: str) -> list[Row]:
    """The lines of the table for one number of GPUs."""
    hours = PAIRS * TOKENS / step.rate / 3600
    values = {
        "computing": (1000 * step.computing, "ms"),
        "sending": (1000 * step.sending, "ms"),
        "tokens a second": (step.rate / 1e6, "million"),
        "of as many single GPUs": (100 * step.computing / step.seconds, "%"),
        "the same with a backward pass that hides it": (100 * step.computing / (step.seconds - step.hidden), "%"),
        "one pass over 10⁸ pairs": (60 * hours, "min"),
        "GPU hours of it": (step.gpus * hours, "h"),
    }
    system = "1 GPU" if step.gpus == 1 else f"{step.gpus} GPUs"
    return [Row(f"{prefix}/{name}", system, value, unit, conditions) for name, (value, unit) in values.items()]


def measured(*places: str) -> tuple[float, str]:
    """jumok's number of the first of these places, NAME.json:ID, that is there; its id and the device.

    Reads only files of benchmarks that measure: gpu.json, a collection of them, may be older.
    """
    for place in places:
        name, _, goal = place.partition(":")
        if (path := FOLDER / name).exists():
            saved = json.loads(path.read_text(encoding="utf-8"))
            for row in saved["rows"]:
                if (row["id"], row["system"]) == (goal, "jumok") and row["value"]:
                    return row["value"], f"{goal}, {saved['device']}"
    raise SystemExit(f"no row {' or '.join(places)} of jumok in {FOLDER}; run the benchmark that writes it")


def transformer() -> EncoderDecoder:
    """Transformer base, as benchmarks/train_gpu.py trains it."""
    sizes: dict[str, Any] = {"width": 512, "heads": 8, "hidden": 2048, "layers": 6}
    encoder, decoder = TransformerEncoderConfig(**sizes), TransformerDecoderConfig(**sizes)
    return build_model(encoder, decoder, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)


def rnnsearch() -> EncoderDecoder:
    """An encoder-decoder of recurrent layers, whose steps are CUDA graphs."""
    sizes: dict[str, Any] = {"width": 512, "embedding": 256}
    encoder, decoder = RnnEncoderConfig(**sizes), RnnDecoderConfig(**sizes)
    return build_model(encoder, decoder, source_vocabulary=8_000, target_vocabulary=8_000)


def cost_rows() -> tuple[list[Row], str]:
    """The rows of scale.json, computed from what the other files say, and the device of their training step."""
    rate, device = measured(
        "train_gpu.json:transformer-train",
        "scale_gpu.json:scale-gpu/Transformer, fused",
        "scale_gpu.json:scale-gpu/Transformer, as written",
    )
    prepared, where = measured("scale_prepare.json:scale-prepare/pairs a second")
    first, _ = measured("scale_prepare.json:scale-prepare/pairs a second of the first process")
    together = min(tokenise.MOST_PROCESSES * prepared, first)
    with torch.device("meta"):
        weights = sum(weight.numel() for weight in transformer().parameters())
    rows = [
        Row("input/tokens a second of one GPU", "jumok", rate, "tok/s", f"400 × 64 tokens, bf16; {device}"),
        Row("input/weights", "jumok", weights / 1e6, "million", "Transformer base, vocabularies of 32,000"),
        Row("input/pairs prepared a second", "jumok", prepared, "pairs/s", f"one core, processor time; {where}"),
        Row("input/preparing 10⁸ pairs", "jumok", PAIRS / prepared / 60, "min", "once, by one core"),
        Row("input/pairs of the first process", "jumok", first, "pairs/s", f"with others that tokenise; {where}"),
        Row("input/preparing by 16", "jumok", PAIRS / together / 60, "min", "16 cores; computed, not measured"),
    ]
    for gpus in (1, 8, 64):
        step = update(gpus, 1, rate=rate, weights=weights)
        rows += rows_of(step, "per-gpu", f"{BATCH:,} tokens a GPU and update; computed, not measured")
    for gpus in (1, 8, 64):
        step = update(gpus, UPDATE / BATCH / gpus, rate=rate, weights=weights)
        rows += rows_of(step, "per-update", f"{UPDATE:,} tokens an update; computed, not measured")
    return rows, device


def cost() -> Path:
    """Write scale.json."""
    rows, device = cost_rows()
    return write("scale", rows, device=f"computed from {device}")


def write_corpus(folder: Path, pairs: int, *, words: int = 7000, seed: int = 0) -> None:
    """Random words, and the same backwards."""
    draws = random.Random(seed)
    known = ["".join(draws.choices("abdegiklmnoprstu", k=draws.randint(2, 9))) for _ in range(words)]
    with open(folder / "a.txt", "w") as source, open(folder / "b.txt", "w") as target:
        for _ in range(pairs):
            line = draws.choices(known, k=draws.randint(20, 40))
            source.write(" ".join(line) + "\n")
            target.write(" ".join(reversed(line)) + "\n")


class FixedBatches:
    """One batch of random ids, again and again."""

    def __init__(self, sentences: int, length: int, vocabulary: int) -> None:
        draws = torch.Generator().manual_seed(0)
        shape = (sentences, length)
        source, target_in, target_out = (torch.randint(4, vocabulary, shape, generator=draws) for _ in range(3))
        visible = torch.ones_like(source, dtype=torch.bool)
        self._batch = Batch(source, visible, target_in, target_out, visible.clone())

    def steps(self, epoch: int) -> int:
        """As good as endless."""
        return 10**9

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch."""
        return self._batch


def parallel_as(way: str, model: nn.Module, task: Any, kind: str) -> Alone:
    """How a process shares its model, whatever the recipe says and however many there are."""
    return {"alone": Alone, "ddp": Replicas, "fsdp": Shards}[way](model, task)


class Turns(NamedTuple):
    """Models of one kind that train in turns, each shared with other processes in a way of its own."""

    work: str
    steps: dict[str, Callable[[], object]]
    tokens: int

    @classmethod
    def begin(cls, work: str, build: Callable[[], nn.Module], batches: "FixedBatches", ways: Sequence[str],
              stack: ExitStack, *, fast: bool) -> "Turns":  # fmt: skip
        """Build the models, and record or compile their steps."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        config = TrainingConfig(fast=fast, log_every=10**9, warmup=1)
        steps: dict[str, Callable[[], object]] = {}
        for way in ways:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            torch.manual_seed(0)
            model = build().to(device).train()
            loop.parallel_of = partial(parallel_as, way)
            report = LineReport()
            trainer = loop.Trainer(
                model, config, folder, report, None, Origin(), SEQUENCES, publish_weights, resume=False
            )
            reader = loop.ReadAhead(batches, loop.Position(0, 0), 1, items=SEQUENCES.items, ready=ready_for(model))
            stack.enter_context(closing(reader))
            steps[way] = partial(step_of, trainer, reader, fast=fast)
            for _ in range(6):
                steps[way]()
            loss = trainer.recorder.sums()[0] / trainer.recorder.sums()[1]
            print(f"{work}, {way}: loss {loss:.6f}, {len(trainer.graphs.graphs)} graphs", file=sys.stderr, flush=True)
        return cls(work, steps, SEQUENCES.items(batches.batch(0, 0)))

    def rate(self, way: str, steps: int) -> float:
        """Tokens a second of one way, over some steps."""
        wait_for_gpu()
        began = time.perf_counter()
        for _ in range(steps):
            self.steps[way]()
        wait_for_gpu()
        return steps * self.tokens / (time.perf_counter() - began)


def step_of(trainer: loop.Trainer, reader: loop.ReadAhead, *, fast: bool) -> None:
    """One update, with or without fused layers, which `train` chooses for a whole run."""
    with fused_layers(fast):
        trainer.step(reader)


def wait_for_gpu() -> None:
    """Wait until all that was asked of the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def serve(works: Sequence[str]) -> None:
    """One process: a line of standard output for every line of standard input, which names a work, a way and steps."""
    kinds: dict[str, tuple[Callable[[], nn.Module], FixedBatches, bool]] = {
        RNN: (rnnsearch, FixedBatches(128, 32, 8_000), True),
        WRITTEN: (transformer, FixedBatches(400, 64, VOCABULARY), False),
        FUSED: (transformer, FixedBatches(400, 64, VOCABULARY), True),
    }
    ways = WAYS if is_launched() else WAYS[:1]
    with joined("auto"), ExitStack() as stack:
        turns = {work: Turns.begin(work, *kinds[work][:2], ways, stack, fast=kinds[work][2]) for work in works}
        print("{}", flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps({"rate": turns[asked["work"]].rate(asked["way"], asked["steps"])}), flush=True)


def measure_gpu(works: Sequence[str]) -> Path:
    """Write scale_gpu.json: a process without torchrun and one under it, in all ways, take turns."""
    command = [sys.executable, "-W", "ignore"]
    launches = {"jumok": (), "torchrun": ONE_PROCESS}
    running = {
        name: subprocess.Popen(
            [*command, *launch, "-m", "benchmarks.scale", "serve", *works],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, launch in launches.items()
    }
    ready = [name for name, process in running.items() if answer(process) is not None]
    turns = [(name, way) for name in ready for way in (WAYS if launches[name] else WAYS[:1])]
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for work in works:
            for name, way in turns:
                asked = {"work": work, "way": way, "steps": 40 if work == RNN else 10}
                running[name].stdin.write(json.dumps(asked) + "\n")  # type: ignore[union-attr]
                running[name].stdin.flush()  # type: ignore[union-attr]
                if reply := answer(running[name]):
                    rates.setdefault((work, name + ("" if way == "alone" else f", {way}")), []).append(reply["rate"])
    for process in running.values():
        process.communicate()
    conditions = f"one process, bf16, random batches of one shape; median of {ROUNDS} turns"
    rows = [
        Row(f"scale-gpu/{work}", system, round(statistics.median(of_turns)), "tok/s", conditions)
        for (work, system), of_turns in rates.items()
    ]
    for row in rows:
        print(row.id, row.system, f"{row.value:,} tok/s", flush=True)
    return write("scale_gpu", rows, device=torch.cuda.get_device_name() if torch.cuda.is_available() else cpu())


def answer(process: "subprocess.Popen[str]") -> dict[str, float] | None:
    """The next line of JSON of a process; None if it has ended."""
    for line in process.stdout or ():
        if line.startswith("{"):
            answered: dict[str, float] = json.loads(line)
            return answered
    return None


def measure_preparation(pairs: int = 40_000) -> Path:
    """Write scale_prepare.json: how many pairs are prepared in a second of processor time.

    Alone, a process reads, normalises, tokenises, filters and writes all pairs. With others, it leaves normalising and
    tokenising to them, and its own time bounds the speed of any number of cores.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, pairs)
        data = DataConfig(source=str(folder / "a.txt"), target=str(folder / "b.txt"))
        config = TokenizerConfig(size=6000, sentences=5000)
        prepare(folder / "data", data, config)  # which also learns the vocabulary
        limits = iter(range(200, 300))  # another one every time, so that all is tokenised again
        rates: dict[str, list[float]] = {"pairs a second": [], "pairs a second of the first process": []}
        for _ in range(REPEATS):
            for name, alone in zip(rates, (pairs, 1), strict=True):
                tokenise.ALONE, tokenise.process_count = alone, lambda: 2
                began = time.process_time()
                prepare(folder / "data", data, config, FilterConfig(max_length=next(limits)))
                rates[name].append(pairs / (time.process_time() - began))
    text = f"{pairs:,} pairs of 20 to 40 words, unigram vocabulary of 6,000; processor time"
    rows = [
        Row(
            f"scale-prepare/{name}",
            "jumok",
            round(max(counts)),
            "pairs/s",
            f"{text}, best of {REPEATS} runs from {min(counts):,.0f}",
        )
        for name, counts in rates.items()
    ]
    return write("scale_prepare", rows, device=cpu())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["cost", "gpu", "prepare", "serve"], default="cost")
    parser.add_argument("works", nargs="*", default=[RNN, WRITTEN, FUSED], help="what to measure on a GPU")
    given = parser.parse_args()
    if given.what == "serve":
        serve(given.works)
    elif given.what == "gpu":
        print(measure_gpu(given.works))
    else:
        print(measure_preparation() if given.what == "prepare" else cost())
