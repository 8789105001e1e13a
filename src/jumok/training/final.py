"""The final weights of a run, in the model and on disk."""

from pathlib import Path

from torch import Tensor, nn

from jumok.data.files import atomic_write
from jumok.models.weights import load_weights, to_bytes, weights_of
from jumok.training.checkpoint import checkpoint_path
from jumok.training.ema import MovingAverage
from jumok.training.snapshot import MODEL, read_snapshot
from jumok.training.state import TrainingState


def best_weights(
    folder: Path, model: nn.Module, average: MovingAverage | None, state: TrainingState
) -> dict[str, Tensor]:
    """The weights of the best validation, or where there was none those of now."""
    if state.best_step is not None:
        return read_snapshot(checkpoint_path(folder, state.best_step)).judged
    return weights_of(model) | (average.average if average is not None else {})


def write_final(folder: Path, model: nn.Module, weights: dict[str, Tensor]) -> Path:
    """Leave these weights in the model and in model.safetensors."""
    path = folder / MODEL
    load_weights(model, weights, path)
    with atomic_write(path) as file:
        file.write(to_bytes(weights_of(model)))
    return path
