"""From a recipe's [data] to a tokenizer and tokenised corpora on disk, made once and used while nothing changes."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from jumok.data.files import STDIN, atomic_write
from jumok.data.filters import FilterConfig, FilterReport, PairFilter
from jumok.data.first_look import check_files
from jumok.data.links import Link, spaced_links, spaced_words
from jumok.data.pairs import Pair
from jumok.data.sides import Tokenizers
from jumok.data.sources import DataConfig
from jumok.data.store import Store, fingerprint_of, open_store, write_store
from jumok.data.tokenizer import TokenizerConfig
from jumok.errors import DataError

OFTEN = 10  # pairs that a length is learnt from, or every hundredth where there are fewer than a thousand
WORDS = 1 << 16  # links are kept between the first so many words of a pair


class Prepared(NamedTuple):
    """Everything training needs to know about its data."""

    tokenizers: Tokenizers
    train: Store
    valid: Store
    valid_pairs: list[Pair]
    report: FilterReport

    @property
    def identity(self) -> str:
        """What is trained on, whatever the files were called and whenever they were written."""
        return fingerprint_of(self.train.contents, [side.pieces for side in self.tokenizers])

    @property
    def longest_source(self) -> int:
        """Tokens of the longest sources that are learnt from, outliers left out, begin and end not counted."""
        often = min(OFTEN, max(len(self.train) // 100, 1))
        return max(self.train.cells.reached(often) - 2, 1)


def prepare(
    folder: str | Path,
    data: DataConfig,
    tokenizer: TokenizerConfig | None = None,
    filters: FilterConfig | None = None,
    *,
    say: Callable[[str], None] = lambda message: None,
) -> Prepared:
    """Train the tokenizers and write train.store and valid.store into `folder`, unless they are there already.

    They count as there if configs, file sizes and modification times are those they were made from. Standard input,
    which can be read only once, is first copied into the folder. `say` is told what is being done.
    """
    folder, tokenizer, filters = Path(folder), tokenizer or TokenizerConfig(), filters or FilterConfig()
    data = _keep_input(folder, data)
    inputs = _inputs(data)
    tokenizers = _tokenizers(folder, data, tokenizer, inputs, say)
    made_from = _made_from(inputs, filters, tokenizers)
    train = open_store(folder / "train.store", made_from)
    if train is None:
        say("tokenising the training text")
        rows = data.training_links(tell=say) if data.alignments else ((pair, None) for pair in data.training())
        train = _write(folder / "train.store", rows, tokenizers, filters, made_from, guided=bool(data.alignments))
    held_out = list(data.validation())
    valid = open_store(folder / "valid.store", made_from)
    if valid is None:
        valid = _write_valid(folder / "valid.store", held_out, tokenizers, filters, made_from, say)
    valid_pairs = [pair for pair in held_out if pair.source.strip() and pair.target.strip()]
    return Prepared(tokenizers, train, valid, valid_pairs, FilterReport(**train.note["filter"]))


def kept_input(folder: str | Path, data: DataConfig) -> DataConfig:
    """The same data, with the file that standard input ("-") was copied to when this folder was prepared."""
    key, path = _input_place(Path(folder), data)
    return _with_file(data, key, path) if key and path.exists() else data


def _keep_input(folder: Path, data: DataConfig) -> DataConfig:
    """Copy standard input, if it is to be read, into the folder: the same data, with the file."""
    key, path = _input_place(folder, data)
    if not key:
        return data
    waiting = sys.stdin is not None and not sys.stdin.isatty()
    with atomic_write(path) as file:
        if waiting:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)  # it may be larger than memory
        if not file.tell():
            raise DataError(f"data.{key} is standard input, but nothing comes from there; pipe text in, or name a file")
    return _with_file(data, key, path)


def _with_file(data: DataConfig, key: str, path: Path) -> DataConfig:
    changed: dict[str, Any] = {key: str(path)}
    return replace(data, **changed)


def _input_place(folder: Path, data: DataConfig) -> tuple[str, Path]:
    """Which setting is standard input, "" if none is; and where that is kept."""
    key = next((field.name for field in fields(data) if getattr(data, field.name) == STDIN), "")
    return key, folder / f"standard-input{'.tsv' if 'pairs' in key else '.txt'}"


def is_outdated(folder: str | Path, data: DataConfig, tokenizer: TokenizerConfig, filters: FilterConfig) -> bool:
    """Whether `prepare` would write over what it made of other text or with other settings."""
    inputs, path = _inputs(kept_input(folder, data)), Path(folder, "train.store")
    tokenizers = _saved_tokenizers(Path(folder))
    if tokenizers is None or not path.exists():
        return False
    same_vocabulary = tokenizers.source.fingerprint == fingerprint_of(inputs, asdict(tokenizer) | {"sampling": 0})
    return not same_vocabulary or open_store(path, _made_from(inputs, filters, tokenizers)) is None


def _inputs(data: DataConfig) -> str:
    made_by = version("babel") if data.corpus else ""
    saved = sorted(Path(data.dataset).rglob("*.json")) if data.dataset else []  # they name a dataset's contents
    later = {"alignments": "", "joined": (1,)}  # settings that data prepared before there were any need not know
    settings = {key: value for key, value in asdict(data).items() if value != later.get(key, ...)}
    return fingerprint_of(settings, [_state(path) for path in (*data.files(), *map(str, saved))], made_by)


def _made_from(inputs: str, filters: FilterConfig, tokenizers: Tokenizers) -> str:
    return fingerprint_of(inputs, asdict(filters), [side.model.hex() for side in tokenizers])


def _saved_tokenizers(folder: Path) -> Tokenizers | None:
    try:
        return Tokenizers.load(folder)
    except DataError:
        return None


def _tokenizers(
    folder: Path, data: DataConfig, config: TokenizerConfig, inputs: str, say: Callable[[str], None]
) -> Tokenizers:
    fingerprint = fingerprint_of(inputs, asdict(config) | {"sampling": 0})
    found = _saved_tokenizers(folder)
    if found is not None and found.source.fingerprint == fingerprint and found.target.fingerprint == fingerprint:
        return found
    check_files(data)
    say("learning the vocabulary")
    trained = Tokenizers.train(_Again(data.training), config, fingerprint=fingerprint)
    trained.save(folder)
    return trained


class _Again:
    """A stream that starts anew each time it is gone through."""

    def __init__(self, start: Callable[[], Iterator[Pair]]) -> None:
        self.start = start

    def __iter__(self) -> Iterator[Pair]:
        return self.start()


def _write(
    path: Path,
    pairs: Iterable[tuple[Pair, list[Link] | None]],
    tokenizers: Tokenizers,
    config: FilterConfig,
    fingerprint: str,
    *,
    purpose: str = "learn from",
    guided: bool = False,
) -> Store:
    """A row for each pair that is kept: source, target and, where there are any, word links as a third side."""
    rules = PairFilter(config)
    note: dict[str, Any] = {}

    def rows() -> Iterator[list[list[int]]]:
        for pair, links in pairs:
            row = [tokenizers.source.encode(pair.source), tokenizers.target.encode(pair.target)]
            if rules.keeps(pair, len(row[0]) - 2, len(row[1]) - 2):
                yield row if links is None else [*row, _flat(links, pair, tokenizers)]
        if not rules.report.kept:
            raise DataError(f"no pair is left to {purpose}: {rules.report}")
        note["filter"] = asdict(rules.report)

    size = max(*(side.size for side in tokenizers), WORDS if guided else 0)
    return write_store(path, rows(), sides=2 + guided, size=size, fingerprint=fingerprint, note=note)


def _write_valid(
    path: Path,
    pairs: list[Pair],
    tokenizers: Tokenizers,
    filters: FilterConfig,
    fingerprint: str,
    say: Callable[[str], None],
) -> Store:
    """The pairs whose loss is validated: none longer than those learnt from, for a model may have no more positions."""
    no_longer = FilterConfig(max_length=filters.max_length, duplicates=False)
    rows: Iterator[tuple[Pair, None]] = ((pair, None) for pair in pairs)
    valid = _write(path, rows, tokenizers, no_longer, fingerprint, purpose="validate on")
    if longer := valid.note["filter"]["dropped"]["too long"]:
        say(f"the loss of {longer:,} of {len(pairs):,} validation pairs is not counted: longer than filter.max_length")
    return valid


def _flat(links: list[Link], pair: Pair, tokenizers: Tokenizers) -> list[int]:
    """Numbers of spaced words of source and target in turn."""
    source = spaced_words(pair.source, tokenizers.source.normaliser)
    target = spaced_words(pair.target, tokenizers.target.normaliser)
    return [number for link in spaced_links(links, source, target) if max(link) < WORDS for number in link]


def _state(path: str) -> tuple[str, int, int]:
    try:
        stat = Path(path).stat()
    except OSError:
        return path, -1, -1  # reading it will say what is wrong
    return path, stat.st_size, stat.st_mtime_ns
