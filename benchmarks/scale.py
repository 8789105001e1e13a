"""What training on 10⁸ pairs costs on 8 and on 64 GPUs: measured speed of one GPU and a model of what they send.

    python -m benchmarks.scale gpu        scale_gpu.json: `jumok train` alone and under torchrun, with DDP and FSDP2
    python -m benchmarks.scale prepare    scale_prepare.json: pairs prepared a second by one CPU core
    python -m benchmarks.scale            scale.json: the tables of docs/scale.md, from measured numbers

The model: every GPU computes its batches at the measured speed, and all sum their gradients once an update. A ring
sends 2 (N - 1) / N · P · 4 bytes through each GPU's link, P being the number of weights (Patarasuk & Yuan 2009), over
NVLink within a machine and over InfiniBand between machines. Gradients travel during the backward pass of the last
batch, except for the last bucket; what takes longer than that pass is waited for.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.results import FOLDER, Row, cpu, write
from jumok.data import DataConfig, FilterConfig, TokenizerConfig, prepare
from jumok.models.build import build_model
from jumok.models.transformer.decoder import TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoderConfig
from jumok.training.parallel import BUCKET

PAIRS = 100_000_000
TOKENS = 30
"""Target tokens of a pair."""
BATCH = 400 * 64
"""Target tokens of a batch: that of `transformer-train`."""
NVLINK, INFINIBAND = 450e9, 50e9
"""Bytes a second and GPU, each way: NVLink 4 within a machine, NDR InfiniBand (400 Gbit/s) between machines."""
REACHED = 0.8
"""The share of that which NCCL reaches with large messages."""
MACHINE = 8
"""GPUs of a machine."""
BACKWARD = 2 / 3
"""The share of the backward pass in the time of a batch: two products of matrices for one of the forward pass."""

LAYERS = {"width": 512, "layers": 6, "heads": 8, "hidden": 2048}
RECIPE = """
[data]
source = "a.txt"
target = "b.txt"
valid_size = 50
[tokenizer]
kind = "word"
size = 8000
[encoder]
kind = "transformer"
width = 512
layers = 6
heads = 8
[decoder]
kind = "transformer"
width = 512
layers = 6
heads = 8
[batch]
tokens = 16000
[training]
steps = 160
validate_every = 160
log_every = 10
metric = "loss"
"""
ONE_PROCESS = ("torch.distributed.run", "--nproc-per-node", "1", "-m")


class Step(NamedTuple):
    """One update of a number of GPUs, in seconds."""

    gpus: int
    computing: float
    sending: float
    waiting: float
    """The part of `sending` that no backward pass hides."""
    tokens: int

    @property
    def seconds(self) -> float:
        """From one update to the next."""
        return self.computing + self.waiting

    @property
    def rate(self) -> float:
        """Tokens a second of all GPUs together."""
        return self.tokens / self.seconds


def update(gpus: int, batches: int, *, rate: float, weights: int) -> Step:
    """An update of `batches` batches on each GPU, of which one computes `rate` tokens a second."""
    link = REACHED * (NVLINK if gpus <= MACHINE else INFINIBAND)
    sending = 2 * (gpus - 1) / gpus * 4 * weights / link
    hidden = min(BACKWARD * BATCH / rate, sending * (1 - min(BUCKET / weights, 1)))
    return Step(gpus, batches * BATCH / rate, sending, sending - hidden, gpus * batches * BATCH)


def rows_of(step: Step, prefix: str, conditions: str) -> list[Row]:
    """The lines of the table for one number of GPUs."""
    hours = PAIRS * TOKENS / step.rate / 3600
    alone = step.tokens / step.gpus / step.computing
    found = {
        "computing": (1000 * step.computing, "ms"),
        "sending": (1000 * step.sending, "ms"),
        "of it waited for": (1000 * step.waiting, "ms"),
        "tokens a second": (step.rate / 1e6, "million"),
        "of as many single GPUs": (100 * step.rate / (step.gpus * alone), "%"),
        "one pass over 10⁸ pairs": (hours, "h"),
        "GPU hours of it": (step.gpus * hours, "h"),
    }
    system = "1 GPU" if step.gpus == 1 else f"{step.gpus} GPUs"
    return [Row(f"{prefix}/{name}", system, value, unit, conditions) for name, (value, unit) in found.items()]


def weights_of_base() -> int:
    """The weights of a Transformer base with a shared vocabulary of 32,000."""
    with torch.device("meta"):
        model = build_model(
            TransformerEncoderConfig(**LAYERS),
            TransformerDecoderConfig(**LAYERS),
            source_vocabulary=32_000,
            target_vocabulary=32_000,
            shared_vocabulary=True,
        )
    return sum(weight.numel() for weight in model.parameters())


def measured(goal: str, system: str = "jumok") -> tuple[float, str]:
    """A number of results/*.json, and the device it was measured on."""
    for path in sorted(FOLDER.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        for row in found["rows"]:
            if row["id"] == goal and row["system"] == system:
                return row["value"], found["device"]
    raise SystemExit(f"no row {goal} of {system} in {FOLDER}; run the benchmark that writes it")


def cost() -> Path:
    """Write scale.json."""
    weights, (prepared, where) = weights_of_base(), measured("scale-prepare/pairs a second")
    rate, device = measured("transformer-train")
    rows = [
        Row("input/tokens a second of one GPU", "jumok", rate, "tok/s", f"transformer-train, {device}"),
        Row("input/weights", "jumok", weights / 1e6, "million", "Transformer base, shared vocabulary of 32,000"),
        Row("input/pairs prepared a second", "jumok", prepared, "pairs/s", f"one core, {where}"),
        Row("input/preparing 10⁸ pairs", "jumok", PAIRS / prepared / 3600, "h", "once, by one process"),
    ]
    for batches, prefix in ((1, "one-batch"), (4, "four-batches")):
        for gpus in (1, 8, 64):
            step = update(gpus, batches, rate=rate, weights=weights)
            conditions = f"{batches} batches of {BATCH:,} tokens a GPU and update; computed, not measured"
            rows += rows_of(step, prefix, conditions)
    return write("scale", rows, device=f"computed from one {device}")


def write_corpus(folder: Path, pairs: int, *, words: int = 7000, seed: int = 0) -> None:
    """Random words, and the same backwards."""
    draws = random.Random(seed)
    known = ["".join(draws.choices("abdegiklmnoprstu", k=draws.randint(2, 9))) for _ in range(words)]
    with open(folder / "a.txt", "w") as source, open(folder / "b.txt", "w") as target:
        for _ in range(pairs):
            line = draws.choices(known, k=draws.randint(20, 40))
            source.write(" ".join(line) + "\n")
            target.write(" ".join(reversed(line)) + "\n")


def measure_gpu() -> Path:
    """Write scale_gpu.json: the same run alone and under torchrun, in turn, twice each; the median of late lines."""
    systems = {"jumok": (), "torchrun, ddp": ONE_PROCESS, "torchrun, fsdp": ONE_PROCESS}
    rates: dict[str, list[float]] = {system: [] for system in systems}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, 60_000)
        (folder / "r.toml").write_text(RECIPE)
        for number in range(2):
            for system, launch in systems.items():
                parallel = f'training.parallel="{system[-4:] if "fsdp" in system else "ddp"}"'
                command = ["jumok", "train", "r.toml", "--out", f"{system} {number}", "--set", parallel]
                subprocess.run([sys.executable, "-m", *launch, *command], cwd=folder, check=True)
                lines = (folder / f"{system} {number}/metrics.jsonl").read_text().splitlines()
                found = [json.loads(line) for line in lines]
                rates[system] += [one["tokens_per_second"] for one in found if one.get("loss") and one["step"] > 60]
    conditions = "`jumok train`, 6 + 6 layers of 512, batches of 16,000 tokens, median after step 60 of two runs each"
    rows = [
        Row("scale-gpu/tokens a second", system, round(statistics.median(found)), "tok/s", conditions)
        for system, found in rates.items()
    ]
    return write("scale_gpu", rows, device=torch.cuda.get_device_name())


def measure_preparation(pairs: int = 20_000) -> Path:
    """Write scale_prepare.json: how many pairs are normalised, tokenised and filtered a second."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, pairs)
        data = DataConfig(source=str(folder / "a.txt"), target=str(folder / "b.txt"))
        config = TokenizerConfig(size=6000, sentences=5000)
        prepare(folder / "data", data, config)  # which also learns the vocabulary
        began = time.perf_counter()
        prepare(folder / "data", data, config, FilterConfig(max_length=210))
        seconds = time.perf_counter() - began
    conditions = f"{pairs:,} pairs of 20 to 40 words, unigram vocabulary of 6,000"
    rows = [Row("scale-prepare/pairs a second", "jumok", round(pairs / seconds), "pairs/s", conditions)]
    return write("scale_prepare", rows, device=cpu())


if __name__ == "__main__":
    print({"gpu": measure_gpu, "prepare": measure_preparation}.get("".join(sys.argv[1:]), cost)())
