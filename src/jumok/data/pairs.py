"""Parallel text as a stream of pairs: two text files, TSV, JSONL, lines of `a ||| b`, or a Hugging Face dataset."""

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jumok.errors import ArgumentError, DataError, MissingExtraError
from jumok.files import STDIN, bare_suffix, name, parse_json, quoted, read_lines

Columns = tuple[int, int] | tuple[str, str]
LONGEST_KEY = 60
"""Letters of a key that a message proposes."""
BAR = "|||"
"""Between source and target of a line, as fast_align and eflomal want them."""
MOST_VALUES = 1000
"""Different values of a column that are counted, for a message."""


Corpus = Literal["cldr", "phrases", "dates", "reverse"]
"""The built-in corpora, in corpora.py; they are named here because that file needs Babel and half a second."""
Split = Literal["train", "valid", "test"]


class Pair(NamedTuple):
    """A sequence and what it should become."""

    source: str
    target: str


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    *,
    columns: Columns | None = None,
    only: tuple[int, str] | None = None,
) -> Iterator[Pair]:
    """Stream the pairs of two text files (line n of one translating line n of the other), or of one file of pairs.

    One file is TSV (.tsv) with `columns` counted from 1, by default (1, 2), or named by its header line; or JSONL
    (.jsonl) with `columns` the two keys, by default ("source", "target"), where "a.b" looks for key b inside key a; or
    it has lines of `source ||| target`. Of standard input ("-") the first line tells which. Any file may end in .gz or
    .xz. `only` = (2, "kor") leaves out every row of a TSV whose second column is not "kor".
    """
    if target is not None:
        if str(source) == STDIN == str(target):
            raise ArgumentError("source and target are both standard input; give one of them as a file, or pipe TSV")
        return _some(_two_files(source, target), name(source))
    return _some(_one_file(source, columns, only), name(source))


def read_dataset(path: str, *, split: str = "train", columns: Columns = ("source", "target")) -> Iterator[Pair]:
    """Stream the pairs of a Hugging Face dataset, by name or by the folder `save_to_disk` wrote.

    `columns` are two keys of a row; "translation.en" looks for key en inside key translation.
    """
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "datasets", f"reading the dataset {path!r}") from None
    try:
        if Path(path, "dataset_dict.json").is_file() or Path(path, "state.json").is_file():
            rows = _split_of(datasets.load_from_disk(path), split, path)
        else:
            rows = datasets.load_dataset(path, split=split, streaming=True)
    except DataError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"cannot read split {split!r} of the dataset {path!r}: {_first_line(error)}") from None
    return _some(pairs_of_rows(rows, _keys(columns, path), where=f"{path}, row"), path)


def _split_of(loaded: Any, split: str, path: str) -> Any:
    """A split of what was saved to disk: of all its splits, or of one dataset alone, which is to be trained on."""
    if not isinstance(loaded, dict):
        if split != "train":
            raise DataError(f'the dataset {path} has no splits, so no {split!r}; set data.valid_split = ""')
        return loaded
    if split not in loaded:
        raise DataError(f"the dataset {path} has no split {split!r}{_closest(split, list(loaded))}")
    return loaded[split]


def pairs_of_rows(rows: Iterable[Mapping[str, Any]], keys: tuple[str, str], *, where: str) -> Iterator[Pair]:
    """The values of two keys of every row; `where` and the row's number begin each message."""
    for number, row in enumerate(rows, start=1):
        yield Pair(*(_text_at(row, key, f"{where} {number}") for key in keys))


def _two_files(source: str | Path, target: str | Path) -> Iterator[Pair]:
    last, counts = ["", ""], [0, 0]
    for lines in zip_longest(read_lines(source), read_lines(target)):
        for side, line in enumerate(lines):
            if line is not None:
                last[side], counts[side] = line, counts[side] + 1
        if counts[0] == counts[1]:
            yield Pair(*last)
    if counts[0] != counts[1]:
        raise DataError(
            f"{name(source)} has {counts[0]} lines but {name(target)} has {counts[1]}, and line n of each must be the "
            f"same sentence; their last lines are {_quoted(last[0])} and {_quoted(last[1])}; "
            "look for a line lost or split in two"
        )


def _one_file(path: str | Path, columns: Columns | None, only: tuple[int, str] | None) -> Iterator[Pair]:
    """The pairs of a file that holds both sides, read as its name says, or else its first line."""
    lines, suffix = read_lines(path), bare_suffix(path)
    first = next(lines, None)
    if first is None:
        return
    lines = chain([first], lines)
    if suffix in (".tsv", ".tab") or (str(path) == STDIN and "\t" in first):
        yield from _tsv(lines, path, columns or (1, 2), only)
        return
    if only is not None:
        raise ArgumentError(f"only = {list(only)} is for the columns of a TSV, and {name(path)} is none")
    if suffix in (".jsonl", ".ndjson") or first.startswith("{"):
        yield from _jsonl(lines, path, columns or ("source", "target"))
    elif BAR in first:
        yield from _barred(lines, path)
    elif str(path) == STDIN:
        yield from _tsv(lines, path, columns or (1, 2), only)  # says what is missing
    else:
        raise ArgumentError(
            f"{path} alone is not a file of pairs, which is .tsv, .jsonl or has lines of `source {BAR} target`; "
            "give the target file too"
        )


