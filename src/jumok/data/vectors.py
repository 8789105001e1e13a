"""Pretrained word vectors: word2vec (text and binary), GloVe (no header) and fastText .vec files, plain, .gz or .xz."""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import DataError
from jumok.files import bare_suffix, bounded_lines, display_name, open_bytes

FASTTEXT_MODEL = struct.pack("<i", 793712314)
"""First bytes of a fastText model."""
USE_VEC = "give the .vec file beside it, or write one: fasttext print-word-vectors MODEL.bin < words.txt > words.vec"
LONGEST_WORD = 10_000
"""Most bytes of a word in a binary file."""
WIDEST, MOST_DIGITS = 100_000, 12
"""Most numbers of a vector, and most digits of the number of words: beyond, a header is damaged."""

Row = tuple[str, Callable[[], np.ndarray]]
"""A word, and a function that parses its numbers: only those of the words that are kept are parsed."""


class WordVectors(NamedTuple):
    """Words, and a vector for each."""

    words: list[str]
    matrix: Float[np.ndarray, "words dim"]


def read_vectors(path: str | Path, *, only: Collection[str] | None = None) -> WordVectors:
    """Read a file of word vectors; `only` keeps just these words, which saves memory.

    A name ending in .bin is read as word2vec's binary format, all others as text, with or without a header line. If a
    word occurs twice, its first vector counts.
    """
    vectors: dict[str, np.ndarray] = {}
    with open_bytes(path) as file:
        _, dim, rows = _open_rows(file, path)
        for word, numbers in rows:
            if word not in vectors and (only is None or word in only):
                vectors[word] = numbers()
    if not vectors and only is None:
        raise DataError(f"{display_name(path)} holds no vectors")
    return WordVectors(list(vectors), np.stack(list(vectors.values())) if vectors else np.zeros((0, dim), np.float32))


def match(vectors: WordVectors, pieces: Sequence[str]) -> Float[Tensor, "pieces dim"]:
    """A row for each piece of a vocabulary: the vector of its word, or NaN if there is none.

    The mark of the beginning of a word (▁) is dropped, and a word that is missing is looked up in lower case.
    """
    rows = {word: row for row, word in enumerate(vectors.words)}
    matched = np.full((len(pieces), vectors.matrix.shape[1]), np.nan, np.float32)
    for number, piece in enumerate(pieces):
        word = piece.removeprefix("▁")
        row = rows.get(word, rows.get(word.lower()))
        if row is not None:
            matched[number] = vectors.matrix[row]
    return torch.from_numpy(matched)


def vectors_of(path: str | Path, pieces: Sequence[str]) -> Float[Tensor, "pieces dim"]:
    """The vectors of the pieces of a vocabulary from a file, as in `match`; no others are kept in memory."""
    words = {piece.removeprefix("▁") for piece in pieces}
    return match(read_vectors(path, only=words | {word.lower() for word in words}), pieces)


def vector_width(path: str | Path) -> int:
    """The size of the vectors of a file, by its first line."""
    with open_bytes(path) as file:
        return _open_rows(file, path)[1]


def _open_rows(file: BufferedIOBase, path: str | Path) -> tuple[int | None, int, Iterator[Row]]:
    """The number of words, None if the file does not say; the size of their vectors; and the rows."""
    lines = bounded_lines(file, path)
    binary = bare_suffix(path) == ".bin"
    first = file.readline(200) if binary else next(lines, b"")
    if first.startswith(FASTTEXT_MODEL):
        raise DataError(f"{display_name(path)} is a fastText model, which holds subwords too; {USE_VEC}")
    header = first.split()
    if len(header) == 2 and all(part.isdigit() and len(part) <= MOST_DIGITS for part in header):
        count, dim = int(header[0]), int(header[1])
        if 1 <= dim <= WIDEST:
            rows = _binary_rows(file, path, count, dim) if binary else _text_rows(lines, path, count, dim, start=2)
            return count, dim, rows
    elif not binary and len(header) > 2 and all(map(_is_number, header[1:])):
        return None, len(header) - 1, _text_rows(chain([first], lines), path, None, len(header) - 1, start=1)
    expected = "two numbers, words and dimensions" + ("" if binary else ", or a word and its numbers")
    older = f"; if it is an old model of fastText, {USE_VEC}" if binary else ""
    raise DataError(
        f"{display_name(path)} is not a file of word vectors: line 1 must be {expected} (at most {WIDEST:,}), but is "
        f"{first[:60]!r}{older}"
    )


def _text_rows(lines: Iterable[bytes], path: str | Path, count: int | None, dim: int, *, start: int) -> Iterator[Row]:
    number = start - 1
    for number, line in enumerate(lines, start=start):
        yield _text_row(line, dim, f"{display_name(path)}, line {number}")
    if count is not None and number + 1 - start != count:
        raise DataError(
            f"{display_name(path)} is cut short: its first line promises {count} words, but {number + 1 - start} follow"
        )


def _text_row(line: bytes, dim: int, where: str) -> Row:
    """The last `dim` columns are numbers; before them is the word, which may contain spaces (GloVe 840B)."""
    parts = line.rstrip().split(b" ")
    if len(parts) <= dim:
        raise DataError(f"{where} has {len(parts) - 1} numbers after the word, but the file's vectors have {dim}")

    def numbers() -> np.ndarray:
        try:
            with np.errstate(over="ignore"):  # a number that is too large becomes infinite, which its user refuses
                return np.array([float(part) for part in parts[-dim:]], np.float32)
        except ValueError as error:
            raise DataError(f"{where}: {str(error)[:100]}; expected a word and {dim} numbers") from None

    return b" ".join(parts[:-dim]).decode("utf-8", "replace"), numbers


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _binary_rows(file: BufferedIOBase, path: str | Path, count: int, dim: int) -> Iterator[Row]:
    for number in range(1, count + 1):
        word = _word_before_space(file)
        data = file.read(4 * dim)
        if word is None or len(data) < 4 * dim:
            raise DataError(f"{display_name(path)} is cut short in word {number} of {count}")
        yield word.lstrip(b"\n").decode("utf-8", "replace"), partial(np.frombuffer, data, "<f4")


def _word_before_space(file: BufferedIOBase) -> bytes | None:
    word = bytearray()
    while (letter := file.read(1)) != b" ":
        if not letter or len(word) > LONGEST_WORD:
            return None
        word += letter
    return bytes(word)
