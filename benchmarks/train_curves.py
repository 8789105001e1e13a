"""Does a Transformer learn equally well with fused kernels and CUDA graphs on a GPU? 500 steps with each.

    python -m benchmarks.train_curves
    python -m benchmarks.train_curves cpu       how much rounding alone separates two curves; five minutes on two cores

The same Transformer learns to reverse sequences, from the same weights and batches: with the fast path (fused layers
and loss, CUDA graphs), without it, without it and with another dropout seed, and without it from weights that differ
by a millionth. The last two show how much chance and rounding alone separate two curves. On a CPU, which has no fused
kernels, two of these run. Writes train_curves.json or claims_rounding.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.results import Row, cpu, write
from jumok.data import Batch
from jumok.data.batches import collate
from jumok.models import TransformerDecoderConfig, TransformerEncoderConfig, build_model
from jumok.training import TrainingConfig, loss, train

STEPS, EVERY, VOCABULARY, SENTENCES = 500, 20, 2000, 128
SIZES = {"width": 256, "heads": 4, "hidden": 1024, "layers": 3}
BOS, EOS, FIRST = 1, 2, 4
NUDGE = 1e-6


class Reversals:
    """Sequences of words of Zipf's frequencies, and the same reversed."""

    def steps(self, epoch: int) -> int:
        return STEPS

    def batch(self, epoch: int, step: int) -> Batch:
        random = np.random.default_rng((epoch, step))
        shares = 1 / np.arange(1, VOCABULARY - FIRST + 1)
        longest = int(random.integers(6, 33))
        rows = []
        for length in random.integers(longest // 2, longest + 1, SENTENCES):
            words = FIRST + random.choice(VOCABULARY - FIRST, length, p=shares / shares.sum())
            rows.append(([BOS, *words, EOS], [BOS, *words[::-1], EOS]))
        return collate(rows)


def curve(*, way: str, dropout: float, seed: int, device: str) -> list[float]:
    """The training loss of every 20 steps; `way` is "fast", "written", or "nudged", from slightly other weights."""
    fast = way == "fast"
    usual = loss.runs_on_kernels
    torch.manual_seed(1)
    sizes = {**SIZES, "dropout": dropout}
    model = build_model(
        TransformerEncoderConfig(**sizes),
        TransformerDecoderConfig(**sizes),
        source_vocabulary=VOCABULARY,
        target_vocabulary=VOCABULARY,
    ).to(device)
    if way == "nudged":
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1 + NUDGE * torch.randn_like(weight))
    config = TrainingConfig(
        steps=STEPS, warmup=100, log_every=EVERY, validate_every=STEPS, seed=seed, fast=fast, precision="bf16"
    )
    if not fast:
        loss.runs_on_kernels = lambda states: False
    try:
        with tempfile.TemporaryDirectory() as folder:
            train(model, Reversals(), config, folder=folder)
            lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    finally:
        loss.runs_on_kernels = usual
    return [json.loads(line)["loss"] for line in lines]


def largest(one: list[float], other: list[float]) -> float:
    return round(max(abs(a - b) for a, b in zip(one, other, strict=True)), 4)


NUDGED = "as written, weights off by 10⁻⁶"
RUNS = {
    "as written": ("written", "1"),
    "jumok": ("fast", "1"),
    "as written, other seed": ("written", "2"),
    NUDGED: ("nudged", "1"),
}


def main(device: str) -> None:
    """All curves at once, each in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.train_curves"]
    runs = RUNS if device == "cuda" else {name: RUNS[name] for name in ("as written", NUDGED)}
    started = {
        (dropout, name): subprocess.Popen([*command, device, *run, str(dropout)], stdout=subprocess.PIPE, text=True)
        for dropout in ((0.0, 0.1) if device == "cuda" else (0.0,))
        for name, run in runs.items()
    }
    save({key: json.loads(process.communicate()[0].splitlines()[-1]) for key, process in started.items()}, device)


def save(curves: dict[tuple[float, str], list[float]], device: str) -> None:
    """Write the last loss of every curve, and its largest difference from the one as written."""
    rows = []
    for (dropout, name), found in curves.items():
        conditions = f"3+3 layers, 256 wide, reversal, {STEPS} steps, bf16, dropout {dropout}"
        place, written = f"training-curves/dropout {dropout}", curves[dropout, "as written"]
        rows.append(Row(f"{place}, loss at the end", name, round(found[-1], 4), "nats", conditions))
        if name != "as written":
            rows.append(Row(f"{place}, largest difference", name, largest(found, written), "nats", conditions))
        print(dropout, name, [round(value, 4) for value in found], flush=True)
    rows.sort(key=lambda row: row.id, reverse=True)
    if device == "cuda":
        print(write("train_curves", rows, device=torch.cuda.get_device_name(), packages=("torch", "triton")))
    else:
        print(write("claims_rounding", rows, device=cpu()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("run", nargs="*", help="one curve: its way, seed and dropout")
    given = parser.parse_args()
    if given.run:
        way, seed, dropout = given.run
        print(json.dumps(curve(way=way, seed=int(seed), dropout=float(dropout), device=given.device)))
    else:
        main(given.device)
