"""Fingerprints of the sources of prepared data, recorded beside the data in sources.json.

Data are prepared again only if their sources changed. A file with the recorded path, size and time is not read; the
content of any other decides, by its SHA-256.
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
from jumok.data.tokenizer_pair import SEPARATE, SHARED
from jumok.errors import DataError
from jumok.files import atomic_write, parse_json, shards

RECORD = "sources.json"
MIXED_STORES = "mix-*.store"
"""The datasets of corpora that are mixed: mix-0.train.store, mix-0.valid.store, mix-1.train.store, …"""
TEXT_FILES = ("source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "alignments")
VOCABULARIES = (SHARED, *SEPARATE)
ARRAYS = (
    "starts", "sources", "features", "feature_starts", "columns", "values", "edge_features", "labels", "graph", "kept",
    "train", "valid", "test", "train.images", "valid.images",
)  # fmt: skip
PREPARED_FILES = (
    RECORD, "graph.json", "references.json", "train.store", "valid.store", *(f"{name}.npy" for name in ARRAYS)
)  # fmt: skip
"""Files written beside vocabularies where data are prepared; a user's own files may share these names."""


class SourceFingerprint(NamedTuple):
    """The sources that a recipe names."""

    value: str
    """Changes with every setting and with the name, size and time of every file."""
    settings: str
    """Changes with every setting except the names of files."""
    files: dict[str, str]
    """Paths by the setting that names them."""
    digests: Mapping[str, Callable[[], str]] = MappingProxyType({})
    """Functions that identify contents, for settings where that is not the SHA-256 of a file."""


class SourceFile(NamedTuple):
    """A file that data were prepared from."""

    named: str
    """Its path as the recipe writes it."""
    path: str
    """Its absolute path."""
    bytes: int
    time: int
    sha256: str


class SourceRecord(NamedTuple):
    """What the data in a folder were prepared from."""

    inputs: str
    """The fingerprint written into the tokenizers and datasets."""
    settings: str
    files: dict[str, SourceFile]


class SourceComparison(NamedTuple):
    """The sources that a recipe names, compared with those of the data in a folder."""

    fingerprint: str
    """The fingerprint that usable data carry: the recorded one if all contents are the same."""
    missing: list[str]
    """Files that no longer exist, if the data can be used without them."""
    changed: list[str]
    """Settings whose file has other contents."""


def text_fingerprint(data: DataConfig) -> SourceFingerprint:
    """The fingerprint of the sources of parallel text."""
    settings, babel = asdict(data), version("babel") if data.corpus else ""
    saved = sorted(Path(data.dataset).rglob("*.json")) if data.dataset else []  # they identify a dataset's contents
    paths = {*TEXT_FILES, "dataset"} if saved else set(TEXT_FILES)
    return SourceFingerprint(
        fingerprint_of(settings, [file_state(path) for path in [*data.files(), *map(str, saved)]], babel),
        fingerprint_of(_without_paths(settings, paths), babel),
        _text_files(settings) | {f"dataset/{path.relative_to(data.dataset)}": str(path) for path in saved},
    )


def _without_paths(settings: dict[str, Any], paths: set[str]) -> dict[str, Any]:
    kept = {key: value for key, value in settings.items() if key not in paths}
    mixed = [_without_paths(corpus, paths) for corpus in settings.get("mix", ())]
    return kept | ({"mix": mixed} if mixed else {})


