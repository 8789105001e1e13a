"""Whether training on a CUDA GPU is reproducible, and whether a resumed run equals an uninterrupted one.

    JUMOK_DATA=path/to/data python -m benchmarks.resume_gpu [runs/resume]

Trains the recipes of Multi30k for 120 steps: twice without a break, and once with a break after 60 steps. Writes
resume_gpu.json: the largest difference of any weight, and the validation losses.
"""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors.torch import load_file

import jumok
from benchmarks.results import Row, write

RECIPES = {"RNNsearch": "rnnsearch", "Transformer": "r-drop"}
STEPS = 120
SETTINGS = {
    "training.validate_every": STEPS // 2,
    "training.warmup": 20,
    "training.schedule": "inverse_sqrt",
    "training.average": 0,
    "training.metric": "loss",
    "training.save_every": 0,
}

Weights = dict[str, torch.Tensor]


def run(folder: Path, recipe: str, steps: int, *, resume: bool = False) -> tuple[Weights, float]:
    """The weights and the validation loss after so many steps."""
    overrides = SETTINGS | {"training.steps": steps}
    path = f"recipes/multi30k-en-de-{recipe}.toml"
    done = jumok.train(path, out=folder, overrides=overrides, resume=resume, draw=False)
    return load_file(folder / "model.safetensors"), done.metrics["loss"]


def difference(first: Weights, second: Weights) -> float:
    return max(float((first[name].float() - second[name].float()).abs().max()) for name in first)


def rows_of(folder: Path, name: str, recipe: str) -> list[Row]:
    whole, loss = run(folder / f"{recipe}-whole", recipe, STEPS)
    again, again_loss = run(folder / f"{recipe}-again", recipe, STEPS)
    run(folder / f"{recipe}-resumed", recipe, STEPS // 2)
    resumed, resumed_loss = run(folder / f"{recipe}-resumed", recipe, STEPS, resume=True)
    about = f"recipes/multi30k-en-de-{recipe}.toml, {STEPS} steps, largest difference of a weight; validation loss {{}}"
    return [
        Row(f"resume-gpu/{name}, repeated", "jumok", difference(whole, again), "", about.format(f"{again_loss:.4f}")),
        Row(
            f"resume-gpu/{name}, resumed", "jumok", difference(whole, resumed), "", about.format(f"{resumed_loss:.4f}")
        ),
        Row(f"resume-gpu/{name}, loss", "jumok", loss, "nats", f"validation loss after {STEPS} steps"),
        Row(
            f"resume-gpu/{name}, loss when resumed", "jumok", resumed_loss, "nats", f"{STEPS // 2} steps after a break"
        ),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="for the runs; a temporary one by default")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rows = [row for name, recipe in RECIPES.items() for row in rows_of(folder, name, recipe)]
    write("resume_gpu", rows, device=torch.cuda.get_device_name(), packages=("torch", "triton"))
