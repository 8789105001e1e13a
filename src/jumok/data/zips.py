"""Zip archives: opened, and their members unpacked, so that whatever is damaged is one DataError."""

import zipfile
from pathlib import Path

from jumok.errors import DataError


def open_zip(path: Path) -> zipfile.ZipFile:
    """An archive, its table of contents read."""
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except Exception as error:  # of a damaged table of contents: BadZipFile, struct.error, ValueError and others
        raise DataError(f"{path} is not a whole zip ({reason(error)}); make or copy it again") from None


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, most: int) -> bytes:
    """The bytes of a file in an archive, if they are at most so many."""
    name = f"{archive.filename}:{info.filename}"
    if info.file_size > most:
        raise DataError(f"{name} has {info.file_size:,} bytes; the most is {most:,}; make it smaller first")
    try:
        with archive.open(info) as file:
            return file.read(most)
    except Exception as error:  # of zipfile, and of zlib, bz2 or lzma, each of which has its own
        raise DataError(f"{name} cannot be unpacked ({reason(error)}); make or copy the zip again") from None


def reason(error: BaseException) -> str:
    """What a library says is wrong, in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
