"""Parallel text as a stream of pairs: two text files, TSV, JSONL, lines of `a ||| b`, or a Hugging Face dataset."""

import difflib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jumok.data.symbols import feature_symbols
from jumok.errors import ArgumentError, DataError, MissingExtraError, first_line
from jumok.files import STDIN, bare_suffix, display_name, parse_json, quoted, read_lines, shards

Column = int | str | tuple[int, ...] | tuple[str, ...]
"""A column of a TSV, counted from 1 or named by its header, or a key of JSON objects; or several, joined by spaces."""
Columns = tuple[Column, Column]
SEPARATOR = "|||"
"""Between source and target of a line, as in files for fast_align and eflomal."""
LONGEST_KEY = 60
"""Letters of a key that a message may suggest."""
MOST_VALUES = 1000
"""Different values of a column that are counted for a message."""

Corpus = Literal["cldr", "phrases", "dates", "reverse"]
"""The built-in corpora of `jumok.data.corpora`, whose modules take half a second to import."""
Split = Literal["train", "valid", "test"]


class Pair(NamedTuple):
    """A source sequence and its target."""

    source: str
    target: str


TO_TSV = (
    'python3 -c "import csv, sys; '
    "[print(*(' '.join(cell.split()) for cell in row), sep='\\t') for row in csv.reader(sys.stdin)]\" < FILE > NEW.tsv"
)
"""A command that converts CSV; tabs and line breaks in a cell become spaces."""


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    *,
    columns: Columns | None = None,
    features: tuple[int | str, ...] = (),
    only: tuple[int, str] | None = None,
) -> Iterator[Pair]:
    """Stream the pairs of two text files (line n of one translates line n of the other), or of one file of pairs.

    A file of pairs is TSV (.tsv) with `columns` counted from 1, by default (1, 2), or named by its header line; or
    JSONL (.jsonl) with two keys as `columns`, by default ("source", "target"), where "a.b" is key b inside key a; or it
    has lines of `source ||| target`. The first line of standard input ("-") decides its format. Any file may end in
    .gz or .xz. `only` = (2, "kor") skips every row of a TSV whose second column is not "kor".

    A side may join several columns, ((3, 1), 2): a space stands between them. Cells of the columns `features`, such as
    "V;PST", become symbols, "<V> <PST>".

    A corpus in many files is named by a pattern: "corpus/*.en.gz" are read in the order of their names, and file n of
    the source belongs to file n of the target.
    """
    read = [part for column in columns or (1, 2, "source", "target") for part in parts_of(column)]
    if unread := next((column for column in features if column not in read), None):
        raise ArgumentError(
            f"features names column {unread!r}, which columns does not read; add it to a side: "
            f"columns = [[{json.dumps(unread)}, {json.dumps(read[0])}], {json.dumps(read[-1])}]"
        )
    if target is None:
        parts = ((part, _one_file(part, columns, features, only)) for part in shards(source))
    else:
        parts = ((part, _two_files(part, other)) for part, other in _matching(shards(source), shards(target)))
    return chain.from_iterable(_nonempty(pairs, display_name(part)) for part, pairs in parts)


def _matching(sources: list[str], targets: list[str]) -> list[tuple[str, str]]:
    if len(sources) != len(targets):
        raise DataError(
            f"there are {len(sources)} files of the source, {sources[0]} …, but {len(targets)} of the target, "
            f"{targets[0]} …; file n of one must translate file n of the other"
        )
    return list(zip(sources, targets, strict=True))


def read_dataset(path: str, *, split: str = "train", columns: Columns = ("source", "target")) -> Iterator[Pair]:
    """Stream the pairs of a Hugging Face dataset, by name or by the folder that `save_to_disk` wrote.

    `columns` are two keys of a row; "translation.en" is key en inside key translation.
    """
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "datasets", f"reading the dataset {path!r}") from None
    on_disk = Path(path, "dataset_dict.json").is_file() or Path(path, "state.json").is_file()
    try:
        rows = datasets.load_from_disk(path) if on_disk else datasets.load_dataset(path, split=split, streaming=True)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"cannot read split {split!r} of the dataset {path!r}: {first_line(error)}") from None
    if on_disk:
        splits = rows if isinstance(rows, dict) else {"train": rows}
        if split not in splits:
            raise DataError(f"the dataset {path} has no split {split!r}{_closest(split, list(splits))}")
        rows = splits[split]
    return _nonempty(pairs_of_rows(rows, _keys(columns, path), where=f"{path}, row"), path)