def _text_files(settings: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """The files by the settings that name them, such as "source" or "mix[1].source"."""
    files = {
        prefix + label: path for key in TEXT_FILES if settings[key] for label, path in _labelled(key, settings[key])
    }
    for number, corpus in enumerate(settings.get("mix", ())):
        files |= _text_files(corpus, f"{prefix}mix[{number}].")
    return files


def _labelled(key: str, path: str) -> list[tuple[str, str]]:
    """The file of a setting under its name, or files such as ("source/3", "corpus/03.en") of a corpus in parts."""
    files = shards(path)
    return [(key, path)] if files == [path] else [(f"{key}/{number}", file) for number, file in enumerate(files)]


def compare_sources(folder: Path, sources: SourceFingerprint) -> SourceComparison:
    """Compare by content; if that is the same, new names and times are recorded."""
    record = read_record(folder)
    if record is None or record.settings != sources.settings or sources.files.keys() != record.files.keys():
        return SourceComparison(sources.value, [], [])
    now = {
        label: _current(path, record.files[label], sources.digests.get(label)) for label, path in sources.files.items()
    }
    if changed := [label for label, file in now.items() if file.sha256 != record.files[label].sha256]:
        return SourceComparison(sources.value, [], changed)
    if now != record.files:
        _write(folder, record._replace(files=now))
    return SourceComparison(record.inputs, _missing(sources), [])


def mismatch_message(folder: Path, sources: SourceFingerprint, comparison: SourceComparison, section: str) -> str:
    """Why the data in a folder are not those that this section of a recipe asks for, and what to do."""
    if missing := _missing(sources):
        return f"there is no file {missing[0]}, and {folder} was prepared from another; restore the original file"
    if comparison.changed:
        labels = [f"{section}.{label.partition('/')[0]} = {sources.files[label]}" for label in comparison.changed]
        return (
            f"{folder} was prepared from other contents than {' and '.join(labels)}; restore the original, or train "
            "into another folder"
        )
    return (
        f"{folder} was prepared from other files or settings than those of [{section}], or by another version of "
        "jumok; restore them, or train into another folder"
    )


def missing_files_message(missing: list[str], folder: Path) -> str:
    """The notice that prepared data are used although their source files no longer exist."""
    exist, them = ("no longer exists", "it") if len(missing) == 1 else ("no longer exist", "them")
    return f"{' and '.join(missing)} {exist}; using the data prepared from {them} in {folder}"


def record_sources(folder: Path, sources: SourceFingerprint, fingerprint: str) -> None:
    """Record what the data in `folder` are about to be prepared from, unless it is recorded already."""
    record = read_record(folder)
    if record is None or record.inputs != fingerprint:
        files = {label: _source_file(path, sources.digests.get(label)) for label, path in sources.files.items()}
        _write(folder, SourceRecord(fingerprint, sources.settings, files))


def foreign_files(folder: Path) -> list[str]:
    """Files with names of prepared data in a folder where nothing was prepared: they belong to the user."""
    if read_record(folder) is not None:
        return []
    vocabularies = [name for name in VOCABULARIES if (folder / name).exists() and not _is_vocabulary(folder / name)]
    mixed = [path.name for path in folder.glob(MIXED_STORES)]
    return vocabularies + [name for name in PREPARED_FILES if (folder / name).exists()] + mixed


def fingerprint_of(*parts: object) -> str:
    """A short identifier, equal if and only if the parts have the same representation."""
    content = json.dumps(parts, default=repr, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:32]


def file_state(path: str) -> tuple[str, int, int]:
    """Path, size and time of a file; -1 for a file that does not exist, which its reader reports."""
    try:
        stat = Path(path).stat()
    except OSError:
        return path, -1, -1
    return path, stat.st_size, stat.st_mtime_ns


def read_record(folder: Path) -> SourceRecord | None:
    """The record of a folder; None if there is none, or if it is damaged: names and times then decide."""
    try:
        record = parse_json((folder / RECORD).read_bytes())
        files = {label: SourceFile(**file) for label, file in record["files"].items()}
        return SourceRecord(record["inputs"], record["settings"], files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(folder: Path, record: SourceRecord) -> None:
    files = {label: file._asdict() for label, file in record.files.items()}
    content: dict[str, Any] = {"inputs": record.inputs, "settings": record.settings, "files": files}
    with atomic_write(folder / RECORD) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _is_vocabulary(path: Path) -> bool:
    """Whether jumok trained it, as in a run that was stopped before its text was tokenised."""
    try:
        settings_of(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _missing(sources: SourceFingerprint) -> list[str]:
    return [path for path in sources.files.values() if not Path(path).exists()]


def _current(path: str, before: SourceFile, digest: Callable[[], str] | None) -> SourceFile:
    """A file as it is now; a missing one counts as unchanged where it was."""
    size, time = file_state(path)[1:]
    absolute = str(Path(path).resolve())
    if size < 0:
        return before if path == before.named or absolute == before.path else before._replace(sha256="")
    if (absolute, size, time) == (before.path, before.bytes, before.time):
        return before._replace(named=path)
    return _source_file(path, digest)


def _source_file(path: str, digest: Callable[[], str] | None) -> SourceFile:
    size, time = file_state(path)[1:]
    return SourceFile(path, str(Path(path).resolve()), size, time, digest() if digest else _sha256(path))


def _sha256(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
