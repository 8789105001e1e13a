"""The model folders of `jumok demo`: it replaces those of an earlier demo once its own are done, and nothing else."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jumok.errors import ArgumentError
from jumok.files import check_file
from jumok.model_folder import COMING, NEW_WEIGHTS
from jumok.training.resume import BESIDE, WRITTEN, only_here

MARK = ".jumok-demo"
"""A file that says that a demo made the folder it is in."""
OWN = {MARK, *WRITTEN, *BESIDE, "data", "tensorboard", COMING, NEW_WEIGHTS}
FIXED, ATTENTION, PICTURE = "fixed", "attention", "attention.svg"


def check_models(out: Path) -> None:
    """Refuse, before any work, places where a demo cannot write or would delete what no demo made."""
    for folder in (out / FIXED, out / ATTENTION):
        _check(folder)
        _check(_unfinished(folder))
    check_file(out / PICTURE)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to train into, which takes the place of `folder` once all is well; until then that stays."""
    new = _unfinished(folder)
    _remove(new)  # of a demo that was killed
    new.mkdir(parents=True)
    (new / MARK).write_text("This folder was made by `jumok demo`; the next demo replaces it.\n", encoding="utf-8")
    try:
        yield new
        _remove(folder)
        os.replace(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.unfinished")


def _remove(folder: Path) -> None:
    _check(folder)
    if folder.exists():
        shutil.rmtree(folder)


def _check(folder: Path) -> None:
    """Raise an ArgumentError unless the folder is not there, is empty, or holds what a demo wrote and no more."""
    elsewhere = "choose another folder with --out, or move it away"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        kind = "link" if folder.is_symlink() else "file"
        raise ArgumentError(f"{folder} is a {kind}, and a demo writes a model there; {elsewhere}")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in names if not _is_own(name)] if MARK in names else names
    if foreign:
        held = ", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else "")
        raise ArgumentError(f"{folder} holds what no demo made ({held}), and a demo replaces it; {elsewhere}")
    with only_here(folder):
        pass


def _is_own(name: str) -> bool:
    return name in OWN or name.endswith(".unfinished")