def pairs_of_rows(
    rows: Iterable[Mapping[str, Any]],
    keys: tuple[tuple[str, ...], ...],
    *,
    where: str,
    features: tuple[int | str, ...] = (),
) -> Iterator[Pair]:
    """The values of the keys of both sides in every row; error messages begin with `where` and the row's number."""
    for number, row in enumerate(rows, start=1):
        sides = ({key: _text_at(row, key, f"{where} {number}") for key in side} for side in keys)
        yield Pair(*(_joined(texts, features) for texts in sides))


def _joined(texts: Mapping[Any, str], features: Collection[int | str]) -> str:
    """The cells of one side as one text, by their columns."""
    if len(texts) == 1 and not features:
        return next(iter(texts.values()))
    return " ".join(feature_symbols(text) if column in features else text for column, text in texts.items())


def _two_files(source: str | Path, target: str | Path) -> Iterator[Pair]:
    last, counts = ["", ""], [0, 0]
    for lines in zip_longest(read_lines(source), read_lines(target)):
        for side, line in enumerate(lines):
            if line is not None:
                last[side], counts[side] = line, counts[side] + 1
        if counts[0] == counts[1]:
            yield Pair(*last)
    if counts[0] != counts[1]:
        names = display_name(source), display_name(target)
        raise DataError(
            f"{names[0]} has {counts[0]} lines but {names[1]} has {counts[1]}, and line n of each must be the same "
            f"sentence; their last lines are {_shortened(last[0])} and {_shortened(last[1])}; look for a line lost or "
            "split in two"
        )


def _one_file(
    path: str | Path, columns: Columns | None, features: tuple[int | str, ...], only: tuple[int, str] | None
) -> Iterator[Pair]:
    """The pairs of a file with both sides, whose suffix or first line decides its format."""
    lines, suffix = read_lines(path), bare_suffix(path)
    first = next(lines, None)
    if first is None:
        return
    lines = chain([first], lines)
    is_json = suffix in (".jsonl", ".ndjson") or first.startswith("{")
    piped = str(path) == STDIN
    if suffix in (".tsv", ".tab") or (piped and ("\t" in first or not (is_json or SEPARATOR in first))):
        yield from _tsv(lines, path, columns or (1, 2), features, only)
    elif only is not None:
        raise ArgumentError(f"only = {list(only)} needs a TSV, and {display_name(path)} is not one")
    elif is_json:
        keys = _keys(columns or ("source", "target"), path)
        where = f"{display_name(path)}, line"
        yield from pairs_of_rows(_json_objects(lines, path), keys, where=where, features=features)
    elif SEPARATOR in first:
        yield from _separated(lines, path)
    elif suffix == ".csv":
        raise ArgumentError(f"{path} is CSV, which jumok does not read; convert it to TSV first, for example: {TO_TSV}")
    else:
        raise ArgumentError(
            f"{path} alone is not a file of pairs, which is .tsv, .jsonl or has lines of `source {SEPARATOR} target`; "
            "give the target file too"
        )


def _separated(lines: Iterable[str], path: str | Path) -> Iterator[Pair]:
    for number, line in enumerate(lines, start=1):
        sides = line.split(SEPARATOR)
        if len(sides) != 2:
            raise DataError(
                f"{display_name(path)}, line {number} has {len(sides) - 1} times {SEPARATOR}, but must have it once, "
                f"between source and target: {_shortened(line)}"
            )
        yield Pair(sides[0].strip(), sides[1].strip())


