"""Reading text in any compression and members of zip files, and writing files that appear complete or not at all."""

import difflib
import gzip
import json
import lzma
import os
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import escape, glob
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any, cast

from jumok.errors import ArgumentError, DataError, error_text

MOST_JSON = 2**20
"""Most bytes of a JSON file of metadata, such as checksums."""
FILE_TYPES = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISDIR: "a folder",
}


@contextmanager
def open_plain(path: str | Path, *, within: Path | None = None) -> Iterator[BufferedReader]:
    """Open a regular file; a DataError for anything else, and for a link that leads out of the folder `within`."""
    path = Path(path)
    try:
        if within is not None and not (target := _resolved(path)).is_relative_to(_resolved(within)):
            raise DataError(f"{path} is a link to {target}, outside {within}; copy the file itself there")
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                kind = next((name for is_kind, name in FILE_TYPES.items() if is_kind(mode)), "something else")
                raise DataError(f"{path} is {kind}, not a regular file; replace it with one")
            yield file
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def read_plain(path: str | Path, *, most: int, within: Path | None = None) -> bytes:
    """All bytes of a regular file of at most `most` bytes."""
    with open_plain(path, within=within) as file:
        _check_size(file, path, most)
        return file.read(most)


def check_plain(path: str | Path, *, most: int, within: Path | None = None) -> None:
    """Raise a DataError for a file that `read_plain` would refuse; nothing is read."""
    with open_plain(path, within=within) as file:
        _check_size(file, path, most)


def _check_size(file: BufferedReader, path: str | Path, most: int) -> None:
    if (size := os.fstat(file.fileno()).st_size) > most:
        raise DataError(f"{path} has {size:,} bytes; at most {most:,} are allowed")


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve has an error of its own for a link to itself


STDIN = "-"
LONGEST_LINE = 100_000_000
"""Most bytes of a line; a few kilobytes of .gz or .xz can hold a line of any length."""
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
UNFINISHED, TRIAL = ".unfinished", "jumok-trial"
"""End of the name of a file that is being written, after the writer's process number; name of a trial file."""
KINDS = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"RIFF": "an image, sound or film",
    b"PK\x03\x04": "an archive, as .zip, .docx and .xlsx are",
    b"\x1f\x8b": "compressed by gzip without the ending .gz",
    b"\xfd7zXZ": "compressed by xz without the ending .xz",
}
"""First bytes of files that are mistaken for text, and what these files are."""


def shards(path: str | Path) -> list[str]:
    """The files that a pattern such as "corpus/*.en.gz" names, sorted by name; of any other path itself."""
    if not any(letter in str(path) for letter in "*?[") or Path(path).exists():
        return [str(path)]
    return sorted(glob(str(path))) or [str(path)]


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Stream the lines of `path` ("-" is standard input) without their line ends.

    Only "\n" and "\r\n" end a line, as in `wc -l`; a byte order mark at the start is dropped.
    """
    with open_bytes(path) as file:
        for number, raw in enumerate(bounded_lines(file, path), start=1):
            yield decode_line(raw, path, number)


def bounded_lines(file: BufferedIOBase, path: str | Path) -> Iterator[bytes]:
    """The lines of an open file; a DataError for one of more than LONGEST_LINE bytes."""
    number = 0
    while raw := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise DataError(f"{display_name(path)}, line {number} has more than {LONGEST_LINE:,} bytes; is it text?")
        yield raw


def decode_line(raw: bytes, path: str | Path, number: int) -> str:
    """The text of one line; a DataError that names its first byte that is not UTF-8, or is NUL."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_text(raw, error.start, path, number) from None
    if "\0" in text:
        raise _not_text(raw, raw.index(0), path, number)
    if number == 1:
        text = text.removeprefix("\ufeff")
    return text.removesuffix("\n").removesuffix("\r")


