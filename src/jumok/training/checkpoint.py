"""Checkpoints: folders that are written completely or not at all, their contents, and the published weights."""

import errno
import json
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from jumok.errors import ArgumentError, CheckpointError, DataError
from jumok.files import MOST_JSON, atomic_write, read_plain, sync_folder
from jumok.model_folder import NEW_WEIGHTS
from jumok.models.memory_check import memory_of
from jumok.models.weights import (
    check_fit,
    from_bytes,
    laid_out_as,
    load_weights,
    read_tensors,
    to_bytes,
    weights_of,
    whole,
)
from jumok.training.config import TrainingConfig
from jumok.training.optimiser import MovingAverage, load_moments, moments
from jumok.training.processes import current_processes
from jumok.training.state import Origin, TrainingState, from_json, to_json

MANIFEST = "manifest.json"
FORMAT = 1
NAME = re.compile(r"step-[0-9]{8,18}")
WRITING, REMOVING, REPLACED, DAMAGED = ".writing-", ".removing-", ".replaced-", "damaged-"


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; copies under another name, such as step-00000048.bak, do not count."""
    return sorted((path for path in folder.glob("step-*") if NAME.fullmatch(path.name)), key=step_of)


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is a checkpoint, whatever it is called now."""
    return (folder / MANIFEST).is_file()


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint after a step is."""
    return folder / f"step-{step:08}"


def step_of(path: Path) -> int:
    """The step a checkpoint was written after."""
    return int(path.name.removeprefix("step-"))


def write_checkpoint(folder: Path, step: int, parts: dict[str, Callable[[], bytes]]) -> Path:
    """Write a checkpoint of the files `parts` makes, one after another; on any failure the folder stays as it was."""
    path = checkpoint_path(folder, step)
    writing = folder / f"{WRITING}{path.name}"
    try:
        with _explained("write the checkpoint", path):
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir(parents=True)
            files = {name: _write(writing / name, make()) for name, make in parts.items()}
            _write(writing / MANIFEST, json.dumps({"format": FORMAT, "files": files}, indent=1).encode())
            sync_folder(writing)
            _replace(writing, path)
            sync_folder(folder)
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return path


def read_checkpoint(path: Path) -> dict[str, bytes]:
    """Every file of a checkpoint, each with the length and checksum it was written with."""
    files = _manifest(path)
    size, memory = sum(wanted["bytes"] for wanted in files.values()), memory_of(torch.device("cpu"))
    if memory is not None and size > memory:
        raise CheckpointError(f"{path} would take {size:,} bytes of memory, but there are {memory:,}; {_advice(path)}")
    return {name: _read(path / name, wanted) for name, wanted in files.items()}


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, so that it is skipped but can still be inspected."""
    aside = path.with_name(DAMAGED + path.name)
    with _explained("rename", path):
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    return aside


def prune(folder: Path, *, keep: int, best: int | None) -> None:
    """Remove all checkpoints but the newest `keep` and the one of step `best`."""
    for path in checkpoints(folder)[:-keep]:
        if step_of(path) != best:
            with _explained("remove", path):
                going = path.rename(path.with_name(REMOVING + path.name))
                shutil.rmtree(going)


def tidy(folder: Path) -> None:
    """Remove or complete what a killed process left unfinished."""
    with _explained("tidy", folder):
        for old in folder.glob(f"{REPLACED}*"):
            place = folder / old.name.removeprefix(REPLACED)
            if not place.exists():
                old.rename(place)
        for prefix in (WRITING, REMOVING, REPLACED):
            for path in folder.glob(f"{prefix}*"):
                shutil.rmtree(path)


def _replace(new: Path, path: Path) -> None:
    """Rename `new` to `path`, replacing an older one; `tidy` can undo a replacement that was cut short."""
    old = path.with_name(REPLACED + path.name)
    if path.exists():
        path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, content: bytes) -> dict[str, Any]:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": len(content), "sha256": sha256(content).hexdigest()}


def _manifest(path: Path) -> dict[str, dict[str, Any]]:
    content = _plain(path / MANIFEST, MOST_JSON)
    try:
        manifest = json.loads(content)
        if manifest["format"] != FORMAT:
            raise CheckpointError(f"{path} is of format {manifest['format']}, which a newer jumok wrote; upgrade jumok")
        files: dict[str, dict[str, Any]] = manifest["files"]
        names_fit = all(Path(name).name == name and len(name) <= 255 for name in files)
        if not names_fit or any(not 0 <= wanted["bytes"] < 2**63 for wanted in files.values()):
            raise ValueError("a file outside the folder, or larger than any")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{path / MANIFEST} is damaged; {_advice(path)}") from None
    return files


def _read(path: Path, wanted: dict[str, Any]) -> bytes:
    if path.is_file() and (size := path.stat().st_size) != wanted["bytes"]:
        raise CheckpointError(f"{path} has {size} bytes but was written with {wanted['bytes']}; {_advice(path.parent)}")
    content = _plain(path, wanted["bytes"])
    if sha256(content).hexdigest() != wanted.get("sha256"):
        raise CheckpointError(f"{path} was changed after it was written: its checksum differs; {_advice(path.parent)}")
    return content


