"""Some columns of a TSV or JSONL file, row by row."""

from collections.abc import Iterator
from typing import Any

from jumok.data.files import bare_suffix, name, parse_json, read_lines
from jumok.errors import ArgumentError, DataError

Column = int | str
"""A column counted from 1, or the name of one: in a header line, or a key of JSON objects."""
SETTINGS = ("image_column", "caption_column", "split_column")
"""Those of `ImagesConfig` that name the columns, in their order."""
KEYS = {1: "image", 2: "caption", 3: "split"}
"""The keys of JSON objects that columns stand for, which are numbers unless told."""


def read_cells(path: str, columns: list[Column]) -> Iterator[tuple[int, list[str]]]:
    """The number of every line that is not empty, and what is in the columns."""
    suffix = bare_suffix(path)
    if suffix in (".tsv", ".tab"):
        return _tsv(path, columns)
    if suffix in (".jsonl", ".ndjson"):
        return _jsonl(path, [KEYS.get(key, "") if isinstance(key, int) else key for key in columns])
    raise ArgumentError(f"{path} must be a .tsv or .jsonl file, plain, .gz or .xz")


def _tsv(path: str, columns: list[Column]) -> Iterator[tuple[int, list[str]]]:
    named = any(isinstance(column, str) for column in columns)
    places = [] if named else [int(column) for column in columns]
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        if named and number == 1:
            absent = [column for column in columns if isinstance(column, str) and column not in cells]
            if absent:
                raise DataError(f"the first line of {name(path)} names no column {absent[0]!r}; there are {cells[:8]}")
            places = [cells.index(column) + 1 if isinstance(column, str) else column for column in columns]
            continue
        if not line.strip():
            continue
        if len(cells) < max(places) or min(places) < 1:
            raise DataError(
                f"{name(path)}, line {number} has {len(cells)} columns separated by tabs, but columns {places} are "
                f"asked for: {line[:60]!r}"
            )
        yield number, [cells[place - 1] for place in places]


def _jsonl(path: str, keys: list[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row: Any = parse_json(line)
        except ValueError:
            raise DataError(f"{name(path)}, line {number} is not JSON: {line[:60]!r}") from None
        for key in keys:
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                setting = f"images.{SETTINGS[keys.index(key)]}"
                raise DataError(
                    f"{name(path)}, line {number} has no text under the key {key!r}: {line[:60]!r}; if it is under "
                    f"another, name that: {setting}"
                )
        yield number, [row[key] for key in keys]
