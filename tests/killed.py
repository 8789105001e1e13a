"""Training in a process that can be killed, begun quickly: all are forked from one that has imported everything."""

from multiprocessing import get_context
from pathlib import Path
from typing import Any

FORKED = get_context("forkserver")
FORKED.set_forkserver_preload(["torch._dynamo", "jumok.training", "tiny", "killed"])


def start(folder: Path, steps: int, *, resume: bool) -> Any:
    process = FORKED.Process(target=run, args=(folder, steps, resume))
    process.start()
    return process


def run(folder: Path, steps: int, resume: bool) -> None:
    import torch

    from jumok.training import TrainingConfig, train
    from tiny import TinyBatches, TinyModel, validate

    torch.set_num_threads(1)
    config = TrainingConfig(
        steps=steps, accumulate=2, warmup=4, ema=0.9, clip=0.5, patience=0,
        validate_every=4, save_every=3, log_every=2, metric="loss", keep=2,
    )  # fmt: skip
    train(TinyModel(), TinyBatches(), config, folder=folder, validate=validate, resume=resume)
