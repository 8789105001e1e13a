"""What is wrong with the files of a recipe, found in seconds: before a vocabulary is learnt, which can take an hour."""

from collections.abc import Iterable
from itertools import islice

from jumok.data.files import open_bytes
from jumok.data.pairs import read_pairs
from jumok.data.sources import DataConfig
from jumok.errors import DataError

FIRST = 1000
"""Lines of every file that are really read."""
AT_ONCE = 1 << 20


def check_files(data: DataConfig) -> None:
    """Raise a DataError for a file that is missing or unreadable, is not UTF-8 at its beginning, or lacks text."""
    for one, other in ((data.source, data.target), (data.valid_source, data.valid_target)):
        if one:
            _read(islice(read_pairs(one, other), FIRST))
            if _lines(one) != _lines(other):
                _read(read_pairs(one, other))  # says where
    for path in (data.pairs, data.valid_pairs):
        if path:
            _read(islice(read_pairs(path, columns=data.columns, only=data.only), FIRST))
    if data.alignments:
        _read(islice(data.training_links(), FIRST))
    if data.files():
        _find_whole_pair(data)


def _find_whole_pair(data: DataConfig) -> None:
    """Of text without any, a tokenizer would be learnt of one side, which fails for reasons that are not the cause."""
    count = 0
    for pair in data.training():
        if pair.source.strip() and pair.target.strip():
            return
        count += 1
    raise DataError(
        f"no pair is left to learn from: a side of each of the {count:,} pairs of {data.origin} is empty; "
        "give text on both sides"
    )


def _read(items: Iterable[object]) -> None:
    for _ in items:
        pass


def _lines(path: str) -> int:
    """How many there are, the last one with or without its end."""
    count, last = 0, b"\n"
    with open_bytes(path) as file:
        while part := file.read(AT_ONCE):
            count, last = count + part.count(b"\n"), part[-1:]
    return count + (last != b"\n")
