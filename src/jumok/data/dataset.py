"""A tokenised corpus on disk, memory-mapped: written once as a stream, opened at once whatever its size.

    token ids, all sentences in a row | offsets, uint64 | cells | rows by length | a CRC-32 for every 4 KiB of those |
    JSON footer | its end

Row n holds one sentence per side (source, target); side s is ids[offsets[sides·n + s] : offsets[sides·n + s + 1]].
The cells (see `by_length`) say how many rows there are of each length; then come the numbers of the rows, cell by cell.
Each block is checked against its CRC when first read, so opening stays instant and damage is still found.
"""

import json
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from io import BufferedIOBase
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt

from jumok.data.batches import Cells, Lengths, cells_of, rows_by_cell
from jumok.errors import ArgumentError, DataError
from jumok.files import atomic_write

MAGIC, EARLIER = b"jumokst2", b"jumokst1"
TAIL = struct.Struct("<QI8s")  # length of the footer, its CRC-32, magic
BLOCK = 1 << 12
CHUNK = 1 << 14  # rows turned into bytes at a time
SORTED = 1 << 20  # rows sorted by length at a time


class Store:
    """Read access to the rows of a store file; nothing is loaded before it is asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        footer = _read_footer(self.path)
        self.rows, self.sides = int(footer["rows"]), int(footer["sides"])
        self.fingerprint: str = footer["fingerprint"]
        self.note: dict[str, Any] = footer["note"]
        kind = np.dtype(footer["dtype"])
        self.contents = f"{self.rows} rows, {footer['tokens']} tokens, checks {footer['checks_crc']:08x}"
        """Equal for stores that hold the same, whenever and from wherever they were written."""
        self._bytes: np.ndarray[Any, Any] = np.asarray(np.memmap(self.path, np.uint8, "r"))  # slices twice as fast
        self._checked = np.zeros(-(-footer["data_bytes"] // BLOCK), bool)
        self._checks = self._bytes[footer["data_bytes"] : footer["data_bytes"] + 4 * self._checked.size].view("<u4")
        self._tokens = self._bytes[: footer["tokens"] * kind.itemsize].view(kind)
        self._data_bytes: int = footer["data_bytes"]
        self._offsets_at: int = footer["offsets_at"]
        self._cells_at, self._order_at = int(footer["cells_at"]), int(footer["order_at"])
        self._offsets = self._bytes[self._offsets_at : self._cells_at].view("<u8")
        self._order = self._bytes[self._order_at : self._data_bytes].view(_order_type(self.rows))

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> tuple[UInt[np.ndarray, "_"], ...]:
        """The sentences of one row, a copy of each."""
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of a store with {self.rows} rows")
        first = row * self.sides
        self._check(self._offsets_at + 8 * first, self._offsets_at + 8 * (first + self.sides + 1))
        ends = self._offsets[first : first + self.sides + 1].tolist()
        width = self._tokens.itemsize
        self._check(ends[0] * width, ends[-1] * width)
        return tuple(np.array(self._tokens[start:end]) for start, end in pairwise(ends))

    @cached_property
    def cells(self) -> Cells:
        """How many rows there are of each length of source and target."""
        self._check(self._cells_at, self._order_at)
        table = self._bytes[self._cells_at : self._order_at].view("<i8").reshape(-1, 3).astype(np.int64)
        return Cells(table[:, :2], table[:, 2])

    def by_length(self, places: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The numbers of the rows at these places of the row of all, sorted by length as `cells` are."""
        for block in np.unique((self._order_at + places * self._order.itemsize) // BLOCK).tolist():
            self._check(block * BLOCK, block * BLOCK + 1)
        rows: np.ndarray = self._order[places].astype(np.int64)
        return rows

    def check(self) -> None:
        """Read everything once; DataError if a single bit has changed."""
        self._check(0, self._data_bytes)

    def _check(self, start: int, end: int) -> None:
        blocks = range(start // BLOCK, -(-end // BLOCK))
        for block in blocks:
            if not self._checked[block]:
                data = self._bytes[block * BLOCK : min((block + 1) * BLOCK, self._data_bytes)]
                if zlib.crc32(data.tobytes()) != self._checks[block]:
                    raise self._damaged()
                self._checked[block] = True

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
        cells_at = file.tell()
        order_at = _write_by_length(file, offsets, (count - 1) // sides, sides)
        footer = {
            "rows": (count - 1) // sides,
            "sides": sides,
            "tokens": tokens,
            "dtype": kind.str,
            "offsets_at": offsets_at,
            "cells_at": cells_at,
            "order_at": order_at,
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
    if not Path(path).exists() or _is_earlier(Path(path)):
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


def _write_by_length(file: BufferedIOBase, offsets: BufferedIOBase, rows: int, sides: int) -> int:
    """Append the cells and the numbers of the rows in their order; where the latter begin."""
    cells = cells_of(_lengths(offsets, rows, sides))
    file.write(np.column_stack([cells.lengths, cells.counts]).astype("<i8").tobytes())
    start, kind = file.tell(), _order_type(rows)
    for place, numbers in rows_by_cell(_lengths(offsets, rows, sides), cells):
        file.seek(start + place * kind.itemsize)
        file.write(numbers.astype(kind).tobytes())
    file.seek(start + rows * kind.itemsize)
    return start


def _lengths(offsets: BufferedIOBase, rows: int, sides: int) -> Iterator[Lengths]:
    """Of the first two sides, some rows at a time."""
    for row in range(0, rows, SORTED):
        offsets.seek(8 * row * sides)
        some = np.frombuffer(offsets.read(8 * (min(SORTED, rows - row) * sides + 1)), "<u8").astype(np.int64)
        yield np.diff(some).reshape(-1, sides)[:, [0, min(1, sides - 1)]]


def _order_type(rows: int) -> np.dtype[Any]:
    return np.dtype("<u4" if rows <= 1 << 32 else "<u8")


def _write_checks(file: BufferedIOBase) -> int:
    """Append a CRC-32 for each block written so far; the CRC-32 of those."""
    file.flush()
    file.seek(0)
    checks = np.array([zlib.crc32(block) for block in iter(lambda: file.read(BLOCK), b"")], "<u4").tobytes()
    file.write(checks)
    return zlib.crc32(checks)


def _is_earlier(path: Path) -> bool:
    """Whether a jumok wrote the file that did not yet sort rows by length."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - len(EARLIER)))
            return file.read() == EARLIER
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


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