def _plain(path: Path, most: int) -> bytes:
    if not path.exists():
        raise CheckpointError(f"{path} is missing; {_advice(path.parent)}")
    try:
        return read_plain(path, most=most, within=path.parent)
    except DataError as error:
        raise CheckpointError(f"{error}; {_advice(path.parent)}") from None


def _advice(path: Path) -> str:
    return f"restore {path.name} from a backup"


@contextmanager
def _explained(what: str, path: Path) -> Iterator[None]:
    """Turn the system's errors into one line with what to do."""
    try:
        yield
    except OSError as error:
        again = "then continue with the same command and --resume (in Python resume=True)"
        advice = {
            errno.ENOSPC: f"free some space on the disk, {again}",
            errno.EDQUOT: f"free some of your quota, {again}",
            errno.EROFS: "name a folder that can be written to",
            errno.EACCES: "name a folder you may write to, or change its permissions",
            errno.EPERM: "name a folder you may write to, or change its permissions",
        }.get(error.errno or 0, f"remove the cause, {again}")
        raise CheckpointError(
            f"cannot {what} {path}: {error.strerror or error}; {advice} (checkpoints already there are untouched)"
        ) from None


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
    def validated_weights(self) -> dict[str, Tensor]:
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
    """Write everything needed to resume from here: the leading process writes, and the others send it their parts."""
    tensors = {MODEL: weights_of(model), MOMENTS: moments(model, optimiser)}
    if average is not None:
        tensors[AVERAGE] = average.average
    if not current_processes().leads:
        for name in tensors:
            deque(whole(tensors[name]), maxlen=0)
        return checkpoint_path(folder, state.step)
    parts: dict[str, Callable[[], bytes]] = {name: partial(_bytes_of_whole, tensors[name]) for name in tensors}
    parts[STATE] = lambda: to_json(state, config, origin)
    return write_checkpoint(folder, state.step, parts)


def _bytes_of_whole(tensors: dict[str, Tensor]) -> bytes:
    return to_bytes({name: tensor.cpu() for name, tensor in whole(tensors)})


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
            tensor.copy_(laid_out_as(tensor, snapshot.average[name]))
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
    float64. What is not a real number, such as an index, must be the same in all files; only the number of batches that
    a batch norm has seen may differ, and the largest is kept.
    """
    if not paths:
        raise ArgumentError("no files to average; name at least one")
    first = _validated(paths[0])
    sums = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in first.items()}
    for path in paths[1:]:
        tensors = _validated(path)
        check_fit(first, tensors, path)
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                sums[name] += tensor
            elif name.endswith(".num_batches_tracked"):
                sums[name] = torch.maximum(sums[name], tensor)
            elif not torch.equal(sums[name], tensor):
                raise DataError(f"{path} and {paths[0]} differ in {name}, which holds {tensor.dtype} and has no mean")
    return {
        name: (total / len(paths)).to(first[name].dtype) if total.is_floating_point() else total
        for name, total in sums.items()
    }


def _validated(path: str | Path) -> dict[str, Tensor]:
    return read_snapshot(Path(path)).validated_weights if is_checkpoint(Path(path)) else read_tensors(path)


def best_weights(
    folder: Path, model: nn.Module, average: MovingAverage | None, state: TrainingState
) -> dict[str, Tensor]:
    """The weights of the best validation; the current ones if there was no validation."""
    if state.best_step is not None:
        return read_snapshot(checkpoint_path(folder, state.best_step)).validated_weights
    return dict(whole(weights_of(model) | (average.average if average is not None else {})))


def write_final(folder: Path, model: nn.Module, weights: dict[str, Tensor]) -> Path:
    """Put these weights into the model and, in the leading process, into a file that is to become model.safetensors."""
    load_weights(model, weights, folder / MODEL)
    content = _bytes_of_whole(weights_of(model))
    return _write_weights(folder, content) if current_processes().leads else folder / NEW_WEIGHTS


def validated_file(folder: Path, checkpoint: Path) -> Path:
    """The weights that a checkpoint was validated with, in a file that is to become model.safetensors.

    It is the checkpoint's own wherever a file may have two names: nothing is written twice.
    """
    if (checkpoint / AVERAGE).exists():
        return _write_weights(folder, to_bytes(read_tensors(checkpoint / MODEL) | read_tensors(checkpoint / AVERAGE)))
    path = folder / NEW_WEIGHTS
    path.unlink(missing_ok=True)
    try:
        os.link(checkpoint / MODEL, path)
    except OSError:
        return _write_weights(folder, (checkpoint / MODEL).read_bytes())
    return path


def publish_weights(weights: Path, state: TrainingState) -> None:
    """Make a new file of weights the file of the model."""
    os.replace(weights, weights.with_name(MODEL))
    sync_folder(weights.parent)


def has_weights(folder: Path) -> bool:
    """Whether there are weights in a folder."""
    return (folder / MODEL).exists()


def _write_weights(folder: Path, content: bytes) -> Path:
    with atomic_write(folder / NEW_WEIGHTS) as file:
        file.write(content)
    return folder / NEW_WEIGHTS
