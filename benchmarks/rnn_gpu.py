"""How fast RNNsearch trains on a CUDA GPU with fused additive attention, and with the direct form.

    JUMOK_DATA=path/to/data python -m benchmarks.rnn_gpu

Trains the recipe's first 250 steps twice, each in a process of its own, and writes rnn_gpu.json.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.results import Row, write

RECIPE = "multi30k-en-de-rnnsearch"
TRAIN = """
import sys
from jumok.attention import backends
backends.HAS_TRITON = sys.argv.pop(1) == "fused"
from jumok.cli import main
main()
"""


def tokens_a_second(attention: str) -> float:
    """The mean of steps 51 to 250: the first ones compile."""
    settings = [f"training.{name}" for name in ("steps=250", "validate_every=10000", "log_every=50")]
    with tempfile.TemporaryDirectory() as folder:
        options = [part for setting in settings for part in ("--set", setting)]
        command = ["train", f"recipes/{RECIPE}.toml", "--out", folder, "--device", "cuda", *options]
        subprocess.run([sys.executable, "-c", TRAIN, attention, *command], check=True)
        lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return statistics.fmean(
        one["tokens_per_second"] for one in found if one.get("tokens_per_second") and one["step"] > 50
    )


def main() -> None:
    conditions = f"{RECIPE}, bf16, mean of steps 51 to 250"
    rows = [
        Row("rnnsearch-gpu/tokens a second", system, round(tokens_a_second(attention)), "tok/s", conditions)
        for system, attention in (("jumok", "fused"), ("jumok with direct attention", "direct"))
    ]
    print(write("rnn_gpu", rows, device=torch.cuda.get_device_name(), packages=("torch", "triton")))


if __name__ == "__main__":
    main()
