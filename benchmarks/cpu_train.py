"""Training on a CPU, compared with other toolkits: ids cpu-train-rnn, cpu-train-rnn-luong and cpu-train-transformer.

Every system trains the same small models on the same tokens of Multi30k (a joint BPE of 8,000, 64 sentences per batch,
Adam, label smoothing 0.1, dropout 0.1, one thread, float32 unless stated). The result is target tokens per second of
CPU time, which other programs on the same cores affect little.

    python -m benchmarks.cpu_train run MODEL train.en train.de --steps 40     jumok: rnn-mlp, rnn-luong or transformer
    python -m benchmarks.cpu_train write results.jsonl                        from a file with one JSON line per system
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.results import Row, cpu, write
from jumok.tasks.run import train

SYSTEMS = {
    "jumok_bf16": "jumok, bf16",
    "transformers": "Marian in Hugging Face",
    "opennmt": "OpenNMT-py",
    "eole": "Eole",
}
IDS = {"rnn-mlp": "cpu-train-rnn", "rnn-luong": "cpu-train-rnn-luong", "transformer": "cpu-train-transformer"}
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


def run(model: str, source: str, target: str, steps: int, precision: str) -> None:
    from jumok.tasks import make_recipe
    from jumok.training.progress import Report

    class Lines(Report):
        def begin(self, **_: Any) -> None:
            print("start loop", flush=True)

        def record(self, record: Any) -> None:
            if "validation" not in record:
                print(f"step {record['step']} tok/s {record['tokens_per_second']:.1f}", flush=True)

    encoder, decoder = MODELS[model]
    recipe = make_recipe(
        {
            "data": {"source": source, "target": target, "valid_size": 64},
            "tokenizer": {"kind": "word", "size": 8000},
            "filter": {"duplicates": False},
            "encoder": encoder,
            "decoder": decoder,
            "batch": {"tokens": 100_000, "sentences": 64},
            "training": {
                "steps": steps,
                "learning_rate": 0.0005,
                "warmup": 200,
                "log_every": 10,
                "metric": "loss",
                "validate_every": 10**6,
                "precision": precision,
            },
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        train(recipe, out=Path(folder) / "run", device="cpu", report=Lines(), draw=False)


def write_results(path: Path) -> None:
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    rows = []
    for one in found:
        if "tokens_per_cpu_s" not in one:
            continue
        conditions = (
            f"64 sentences a batch, {one['threads']} thread, {one['steps_measured']} steps on shared cores, "
            f"by processor time, peak {one['peak_rss_mb']} MiB"
        )
        model = one["task"].removeprefix("train-")
        rows.append(
            Row(IDS[model], SYSTEMS.get(one["peer"], one["peer"]), one["tokens_per_cpu_s"], "tok/CPU s", conditions)
        )
    write("cpu_train", sorted(rows, key=lambda row: (row.id, row.system != "jumok")), device=cpu())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    ours = commands.add_parser("run")
    ours.add_argument("model", choices=MODELS)
    ours.add_argument("source")
    ours.add_argument("target")
    ours.add_argument("--steps", type=int, default=40)
    ours.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    results = commands.add_parser("write")
    results.add_argument("lines", type=Path)
    given = parser.parse_args()
    if given.what == "run":
        run(given.model, given.source, given.target, given.steps, given.precision)
    else:
        write_results(given.lines)
