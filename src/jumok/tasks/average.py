"""The mean of the weights of several models, for every task."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from jumok.errors import ModelError
from jumok.files import check_place
from jumok.model_folder import COMING, WEIGHTS
from jumok.models.weights import check_shapes, load_weights, read_header, weights_of
from jumok.tasks import load_trained
from jumok.tasks.describe import count
from jumok.tasks.task import AnyTask
from jumok.training.checkpoint import average_tensors, is_checkpoint
from jumok.training.resume import DESCRIBED, has_checkpoints, why_foreign


def average_models(models: Sequence[str | Path], out: str | Path, *, task: AnyTask | None = None) -> None:
    """Write a model whose weights are the mean of those of `models`; everything else is that of the first folder.

    Models are folders, checkpoints of a run or .safetensors files; at least one must be a folder or a checkpoint.
    """
    models = without_backups(models)
    first, *others = _folders(models)
    _check_out(Path(out))
    task, trained = load_trained(first, task=task)
    for folder in others:
        _, other = load_trained(folder, task=task)
        if why := task.difference(other, trained):
            raise ModelError(f"{folder} {why} {first}, so they cannot be averaged")
    _load_mean(trained.model, models)
    task.save(out, trained, scores={"averaged over": count(len(models), "model")})
    task.keep_files([first, *others], Path(out), trained)


def without_backups(models: Sequence[str | Path]) -> list[str | Path]:
    """The models without copies called *.bak, which a pattern such as step-* also matches."""
    return [model for model in models if Path(model).suffix != ".bak"] or list(models)


def _folders(models: Sequence[str | Path]) -> list[Path]:
    """The model folders; for a checkpoint, the folder of its run."""
    if missing := [model for model in models if not Path(model).exists()]:
        raise ModelError(f"there is no model {missing[0]}; name folders of models or .safetensors files")
    folders = list(dict.fromkeys(_run_of(Path(model)) for model in models if Path(model).is_dir()))
    if not folders:
        raise ModelError(f"none of {', '.join(map(str, models))} is a model folder; at least one must be")
    return folders


def _run_of(folder: Path) -> Path:
    """The model folder that a checkpoint of a run belongs to; any other folder itself."""
    return folder.resolve().parent.parent if is_checkpoint(folder) else folder


def _check_out(out: Path) -> None:
    check_place(out)
    if (out / WEIGHTS).exists():
        raise ModelError(f"{out} already holds a model; write the mean into another folder")
    if has_checkpoints(out / "checkpoints"):
        raise ModelError(f"{out} already holds a training run; write the mean into another folder")
    if not (out / COMING).exists() and (why := why_foreign(out, DESCRIBED)):
        raise ModelError(f"{why}; write the mean into another folder")


def _load_mean(model: nn.Module, models: Sequence[str | Path]) -> None:
    paths = [Path(model) for model in models]
    files = [path / WEIGHTS if path.is_dir() and not is_checkpoint(path) else path for path in paths]
    for path in files:
        shapes = read_header(path / WEIGHTS if path.is_dir() else path).shapes
        check_shapes(weights_of(model), shapes, path, hint=f"average models of the same recipe as {models[0]} only")
    load_weights(model, average_tensors(files), files[0])
