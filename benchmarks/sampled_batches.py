"""Time to build a batch of Multi30k with and without sampled subwords.

    JUMOK_DATA=path/to/data python -m benchmarks.sampled_batches        about a minute; writes sampled_batches.json

One thread builds all batches of every epoch, up to the sixth, as the thread of a training run does. Which words have
been seen matters: in the first epoch, what their letters spell is still to be found.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.results import Row, cpu, write
from jumok.data import BatchConfig, Batches, DataConfig, TokenizerConfig, prepare

DATA = Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k"
TOKENS = 2048
EPOCHS = {0: "first epoch", 1: "second epoch", 5: "sixth epoch"}
KINDS = {"no sampling": ("bpe", 0.0), "BPE-dropout": ("bpe", 0.1), "unigram": ("unigram", 5.0)}


def rows_of(name: str, kind: str, sampling: float, folder: Path) -> Iterator[Row]:
    files = {"source": "train.en.gz", "target": "train.de.gz", "valid_source": "val.en.gz", "valid_target": "val.de.gz"}
    data = DataConfig(**{side: str(DATA / file) for side, file in files.items()})
    config = TokenizerConfig(kind=kind, size=8000, sampling=sampling)
    text = prepare(folder, data, config)
    batches = Batches(text.train, BatchConfig(tokens=TOKENS), tokenizers=text.tokenizers, sampling=sampling)
    for epoch in range(max(EPOCHS) + 1):
        start, steps = time.process_time(), batches.steps(epoch)
        for step in range(steps):
            batches.batch(epoch, step)
        if epoch in EPOCHS:
            mean = 1000 * (time.process_time() - start) / steps
            conditions = f'kind = "{kind}", sampling = {sampling}, size = 8000; CPU time, mean of {steps} batches'
            yield Row(f"sampled-batch/{name}, {EPOCHS[epoch]}", "jumok", mean, "ms", conditions)


def main() -> None:
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name, (kind, sampling) in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows += rows_of(name, kind, sampling, Path(folder))
        print(*rows[-len(EPOCHS) :], sep="\n", file=sys.stderr)
    write("sampled_batches", rows, device=cpu(), packages=("torch", "numpy"))


if __name__ == "__main__":
    main()
