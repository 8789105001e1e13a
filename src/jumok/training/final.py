"""The best weights of a run, and at its end the final ones, in the model and on disk."""

import os
from pathlib import Path

from torch import Tensor, nn

from jumok.data.files import atomic_write, sync_folder
from jumok.models.weights import load_weights, read_tensors, to_bytes, weights_of
from jumok.sealed_folder import NEW_WEIGHTS
from jumok.training.checkpoint import checkpoint_path
from jumok.training.ema import MovingAverage
from jumok.training.snapshot import AVERAGE, MODEL, read_snapshot
from jumok.training.state import TrainingState


def best_weights(
    folder: Path, model: nn.Module, average: MovingAverage | None, state: TrainingState
) -> dict[str, Tensor]:
    """The weights of the best validation, or where there was none those of now."""
    if state.best_step is not None:
        return read_snapshot(checkpoint_path(folder, state.best_step)).judged
    return weights_of(model) | (average.average if average is not None else {})


def write_final(folder: Path, model: nn.Module, weights: dict[str, Tensor]) -> Path:
    """Leave these weights in the model and in a file that is to become model.safetensors."""
    load_weights(model, weights, folder / MODEL)
    return _write(folder, to_bytes(weights_of(model)))


def judged_file(folder: Path, checkpoint: Path) -> Path:
    """The weights that a checkpoint was validated with, in a file that is to become model.safetensors.

    It is the checkpoint's own wherever a file may have two names: nothing is written twice.
    """
    if (checkpoint / AVERAGE).exists():
        return _write(folder, to_bytes(read_tensors(checkpoint / MODEL) | read_tensors(checkpoint / AVERAGE)))
    path = folder / NEW_WEIGHTS
    path.unlink(missing_ok=True)
    try:
        os.link(checkpoint / MODEL, path)
    except OSError:
        return _write(folder, (checkpoint / MODEL).read_bytes())
    return path


def put(weights: Path, state: TrainingState) -> None:
    """Make a new file of weights the model's, which it is without anything beside it."""
    os.replace(weights, weights.with_name(MODEL))
    sync_folder(weights.parent)


def is_put(folder: Path) -> bool:
    """Whether there are weights in a folder."""
    return (folder / MODEL).exists()


def _write(folder: Path, content: bytes) -> Path:
    with atomic_write(folder / NEW_WEIGHTS) as file:
        file.write(content)
    return folder / NEW_WEIGHTS
