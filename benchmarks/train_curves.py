"""Does a Transformer learn equally well with fused kernels and CUDA graphs on a GPU? 500 steps with each.

    python -m benchmarks.train_curves
    python -m benchmarks.train_curves control    # how much rounding alone separates curves with each

The same Transformer learns to reverse sequences, from the same weights and batches: with the fast path (fused layers
and loss, CUDA graphs), without it, without it and with another dropout seed, and without it from weights that differ
by a millionth. The last two show how much chance and rounding alone separate two curves. Writes train_curves.json.

One such pair says little about chance. `control` trains without dropout from --nudges sets of weights that differ by a
millionth, with the fast path and without it, and writes train_curves_control.json: the last loss of every curve, and
the smallest, the mean and the largest of them. If those with the fast path and without it overlap, chance explains
their difference.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.results import Row, write
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
            words = (FIRST + random.choice(VOCABULARY - FIRST, length, p=shares / shares.sum())).tolist()
            rows.append(([BOS, *words, EOS], [BOS, *words[::-1], EOS]))
        return collate(rows)


class Run(NamedTuple):
    """How a curve comes about."""

    way: str
    """"fast", or "written" for layers and loss without fused kernels and steps without CUDA graphs."""
    seed: int = 1
    nudge: int = 0
    """0 for the weights as they are; every other number changes them by a millionth, in a way of its own."""
    dropout: float = 0.0


def curve(run: Run, device: str) -> list[float]:
    """The training loss of every 20 steps."""
    fast = run.way == "fast"
    usual = loss.runs_on_kernels
    torch.manual_seed(1)
    sizes = {**SIZES, "dropout": run.dropout}
    model = build_model(
        TransformerEncoderConfig(**sizes),
        TransformerDecoderConfig(**sizes),
        source_vocabulary=VOCABULARY,
        target_vocabulary=VOCABULARY,
    )
    if run.nudge:
        draws = torch.Generator().manual_seed(run.nudge)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1 + NUDGE * torch.randn(weight.shape, generator=draws))
    model.to(device)
    config = TrainingConfig(
        steps=STEPS, warmup=100, log_every=EVERY, validate_every=STEPS, seed=run.seed, fast=fast, precision="bf16"
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


def largest(losses: list[float], other: list[float]) -> float:
    return round(max(abs(a - b) for a, b in zip(losses, other, strict=True)), 4)


OFF = ", weights off by 10⁻⁶"
PLAIN = "as written"


def nudged(system: str, way: str, nudges: int) -> dict[str, Run]:
    """Runs of a system from weights that differ by a millionth."""
    return {
        f"{system}{OFF}{f', {number}' if number > 1 else ''}": Run(way, nudge=number) for number in range(1, nudges + 1)
    }


def runs_of(what: str, nudges: int) -> dict[str, Run]:
    """The runs of a part, by their systems."""
    if what == "control":
        fast = {"jumok": Run("fast"), **nudged("jumok", "fast", nudges)}
        return {**fast, PLAIN: Run("written"), **nudged(PLAIN, "written", nudges)}
    other = {f"{PLAIN}, other seed": Run("written", seed=2)}
    return {PLAIN: Run("written"), "jumok": Run("fast"), **other, **nudged(PLAIN, "written", 1)}


def main(what: str, nudges: int) -> None:
    """All curves at once, each in a process of its own."""
    runs = runs_of(what, nudges)
    planned = {
        (dropout, name): run._replace(dropout=dropout)
        for dropout in ((0.0, 0.1) if what == "cuda" else (0.0,))
        for name, run in runs.items()
    }

    def losses_of(run: Run) -> list[float]:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.train_curves", what, "--run", json.dumps(run)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        losses: list[float] = json.loads(done.stdout.splitlines()[-1])
        return losses

    with ThreadPoolExecutor(len(planned)) as pool:
        save(dict(zip(planned, pool.map(losses_of, planned.values()), strict=True)), what)


def save(curves: dict[tuple[float, str], list[float]], what: str) -> None:
    """Write the rows of all curves."""
    for (dropout, name), losses in curves.items():
        print(dropout, name, [round(value, 4) for value in losses], flush=True)
    rows = rows_of(curves, what)
    about = {"device": torch.cuda.get_device_name(), "packages": ("torch", "triton")}
    print(write("train_curves_control", rows, **about) if what == "control" else write("train_curves", rows, **about))


def rows_of(curves: dict[tuple[float, str], list[float]], what: str) -> list[Row]:
    """The last loss of every curve, its largest difference from another, and the spread over all nudged weights.

    The other curve is the one as written, and in `control` that of the same system from the weights as they are.
    """
    rows = []
    for (dropout, name), losses in curves.items():
        conditions = f"3+3 layers, 256 wide, reversal, {STEPS} steps, bf16, dropout {dropout}"
        place, system = f"training-curves/dropout {dropout}", name.partition(OFF)[0]
        rows.append(Row(f"{place}, loss at the end", name, round(losses[-1], 4), "nats", conditions))
        against = PLAIN if what != "control" else system if system != name else "jumok"
        if name != against:
            difference = largest(losses, curves[dropout, against])
            rows.append(Row(f"{place}, largest difference", name, difference, "nats", conditions))
        own = [key for key in curves if (key[0], key[1].partition(OFF)[0]) == (dropout, name)]
        ends = [curves[key][-1] for key in own]
        if len(ends) > 2:
            about = f"{conditions}; {len(ends)} runs, from weights as they are and off by {NUDGE:g}"
            for which, value in {"smallest": min(ends), "mean": mean(ends), "largest": max(ends)}.items():
                rows.append(Row(f"training-spread/{which} final loss", name, round(value, 4), "nats", about))
    order = list(dict.fromkeys(row.id for row in rows))
    rows.sort(key=lambda row: (row.id.partition(",")[0], -order.index(row.id)), reverse=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["cuda", "control"], default="cuda")
    parser.add_argument("--nudges", type=int, default=5, help="of control: sets of weights off by a millionth")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(curve(Run(*json.loads(given.run)), "cuda")))
    else:
        main(given.what, given.nudges)
