"""What of a run goes into a checkpoint, and how it comes back out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW

from jumok.errors import CheckpointError, DataError
from jumok.models.weights import check_fit, from_bytes, load_weights, to_bytes, weights_of
from jumok.training.checkpoint import read_checkpoint, write_checkpoint
from jumok.training.config import TrainingConfig
from jumok.training.ema import MovingAverage
from jumok.training.optimiser import load_moments, moments
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
