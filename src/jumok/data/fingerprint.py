"""What prepared data were made from, kept beside them in sources.json, so that the same text is known again.

A file whose place, size and time are as recorded is not read; of any other the content decides, by its SHA-256.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jumok.data.sources import DataConfig
from jumok.data.subwords import settings_of
from jumok.data.tokenizer import SEPARATE, SHARED
from jumok.errors import DataError
from jumok.files import atomic_write, parse_json

RECORD = "sources.json"
FILES = ("source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "alignments")
VOCABULARIES = (SHARED, *SEPARATE)
ARRAYS = (
    "starts", "sources", "features", "feature_starts", "columns", "values", "edge_features", "labels", "graph", "kept",
    "train", "valid", "test", "train.images", "valid.images",
)  # fmt: skip
MADE = (RECORD, "graph.json", "references.json", "train.store", "valid.store", *(f"{name}.npy" for name in ARRAYS))
"""What is written, beside vocabularies, where data are prepared; files of the user's may have these names, too."""
LATER = {"alignments": "", "joined": (1,)}  # settings that data prepared before there were any need not know


class Source(NamedTuple):
    """A file that was read."""

    named: str
    """As the recipe says it."""
    path: str
    """Where that is, from anywhere."""
    bytes: int
    time: int
    sha256: str


class Record(NamedTuple):
    """What the data in a folder were made from."""

    inputs: str
    """The fingerprint that the tokenizers and stores were written with."""
    settings: str
    files: dict[str, Source]


class Inputs(NamedTuple):
    """What data are to be made from."""

    fingerprint: str
    """Changes with everything, the names and times of files, too."""
    settings: str
    """Changes with everything but the files."""
    files: dict[str, str]
    """Paths, by the settings that name them."""
    digests: Mapping[str, Callable[[], str]] = MappingProxyType({})
    """What tells contents apart where it is not the SHA-256 of a file."""


class Found(NamedTuple):
    """What the recipe names, compared with what the data in a folder were made from."""

    fingerprint: str
    """What to look for in the folder: the recorded fingerprint where the content is the same."""
    gone: list[str]
    """Files that are no longer there, with the recorded fingerprint all the same."""
    changed: list[str]
    """Settings whose file holds something else."""
    recorded: bool
    """Whether the folder knows what its data were made from."""


def text_fingerprint(data: DataConfig) -> Inputs:
    """What a recipe for texts names."""
    values, made_by = asdict(data), version("babel") if data.corpus else ""
    known = {key: value for key, value in values.items() if value != LATER.get(key, ...)}
    saved = sorted(Path(data.dataset).rglob("*.json")) if data.dataset else []  # they name a dataset's contents
    paths = [*data.files(), *map(str, saved)]
    places = {*FILES, "dataset"} if saved else set(FILES)
    return Inputs(
        fingerprint_of(known, [state(path) for path in paths], made_by),
        fingerprint_of({key: value for key, value in values.items() if key not in places}, made_by),
        {key: values[key] for key in FILES if values[key]}
        | {f"dataset/{path.relative_to(data.dataset)}": str(path) for path in saved},
    )


def find(folder: Path, inputs: Inputs) -> Found:
    """Compare; where the content is the same, the new names and times are remembered."""
    record = read_record(folder)
    if record is None or record.inputs == inputs.fingerprint:
        return Found(inputs.fingerprint, [], [], record is not None)
    if record.settings != inputs.settings or inputs.files.keys() != record.files.keys():
        return Found(inputs.fingerprint, [], [], True)
    now = {label: _again(path, record.files[label], inputs.digests.get(label)) for label, path in inputs.files.items()}
    if changed := [label for label, source in now.items() if source.sha256 != record.files[label].sha256]:
        return Found(inputs.fingerprint, [], changed, True)
    if now != record.files:
        _write(folder, record._replace(files=now))
    return Found(record.inputs, [path for path in inputs.files.values() if not Path(path).exists()], [], True)


def mismatch_message(folder: Path, inputs: Inputs, found: Found, section: str) -> str:
    """Why data in a folder are not those that this section of a recipe asks for, and what to do."""
    if missing := [path for path in inputs.files.values() if not Path(path).exists()]:
        return f"there is no file {missing[0]}, and {folder} was made from another; put back the one it was made from"
    if found.changed:
        named = " and ".join(f"{section}.{label.partition('/')[0]} = {inputs.files[label]}" for label in found.changed)
        return f"{named}: not what {folder} was made from; put that back, or train into another folder"
    unknown = "" if found.recorded else ", and by an earlier jumok, which cannot tell whether they hold the same"
    return (
        f"{folder} was made from other files than the recipe names, or from an earlier state of them{unknown}; put "
        "them back, or train into another folder"
    )


def missing_files_message(gone: list[str], folder: Path) -> str:
    """What is said where data in a folder are used whose files are gone."""
    are, them = ("is", "it") if len(gone) == 1 else ("are", "them")
    return f"{' and '.join(gone)} {are} gone; what was made of {them} in {folder} is used"


def record_sources(folder: Path, inputs: Inputs, fingerprint: str) -> None:
    """Remember what the data in `folder` are about to be made from, unless that is known."""
    record = read_record(folder)
    if record is None or record.inputs != fingerprint:
        files = {label: _source(path, inputs.digests.get(label)) for label, path in inputs.files.items()}
        _write(folder, Record(fingerprint, inputs.settings, files))


def foreign_files(folder: Path) -> list[str]:
    """Files with names of prepared data in a folder where nothing was prepared: they are the user's own."""
    if read_record(folder) is not None:
        return []
    vocabularies = [name for name in VOCABULARIES if (folder / name).exists() and not _is_vocabulary(folder / name)]
    return vocabularies + [name for name in MADE if (folder / name).exists()]


def _is_vocabulary(path: Path) -> bool:
    """Whether it was learnt here, as is left of a run that was stopped before its text was tokenised."""
    try:
        settings_of(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def read_record(folder: Path) -> Record | None:
    """What was remembered, None if nothing was."""
    try:
        found = parse_json((folder / RECORD).read_bytes())
        files = {label: Source(**source) for label, source in found["files"].items()}
        return Record(found["inputs"], found["settings"], files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # never written, or damaged: then names and times decide


def _write(folder: Path, record: Record) -> None:
    files = {label: source._asdict() for label, source in record.files.items()}
    content: dict[str, Any] = {"inputs": record.inputs, "settings": record.settings, "files": files}
    with atomic_write(folder / RECORD) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _again(path: str, before: Source, digest: Callable[[], str] | None) -> Source:
    """A file as it is now; one that is gone from where it was counts as unchanged."""
    size, time = state(path)[1:]
    where = str(Path(path).resolve())
    if size < 0:
        return before if path == before.named or where == before.path else before._replace(sha256="")
    if (where, size, time) == (before.path, before.bytes, before.time):
        return before._replace(named=path)
    return _source(path, digest)


def _source(path: str, digest: Callable[[], str] | None) -> Source:
    size, time = state(path)[1:]
    return Source(path, str(Path(path).resolve()), size, time, digest() if digest else _digest(path))


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def state(path: str) -> tuple[str, int, int]:
    """Size and time of a file, by which a change is noticed."""
    try:
        stat = Path(path).stat()
    except OSError:
        return path, -1, -1  # reading it will say what is wrong
    return path, stat.st_size, stat.st_mtime_ns


def fingerprint_of(*parts: object) -> str:
    """A short name of what a file was made from: equal if and only if the parts print alike."""
    content = json.dumps(parts, default=repr, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:32]
