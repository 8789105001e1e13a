"""Folders that take seconds to make: the first worker that needs one makes it, and the others use it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder of this name for all workers of a run, filled by `make`; not to be changed."""
    own = factory.getbasetemp()
    folder = (own.parent if own.name.startswith("popen-") else own) / f"shared-{name}"
    ready = folder.with_suffix(".ready")
    with FileLock(folder.with_suffix(".lock")):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            ready.touch()
    return folder
