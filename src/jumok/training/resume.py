"""How a run starts: from scratch in an empty folder, or from the newest intact checkpoint."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import AdamW

from jumok.data.fingerprint import VOCABULARIES, foreign_files
from jumok.errors import CheckpointError, DataError
from jumok.files import MOST_JSON, check_place, read_plain, remove_unfinished
from jumok.training.checkpoint import (
    REMOVING,
    STATE,
    WRITING,
    Snapshot,
    checkpoints,
    prune,
    read_snapshot,
    restore,
    set_aside,
    tidy,
)
from jumok.training.config import TrainingConfig
from jumok.training.optimiser import MovingAverage
from jumok.training.processes import current_processes
from jumok.training.state import Origin, TrainingState, check_same_data, check_same_settings, from_json, made_by

WRITTEN = ("checkpoints", "metrics.jsonl", "model.safetensors")
"""What training writes into a run's folder."""
DESCRIBED = ("recipe.toml", "README.md", "checksums.json", *VOCABULARIES)
"""Files of a model whose names a user's own files may share."""
BESIDE = (*DESCRIBED, "metrics.jsonl", "curve.png")
"""The same of a run's files."""


def begin(
    folder: Path,
    model: nn.Module,
    optimiser: AdamW,
    average: MovingAverage | None,
    config: TrainingConfig,
    origin: Origin,
    *,
    resume: bool,
    say: Callable[[str], None],
) -> TrainingState:
    """The state to continue from, with the model, the optimiser and the metrics restored."""
    chosen: list[Snapshot] = []

    def choose() -> Path | None:
        snapshot = _snapshot_to_go_on_from(folder, say, resume=resume)
        if snapshot is None:
            return None
        check_same_settings(snapshot.rest, config, origin, folder)
        check_same_data(snapshot.rest, origin, folder)
        chosen.append(snapshot)
        return snapshot.path

    path = current_processes().first(choose)
    if path is None:
        return TrainingState()
    snapshot = chosen[0] if chosen else read_snapshot(path)
    restore(snapshot, model, optimiser, average)
    before, now = snapshot.rest["made_by"], made_by()
    if changed := [f"{name} {before.get(name)} is now {now[name]}" for name in now if before.get(name) != now[name]]:
        say(f"since the checkpoint was written, {', '.join(changed)}; numbers may differ in their last digits")
    say(f"resuming after step {snapshot.state.step}, from {snapshot.path}")
    if current_processes().leads:  # a kill may have come before it
        prune(folder / "checkpoints", keep=config.keep, best=snapshot.state.best_step)
    return snapshot.state


def _snapshot_to_go_on_from(folder: Path, say: Callable[[str], None], *, resume: bool) -> Snapshot | None:
    """The newest checkpoint of a run that is to be resumed, if there is one, after tidying up the folder."""
    tidy(folder / "checkpoints")
    for place in (folder, folder / "data"):
        remove_unfinished(place)
    snapshot = newest_whole(folder / "checkpoints", say) if resume else None
    if snapshot is None and resume:
        check_no_model(folder)
    return snapshot


def will_resume(
    folder: Path, config: TrainingConfig, settings: Mapping[str, Mapping[str, Any]], *, resume: bool
) -> bool:
    """Whether a run continues from a checkpoint; raises an error if its folder cannot be used."""
    for place in (folder, folder / "data", folder / "checkpoints"):
        check_place(place)
    check_folder(folder, resume=resume)
    begun = resume and can_resume(folder, config, settings)
    if resume and not begun:
        check_no_model(folder)
    if not begun and (foreign := foreign_files(folder / "data")):
        raise CheckpointError(
            f"{folder / 'data'} holds {' and '.join(foreign)}, which the run's own data would overwrite; "
            "train into another folder: --out runs/NAME (in Python out=)"
        )
    return begun


def can_resume(folder: Path, config: TrainingConfig, settings: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether there is a checkpoint to continue from; a ConfigError where it is one of a run with other settings."""
    paths, rest = checkpoints(folder / "checkpoints"), None
    with suppress(DataError, CheckpointError):  # damage is dealt with where checkpoints are read
        if paths:
            path = paths[-1] / STATE
            _, rest = from_json(read_plain(path, most=MOST_JSON, within=paths[-1]), path)
    if rest is not None:
        check_same_settings(rest, config, Origin(settings=settings), folder)
    return bool(paths)


def check_folder(folder: Path, *, resume: bool) -> None:
    """Refuse a folder that holds a run that is not to be resumed; a run without a checkpoint does not count."""
    with folder_lock(folder):
        pass
    present = [name for name in WRITTEN if (folder / name).exists()]
    if not resume and ((folder / "model.safetensors").exists() or has_checkpoints(folder / "checkpoints")):
        raise CheckpointError(
            f"{folder} already holds a training run ({', '.join(present)}); continue it with --resume (in Python "
            "resume=True), train into another folder, or delete this one"
        )
    begun = any((folder / name).exists() for name in ("checkpoints", "model.safetensors"))
    if not begun and (why := why_foreign(folder, BESIDE)):
        raise CheckpointError(f"{why}; train into another folder: --out runs/NAME (in Python out=)")


def check_no_model(folder: Path) -> None:
    """Refuse to resume a run whose model is there without its checkpoints; a new run would overwrite it."""
    if (folder / "model.safetensors").exists():
        raise CheckpointError(
            f"{folder} holds a trained model but no checkpoint to continue from; train into another folder"
        )


def why_foreign(folder: Path, names: Sequence[str]) -> str:
    """What files of the user's own a model with files of these names would overwrite; "" if none."""
    existing = [name for name in names if (folder / name).exists()]
    return f"{folder} holds {' and '.join(existing)}, which the model's own would overwrite" if existing else ""


def has_checkpoints(folder: Path) -> bool:
    """Whether a folder of checkpoints holds any, whole or not."""
    return folder.is_dir() and any(not path.name.startswith((WRITING, REMOVING)) for path in folder.iterdir())


def make_folder(folder: Path, *, resume: bool) -> None:
    """Make the run's folder, unless a run is there that is not to be resumed."""
    check_folder(folder, resume=resume)
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"cannot make the folder {folder / 'checkpoints'}: {error.strerror or error}; name one you may write to"
        ) from None


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock the run's folder, so that no second process trains into it; a process that dies releases the lock."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    if not (folder / "checkpoints").is_dir():
        yield
        return
    handle = os.open(folder / "checkpoints", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise CheckpointError(
            f"another process is training into {folder}; wait for it, stop it, or train into another folder"
        ) from None
    except OSError:
        pass  # a disk that knows no locks
    try:
        yield
    finally:
        os.close(handle)


def newest_whole(folder: Path, say: Callable[[str], None]) -> Snapshot | None:
    """The newest checkpoint; where it is damaged the one before it, with a notice. None if there is none."""
    paths, damage = checkpoints(folder), None
    for path in reversed(paths):
        try:
            snapshot = read_snapshot(path)
        except (CheckpointError, DataError) as error:
            damage = damage or error
            say(f"{error}")
            continue
        for newer in paths[paths.index(path) + 1 :]:
            say(f"continuing from {path.name} instead; {newer.name} is now called {set_aside(newer).name}")
        return snapshot
    if damage is not None:
        raise CheckpointError(
            f"every checkpoint in {folder} is damaged; the newest: {damage}, or begin another run, from the saved "
            "model if there is one (training.start_from)"
        )
    return None
