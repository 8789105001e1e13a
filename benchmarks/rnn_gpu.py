"""Training speed of recurrent encoder-decoders on a CUDA GPU, compared with a plain PyTorch loop.

    python -m benchmarks.rnn_gpu [LENGTHS.npy]

All systems train on the same batch of 128 pairs of 32 tokens and take turns; the table shows the median round. Then
the whole training loop runs from its first step on random tokens with the lengths of a corpus, whose batches have many
shapes. LENGTHS.npy contains the source and target lengths, int [pairs, 2]; by default they are drawn as in Multi30k.
Writes rnn_gpu.json.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.results import Row, write
from jumok.data import Batch
from jumok.data.batches import BatchConfig, BatchPlan, collate, round_size, sort_by_length
from jumok.layers import recurrent
from jumok.models import EncoderDecoder, RnnDecoderConfig, RnnEncoderConfig, build_model
from jumok.models.rnn import attention
from jumok.training import TrainingConfig, train
from jumok.training.cuda_graph import StepGraphs, pinned
from jumok.training.objective import SEQUENCES
from jumok.training.optimiser import make_optimiser, set_rate
from jumok.training.step import train_step

SENTENCES, LENGTH, VOCABULARY, EMBEDDING, WIDTH, DROPOUT = 128, 32, 8000, 256, 512, 0.2
ROUNDS, STEPS = 5, 10
CONDITIONS = (
    f"{SENTENCES} × {LENGTH} tokens, embeddings {EMBEDDING}, states {WIDTH}, vocabulary {VOCABULARY:,}, bf16, "
    f"dropout {DROPOUT}, label smoothing 0.1, AdamW, clipping; median of {ROUNDS} turns of {STEPS} steps"
)
MODELS: dict[str, dict[str, Any]] = {
    "RNNsearch": {},
    "RNNsearch, LSTM": {"cell": "lstm"},
    "RNNsearch with coverage": {"coverage": True},
    "RNNsearch that copies": {"copy": True},
    "Luong": {"attention": "general"},
    "Luong with input feeding": {"attention": "general", "input_feeding": True},
}
FAST = ("jumok", "PyTorch loop in a CUDA graph")
"""Systems whose turns are so many steps; of the others, which take 20 to 150 ms, a turn is one step."""
LOOP_STEPS, LOG_EVERY = 800, 50

Step = Callable[[], object]


def model_of(cell: str = "gru", **options: Any) -> EncoderDecoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": WIDTH, "embedding": EMBEDDING, "dropout": DROPOUT, "cell": cell}
    return build_model(
        RnnEncoderConfig(**sizes),
        RnnDecoderConfig(**sizes, **options),
        source_vocabulary=VOCABULARY,
        target_vocabulary=VOCABULARY,
        shared_vocabulary=True,
    ).cuda()


def jumok(options: dict[str, Any], *, fast: bool) -> Step:
    """The step of `jumok train`; as it is written if not `fast`."""
    config = TrainingConfig()
    model = model_of(**options).train()
    optimiser = make_optimiser(model, config)
    graphs = StepGraphs(model, optimiser, config, SEQUENCES, print)
    source, target_in, target_out = (ids().cpu() for _ in range(3))
    visible = torch.ones_like(source, dtype=torch.bool)
    batch = pinned(Batch(source, visible, target_in, target_out, visible.clone()))
    kernels = attention.has_step_kernels, recurrent.has_kernels
    set_rate(optimiser, 1e-4)
    number = 0

    def step() -> object:
        nonlocal number
        number += 1
        if fast and (outcome := graphs.step([batch], step=number)) is not None:
            return outcome
        attention.has_step_kernels, recurrent.has_kernels = kernels if fast else (never, never)
        try:
            return train_step(model, optimiser, [batch], config, step=number, say=print)
        finally:
            attention.has_step_kernels, recurrent.has_kernels = kernels

    return step


def never(*_: object) -> bool:
    return False


class PlainRnnSearch(nn.Module):
    """RNNsearch as it is usually written: one step after another."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = (nn.Embedding(VOCABULARY, EMBEDDING) for _ in range(2))
        self.encoder = nn.GRU(EMBEDDING, WIDTH // 2, bidirectional=True, batch_first=True)
        self.cell = nn.GRUCell(EMBEDDING + WIDTH, WIDTH)
        self.to_first, self.to_query, self.to_key = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.to_score = nn.Linear(WIDTH, 1, bias=False)
        self.to_readout = nn.Linear(2 * WIDTH + EMBEDDING, EMBEDDING)
        self.output, self.dropout = nn.Linear(EMBEDDING, VOCABULARY), nn.Dropout(DROPOUT)

    def forward(self, source: Tensor, visible: Tensor, target_in: Tensor) -> Tensor:
        states, last = self.encoder(self.dropout(self.source(source)))
        words, keys = self.dropout(self.target(target_in)), self.to_key(states)
        state, features = torch.tanh(self.to_first(torch.cat([last[0], last[1]], -1))), []
        for word in words.unbind(1):
            scores = self.to_score(torch.tanh(self.to_query(state)[:, None] + keys)).squeeze(-1)
            weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
            context = (weights[:, None] @ states.to(weights.dtype)).squeeze(1)
            state = self.cell(torch.cat([word, context], -1), state)
            features.append(torch.cat([state, word, context], -1))
        logits: Tensor = self.output(self.dropout(torch.tanh(self.to_readout(torch.stack(features, 1)))))
        return logits


def plain_loop(*, graph: bool) -> Step:
    """The step as a user of PyTorch writes it, and the same recorded as one CUDA graph."""
    torch.manual_seed(0)
    model = PlainRnnSearch().cuda().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=graph)
    source, target_in, target_out = (ids() for _ in range(3))
    visible = torch.ones_like(source, dtype=torch.bool)

    def step() -> object:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(source, visible, target_in)
            loss = F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimiser.step()
        return None

    if not graph:
        return step
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        step()

    def replay(step: Step = step) -> None:  # the graph reads the weights and the batch that `step` holds
        recorded.replay()

    return replay


