"""Training speed of a Transformer on a CUDA GPU, compared with PyTorch's own and Hugging Face's Marian.

    python -m benchmarks.train_gpu

Every system trains the same model on the same batch in its own process: a Transformer base with a vocabulary of
32,000, 400 pairs of 64 tokens, bf16, dropout 0.1, label smoothing 0.1, AdamW and clipping. Some train it again with
post-norm layers and swish, as in OPUS-MT models. All are built and compiled at once, then take turns; the table shows
the median round. Writes train_gpu.json.
"""

import json
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.results import Row, installed, write

SENTENCES, LENGTH, VOCABULARY = 400, 64, 32_000
WIDTH, HEADS, HIDDEN, LAYERS, DROPOUT, SMOOTHING = 512, 8, 2048, 6, 0.1, 0.1
ROUNDS, STEPS = 5, 8
PATIENCE = 240
"""Seconds after which a system that is still compiling is left out."""
CONDITIONS = (
    f"base {LAYERS}+{LAYERS}, {WIDTH} wide, {SENTENCES} × {LENGTH} tokens, vocabulary {VOCABULARY:,}, bf16, "
    f"dropout {DROPOUT}, label smoothing {SMOOTHING}, AdamW, clipping; median of {ROUNDS} turns of {STEPS} steps"
)

Step = Callable[[], object]


def jumok(stack: ExitStack, *, fast: bool, **layers: Any) -> Step:
    """The step of `jumok train`, with layers of other kinds than the default."""
    from jumok.data import Batch
    from jumok.layers.gpu.stack import fused_layers
    from jumok.models import TransformerDecoderConfig, TransformerEncoderConfig, build_model
    from jumok.training import TrainingConfig, loss
    from jumok.training.cuda_graph import StepGraphs, pinned
    from jumok.training.objective import SEQUENCES
    from jumok.training.optimiser import make_optimiser, set_rate
    from jumok.training.step import train_step

    if not fast:
        loss.runs_on_kernels = lambda states: False
    config = TrainingConfig(fast=fast, label_smoothing=SMOOTHING)
    sizes = {"width": WIDTH, "heads": HEADS, "hidden": HIDDEN, "layers": LAYERS, "dropout": DROPOUT, **layers}
    model = build_model(
        TransformerEncoderConfig(**sizes),
        TransformerDecoderConfig(**sizes),
        source_vocabulary=VOCABULARY,
        target_vocabulary=VOCABULARY,
    ).cuda()
    source, target_in, target_out = (ids().cpu() for _ in range(3))
    visible = torch.ones_like(source, dtype=torch.bool)
    batch = pinned(Batch(source, visible, target_in, target_out, visible.clone()))
    optimiser = make_optimiser(model.train(), config)
    graphs = StepGraphs(model, optimiser, config, SEQUENCES, print_error)
    stack.enter_context(fused_layers(fast))
    set_rate(optimiser, 1e-4)
    number = 0

    def step() -> object:
        nonlocal number
        number += 1
        outcome = graphs.step([batch], step=number)
        return outcome or train_step(model, optimiser, [batch], config, step=number, say=print_error, task=SEQUENCES)

    return step


class TorchTransformer(nn.Module):
    """nn.Transformer with embeddings, learned positions and an output layer tied to the target embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = (nn.Embedding(VOCABULARY, WIDTH) for _ in range(2))
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.transformer = nn.Transformer(
            WIDTH, HEADS, LAYERS, LAYERS, HIDDEN, DROPOUT, batch_first=True, norm_first=True
        )
        self.output = nn.Linear(WIDTH, VOCABULARY)
        self.output.weight = self.target.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        positions = self.positions.weight[None]
        x, y = self.source(source) + positions, self.target(target_in) + positions
        states: Tensor = self.transformer(x, y, tgt_mask=self.mask, tgt_is_causal=True)
        return self.output(states)  # type: ignore[no-any-return]


class Marian(nn.Module):
    """Marian of Hugging Face's transformers."""

    def __init__(self, activation: str = "relu") -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        layers = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in _SIZES.items()}
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=VOCABULARY, decoder_vocab_size=VOCABULARY, d_model=WIDTH, dropout=DROPOUT, pad_token_id=0,
                max_position_embeddings=LENGTH, activation_function=activation, use_cache=False, **layers,
            )
        )  # fmt: skip

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=source, decoder_input_ids=target_in, use_cache=False).logits
        return logits


_SIZES = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": HIDDEN}


