"""Arrays of .npy and .npz files, whose headers are checked before anything is read or unpacked."""

import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jumok.devices import free_memory
from jumok.errors import DataError
from jumok.files import megabytes, open_zip

LONGEST = 10_000
"""Most bytes of a header."""
SMALL = 2**30
EXPANSION = 100
"""Arrays of more than SMALL bytes are unpacked only if they are at most so many times as large as their file."""


class ArrayHeader(NamedTuple):
    """The header of an array file."""

    shape: tuple[int, ...]
    order: str
    dtype: np.dtype[Any]
    offset: int
    """Where the numbers begin in the file."""

    @property
    def bytes(self) -> int:
        """The memory that the array takes."""
        return math.prod(self.shape) * self.dtype.itemsize


def open_npy(path: Path) -> np.ndarray:
    """Memory-map the array of a .npy file."""
    try:
        with open(path, "rb") as file:
            header = _header(file.read(LONGEST), os.fstat(file.fileno()).st_size)
        if not header.bytes:  # an empty file cannot be mapped
            return np.zeros(header.shape, header.dtype)
        return np.memmap(path, header.dtype, "r", header.offset, header.shape, header.order)  # type: ignore[call-overload, no-any-return]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception:  # NumPy's own message would suggest to load it unsafely
        raise DataError(f"{path} is not a complete .npy file of a plain array; write it with numpy.save") from None


@contextmanager
def open_npz(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of a .npz file by name; each is unpacked when it is read, if there is memory for it."""
    with open_zip(path) as archive:
        yield _Members(path, archive)


class _Members(Mapping[str, np.ndarray]):
    """The arrays of an open .npz file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        self._taken = 0

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def __getitem__(self, name: str) -> np.ndarray:
        info = self._infos[name]
        try:
            with self._archive.open(info) as file:
                self._take(name, _header(file.read(LONGEST), info.file_size).bytes)
            with self._archive.open(info) as file:
                return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        except DataError:
            raise
        except Exception:  # of zipfile, of whatever unpacks, and of NumPy
            raise DataError(
                f"{self._path} is not a complete .npz file of plain arrays: {name} cannot be read; "
                "write it with numpy.savez"
            ) from None

    def _take(self, name: str, size: int) -> None:
        """Refuse an array that needs too much memory, or is far too large for its file."""
        self._taken += size
        limit = min(max(SMALL, EXPANSION * self._path.stat().st_size), free_memory() / 2)
        if self._taken > limit:
            raise DataError(
                f"{self._path}: its arrays up to {name} take {megabytes(self._taken)} of memory, more than the "
                f"{megabytes(limit)} allowed here; save each with numpy.save into a folder, which is read in parts"
            )


def _header(beginning: bytes, size: int) -> ArrayHeader:
    """The header of an array in a file of `size` bytes; whatever NumPy raises, and a ValueError, if it is not whole."""
    file = BytesIO(beginning)  # not the file: a header may say that it is gigabytes long, and NumPy believes it
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    header = ArrayHeader(shape, "F" if fortran else "C", dtype, file.tell())
    if dtype.kind not in "biufUS" or not dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError("not a plain array")
    if header.offset + header.bytes != size:
        raise ValueError("the header promises another size")
    return header
