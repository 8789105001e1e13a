"""Pretrained word vectors: word2vec (text and binary), GloVe (no header) and fastText .vec files, plain, .gz or .xz."""

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import DataError
from jumok.files import bare_suffix, bounded_lines, name, open_bytes

FASTTEXT_BINARY = struct.pack("<i", 793712314)
VEC = "give the .vec file beside it, or write one: fasttext print-word-vectors MODEL.bin < words.txt > words.vec"
LONGEST_WORD = 10_000  # bytes; a binary file without a space for this long is no word2vec file
WIDEST = 100_000  # numbers of a vector, and DIGITS of how many words there are: beyond, the first line is damaged
DIGITS = 12


class WordVectors(NamedTuple):
    """Words, and a row of numbers for each."""

    words: list[str]
    matrix: Float[np.ndarray, "words dim"]


def read_vectors(path: str | Path, *, only: Collection[str] | None = None) -> WordVectors:
    """Read a file of word vectors; `only` keeps these words and spares the memory of the others.

    A name ending in .bin is read as word2vec's binary format, all others as text, with or without a header line. Of a
    word that comes twice the first vector counts.
    """
    with open_bytes(path) as file:
        rows = _binary_rows(file, path) if bare_suffix(path) == ".bin" else _text_rows(file, path)
        found: dict[str, np.ndarray] = {}
        for word, numbers in rows:
            if word not in found and (only is None or word in only):
                found[word] = numbers()
    if not found and only is None:
        raise DataError(f"{name(path)} holds no vectors")
    matrix = np.stack(list(found.values())) if found else np.zeros((0, 0), np.float32)
    return WordVectors(list(found), matrix)


def match(vectors: WordVectors, pieces: Sequence[str]) -> Float[Tensor, "pieces dim"]:
    """A row for each piece of a vocabulary: the vector of its word, or NaN where there is none.

    The mark of a word's beginning (▁) is left off, and a word missing as it stands is looked up in lower case.
    """
    rows = {word: row for row, word in enumerate(vectors.words)}
    found = [_row_of(piece.removeprefix("▁"), rows) for piece in pieces]
    matched = np.full((len(pieces), vectors.matrix.shape[1]), np.nan, np.float32)
    for at, row in enumerate(found):
        if row is not None:
            matched[at] = vectors.matrix[row]
    return torch.from_numpy(matched)


def vectors_of(path: str | Path, pieces: Sequence[str]) -> Float[Tensor, "pieces dim"]:
    """The vectors of a vocabulary's pieces out of a file, as `match` gives them; the others are never kept."""
    words = {piece.removeprefix("▁") for piece in pieces}
    found = read_vectors(path, only=words | {word.lower() for word in words})
    return match(found if found.words else WordVectors([], np.zeros((0, vector_width(path)), np.float32)), pieces)


def vector_width(path: str | Path) -> int:
    """How many numbers each vector of a file has, by its first line."""
    with open_bytes(path) as file:
        if bare_suffix(path) == ".bin":
            return _binary_header(file, path)[1]
        return _text_header(next(bounded_lines(file, path), b""), path)[1]


def _row_of(word: str, rows: dict[str, int]) -> int | None:
    return rows.get(word, rows.get(word.lower()))


Row = tuple[str, Callable[[], np.ndarray]]  # numbers are parsed only for the words that are kept


def _text_rows(file: BufferedIOBase, path: str | Path) -> Iterator[Row]:
    lines = bounded_lines(file, path)
    first = next(lines, b"")
    wanted, dim = _text_header(first, path)
    counted, number = wanted is not None, 0
    for number, raw in enumerate(lines if counted else chain([first], lines), start=1 + counted):
        yield _text_row(raw, dim, f"{name(path)}, line {number}")
    seen = number - 1 if counted else number
    if wanted is not None and max(seen, 0) != wanted:
        raise DataError(f"{name(path)} is cut short: its first line promises {wanted} words, but {max(seen, 0)} follow")


def _text_header(first: bytes, path: str | Path) -> tuple[int | None, int]:
    """How many words the first line promises, None if it is a word itself; and the width of the vectors."""
    _refuse_fasttext(first, path)
    header = first.split()
    wanted, dim = _two_numbers(header, path) or (None, len(header) - 1)
    if dim < 1 or not (wanted is not None or all(map(_is_number, header[1:]))):
        raise DataError(
            f"{name(path)} is not a file of word vectors: line 1 is neither a header nor a word with its numbers: "
            f"{first[:60]!r}"
        )
    return wanted, dim


def _two_numbers(header: list[bytes], path: str | Path) -> tuple[int, int] | None:
    """How many words and how wide vectors a first line promises; None if it is not two whole numbers."""
    if len(header) != 2 or not all(part.isdigit() for part in header):
        return None
    if len(header[0]) > DIGITS or len(header[1]) > DIGITS or int(header[1]) > WIDEST:
        shown = b" x ".join(part[:20] for part in header).decode("ascii")
        raise DataError(
            f"{name(path)}: the first line promises {shown} numbers, words by width, which no file holds; at most "
            f"{WIDEST:,} wide; it is damaged, or no file of word vectors"
        )
    return int(header[0]), int(header[1])


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text_row(raw: bytes, dim: int, where: str) -> Row:
    """The last `dim` columns are numbers; what comes before is the word, which may hold spaces (GloVe 840B)."""
    parts = raw.rstrip().split(b" ")
    if len(parts) <= dim:
        raise DataError(f"{where} has {len(parts) - 1} numbers after the word, but the file's vectors have {dim}")

    def numbers() -> np.ndarray:
        try:
            with np.errstate(over="ignore"):  # what is too large is infinite, and refused where vectors are used
                return np.array([float(part) for part in parts[-dim:]], np.float32)
        except ValueError as error:
            raise DataError(f"{where}: {str(error)[:100]}; expected a word and {dim} numbers") from None

    return b" ".join(parts[:-dim]).decode("utf-8", "replace"), numbers


def _binary_rows(file: BufferedIOBase, path: str | Path) -> Iterator[Row]:
    count, dim = _binary_header(file, path)
    for number in range(1, count + 1):
        word = _word_before_space(file)
        data = file.read(4 * dim)
        if word is None or len(data) < 4 * dim:
            raise DataError(f"{name(path)} is cut short in word {number} of the {count} its first line promises")
        yield word.lstrip(b"\n").decode("utf-8", "replace"), lambda data=data: np.frombuffer(data, "<f4").copy()  # type: ignore[misc]


def _binary_header(file: BufferedIOBase, path: str | Path) -> tuple[int, int]:
    """How many words there are, and the width of their vectors."""
    first = file.readline(200)
    _refuse_fasttext(first, path)
    found = _two_numbers(first.split(), path)
    if found is None:
        raise DataError(
            f"{name(path)} does not begin with two numbers, words and dimensions, as word2vec files do; if it is an "
            f"old model of fastText, {VEC}"
        )
    return found


def _refuse_fasttext(first: bytes, path: str | Path) -> None:
    """A model of fastText, by its first bytes and whatever it is called, is no list of words and vectors."""
    if first.startswith(FASTTEXT_BINARY):
        raise DataError(f"{name(path)} is a fastText model, which holds subwords too; {VEC}")


def _word_before_space(file: BufferedIOBase) -> bytes | None:
    word = bytearray()
    while (letter := file.read(1)) != b" ":
        if not letter or len(word) > LONGEST_WORD:
            return None
        word += letter
    return bytes(word)
