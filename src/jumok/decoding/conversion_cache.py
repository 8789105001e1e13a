"""The form of a model that CTranslate2 reads, kept in the model's folder.

    ctranslate2/float32/    model.bin  config.json  …  made_here.json

An export is used only where it was made: made_here.json records the weights it was made from, the machine, and the
inode numbers and times of its files, which a copy does not keep. So an export that was copied from elsewhere or
modified later is never read, nor one that was tried on another machine of a shared disk; it is made again, which takes
a second. If the model folder is read-only, the export is made in a temporary folder, read, and removed.
"""

import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jumok.errors import JumokError
from jumok.files import parse_json, read_plain
from jumok.models.weights import weights_of

FOLDER, STAMP = "ctranslate2", "made_here.json"
FORM = 1
"""Version of the export; increase it when the same weights are exported in another way."""
MOST_STAMP = 1 << 16
ABANDONED = 3600.0
"""Seconds after which an unfinished export is taken for one whose writer was killed."""


def weights_digest(model: nn.Module) -> str:
    """Identifies the weights of a model."""
    digest = hashlib.sha256()
    for name, weight in sorted(weights_of(model).items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
        digest.update(weight.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


@contextmanager
def exported(place: Path | None, identity: str, write: Callable[[Path], None]) -> Iterator[Path]:
    """A folder that `write` fills, or filled earlier at `place` for the same `identity`; it is read in the context."""
    machine = f"{platform.node()} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    identity = f"{FORM} {version('ctranslate2')} {machine} {identity}"
    if place is not None and _is_made_here(place, identity):
        yield place
        return
    if place is not None:
        try:
            _make(place, identity, write)
        except OSError:
            pass  # read-only, full, or another process made it at the same moment
        else:
            yield place
            return
    with tempfile.TemporaryDirectory(prefix="jumok-") as folder:
        write(Path(folder))
        yield Path(folder)


def _make(place: Path, identity: str, write: Callable[[Path], None]) -> None:
    """Write beside `place`, then rename: readers see a complete export or none."""
    if place.parent.is_symlink():
        raise OSError(f"{place.parent} is a symbolic link to another folder")
    place.parent.mkdir(exist_ok=True)
    for left in place.parent.glob(f".{place.name}-*"):
        if time.time() - left.stat().st_mtime > ABANDONED:
            shutil.rmtree(left, ignore_errors=True)
    coming = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        write(coming)
        stamp = {"identity": identity, "files": _files(coming)}
        (coming / STAMP).write_text(json.dumps(stamp), encoding="utf-8")
        coming.chmod(0o755)
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif place.exists():
            shutil.rmtree(place)
        os.rename(coming, place)
    except RuntimeError as error:  # what CTranslate2 raises where it cannot write
        raise OSError(str(error)) from None
    finally:
        shutil.rmtree(coming, ignore_errors=True)


def _is_made_here(place: Path, identity: str) -> bool:
    try:
        if place.is_symlink() or place.parent.is_symlink():
            return False
        stamp = parse_json(read_plain(place / STAMP, most=MOST_STAMP, within=place))
        return bool(stamp == {"identity": identity, "files": _files(place)})
    except (OSError, ValueError, JumokError):
        return False


def _files(folder: Path) -> dict[str, Any]:
    """What a copy of a file does not share with it: its inode number, and the time of its last change."""
    files = (entry for entry in os.scandir(folder) if entry.name != STAMP)
    stats = {entry.name: entry.stat(follow_symlinks=False) for entry in files}
    return {name: [stat.st_ino, stat.st_ctime_ns, stat.st_size] for name, stat in sorted(stats.items())}
