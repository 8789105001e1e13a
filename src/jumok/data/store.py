"""A tokenised corpus on disk, memory-mapped: written once as a stream, opened at once whatever its size.

    token ids, all sentences in a row | offsets, uint64 | a CRC-32 for every 64 KiB of those | JSON footer | its end

Row n holds one sentence per side (source, target); side s is ids[offsets[sides·n + s] : offsets[sides·n + s + 1]].
Each block is checked against its CRC when first read, so opening stays instant and damage is still found.
"""

import json
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from hashlib import sha256
from io import BufferedIOBase
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt

from jumok.data.files import atomic_write
from jumok.errors import ArgumentError, DataError

MAGIC = b"jumokst1"
TAIL = struct.Struct("<QI8s")  # length of the footer, its CRC-32, magic
BLOCK = 1 << 16
CHUNK = 1 << 14  # rows turned into bytes at a time


class Store:
    """Read access to the rows of a store file; nothing is loaded before it is asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        footer = _read_footer(self.path)
        self.rows, self.sides = int(footer["rows"]), int(footer["sides"])
        self.fingerprint: str = footer["fingerprint"]
        self.note: dict[str, Any] = footer["note"]
        kind, start = np.dtype(footer["dtype"]), int(footer["offsets_at"])
        self.contents = f"{self.rows} rows, {footer['tokens']} tokens, checks {footer['checks_crc']:08x}"
        """Equal for stores that hold the same, whenever and from wherever they were written."""
        self._bytes: np.ndarray[Any, Any] = np.memmap(self.path, np.uint8, "r")
        self._checked = np.zeros(-(-footer["data_bytes"] // BLOCK), bool)
        checks = self._bytes[footer["data_bytes"] : footer["data_bytes"] + 4 * self._checked.size]
        if zlib.crc32(checks.tobytes()) != footer["checks_crc"]:
            raise self._damaged()
        self._checks = checks.view("<u4")
        self._tokens = self._bytes[: footer["tokens"] * kind.itemsize].view(kind)
        self._offsets = self._bytes[start : start + 8 * (self.rows * self.sides + 1)].view("<u8")
        self._offsets_at = start

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> tuple[UInt[np.ndarray, "_"], ...]:
        """The sentences of one row, a copy of each."""
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of a store with {self.rows} rows")
        first = row * self.sides
        self._check(self._offsets_at + 8 * first, self._offsets_at + 8 * (first + self.sides + 1))
        ends = [int(end) for end in self._offsets[first : first + self.sides + 1]]
        width = self._tokens.itemsize
        self._check(ends[0] * width, ends[-1] * width)
        return tuple(np.array(self._tokens[start:end]) for start, end in pairwise(ends))

    def lengths(self) -> Int[np.ndarray, "rows sides"]:
        """How many ids every sentence has; reads all offsets (16 bytes a pair)."""
        self._check(self._offsets_at, self._offsets_at + 8 * self._offsets.size)
        return np.diff(self._offsets).astype(np.int64).reshape(self.rows, self.sides)

    def check(self) -> None:
        """Read everything once; DataError if a single bit has changed."""
        self._check(0, self._offsets_at + 8 * self._offsets.size)

    def _check(self, start: int, end: int) -> None:
        blocks = range(start // BLOCK, -(-end // BLOCK))
        for block in blocks:
            if not self._checked[block]:
                data = self._bytes[block * BLOCK : min((block + 1) * BLOCK, self._data_bytes)]
                if zlib.crc32(data.tobytes()) != self._checks[block]:
                    raise self._damaged()
                self._checked[block] = True

    @property
    def _data_bytes(self) -> int:
        return self._offsets_at + 8 * self._offsets.size

    def _damaged(self) -> DataError:
        return DataError(f"{self.path} is damaged: its checksums do not match; delete it and it will be written again")


def write_store(
    path: str | Path,
    rows: Iterable[Sequence[Sequence[int]]],
    *,
    sides: int = 2,
    size: int,
    fingerprint: str = "",
    note: dict[str, Any] | None = None,
) -> Store:
    """Write `rows` (each one sentence per side, ids below `size`) as they come, then open the file.

    Nothing is held in memory but a few thousand rows, and the file appears only when it is complete.
    """
    kind = np.dtype("<u2" if size <= 1 << 16 else "<u4")
    path = Path(path)
    with atomic_write(path) as file, tempfile.TemporaryFile(dir=path.parent) as offsets:
        tokens = _write_rows(rows, file, offsets, sides, kind, size)
        file.write(b"\0" * (-file.tell() % 8))
        offsets_at, count = file.tell(), offsets.tell() // 8
        offsets.seek(0)
        shutil.copyfileobj(offsets, file, 1 << 20)
        footer = {
            "rows": (count - 1) // sides,
            "sides": sides,
            "tokens": tokens,
            "dtype": kind.str,
            "offsets_at": offsets_at,
            "data_bytes": file.tell(),
            "checks_crc": _write_checks(file),
            "fingerprint": fingerprint,
            "note": note or {},
        }
        body = json.dumps(footer).encode()
        file.write(body + TAIL.pack(len(body), zlib.crc32(body), MAGIC))
    return Store(path)


def open_store(path: str | Path, fingerprint: str) -> Store | None:
    """The store at `path` if it was written from what `fingerprint` stands for, else None."""
    if not Path(path).exists():
        return None
    store = Store(path)
    return store if store.fingerprint == fingerprint else None


def fingerprint_of(*parts: object) -> str:
    """A short name for the inputs a file was made from: equal if and only if they print alike."""
    return sha256(json.dumps(parts, default=repr, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _write_rows(
    rows: Iterable[Sequence[Sequence[int]]],
    file: BufferedIOBase,
    offsets: BufferedIOBase,
    sides: int,
    kind: np.dtype[Any],
    size: int,
) -> int:
    tokens = 0
    pending: list[Sequence[Sequence[int]]] = []
    offsets.write(struct.pack("<Q", 0))

    def flush() -> int:
        sentences = [sentence for row in pending for sentence in row]
        ids = np.fromiter((id for sentence in sentences for id in sentence), np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < size:
            raise ArgumentError(f"token ids must lie between 0 and {size - 1}, but run from {ids.min()} to {ids.max()}")
        ends = tokens + np.cumsum([len(sentence) for sentence in sentences], dtype="<u8")
        file.write(ids.astype(kind).tobytes())
        offsets.write(ends.astype("<u8").tobytes())
        pending.clear()
        return int(ids.size)

    for row in rows:
        if len(row) != sides:
            raise ArgumentError(f"a row of this store has {sides} sides, but one with {len(row)} came")
        pending.append(row)
        if len(pending) == CHUNK:
            tokens += flush()
    return tokens + flush()


def _write_checks(file: BufferedIOBase) -> int:
    """Append a CRC-32 for each block written so far; the CRC-32 of those."""
    file.flush()
    file.seek(0)
    checks = np.array([zlib.crc32(block) for block in iter(lambda: file.read(BLOCK), b"")], "<u4").tobytes()
    file.write(checks)
    return zlib.crc32(checks)


def _read_footer(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - TAIL.size))
            length, crc, magic = TAIL.unpack(file.read().rjust(TAIL.size, b"\0"))
            if magic != MAGIC or length > end - TAIL.size:
                raise DataError(f"{path} is cut short or is not a store; delete it and it will be written again")
            file.seek(end - TAIL.size - length)
            body = file.read(length)
            if zlib.crc32(body) != crc:
                raise DataError(f"{path} is damaged: its footer is changed; delete it and it will be written again")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    footer: dict[str, Any] = json.loads(body)
    expected = footer["data_bytes"] + 4 * -(-footer["data_bytes"] // BLOCK) + length + TAIL.size
    if expected != end:
        raise DataError(f"{path} should have {expected} bytes but has {end}; delete it and it will be written again")
    return footer