def peer(kind: Callable[[], nn.Module], *, compiled: bool) -> Step:
    """A step as a user of PyTorch writes it, forward pass and loss compiled together."""
    model = kind().cuda().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    source, target_in, target_out = (ids() for _ in range(3))

    def loss_of(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(source, target_in)
            return F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), label_smoothing=SMOOTHING)

    loss = torch.compile(loss_of) if compiled else loss_of

    def step() -> object:
        optimiser.zero_grad(set_to_none=True)
        loss(source, target_in, target_out).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimiser.step()
        return None

    return step


def ids() -> Tensor:
    return torch.randint(4, VOCABULARY, (SENTENCES, LENGTH), device="cuda")


def print_error(message: str) -> None:
    print(message, file=sys.stderr)


POST_NORM = "post-norm and swish: "
OPUS_MT = {"norm": "post", "activation": "silu"}
SYSTEMS: dict[str, Callable[[ExitStack], Step]] = {
    "jumok": lambda stack: jumok(stack, fast=True),
    "jumok as written": lambda stack: jumok(stack, fast=False),
    "nn.Transformer compiled": lambda stack: peer(TorchTransformer, compiled=True),
    "Marian in Hugging Face": lambda stack: peer(Marian, compiled=False),
    "Marian compiled": lambda stack: peer(Marian, compiled=True),
    f"{POST_NORM}jumok": lambda stack: jumok(stack, fast=True, **OPUS_MT),
    f"{POST_NORM}jumok as written": lambda stack: jumok(stack, fast=False, **OPUS_MT),
    f"{POST_NORM}Marian compiled": lambda stack: peer(partial(Marian, "swish"), compiled=True),
}


def serve(name: str) -> None:
    """One system: a turn for every line of standard input, and its milliseconds a step on standard output."""
    torch.manual_seed(0)
    with ExitStack() as stack:
        step = SYSTEMS[name](stack)
        began = time.monotonic()
        for _ in range(4):  # compiles, and records
            step()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        print(json.dumps({"seconds": time.monotonic() - began}), flush=True)
        for _ in sys.stdin:
            step()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(STEPS):
                step()
            end.record()
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() / 2**30
            print(json.dumps({"ms": start.elapsed_time(end) / STEPS, "GiB": peak}), flush=True)


def ready(process: subprocess.Popen[str], end: float) -> dict[str, float] | None:
    """What a system says when it is ready; None if it fails or takes too long."""
    readable, _, _ = select.select([process.stdout], [], [], max(end - time.monotonic(), 0))
    line = process.stdout.readline() if readable else ""
    return json.loads(line) if line else None


def rows_of(name: str, turns: list[dict[str, float]]) -> list[Row]:
    """Speed and memory of a system."""
    ids, conditions = ("transformer-train", "training-memory/transformer"), CONDITIONS
    if name.startswith(POST_NORM):
        ids, conditions = ("training-post-norm/speed", "training-post-norm/memory"), POST_NORM + CONDITIONS
    ms, system = statistics.median(turn["ms"] for turn in turns), name.removeprefix(POST_NORM)
    rate = round(SENTENCES * LENGTH / ms * 1000)
    return [
        Row(ids[0], system, rate, "tok/s", f"{conditions}; {ms:.2f} ms a step"),
        Row(ids[1], system, round(turns[-1]["GiB"], 1), "GiB", conditions),
    ]


def main() -> None:
    names = [name for name in SYSTEMS if "Marian" not in name or find_spec("transformers")]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.train_gpu"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = {name: subprocess.Popen([*command, name], **pipes) for name in names}
    end, turns = time.monotonic() + PATIENCE, {}
    for name, process in running.items():
        report = ready(process, end)
        print(f"{name}: " + ("left out" if report is None else f"ready after {report['seconds']:.0f} s"), flush=True)
        if report is None:
            process.kill()
        else:
            turns[name] = []
    for _ in range(ROUNDS):
        for name, reports in turns.items():
            running[name].stdin.write("\n")
            running[name].stdin.flush()
            reports.append(json.loads(running[name].stdout.readline()))
    rows = []
    for name, reports in turns.items():
        running[name].communicate()
        rows += rows_of(name, reports)
        print(name, *(f"{row.value:,} {row.unit}" for row in rows[-2:]), sep=", ", flush=True)
    packages = installed("torch", "triton", "transformers")
    rows.sort(key=lambda row: row.id, reverse=True)
    print(write("train_gpu", rows, device=torch.cuda.get_device_name(), packages=packages))


if __name__ == "__main__":
    serve(sys.argv[1]) if len(sys.argv) > 1 else main()
