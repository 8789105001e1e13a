"""What of a run goes into a checkpoint, and the weights that are published: best, final, averaged."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from jumok.errors import ArgumentError, CheckpointError, DataError
from jumok.files import atomic_write, sync_folder
from jumok.model_folder import NEW_WEIGHTS
from jumok.models.weights import check_fit, from_bytes, load_weights, read_tensors, to_bytes, weights_of
from jumok.training.checkpoint import checkpoint_path, is_checkpoint, read_checkpoint, write_checkpoint
from jumok.training.config import TrainingConfig
from jumok.training.optimiser import MovingAverage, load_moments, moments
from jumok.training.state import Origin, TrainingState, from_json, to_json

MODEL, MOMENTS, AVERAGE, STATE = "model.safetensors", "optimiser.safetensors", "average.safetensors", "state.json"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A checkpoint read back, before any of it is put in place."""

    path: Path
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    average: dict[str, Tensor] | None
    state: TrainingState
    rest: dict[str, Any]
    """The settings, the data and the versions it was written with."""

    @property
    def judged(self) -> dict[str, Tensor]:
        """The weights that were validated: the moving average where there is one."""
        return self.weights | (self.average or {})


def save_snapshot(
    folder: Path,
    model: nn.Module,
    optimiser: AdamW,
    average: MovingAverage | None,
    state: TrainingState,
    config: TrainingConfig,
    origin: Origin,
) -> Path:
    """Write all that is needed to go on from here."""
    parts = {
        MODEL: lambda: to_bytes(weights_of(model)),
        MOMENTS: lambda: to_bytes(moments(model, optimiser)),
        STATE: lambda: to_json(state, config, origin),
    }
    if average is not None:
        parts[AVERAGE] = lambda: to_bytes(average.average)
    return write_checkpoint(folder, state.step, parts)


def read_snapshot(path: Path) -> Snapshot:
    """Read a checkpoint and check every file of it."""
    files = read_checkpoint(path)
    for name in (MODEL, MOMENTS, STATE):
        if name not in files:
            raise CheckpointError(f"{path} has no {name}; it is not a checkpoint of a training run")
    tensors = {name: from_bytes(files[name], path / name) for name in (MODEL, MOMENTS, AVERAGE) if name in files}
    state, rest = from_json(files[STATE], path / STATE)
    return Snapshot(
        path=path,
        weights=tensors[MODEL],
        moments=tensors[MOMENTS],
        average=tensors.get(AVERAGE),
        state=state,
        rest=rest,
    )


def restore(snapshot: Snapshot, model: nn.Module, optimiser: AdamW, average: MovingAverage | None) -> None:
    """Put everything in its place, or nothing if any of it does not fit."""
    check_fit(weights_of(model), snapshot.weights, snapshot.path / MODEL)
    if average is not None:
        if snapshot.average is None:
            raise DataError(f"{snapshot.path} holds no moving average; it was trained with training.ema = 0")
        check_fit(average.average, snapshot.average, snapshot.path / AVERAGE)
        for name, tensor in average.average.items():
            tensor.copy_(snapshot.average[name])
    load_weights(model, snapshot.weights, snapshot.path / MODEL)
    load_moments(model, optimiser, snapshot.moments)


def average_files(paths: Sequence[str | Path], out: str | Path) -> None:
    """Write the mean of some safetensors files, tensor by tensor, to `out`."""
    content = to_bytes(average_tensors(paths))
    with atomic_write(out) as file:
        file.write(content)


def average_tensors(paths: Sequence[str | Path]) -> dict[str, Tensor]:
    """The mean of every tensor over some files with the same names and shapes; only one file is in memory at a time.

    Of a checkpoint's folder it is the weights that were validated, the moving average where there is one. Sums are in
    float64. What is not a real number, such as an index, must be the same in all files.
    """
    if not paths:
        raise ArgumentError("no files to average; name at least one")
    first = _weights(paths[0])
    sums = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in first.items()}
    for path in paths[1:]:
        tensors = _weights(path)
        check_fit(first, tensors, path)
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                sums[name] += tensor
            elif not torch.equal(sums[name], tensor):
                raise DataError(f"{path} and {paths[0]} differ in {name}, which holds {tensor.dtype} and has no mean")
    return {
        name: (total / len(paths)).to(first[name].dtype) if total.is_floating_point() else total
        for name, total in sums.items()
    }


def _weights(path: str | Path) -> dict[str, Tensor]:
    return read_snapshot(Path(path)).judged if is_checkpoint(Path(path)) else read_tensors(path)


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
