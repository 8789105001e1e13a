"""The final weights of a run: its best checkpoint, or the mean of its newest ones."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from jumok.data.files import atomic_write
from jumok.models.weights import load_weights, to_bytes, weights_of
from jumok.training.averaging import average_tensors
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


def mean_if_no_worse(
    paths: Sequence[Path],
    best: dict[str, Tensor],
    model: nn.Module,
    score: Callable[[], float] | None,
    no_worse: Callable[[float], bool],
    say: Callable[[str], None],
) -> dict[str, Tensor]:
    """The mean of some checkpoints, unless `score` of the model with these weights is worse than the best."""
    mean = average_tensors([path / MODEL for path in paths])
    if score is None:
        return mean
    load_weights(model, mean, paths[-1])
    found = score()
    kept = no_worse(found)
    say(f"the mean of the {len(paths)} newest checkpoints scores {found:.4g}: " + _verdict(kept))
    return mean if kept else best


def write_final(folder: Path, model: nn.Module, weights: dict[str, Tensor]) -> Path:
    """Leave these weights in the model and in model.safetensors."""
    path = folder / MODEL
    load_weights(model, weights, path)
    with atomic_write(path) as file:
        file.write(to_bytes(weights_of(model)))
    return path


def _verdict(kept: bool) -> str:
    return "it is the final model" if kept else "worse than the best checkpoint, which is the final model"
