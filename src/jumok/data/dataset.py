"""A tokenised corpus in one memory-mapped file: written once, opened at once whatever its size.

    token ids, all sentences one after another | offsets, uint64 | counts of rows by length | rows sorted by length |
    a CRC-32 of every 4 KiB of these | JSON footer | tail

Row n has one sentence per side (source, target), and perhaps word links as a third side. Side s of row n is
ids[offsets[sides·n + s] : offsets[sides·n + s + 1]]. Each block is compared with its CRC when it is first read, so
opening the file reads hardly anything and damage is still detected.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from io import BufferedIOBase
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt

from jumok.data.batches import LengthCounts, Sentences, ranges, sort_by_length
from jumok.errors import DataError
from jumok.files import atomic_write

MAGIC = b"jumokst2"
TAIL = struct.Struct("<QI8s")
"""Length of the footer, its CRC-32, and MAGIC."""
BLOCK = 1 << 12
"""Bytes of which each has a CRC."""
CHUNK = 1 << 14
"""Sentences written at a time."""


class Dataset:
    """Read access to the rows of a dataset file; nothing is read before it is needed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        footer = _read_footer(self.path)
        self.rows, self.sides = int(footer["rows"]), int(footer["sides"])
        self.fingerprint: str = footer["fingerprint"]
        self.note: dict[str, Any] = footer["note"]
        dtype = np.dtype(footer["dtype"])
        self.contents = f"{self.rows} rows, {footer['tokens']} tokens, checks {footer['checks_crc']:08x}"
        """Equal for datasets with the same contents, whenever and from wherever they were written."""
        self._bytes: np.ndarray[Any, Any] = np.asarray(np.memmap(self.path, np.uint8, "r"))  # slices twice as fast
        self._checked = np.zeros(-(-footer["data_bytes"] // BLOCK), bool)
        self._checks = self._bytes[footer["data_bytes"] : footer["data_bytes"] + 4 * self._checked.size].view("<u4")
        self._tokens = self._bytes[: footer["tokens"] * dtype.itemsize].view(dtype)
        self._data_bytes: int = footer["data_bytes"]
        self._offsets_at: int = footer["offsets_at"]
        self._counts_at, self._order_at = int(footer["cells_at"]), int(footer["order_at"])
        self._offsets = self._bytes[self._offsets_at : self._counts_at].view("<u8")
        self._order = self._bytes[self._order_at : self._data_bytes].view(_order_dtype(self.rows))

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> tuple[UInt[np.ndarray, "_"], ...]:
        """The sentences of one row, a copy of each."""
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of a dataset with {self.rows} rows")
        first = row * self.sides
        self._check(self._offsets_at + 8 * first, self._offsets_at + 8 * (first + self.sides + 1))
        ends = self._offsets[first : first + self.sides + 1].tolist()
        width = self._tokens.itemsize
        self._check(ends[0] * width, ends[-1] * width)
        return tuple(np.array(self._tokens[start:end]) for start, end in pairwise(ends))

    def sentences(self, rows: Int[np.ndarray, " n"], side: int) -> Sentences:
        """One side of many rows at once."""
        place = rows * self.sides + side
        self._check_all(self._offsets_at + 8 * place, self._offsets_at + 8 * (place + 2))
        starts, ends = (self._offsets[number].astype(np.int64) for number in (place, place + 1))
        width = self._tokens.itemsize
        self._check_all(starts * width, ends * width)
        lengths = ends - starts
        return Sentences(self._tokens[ranges(starts, lengths)], lengths)

    @cached_property
    def length_counts(self) -> LengthCounts:
        """The number of rows of each combination of source and target length."""
        self._check(self._counts_at, self._order_at)
        table = self._bytes[self._counts_at : self._order_at].view("<i8").reshape(-1, 3).astype(np.int64)
        return LengthCounts(table[:, :2], table[:, 2])

    def sorted_rows(self, positions: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The row numbers at these positions of all rows sorted by length."""
        for block in np.unique((self._order_at + positions * self._order.itemsize) // BLOCK).tolist():
            self._check(block * BLOCK, block * BLOCK + 1)
        rows: np.ndarray = self._order[positions].astype(np.int64)
        return rows

    def rows_of(self, epoch: int, positions: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The row numbers at these positions of the rows of an epoch, sorted by length."""
        return self.sorted_rows(positions)

    def check(self) -> None:
        """Read everything once; a DataError if a single bit has changed."""
        self._check(0, self._data_bytes)

    def _check_all(self, starts: Int[np.ndarray, " n"], ends: Int[np.ndarray, " n"]) -> None:
        """Check what lies between each start and its end."""
        first, last = starts // BLOCK, (ends - 1) // BLOCK
        new = ~(self._checked[first] & self._checked[last]) | (last > first + 1)
        for start, end in zip(starts[new].tolist(), ends[new].tolist(), strict=True):
            self._check(start, end)

    def _check(self, start: int, end: int) -> None:
        for block in range(start // BLOCK, -(-end // BLOCK)):
            if not self._checked[block]:
                data = self._bytes[block * BLOCK : min((block + 1) * BLOCK, self._data_bytes)]
                if zlib.crc32(data.tobytes()) != self._checks[block]:
                    raise _damaged(self.path)
                self._checked[block] = True


def write_dataset(
    path: str | Path,
    rows: Iterable[Sequence[Sequence[int]]],
    *,
    sides: int = 2,
    size: int,
    fingerprint: str = "",
    note: dict[str, Any] | None = None,
) -> Dataset:
    """Write `rows` (each one sentence per side, ids below `size`) as they come, then open the file.

    Memory holds some 40 bytes a row, and no tokens. The file appears only when it is complete. `note` is written last
    and may change while rows are read.
    """
    return write_chunks(path, _chunks(rows, _dtype(size)), sides=sides, size=size, fingerprint=fingerprint, note=note)


def write_chunks(
    path: str | Path,
    chunks: Iterable[Sentences],
    *,
    sides: int = 2,
    size: int,
    fingerprint: str = "",
    note: dict[str, Any] | None = None,
) -> Dataset:
    """The same for rows that come in chunks: all sides of a row in turn."""
    dtype = _dtype(size)
    with atomic_write(path) as file:
        offsets = _write_tokens(file, chunks, dtype)
        file.write(b"\0" * (-file.tell() % 8))
        lengths, order = sort_by_length(np.diff(offsets).reshape(-1, sides)[:, :2])
        offsets_at = _append(file, offsets.astype("<u8"))
        counts_at = _append(file, np.column_stack(lengths).astype("<i8"))
        order_at = _append(file, order.astype(_order_dtype(len(order))))
        footer = {
            "rows": len(order),
            "sides": sides,
            "tokens": int(offsets[-1]),
            "dtype": dtype.str,
            "offsets_at": offsets_at,
            "cells_at": counts_at,
            "order_at": order_at,
            "data_bytes": file.tell(),
            "checks_crc": _write_checks(file),
            "fingerprint": fingerprint,
            "note": note or {},
        }
        body = json.dumps(footer).encode()
        file.write(body + TAIL.pack(len(body), zlib.crc32(body), MAGIC))
    return Dataset(path)


def open_dataset(path: str | Path, fingerprint: str) -> Dataset | None:
    """The dataset at `path` if it was written from the sources with this fingerprint, else None."""
    if not Path(path).exists():
        return None
    dataset = Dataset(path)
    return dataset if dataset.fingerprint == fingerprint else None


def _write_tokens(
    file: BufferedIOBase, chunks: Iterable[Sentences], dtype: np.dtype[Any]
) -> Int[np.ndarray, " sentences_and_one"]:
    """Write the ids of all sentences, and return where each begins, and the last ends."""
    lengths = [np.zeros(1, np.int64)]
    for chunk in chunks:
        file.write(chunk.ids.astype(dtype, copy=False).tobytes())
        lengths.append(chunk.lengths)
    return np.concatenate(lengths).cumsum()


def _chunks(rows: Iterable[Sequence[Sequence[int]]], dtype: np.dtype[Any]) -> Iterator[Sentences]:
    sentences = chain.from_iterable(rows)
    while chunk := list(islice(sentences, CHUNK)):
        lengths = np.array([len(sentence) for sentence in chunk], np.int64)
        yield Sentences(np.fromiter(chain.from_iterable(chunk), dtype), lengths)


def _dtype(size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


def _append(file: BufferedIOBase, array: np.ndarray) -> int:
    """Write an array and return where it begins."""
    start = file.tell()
    file.write(array.tobytes())
    return start


def _order_dtype(rows: int) -> np.dtype[Any]:
    return np.dtype("<u4" if rows <= 1 << 32 else "<u8")


def _write_checks(file: BufferedIOBase) -> int:
    """Append the CRC-32 of each block written so far, and return the CRC-32 of those."""
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
            file.seek(max(0, end - TAIL.size - length))
            body = file.read(min(length, end))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    footer: dict[str, Any] = json.loads(body) if magic == MAGIC and zlib.crc32(body) == crc else {}
    data_bytes = footer.get("data_bytes", end)
    if data_bytes + 4 * -(-data_bytes // BLOCK) + length + TAIL.size != end:
        raise _damaged(path)
    return footer


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is damaged, cut short or not a dataset; delete it, and jumok writes it again")