def ids() -> Tensor:
    return torch.randint(4, VOCABULARY, (SENTENCES, LENGTH), device="cuda")


def timed(step: Step, steps: int) -> float:
    """Milliseconds a step."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(steps):
        step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / steps


def train_rows() -> list[Row]:
    systems: dict[tuple[str, str], Step] = {}
    for name, options in MODELS.items():
        for system, fast in (("jumok", True), ("jumok as written", False)):
            systems[name, system] = jumok(options, fast=fast)
    systems["RNNsearch", "PyTorch loop"] = plain_loop(graph=False)
    systems["RNNsearch", "PyTorch loop in a CUDA graph"] = plain_loop(graph=True)
    for step in systems.values():
        for _ in range(3):  # compiles, and records
            step()
    turns: dict[tuple[str, str], list[float]] = {key: [] for key in systems}
    for _ in range(ROUNDS):
        for key, step in systems.items():
            step()
            turns[key].append(timed(step, STEPS if key[1] in FAST else 1))
    rows = []
    for (name, system), times in turns.items():
        ms = statistics.median(times)
        rate = round(SENTENCES * LENGTH / ms * 1000)
        print(f"{name}, {system}: {ms:.2f} ms, {rate:,} tok/s", flush=True)
        conditions = f"{name}: {CONDITIONS}; {ms:.2f} ms a step"
        rows.append(
            Row("rnnsearch-train" if name == "RNNsearch" else f"rnn-train/{name}", system, rate, "tok/s", conditions)
        )
    return rows


class RandomPairs:
    """Pairs of random words with given lengths, in the batches of `jumok train`."""

    def __init__(self, lengths: np.ndarray[Any, Any], config: BatchConfig) -> None:
        counts, self.order = sort_by_length(lengths)
        self.plan = BatchPlan(counts, config, seed=1)
        draws = np.random.default_rng(0)
        self.rows = [[np.r_[1, draws.integers(4, VOCABULARY, size - 1), 2] for size in pair] for pair in lengths]

    def steps(self, epoch: int) -> int:
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> Batch:
        return collate([tuple(self.rows[row]) for row in self.order[self.plan.batch(epoch, step)]])


def multi30k_lengths() -> np.ndarray[Any, Any]:
    """29,000 pairs of lengths drawn with the mean and spread of Multi30k's in pieces, and as similar to each other."""
    draws = np.random.default_rng(0)
    source = np.exp(draws.normal(2.68, 0.29, 29_000))
    target = source * np.exp(draws.normal(0.02, 0.17, 29_000))
    return np.clip(np.stack([source, target], 1).round().astype(np.int64), 4, 60)


def loop_rows(lengths: np.ndarray[Any, Any]) -> list[Row]:
    rows = []
    for name in ("RNNsearch", "Luong"):
        config = TrainingConfig(steps=LOOP_STEPS, log_every=LOG_EVERY, validate_every=10**6)
        with tempfile.TemporaryDirectory() as folder:
            train(model_of(**MODELS[name]), RandomPairs(lengths, BatchConfig()), config, folder=folder)
            lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        rates = [line["tokens_per_second"] for line in lines if line.get("tokens_per_second")]
        print(f"training loop, {name}: {[round(rate / 1000) for rate in rates]}k tok/s", flush=True)
        batches = f"batches of 4,096 tokens with Multi30k's lengths, {LOOP_STEPS} steps"
        whole = lines[-1]["tokens"] / lines[-1]["seconds"]
        for what, rate in (("from the first step", whole), ("last 400 steps", statistics.median(rates[-8:]))):
            rows.append(Row(f"rnn-loop/{name}, {what}", "jumok", round(rate), "tok/s", batches))
    return rows


def shape_rows(lengths: np.ndarray[Any, Any], epochs: int = 5) -> list[Row]:
    """The shapes of the batches of some epochs, and how much padding a GPU's few shapes add."""
    pairs, exact, rounded, shapes = RandomPairs(lengths, BatchConfig()), 0, 0, set()
    for epoch in range(epochs):
        for step in range(pairs.steps(epoch)):
            rows = lengths[pairs.order[pairs.plan.batch(epoch, step)]]
            source, target = (round_size(int(size)) for size in rows.max(0))
            shapes.add((round_size(len(rows), least=8), source, target))
            exact += len(rows) * int(rows.max(0).sum())
            rounded += round_size(len(rows), least=8) * (source + target)
    conditions = f"batches of 4,096 tokens with Multi30k's lengths, {epochs} epochs"
    return [
        Row("rnn-loop/shapes", "jumok", len(shapes), "shapes", conditions),
        Row(
            "rnn-loop/numbers added to batches by padding to them",
            "jumok",
            100 * (rounded / exact - 1),
            "%",
            conditions,
        ),
    ]


def main() -> None:
    lengths = np.load(sys.argv[1]).astype(np.int64) if len(sys.argv) > 1 else multi30k_lengths()
    rows = train_rows()
    save(rows)  # so that a run that is cut short has written something
    save([*rows, *loop_rows(lengths), *shape_rows(lengths)])


def save(rows: list[Row]) -> None:
    print(write("rnn_gpu", rows, device=torch.cuda.get_device_name(), packages=("torch", "triton")), flush=True)


if __name__ == "__main__":
    main()
