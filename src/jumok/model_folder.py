"""The folder of a trained model: its files have checksums, and readers see a complete model while one is published.

    model.safetensors  recipe.toml  tokenizer*.model …    checksums.json holds the SHA-256 of each
    README.md                                             for people, without a checksum

Publishing writes the new checksums beside the old ones, then everything else, and the weights last; a reader accepts a
file with either checksum. So if publishing is interrupted, the folder holds no model yet, or a complete one. Reading a
folder runs no code from it.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from os.path import isdir, isfile  # which are False for a text that is too long to be a path
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jumok.data.tokenizer import MOST_BYTES as MOST_TOKENIZER_BYTES
from jumok.data.tokenizer_pair import SEPARATE, SHARED
from jumok.errors import ArgumentError, DataError, ModelError
from jumok.files import MOST_JSON, atomic_write, check_file, is_same_file, nearest_path, read_plain, sync_folder
from jumok.models.weights import WeightsHeader, read_header
from jumok.settings import MOST_BYTES as MOST_RECIPE_BYTES
from jumok.settings import parse_toml

BUNDLED = Path(__file__).parent / "bundled" / "en-ko"
"""The tiny model that comes with jumok: English dates, times, durations, measures, amounts and names into Korean."""
WEIGHTS, RECIPE, README, CHECKSUMS = "model.safetensors", "recipe.toml", "README.md", "checksums.json"
COMING, NEW_WEIGHTS = ".checksums.json", ".new-model.safetensors"
"""The checksums and the weights of a folder that is being published, until all of it is there."""
TOKENIZERS = (SHARED, *SEPARATE)
FOREIGN = "config.json"
"""The file that a folder of transformers has, and ours has not."""

Read = TypeVar("Read")


class ModelFolder(NamedTuple):
    """Reads a model folder, and compares every file with its checksum."""

    path: Path
    checksums: list[dict[str, str]]
    """The checksums of the folder, and those of a model that is being published in its place."""

    def recipe(self) -> dict[str, Any]:
        """The tables of recipe.toml."""
        return parse_toml(self._verified(RECIPE, MOST_RECIPE_BYTES), self.path / RECIPE)

    def files(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of those of these files that the model has, by name."""
        present = [name for name in names if (self.path / name).exists() or any(name in of for of in self.checksums)]
        return {name: self._verified(name, MOST_TOKENIZER_BYTES) for name in present}

    def header(self) -> WeightsHeader:
        """The names and shapes of the weights; nothing else of them is read."""
        return read_header(_existing(self.path / WEIGHTS), within=self.path)

    def weights(self, header: WeightsHeader) -> bytes:
        """The contents of model.safetensors, no more than its header declares."""
        return self._verified(WEIGHTS, header.bytes)

    def verify(self) -> dict[str, bytes]:
        """Read every file of the model and compare it with its checksum."""
        others = {name for digests in self.checksums for name in digests} - {WEIGHTS, RECIPE}
        files = self.files(dict.fromkeys([*TOKENIZERS, *sorted(others)]))
        recipe = self._verified(RECIPE, MOST_RECIPE_BYTES)
        return {RECIPE: recipe, **files, WEIGHTS: self.weights(self.header())}

    def _verified(self, name: str, most: int) -> bytes:
        content = read_plain(_existing(self.path / name), most=most, within=self.path)
        if _digest(content) not in {digests.get(name) for digests in self.checksums}:
            raise ModelError(
                f"{self.path / name} is not the file that was saved, or {CHECKSUMS} is not: the checksums differ; "
                f"one of the two was cut short, damaged or changed; copy the folder again{_of_edited(name, self.path)}"
            )
        return content


def _of_edited(name: str, folder: Path) -> str:
    """What to do about a recipe that was edited by hand."""
    if name != RECIPE:
        return ""
    return f", or undo your edit: jumok train {folder} --resume --set SECTION.NAME=VALUE changes the settings of a run"


def read_folder(folder: Any, read: Callable[[ModelFolder], Read]) -> Read:
    """The result of `read` for a model folder; tried again if it fails, because a run may have published a model."""
    path = model_path(folder)
    if isfile(path) and not is_model_file(path):
        raise ModelError(f"{path} is a file, not a model folder{_instead_of_file(path)}")
    if not path.is_dir():
        raise ModelError(f"there is no model folder {path}{_where_instead(path)}")
    try:
        return read(_opened(path))
    except (ModelError, DataError):
        return read(_opened(path))


def _where_instead(path: Path) -> str:
    """The end of a message about a path that is no folder: what to do."""
    if is_model_file(path):
        return f"; name the folder of this file: {path.parent}"
    return nearest_path(path) or "; `jumok train` writes one"


def _instead_of_file(path: Path) -> str:
    """The end of a message about a file that is none of a model."""
    if path.suffix == ".toml":
        return f"; `jumok train {path}` writes the folder of its model, runs/{path.stem} by default"
    return "; name the folder that `jumok train` wrote"


def is_model_file(path: Path) -> bool:
    """Whether a path is a file in a model folder."""
    return isfile(path) and isfile(path.parent / WEIGHTS)


def model_path(folder: Any) -> Path:
    """The path of a model folder; raises an ArgumentError for anything that is not a path."""
    if not isinstance(folder, str | os.PathLike):
        raise ArgumentError(f"folder must be the path of a model's folder, but it is {folder!r}")
    return Path(folder)


