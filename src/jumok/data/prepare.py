"""From a recipe's [data] to a tokenizer and tokenised corpora on disk, made once and used while nothing changes."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from jumok.data.dataset import Dataset, open_dataset, write_dataset
from jumok.data.filters import FilterConfig, FilterReport, PairFilter
from jumok.data.fingerprint import (
    find,
    fingerprint_of,
    mismatch_message,
    missing_files_message,
    record_sources,
    text_fingerprint,
)
from jumok.data.pairs import Pair, read_pairs
from jumok.data.sources import DataConfig
from jumok.data.subwords import UNK
from jumok.data.tokenizer import Tokenizer, TokenizerConfig, TokenizerPair
from jumok.data.word_links import Link, spaced_links, spaced_words
from jumok.errors import DataError
from jumok.files import STDIN, atomic_write, open_bytes

FIRST = 1000
"""Lines of every file that are really read."""
AT_ONCE = 1 << 20


def check_inputs(data: DataConfig) -> None:
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
        _read(islice(data.training_with_links(), FIRST))
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


MANY = 0.1
"""The share of unknown tokens above which it is said."""
SAMPLE = 2000
"""Rows looked at, from one end of the store to the other."""


def unknown_message(store: Dataset, side: int, called: str, tokenizer: Tokenizer, config: TokenizerConfig) -> str:
    """What is to be said of a side of a store, and which setting to raise; "" where the vocabulary knows enough."""
    share = unknown_share(store, side)
    if share <= MANY:
        return ""
    return (
        f"about {share:.0%} of the tokens of the {called} are unknown to the vocabulary, and a model cannot tell them "
        f"apart; raise {_setting(tokenizer, config)}"
    )


def unknown_share(store: Dataset, side: int) -> float:
    """How many of the tokens are unknown, begin and end not counted."""
    rows = range(len(store)) if len(store) <= SAMPLE else [at * len(store) // SAMPLE for at in range(SAMPLE)]
    texts = [store[row][side] for row in rows]
    unknown, tokens = sum(int((ids == UNK).sum()) for ids in texts), sum(len(ids) - 2 for ids in texts)
    return unknown / max(tokens, 1)


def _setting(tokenizer: Tokenizer, config: TokenizerConfig) -> str:
    """What left tokens out of the vocabulary."""
    if tokenizer.kind in ("char", "word") and tokenizer.size >= config.size:
        pieces = ', or set tokenizer.kind = "unigram"' if tokenizer.kind == "word" else ""
        return f"tokenizer.size = {config.size}{pieces}"
    if config.coverage < 1:
        return f"tokenizer.coverage = {config.coverage}"
    return f"tokenizer.sentences = {config.sentences}"


OFTEN = 10  # pairs that a length is learnt from, or every hundredth where there are fewer than a thousand
PAIRS = "pairs"  # what a validation store notes of its text
WORDS = 1 << 16  # links are kept between the first so many words of a pair


class Prepared(NamedTuple):
    """Everything training needs to know about its data."""

    tokenizers: TokenizerPair
    train: Dataset
    valid: Dataset
    valid_pairs: list[Pair]
    report: FilterReport

    @property
    def identity(self) -> str:
        """What is trained on, whatever the files were called and whenever they were written."""
        return fingerprint_of(self.train.contents, [side.pieces for side in self.tokenizers])

    @property
    def longest_source(self) -> int:
        """Tokens of the longest source, begin and end not counted; half as much again as is often learnt from at most.

        One outlier teaches no length, but a text a little longer than the others is better not cut in two.
        """
        often = min(OFTEN, max(len(self.train) // 100, 1))
        longest, usual = (self.train.length_counts.reached(pairs) - 2 for pairs in (1, often))
        return max(min(longest, usual + usual // 2), 1)


def prepare(
    folder: str | Path,
    data: DataConfig,
    tokenizer: TokenizerConfig | None = None,
    filters: FilterConfig | None = None,
    *,
    say: Callable[[str], None] = lambda message: None,
) -> Prepared:
    """Train the tokenizers and write train.store and valid.store into `folder`, unless they are there already.

    They count as there if the configs and the text are those they were made from, wherever that text is now; if it is
    gone, they are all there is. Standard input, which can be read only once, is first copied into the folder. `say` is
    told what is being done.
    """
    folder, tokenizer, filters = Path(folder), tokenizer or TokenizerConfig(), filters or FilterConfig()
    data = _keep_input(folder, data)
    inputs = text_fingerprint(data)
    found = find(folder, inputs)
    tokenizers = _tokenizers(folder, data, tokenizer, found.fingerprint, say)
    made_from = _made_from(found.fingerprint, filters, tokenizers)
    train = open_dataset(folder / "train.store", made_from)
    if train is None:
        say("tokenising the training text")
        record_sources(folder, inputs, found.fingerprint)
        rows = data.training_with_links(tell=say) if data.alignments else ((pair, None) for pair in data.training())
        train = _write(folder / "train.store", rows, tokenizers, filters, made_from, guided=bool(data.alignments))
        for side, name in enumerate(("source", "target")):
            if message := unknown_message(train, side, name, tokenizers[side], tokenizer):
                say(message)
    valid = open_dataset(folder / "valid.store", made_from)
    if valid is None or PAIRS not in valid.note:
        held_out = list(data.validation())
        valid = valid or _write_valid(folder / "valid.store", held_out, tokenizers, filters, made_from, say)
    else:
        held_out = [Pair(*pair) for pair in valid.note[PAIRS]]
    if found.gone:
        say(missing_files_message(found.gone, folder))
    rules = PairFilter(_no_longer(filters))
    valid_pairs = [pair for pair in held_out if rules.keeps(pair, *_lengths(_row(pair, tokenizers)))]
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


def why_outdated(folder: str | Path, data: DataConfig, tokenizer: TokenizerConfig, filters: FilterConfig) -> str:
    """Why `prepare` would write over what it made of other text or with other settings; "" if it would not."""
    folder, inputs = Path(folder), text_fingerprint(kept_input(folder, data))
    found, tokenizers = find(folder, inputs), _saved_tokenizers(folder)
    if tokenizers is None or not (folder / "train.store").exists():
        return ""
    same_vocabulary = tokenizers.source.fingerprint == _vocabulary(found.fingerprint, tokenizer)
    if same_vocabulary and open_dataset(folder / "train.store", _made_from(found.fingerprint, filters, tokenizers)):
        return ""
    why = mismatch_message(folder, inputs, found, "data")
    if found.recorded or not all(Path(path).exists() for path in inputs.files.values()):
        return why
    return f"{why}, or, if they hold the same, move {folder} away: it is made anew"


def _vocabulary(inputs: str, config: TokenizerConfig) -> str:
    return fingerprint_of(inputs, asdict(config) | {"sampling": 0})


def _made_from(inputs: str, filters: FilterConfig, tokenizers: TokenizerPair) -> str:
    return fingerprint_of(inputs, asdict(filters), [side.model.hex() for side in tokenizers])


def _saved_tokenizers(folder: Path) -> TokenizerPair | None:
    try:
        return TokenizerPair.load(folder)
    except DataError:
        return None


def _tokenizers(
    folder: Path, data: DataConfig, config: TokenizerConfig, inputs: str, say: Callable[[str], None]
) -> TokenizerPair:
    fingerprint = _vocabulary(inputs, config)
    found = _saved_tokenizers(folder)
    if found is not None and found.source.fingerprint == fingerprint and found.target.fingerprint == fingerprint:
        return found
    check_inputs(data)
    say("learning the vocabulary")
    trained = TokenizerPair.train(_Again(data.training), config, fingerprint=fingerprint)
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
    tokenizers: TokenizerPair,
    config: FilterConfig,
    fingerprint: str,
    *,
    purpose: str = "learn from",
    guided: bool = False,
    note: dict[str, Any] | None = None,
) -> Dataset:
    """A row for each pair that is kept: source, target and, where there are any, word links as a third side."""
    rules = PairFilter(config)
    note = dict(note or {})

    def rows() -> Iterator[list[list[int]]]:
        for pair, links in pairs:
            row = _row(pair, tokenizers)
            if rules.keeps(pair, *_lengths(row)):
                yield row if links is None else [*row, _flat(links, pair, tokenizers)]
        if not rules.report.kept:
            raise DataError(f"no pair is left to {purpose}: {rules.report}")
        note["filter"] = asdict(rules.report)

    size = max(*(side.size for side in tokenizers), WORDS if guided else 0)
    return write_dataset(path, rows(), sides=2 + guided, size=size, fingerprint=fingerprint, note=note)


def _write_valid(
    path: Path,
    pairs: list[Pair],
    tokenizers: TokenizerPair,
    filters: FilterConfig,
    fingerprint: str,
    say: Callable[[str], None],
) -> Dataset:
    """The pairs to validate on: none longer than those learnt from, for a model may have no more positions.

    The text of all of them is noted, so that a resumed run translates the same ones whatever became of their file.
    """
    rules = _no_longer(filters)
    rows: Iterator[tuple[Pair, None]] = ((pair, None) for pair in pairs)
    valid = _write(path, rows, tokenizers, rules, fingerprint, purpose="validate on", note={PAIRS: pairs})
    if longer := valid.note["filter"]["dropped"]["too long"]:
        say(
            f"{longer:,} of {len(pairs):,} validation pairs {'is' if longer == 1 else 'are'} left out: longer than "
            f"filter.max_length = {filters.max_length} tokens"
        )
    return valid


def _no_longer(filters: FilterConfig) -> FilterConfig:
    """The rules for pairs to validate on: one line of 100,000 words would outweigh all others in loss and scores."""
    return FilterConfig(max_length=filters.max_length, duplicates=False)


def _row(pair: Pair, tokenizers: TokenizerPair) -> list[list[int]]:
    return [tokenizers.source.encode(pair.source), tokenizers.target.encode(pair.target)]


def _lengths(row: list[list[int]]) -> tuple[int, int]:
    """Tokens of source and target, begin and end not counted."""
    return len(row[0]) - 2, len(row[1]) - 2


def _flat(links: list[Link], pair: Pair, tokenizers: TokenizerPair) -> list[int]:
    """Numbers of spaced words of source and target in turn."""
    source = spaced_words(pair.source, tokenizers.source.normaliser)
    target = spaced_words(pair.target, tokenizers.target.normaliser)
    return [number for link in spaced_links(links, source, target) if max(link) < WORDS for number in link]
