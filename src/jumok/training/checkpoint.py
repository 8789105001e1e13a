"""Checkpoints on disk: a folder of files that appears whole or not at all, and is checked when it is read.

    checkpoints/step-00001000/model.safetensors, ..., manifest.json     name, bytes and SHA-256 of every other file

A checkpoint is written under a hidden name, forced to disk, and renamed; removed ones are renamed before they go. So
whatever moment the power fails at, every folder called step-... is complete.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from jumok.errors import CheckpointError, DataError
from jumok.files import MOST_JSON, read_plain, sync_folder
from jumok.models.memory_check import memory_of

MANIFEST = "manifest.json"
FORMAT = 1
NAME = re.compile(r"step-[0-9]{8,18}")
WRITING, REMOVING, REPLACED, DAMAGED = ".writing-", ".removing-", ".replaced-", "damaged-"


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; a copy under another name, such as step-00000048.bak, is none."""
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
        with _said("write the checkpoint", path):
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir(parents=True)
            files = {name: _write(writing / name, make()) for name, make in parts.items()}
            _write(writing / MANIFEST, json.dumps({"format": FORMAT, "files": files}, indent=1).encode())
            sync_folder(writing)
            _put(writing, path)
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
    """Rename a damaged checkpoint, so that it is no longer one but can still be looked at."""
    aside = path.with_name(DAMAGED + path.name)
    with _said("rename", path):
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    return aside


def prune(folder: Path, *, keep: int, best: int | None) -> None:
    """Remove all checkpoints but the newest `keep` and the one of step `best`."""
    for path in checkpoints(folder)[:-keep]:
        if step_of(path) != best:
            with _said("remove", path):
                going = path.rename(path.with_name(REMOVING + path.name))
                shutil.rmtree(going)


def tidy(folder: Path) -> None:
    """Clear away what a killed process left half done."""
    with _said("tidy", folder):
        for old in folder.glob(f"{REPLACED}*"):
            place = folder / old.name.removeprefix(REPLACED)
            if not place.exists():
                old.rename(place)
        for prefix in (WRITING, REMOVING, REPLACED):
            for path in folder.glob(f"{prefix}*"):
                shutil.rmtree(path)


def _put(new: Path, path: Path) -> None:
    """Rename `new` to `path`, where there may be an older one; `tidy` can undo the first half of that."""
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
    return f"copy {path.name} again from where it is whole, or delete it to go on from the one before"


@contextmanager
def _said(what: str, path: Path) -> Iterator[None]:
    """Turn the system's errors into one line with what to do."""
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: "free some space on the disk, then go on with the same command and --resume",
            errno.EDQUOT: "free some of your quota, then go on with the same command and --resume",
            errno.EROFS: "name a folder that can be written to",
            errno.EACCES: "name a folder you may write to, or change its permissions",
            errno.EPERM: "name a folder you may write to, or change its permissions",
        }.get(error.errno or 0, "remove the cause, then go on with the same command and --resume")
        raise CheckpointError(
            f"cannot {what} {path}: {error.strerror or error}; {advice} (checkpoints already there are untouched)"
        ) from None