def _tsv(
    lines: Iterable[str],
    path: str | Path,
    columns: Columns,
    features: tuple[int | str, ...],
    only: tuple[int, str] | None,
) -> Iterator[Pair]:
    sides = [parts_of(column) for column in columns]
    named = any(isinstance(column, str) for side in sides for column in side)
    places: list[list[int]] | None = None if named else [[int(column) for column in side] for side in sides]
    special: set[int | str] = set(features)
    skipped: Counter[str] = Counter()
    matched = False
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if places is None:
            places = [[_header_column(column, cells, path) for column in side] for side in sides]
            special = {_header_column(column, cells, path) for column in features}
            continue
        needed = [place for side in places for place in side]
        if len(cells) < max(needed) or min(needed) < 1:
            counted = "; columns are counted from 1" if min(needed) < 1 else ""
            raise DataError(
                f"{display_name(path)}, line {number} has {len(cells)} columns separated by tabs, but columns {needed} "
                f"are needed{counted}: {_shortened(line)}"
            )
        if only is None or cells[only[0] - 1 : only[0]] == [only[1]]:
            matched = True
            yield Pair(*(_joined({place: cells[place - 1] for place in side}, special) for side in places))
        elif not matched and len(skipped) < MOST_VALUES:
            skipped.update(cells[only[0] - 1 : only[0]])
    if only is not None and not matched:
        raise _no_match(path, only, skipped)


def parts_of(column: Column) -> tuple[int | str, ...]:
    """The columns that are joined."""
    return column if isinstance(column, tuple) else (column,)


def _no_match(path: str | Path, only: tuple[int, str], values: Counter[str]) -> DataError:
    """The error for a filter that no row passes, with the most frequent values of the column."""
    shown = ", ".join(f"{_shortened(value, 30)} in {count:,} rows" for value, count in values.most_common(5))
    held = f"column {only[0]} holds {shown}" + ", …" * (len(values) > 5) if values else f"no row has a column {only[0]}"
    wanted = json.dumps(list(only), ensure_ascii=False)
    return DataError(f"data.only = {wanted} matches no row of {display_name(path)}: {held}")


def _header_column(column: int | str, header: list[str], path: str | Path) -> int:
    if isinstance(column, int):
        return column
    if column not in header:
        raise DataError(f"the header of {display_name(path)} has no column {column!r}{_closest(column, header)}")
    return header.index(column) + 1


def _json_objects(lines: Iterable[str], path: str | Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise DataError(f"{display_name(path)}, line {number} is not a JSON object {{...}}: {_shortened(line)}")
        yield row


def _keys(columns: Columns, path: str | Path) -> tuple[tuple[str, ...], ...]:
    sides = [parts_of(column) for column in columns]
    if not all(isinstance(column, str) for side in sides for column in side):
        raise ArgumentError(f"columns = {columns} of {display_name(path)} must be two keys, not column numbers")
    return tuple(tuple(map(str, side)) for side in sides)


def _text_at(row: Mapping[str, Any], key: str, where: str) -> str:
    value: Any = row
    for part in [key] if key in row else key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = list(value) if isinstance(value, Mapping) else []
            raise DataError(f"{where} has no key {part!r}{_closest(part, known)}{_columns_hint(row)}")
        value = value[part]
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise DataError(f"{where}: the value of {key!r} is {quoted(value)}, which is not text")
    return value


def _columns_hint(row: Mapping[str, Any]) -> str:
    """A suggestion of two keys of a row that hold text, if there are two."""
    inner = {
        f"{key}.{part}": text
        for key, value in row.items()
        if isinstance(value, Mapping)
        for part, text in value.items()
    }
    keys = [key for key, value in {**row, **inner}.items() if isinstance(value, str) and len(key) <= LONGEST_KEY][:2]
    if len(keys) < 2:
        return ""
    setting = json.dumps(keys, ensure_ascii=False)
    return f"; name source and target: data.columns = {setting}, or --columns {','.join(keys)} of align and evaluate"


def _nonempty(pairs: Iterator[Pair], where: str) -> Iterator[Pair]:
    first = next(pairs, None)
    if first is None:
        raise DataError(f"{where} holds no pairs; is it the file you meant?")
    yield first
    yield from pairs


def _closest(wanted: str, known: list[str]) -> str:
    close = difflib.get_close_matches(wanted, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(map(quoted, known[:8]))}" if known else ""


def _shortened(text: str, longest: int = 60) -> str:
    return '"' + (text if len(text) <= longest else text[: longest - 1] + "…") + '"'
