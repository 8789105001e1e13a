"""What prepared data were made from, kept beside them in sources.json, so that the same text is known again.

A file whose place, size and time are as recorded is not read; of any other the content decides, by its SHA-256.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from jumok.data.files import atomic_write
from jumok.data.sources import DataConfig
from jumok.data.store import fingerprint_of
from jumok.errors import DataError

RECORD = "sources.json"
FILES = ("source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "alignments")
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


class Found(NamedTuple):
    """What the recipe names, compared with what the data in a folder were made from."""

    inputs: str
    """The fingerprint to look for in the folder: the recorded one where the text is the same."""
    gone: list[str]
    """Files that are no longer there, with the recorded fingerprint all the same."""
    changed: list[str]
    """Settings whose file holds other text."""
    recorded: bool
    """Whether the folder knows what its data were made from."""


def fingerprint_of_inputs(data: DataConfig) -> str:
    """A name for the settings and the state of the files; changes with their names and times, too."""
    settings = {key: value for key, value in asdict(data).items() if value != LATER.get(key, ...)}
    paths = [*data.files(), *(path for label, path in _named(data) if label not in FILES)]
    return fingerprint_of(settings, [_state(path) for path in paths], _made_by(data))


def find(folder: Path, data: DataConfig) -> Found:
    """Compare; where the text is the same, the new names and times are remembered."""
    inputs, record = fingerprint_of_inputs(data), read_record(folder)
    if record is None or record.inputs == inputs:
        return Found(inputs, [], [], record is not None)
    named = dict(_named(data))
    if record.settings != _settings(data) or named.keys() != record.files.keys():
        return Found(inputs, [], [], True)
    now = {label: _again(path, record.files[label]) for label, path in named.items()}
    if changed := [label for label, source in now.items() if source.sha256 != record.files[label].sha256]:
        return Found(inputs, [], changed, True)
    if now != record.files:
        _write(folder, record._replace(files=now))
    return Found(record.inputs, [path for path in named.values() if not Path(path).exists()], [], True)


def record_sources(folder: Path, data: DataConfig, inputs: str) -> None:
    """Remember what the data in `folder` are about to be made from, unless that is known."""
    record = read_record(folder)
    if record is None or record.inputs != inputs:
        files = {label: _source(path) for label, path in _named(data)}
        _write(folder, Record(inputs, _settings(data), files))


def read_record(folder: Path) -> Record | None:
    """What was remembered, None if nothing was."""
    try:
        found = json.loads((folder / RECORD).read_bytes())
        files = {label: Source(**source) for label, source in found["files"].items()}
        return Record(found["inputs"], found["settings"], files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # never written, or damaged: then names and times decide


def _write(folder: Path, record: Record) -> None:
    files = {label: source._asdict() for label, source in record.files.items()}
    content: dict[str, Any] = {"inputs": record.inputs, "settings": record.settings, "files": files}
    with atomic_write(folder / RECORD) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _named(data: DataConfig) -> Iterator[tuple[str, str]]:
    """Every file by the setting that names it; of a dataset on disk those that name its contents."""
    yield from ((key, getattr(data, key)) for key in FILES if getattr(data, key))
    for path in sorted(Path(data.dataset).rglob("*.json")) if data.dataset else []:
        yield f"dataset/{path.relative_to(data.dataset)}", str(path)


def _settings(data: DataConfig) -> str:
    """Everything but where files are."""
    places = {*FILES, "dataset"} if Path(data.dataset or "-").is_dir() else FILES
    return fingerprint_of({key: value for key, value in asdict(data).items() if key not in places}, _made_by(data))


def _made_by(data: DataConfig) -> str:
    return version("babel") if data.corpus else ""


def _again(path: str, before: Source) -> Source:
    """A file as it is now; one that is gone from where it was counts as unchanged."""
    state = _state(path)[1:]
    where = str(Path(path).resolve())
    if state == (-1, -1):
        return before if path == before.named or where == before.path else before._replace(sha256="")
    if (where, *state) == (before.path, before.bytes, before.time):
        return before._replace(named=path)
    return _source(path)


def _source(path: str) -> Source:
    size, time = _state(path)[1:]
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    return Source(path, str(Path(path).resolve()), size, time, digest)


def _state(path: str) -> tuple[str, int, int]:
    try:
        stat = Path(path).stat()
    except OSError:
        return path, -1, -1  # reading it will say what is wrong
    return path, stat.st_size, stat.st_mtime_ns
