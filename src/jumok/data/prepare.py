"""From a recipe's [data] to a tokenizer and tokenised corpora on disk, made once and used while nothing changes."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from jumok.data.files import STDIN, atomic_write, name
from jumok.data.filters import FilterConfig, FilterReport, PairFilter
from jumok.data.joining import Row, join_rows
from jumok.data.links import Link, spaced_links, spaced_words, with_links
from jumok.data.pairs import Columns, Corpus, Pair, Split, read_dataset, read_pairs
from jumok.data.sides import Tokenizers
from jumok.data.store import Store, fingerprint_of, open_store, write_store
from jumok.data.tokenizer import TokenizerConfig
from jumok.errors import ConfigError, DataError

ONE_OF = ("source", "pairs", "dataset", "corpus")
WORDS = 1 << 16  # links are kept between the first so many words of a pair


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What to learn from: two text files, one file of pairs, a Hugging Face dataset, or a built-in corpus."""

    source: str = ""
    """Text file with one source sentence a line; .gz and .xz are read too, and "-" is standard input."""
    target: str = ""
    """Text file whose line n translates line n of `source`."""
    valid_source: str = ""
    """Source sentences to validate on; without any, every hundredth training pair is held out."""
    valid_target: str = ""
    """Their translations."""
    pairs: str = ""
    """Instead of two files, one of pairs: .tsv or .jsonl, plain, .gz or .xz; "-" is standard input, as TSV."""
    valid_pairs: str = ""
    """Pairs to validate on, in such a file."""
    alignments: str = ""
    """Word links of the training pairs, a line for each in Pharaoh format, for training.guided_alignment."""
    columns: Columns | None = None
    """Where source and target are in `pairs`: TSV columns counted from 1 or named by a header, or JSONL keys."""
    only: tuple[int, str] | None = None
    """Only the rows of a TSV with this text in this column, counted from 1: [2, "kor"]."""
    dataset: str = ""
    """Instead of files, a Hugging Face dataset (needs the extra `datasets`), its keys in `columns`."""
    train_split: str = "train"
    """The dataset's split to learn from."""
    valid_split: str = "validation"
    """The dataset's split to validate on; "" holds out pairs of the other."""
    corpus: Corpus | Literal[""] = ""
    """Instead of any data, a built-in corpus: cldr, dates or reverse."""
    locales: tuple[str, str] = ("en", "ko")
    """Languages of the built-in corpus, source and target."""
    size: int = 50_000
    """Training pairs of the built-in corpus."""
    longest: int = 12
    """Most digits in the reverse corpus."""
    joined: tuple[int, ...] = (1,)
    """How many consecutive training pairs make one text: [1, 2, 3] adds texts of two and of three sentences."""
    valid_size: int = 1000
    """Most pairs to validate on, of a built-in corpus or held out."""

    def __post_init__(self) -> None:
        given = [key for key in ONE_OF if getattr(self, key)]
        if len(given) != 1:
            seen = " and ".join(f"data.{key}" for key in given) or "none of them"
            raise ConfigError(
                f"give one of data.source (with data.target), data.pairs, data.dataset or data.corpus; {seen} is given"
            )
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if bool(getattr(self, one)) != bool(getattr(self, other)):
                raise ConfigError(f"data.{one} and data.{other} belong together; only one of them is given")
        if self.valid_source and self.valid_pairs:
            raise ConfigError("give data.valid_source with data.valid_target, or data.valid_pairs, not both")
        if self.files().count(STDIN) > 1:
            raise ConfigError('only one file can be "-", standard input; name the others')
        if self.corpus and self.corpus not in get_args(Corpus):
            raise ConfigError(f"data.corpus = {self.corpus!r} is not one of {', '.join(get_args(Corpus))}")
        for key in ("size", "longest", "valid_size"):
            if getattr(self, key) < 1:
                raise ConfigError(f"data.{key} = {getattr(self, key)} must be at least 1")
        if not self.joined or min(self.joined) < 1 or len(set(self.joined)) < len(self.joined):
            raise ConfigError(
                f"data.joined = {list(self.joined)} must be different numbers of at least 1, such as [1, 2, 3]"
            )

    @property
    def origin(self) -> str:
        """What is learnt from, in words."""
        files = f"{name(self.source)} and {name(self.target)}"
        return self.corpus or self.dataset or (name(self.pairs) if self.pairs else files)

    def files(self) -> list[str]:
        """Every file that is read."""
        named = (self.source, self.target, self.pairs, self.valid_source, self.valid_target, self.valid_pairs)
        return [path for path in (*named, self.alignments) if path]

    def validation(self) -> Iterator[Pair]:
        """The pairs to validate on."""
        if self.corpus:
            return self._built_in("valid", self.valid_size)
        if self.valid_source:
            return read_pairs(self.valid_source, self.valid_target)
        if self.valid_pairs:
            return read_pairs(self.valid_pairs, columns=self.columns, only=self.only)
        if self.dataset and self.valid_split:
            return read_dataset(self.dataset, split=self.valid_split, columns=self.columns or ("source", "target"))
        return islice(self._everything(), 0, 100 * self.valid_size, 100)

    def training(self) -> Iterator[Pair]:
        """The pairs to learn from; a source sentence that was held out for validation is not among them."""
        rows: Iterator[Row] = ((pair, []) for pair in self._everything())
        return (pair for pair, _ in join_rows(self._kept(rows), self.joined))

    def training_links(self) -> Iterator[Row]:
        """The pairs to learn from, each with its word links."""
        return join_rows(self._kept(with_links(self._everything(), self.alignments)), self.joined)

    def _kept(self, pairs: Iterable[Row]) -> Iterator[Row]:
        """Those whose source was not held out; an error if there are none."""
        if self.corpus or self.valid_source or self.valid_pairs or (self.dataset and self.valid_split):
            yield from pairs
            return
        held_out = {pair.source for pair in self.validation() if pair.source.strip()}
        found = False
        for pair, links in pairs:
            if pair.source not in held_out:
                found = True
                yield pair, links
        if not found:
            raise DataError(
                f"{self.source or self.pairs or self.dataset} leaves nothing to learn from: every hundredth pair, "
                "beginning with the first, is held out to validate on; give more than one sentence, or others to "
                "validate on (data.valid_source with data.valid_target, or data.valid_pairs)"
            )

    def _everything(self) -> Iterator[Pair]:
        if self.corpus:
            return self._built_in("train", self.size)
        if self.dataset:
            return read_dataset(self.dataset, split=self.train_split, columns=self.columns or ("source", "target"))
        if self.pairs:
            return read_pairs(self.pairs, columns=self.columns, only=self.only)
        return read_pairs(self.source, self.target)

    def _built_in(self, split: Split, count: int) -> Iterator[Pair]:
        from jumok.data.corpora import corpus_pairs

        assert self.corpus
        source, target = self.locales
        return corpus_pairs(self.corpus, count, split=split, source=source, target=target, longest=self.longest)


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
        rows = data.training_links() if data.alignments else ((pair, None) for pair in data.training())
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