def decode_argument(text: str) -> str:
    """A text of the command line as UTF-8; in another locale, Python hides its bytes in surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode(errors="replace")
    return text


def known_kind(beginning: bytes) -> str:
    """What kind of file, other than text, begins like this; "" if unknown."""
    return next((kind for mark, kind in KINDS.items() if beginning.startswith(mark)), "")


def _not_text(raw: bytes, offset: int, path: str | Path, number: int) -> DataError:
    """Why a line cannot be read, and what to do; `offset` is the first wrong byte."""
    if number == 1 and (kind := known_kind(raw)):
        return DataError(f"{display_name(path)} is {kind}, not text; name a file of text, one sentence a line")
    where = f"{display_name(path)}, line {number}: byte {offset + 1} of the line"
    if raw[offset]:
        fault, likely = f"(0x{raw[offset]:02x}) is not UTF-8", _likely_encoding(raw, number)
    elif 3 * raw.count(0) > len(raw):  # letters of two bytes each, one of them 0
        swapped = number == 1 and raw[::2].count(0) > raw[1::2].count(0)
        fault, likely = "is 0, as in UTF-16", "UTF-16BE" if swapped else "UTF-16LE"
    else:
        return DataError(f"{where} is 0, which is not text; remove it, for example: tr -d '\\000' < FILE > NEW")
    return DataError(f"{where} {fault}; convert the file first, for example: iconv -f {likely} -t UTF-8")


def _likely_encoding(raw: bytes, number: int) -> str:
    """The most likely encoding of a line that is not UTF-8; old Korean files use CP949."""
    if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16"
    with suppress(UnicodeDecodeError):
        beyond = [letter for letter in raw.decode("cp949") if letter > "\x7f"]
        if 2 * sum("가" <= letter <= "힣" for letter in beyond) > len(beyond):
            return "CP949"
    return "ISO-8859-1"


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BufferedIOBase]:
    """Open `path` ("-" is standard input), decompressed by its suffix; every failure to read becomes a DataError."""
    if str(path) == STDIN:
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file, or pipe text in")
        yield cast(BufferedIOBase, sys.stdin.buffer)
        return
    path = Path(path)
    try:
        with COMPRESSED.get(path.suffix, open)(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"there is no file {path}{nearest_path(path)}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name a file in it") from None
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        what = "cut short" if isinstance(error, EOFError) else "damaged, or not compressed as its name says"
        raise DataError(f"{path} is {what} ({error}); make or download it again") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BufferedIOBase]:
    """Open a file for writing that appears under its name complete and synced to disk, or not at all."""
    path = Path(path)
    unfinished = _unfinished(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path.parent, path.name)
        with open(unfinished, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_folder(path.parent)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """Remove unfinished files of this name whose writers were killed; those of running processes stay."""
    for path in folder.glob(f".{name if name == '*' else escape(name)}.*{UNFINISHED}"):
        writer = path.name.removesuffix(UNFINISHED).rpartition(".")[2]
        if writer.isascii() and writer.isdecimal() and not _is_running(int(writer)):
            with suppress(OSError):
                path.unlink()


def _unfinished(path: Path) -> Path:
    """The name of a file while this process writes it."""
    return path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")


def _is_running(process: int) -> bool:
    if os.name != "posix" or process == os.getpid():  # on Windows, this signal would end it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # another user's
    return True


def check_place(folder: str | Path) -> None:
    """Raise a DataError if `folder` cannot be written to or created; nothing is left in it."""
    folder = Path(folder)
    above = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not above.is_dir():
        inside = "" if above == folder else f", so {folder} cannot be created"
        raise DataError(f"{above} is a file, not a folder{inside}; choose another folder")
    try:
        # Permissions are not everything: a disk can be read-only or full.
        remove_unfinished(above, TRIAL)
        trial = _unfinished(above / TRIAL)
        trial.write_bytes(b"can be written")
        trial.unlink()
    except OSError as error:
        raise DataError(
            f"cannot write to the folder {above} ({error.strerror or error}); choose another one, or change its "
            "permissions"
        ) from None


def check_file(path: str | Path) -> None:
    """Raise a DataError if no file can be written at `path`; nothing is created."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it")
    check_place(path.parent)


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip archive."""
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except Exception as error:  # of a damaged table of contents: BadZipFile, struct.error, ValueError and others
        raise DataError(f"{path} is not a complete zip file ({error_text(error)}); copy it again") from None


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, most: int) -> bytes:
    """The bytes of a file in an archive, which must be at most `most`."""
    name = f"{archive.filename}:{info.filename}"
    if info.file_size > most:
        raise DataError(f"{name} has {info.file_size:,} bytes; at most {most:,} are allowed")
    try:
        with archive.open(info) as file:
            return file.read(most)
    except Exception as error:  # of zipfile, and of zlib, bz2 or lzma, each of which has its own
        raise DataError(f"{name} cannot be unpacked ({error_text(error)}); copy the zip again") from None


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; a ValueError for anything else, including endlessly nested lists."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def display_name(path: str | Path) -> str:
    """A path as messages show it."""
    return "standard input" if str(path) == STDIN else str(path)


def quoted(value: Any, longest: int = 60) -> str:
    """A value as messages show it: on one line, and shortened; text is in quotes."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= longest else repr(value[:longest]) + "…"
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= longest else shown[:longest] + "…"


def megabytes(size: float) -> str:
    """A number of bytes as messages show it."""
    return f"{size / 1e6:,.0f} MB"


def bare_suffix(path: str | Path) -> str:
    """The suffix before that of a compression: "train.tsv.gz" -> ".tsv"."""
    path = Path(path)
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix


def checked_format(path: str | Path, formats: Sequence[str]) -> str:
    """The format that a file's ending names, such as "svg"; an ArgumentError if it is none of these."""
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in formats:
        raise ArgumentError(f"{path} should end in one of .{', .'.join(formats)}")
    return kind


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    if os.name == "posix":  # elsewhere a folder cannot be opened, and the rename is on disk already
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def nearest_path(path: Path) -> str:
    """The end of a message about a path that does not exist: the closest name in its folder, if any is close."""
    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist either"
    names: list[str] = []
    with suppress(OSError):  # a folder that may not be listed
        names = [entry.name for entry in path.parent.iterdir() if entry.name != path.name]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def is_same_file(path: Path, other: Path) -> bool:
    """Whether two paths, perhaps links, lead to the same file."""
    try:
        return path.samefile(other)
    except (OSError, ValueError):  # one of them does not exist, or is not a valid path
        return False