def recipe_tables(folder: str | Path) -> dict[str, Any]:
    """The tables of a folder's recipe, not compared with its checksum; none where there is no readable recipe."""
    path = Path(folder) / RECIPE
    try:
        return parse_toml(read_plain(path, most=MOST_RECIPE_BYTES, within=path.parent), path)
    except ValueError:
        return {}


def is_whole(folder: Path) -> bool:
    """Whether every file of a model is there and as it was saved."""
    try:
        read_folder(folder, ModelFolder.verify)
    except (ModelError, DataError):
        return False
    return True


def publish(folder: Path, files: Mapping[str, bytes], readme: str, weights: Path) -> None:
    """Make `files` and the file `weights`, which is in the folder, the model that is there.

    Where a model is published already, readers meet its files and the new ones mixed: the two must fit each other. They
    do in a training run, whose weights change and whose vocabulary does not; otherwise `withdraw` the old one first.
    """
    if any((folder / name).exists() for name in TOKENIZERS if name not in files):
        withdraw(folder)  # it was a model of another kind
    _settle(folder)
    with open(weights, "rb") as file:
        digests = {WEIGHTS: hashlib.file_digest(file, "sha256").hexdigest()}
    digests |= {name: _digest(content) for name, content in files.items()}
    write_file(folder / COMING, json.dumps(digests, indent=1).encode())
    for name, content in files.items():
        write_file(folder / name, content)
    write_file(folder / README, readme.encode())
    os.replace(weights, folder / WEIGHTS)
    weights.unlink(missing_ok=True)  # a rename does nothing where both names are one file's
    sync_folder(folder)
    os.replace(folder / COMING, folder / CHECKSUMS)
    sync_folder(folder)


def withdraw(folder: Path) -> None:
    """Remove the model from a folder, its weights first, so that one of another kind can be published there."""
    for name in (WEIGHTS, *TOKENIZERS, COMING, CHECKSUMS):
        (folder / name).unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Write a file, completely or not at all."""
    with atomic_write(path) as file:
        file.write(content)


def own_files(folder: Path) -> list[Path]:
    """The files that make a folder a model."""
    tokenizers = [folder / name for name in TOKENIZERS if (folder / name).exists()]
    return [folder / WEIGHTS, folder / RECIPE, *tokenizers, folder / README, folder / CHECKSUMS]


def check_output_path(option: str, output: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Refuse, before any work, an output path that cannot be written or that the command reads.

    A model folder among the inputs stands for the files of the model; other files may be written into it.
    """
    if output is None:
        return
    for path in _input_files(inputs):
        if is_same_file(output, path):
            same = "" if str(path) == str(output) else f" is the file {path}, and"
            raise ArgumentError(f"{option} {output}{same} would be overwritten, but it is an input; name another file")
    check_file(output)


def _input_files(inputs: Iterable[str | Path | None]) -> Iterator[Path]:
    for path in inputs:
        if path is not None:
            yield from own_files(Path(path)) if isdir(path) else [Path(path)]


def _settle(folder: Path) -> None:
    """Write one set of checksums for a folder that an interrupted publishing left with two."""
    if not (folder / COMING).exists():
        return
    try:
        digests = {name: _digest(content) for name, content in _opened(folder).verify().items()}
    except (ModelError, DataError):
        return  # no whole model, so that no reader depends on it
    write_file(folder / CHECKSUMS, json.dumps(digests, indent=1).encode())


def _opened(folder: Path) -> ModelFolder:
    _existing(folder / RECIPE)
    coming = [_checksums(folder / COMING)] if (folder / COMING).exists() else []
    checksums = [_checksums(folder / CHECKSUMS), *coming] if (folder / CHECKSUMS).exists() or not coming else coming
    return ModelFolder(folder, checksums)


def _existing(path: Path) -> Path:
    if not path.exists() and not path.is_symlink():
        inside = sorted(str(weights.parent) for weights in path.parent.glob(f"*/{WEIGHTS}"))
        hint = f"; the models in it: {', '.join(inside[:5])}{', …' if len(inside) > 5 else ''}" if inside else ""
        if any(path.parent.glob("checkpoints/step-*")):
            recipe = "RECIPE --out " if path.name == RECIPE else ""
            hint = (
                f"; it holds a training run, which writes the model at its next validation: jumok train {recipe}"
                f"{path.parent} --resume (in Python resume=True)"
            )
        if path.name == RECIPE and (path.parent / FOREIGN).exists():
            hint = f"; if it is a model of transformers, import it first: jumok import {path.parent} --out NEW_FOLDER"
        raise ModelError(f"{path.parent} is not a complete model: {path.name} is missing{hint}")
    return path


def _checksums(path: Path) -> dict[str, str]:
    content = read_plain(_existing(path), most=MOST_JSON, within=path.parent)
    try:
        digests = json.loads(content)
    except (ValueError, RecursionError):
        raise ModelError(f"{path} is damaged: it is not JSON; copy the folder again") from None
    if not isinstance(digests, dict) or not digests.keys() >= {WEIGHTS, RECIPE}:
        raise ModelError(f"{path} is damaged: it does not name {WEIGHTS} and {RECIPE}; copy the folder again")
    for name, digest in digests.items():
        if not re.fullmatch(r"[^/\\]+", name) or not re.fullmatch(r"[0-9a-f]{64}", str(digest)):
            raise ModelError(f"{path} is damaged: its entry for {name!r} is not a checksum; copy the folder again")
    return digests


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