def _barred(lines: Iterable[str], path: str | Path) -> Iterator[Pair]:
    for number, line in enumerate(lines, start=1):
        sides = line.split(BAR)
        if len(sides) != 2:
            raise DataError(
                f"{name(path)}, line {number} has {len(sides) - 1} times {BAR}, but must have it once, between source "
                f"and target: {_quoted(line)}"
            )
        yield Pair(sides[0].strip(), sides[1].strip())


def _tsv(lines: Iterable[str], path: str | Path, columns: Columns, only: tuple[int, str] | None) -> Iterator[Pair]:
    wanted: list[int] | None = None if isinstance(columns[0], str) else [int(column) for column in columns]
    if wanted is not None and min(wanted) < 1:
        raise ArgumentError(f"columns = {columns} of {name(path)}: columns are counted from 1")
    others: Counter[str] = Counter()
    matched = False
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if wanted is None:
            wanted = [_column_called(str(column), cells, path) for column in columns]
        elif len(cells) < max(wanted):
            raise DataError(
                f"{name(path)}, line {number} has {len(cells)} of the {max(wanted)} columns needed, separated by tabs: "
                f"{_quoted(line)}"
            )
        elif only is None or cells[only[0] - 1 : only[0]] == [only[1]]:
            matched = True
            yield Pair(cells[wanted[0] - 1], cells[wanted[1] - 1])
        elif not matched and len(others) < MOST_VALUES:
            others.update(cells[only[0] - 1 : only[0]])
    if only is not None and not matched:
        raise _no_match(path, only, others)


def _no_match(path: str | Path, only: tuple[int, str], others: Mapping[str, int]) -> DataError:
    """Why no row is left, with what the column holds instead, the most frequent first."""
    rows = sorted(others.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{_quoted(value, 30)} in {count:,} rows" for value, count in rows[:5]) + ", …" * (len(rows) > 5)
    held = f"column {only[0]} holds {shown}" if rows else f"no row has a column {only[0]}"
    return DataError(f"data.only = {json.dumps(list(only), ensure_ascii=False)} matches no row of {name(path)}: {held}")


def _column_called(column: str, header: list[str], path: str | Path) -> int:
    if column not in header:
        raise DataError(f"the first line of {name(path)} names no column {column!r}{_closest(column, header)}")
    return header.index(column) + 1


def _jsonl(lines: Iterable[str], path: str | Path, columns: Columns) -> Iterator[Pair]:
    return pairs_of_rows(_json_objects(lines, path), _keys(columns, path), where=f"{name(path)}, line")


def _json_objects(lines: Iterable[str], path: str | Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DataError(
                f"{name(path)}, line {number} is not JSON ({_first_line(error)}): {_quoted(line)}"
            ) from None
        if not isinstance(row, dict):
            raise DataError(f"{name(path)}, line {number} is not a JSON object {{...}}: {_quoted(line)}")
        yield row


def _keys(columns: Columns, path: str | Path) -> tuple[str, str]:
    if not (isinstance(columns[0], str) and isinstance(columns[1], str)):
        raise ArgumentError(f"columns = {columns} of {name(path)}: rows with keys need two keys, not column numbers")
    return columns[0], columns[1]


def _text_at(row: Mapping[str, Any], key: str, where: str) -> str:
    value: Any = row
    for part in [key] if key in row else key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = list(value) if isinstance(value, Mapping) else []
            raise DataError(f"{where} has no key {part!r}{_closest(part, known)}{_setting(row)}")
        value = value[part]
    if not isinstance(value, str):
        shown = type(value).__name__ if isinstance(value, list | dict) else _quoted(repr(value))
        raise DataError(f"{where}: the value of {key!r} is {shown}, not text")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise DataError(f"{where}: the value of {key!r} holds half a surrogate pair, which no UTF-8 file can")
    return value


def _setting(row: Mapping[str, Any]) -> str:
    """How to name two texts of a row, where there are two."""
    inside = {
        f"{key}.{part}": text
        for key, value in row.items()
        if isinstance(value, Mapping)
        for part, text in value.items()
    }
    texts = [key for key, value in {**row, **inside}.items() if isinstance(value, str)]
    texts = [key for key in texts if len(key) <= LONGEST_KEY]
    if not texts[1:]:
        return ""
    named = json.dumps(texts[:2], ensure_ascii=False)
    return f"; name source and target: data.columns = {named}, or of align and evaluate --columns {','.join(texts[:2])}"


def _some(pairs: Iterator[Pair], where: str) -> Iterator[Pair]:
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


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _quoted(text: str, longest: int = 60) -> str:
    shown = text if len(text) <= longest else text[: longest - 1] + "…"
    return '"' + shown.replace("\x00", "\\0") + '"'
