"""From a recipe's [data] to tokenizers and tokenised datasets on disk, reused until a source or setting changes."""

import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import compress, islice
from pathlib import Path
from typing import Any, NamedTuple

from jumok.data.batches import Sentences
from jumok.data.dataset import Dataset, open_dataset, write_chunks
from jumok.data.filters import FilterConfig, FilterReport, PairFilter, sum_reports
from jumok.data.fingerprint import (
    compare_sources,
    fingerprint_of,
    mismatch_message,
    missing_files_message,
    record_sources,
    text_fingerprint,
)
from jumok.data.mixture import Mixture
from jumok.data.pairs import Pair
from jumok.data.sources import DataConfig
from jumok.data.subwords import UNK
from jumok.data.tokenise import MOST_WORDS, Chunk, TokenisedChunk, tokenise_chunks, tokenised
from jumok.data.tokenizer import OneSidedTokenizer, Tokenizer, TokenizerConfig
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.errors import ConfigError, DataError
from jumok.files import STDIN, atomic_write

CHECKED_LINES = 1000
COMMON = 10
"""Number of pairs from which a length counts as common; one in a hundred if there are fewer than a thousand pairs."""
KEPT_PAIRS = "kept_pairs"
"""Key of the text of the pairs in the note of a validation dataset."""
UNKNOWN_SHARE = 0.1
"""Share of unknown tokens above which a notice appears."""
SAMPLE = 2000
"""Rows in which unknown tokens are counted."""


class HeldOutPairs(NamedTuple):
    """Validation pairs, tokenised, and their text."""

    dataset: Dataset
    pairs: list[Pair]


class PreparedText(NamedTuple):
    """Everything that training needs from its data."""

    tokenizers: TokenizerPair
    train: Dataset | Mixture
    held_out: "dict[str, HeldOutPairs]"
    """The validation pairs of each corpus by its name, which is "" for a single corpus."""
    report: FilterReport

    @property
    def valid(self) -> Dataset:
        """The validation pairs of the first corpus."""
        return next(iter(self.held_out.values())).dataset

    @property
    def valid_pairs(self) -> list[Pair]:
        """The text of all validation pairs."""
        return [pair for held_out in self.held_out.values() for pair in held_out.pairs]

    @property
    def identity(self) -> str:
        """Identifies what is trained on, whatever the names and times of its files."""
        return fingerprint_of(self.train.contents, [side.pieces for side in self.tokenizers])

    @property
    def longest_source(self) -> int:
        """Tokens of the longest source without BOS and EOS, but at most 1.5 times the longest common length.

        A model learns no length from one outlier, but a text slightly longer than the others is better not split.
        """
        common = min(COMMON, max(len(self.train) // 100, 1))
        longest, usual = (self.train.length_counts.reached(pairs) - 2 for pairs in (1, common))
        return max(min(longest, usual + usual // 2), 1)


def prepare(
    folder: str | Path,
    data: DataConfig,
    tokenizer: TokenizerConfig | None = None,
    filters: FilterConfig | None = None,
    *,
    tokenizers: TokenizerPair | None = None,
    seed: int = 0,
    resumed: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> PreparedText:
    """Train the tokenizers and write train.store and valid.store into `folder`, unless they are up to date.

    They are up to date if they come from the same text, wherever that text is now, and the same settings. If the text
    no longer exists, the files are used as they are. Standard input can be read only once, so it is first copied into
    the folder. `tokenizers` are those of a model that is trained further; no others are trained then. Each corpus of a
    mixture has its own files, mix-0.train.store and so on, and `seed` decides which of its pairs an epoch contains.

    A `resumed` run must have the text it began with; if the text has changed, a ConfigError says how. `say` receives
    progress messages.
    """
    folder, tokenizer, filters = Path(folder), tokenizer or TokenizerConfig(), filters or FilterConfig()
    data = _copy_standard_input(folder, _kept_input(folder, data) if resumed else data)
    stores, sources = _stores(folder, data), text_fingerprint(data)
    comparison = compare_sources(folder, sources)
    vocabulary = _vocabulary_fingerprint(comparison.fingerprint, tokenizer)
    is_given = tokenizers is not None
    tokenizers = tokenizers or _saved_tokenizers(folder, vocabulary)
    if resumed and stores[0].train.exists() and not _are_current(stores, comparison.fingerprint, filters, tokenizers):
        raise ConfigError(mismatch_message(folder, sources, comparison, "data"))
    if is_given or tokenizers is None:
        check_inputs(data)
        tokenizers = tokenizers or _learn_tokenizers(data, tokenizer, vocabulary, say)
        tokenizers.save(folder)
    fingerprint = _dataset_fingerprint(comparison.fingerprint, filters, tokenizers)
    options = _DatasetOptions(tokenizers, None if is_given else tokenizer, filters, fingerprint, say)
    record = partial(record_sources, folder, sources, comparison.fingerprint)
    corpora = list(zip(stores, data.corpora, strict=True))
    trains = [_training_pairs(store, corpus, options, record) for store, corpus in corpora]
    held_out = {store.name: _held_out_pairs(store, corpus, options) for store, corpus in corpora if corpus.validates}
    if comparison.missing:
        say(missing_files_message(comparison.missing, folder))
    reports = [FilterReport(**train.note["filter"]) for train in trains]
    weights = [corpus.weight for corpus in data.mix]
    mixed = Mixture(trains, weights, seed=seed) if data.mix else trains[0]
    return PreparedText(tokenizers, mixed, held_out, sum_reports(reports))


class _Store(NamedTuple):
    """The files of the datasets of a corpus."""

    name: str
    train: Path
    valid: Path

    @property
    def of(self) -> str:
        return f" of {self.name}" if self.name else ""


def _stores(folder: Path, data: DataConfig) -> list[_Store]:
    if not data.mix:
        return [_Store("", folder / "train.store", folder / "valid.store")]
    return [
        _Store(corpus.shown_name, folder / f"mix-{number}.train.store", folder / f"mix-{number}.valid.store")
        for number, corpus in enumerate(data.mix)
    ]


class _DatasetOptions(NamedTuple):
    """What the datasets of all corpora have in common."""

    tokenizers: TokenizerPair
    learned: TokenizerConfig | None
    """The settings with which the tokenizers were learned from this text; None if they were given."""
    filters: FilterConfig
    fingerprint: str
    say: Callable[[str], None]


def _training_pairs(store: _Store, corpus: DataConfig, options: _DatasetOptions, record: Callable[[], None]) -> Dataset:
    """The training pairs of a corpus; if they are not there yet, `record` is called and they are written."""
    train = open_dataset(store.train, options.fingerprint)
    if train is not None:
        return train
    if corpus.copies:
        options.say(f"source and target are the same file, {corpus.source}, so the model will learn to copy its input")
    options.say(f"tokenising the training text{store.of}")
    record()
    train = _write_train(store.train, corpus, options)
    for side, name in enumerate(("source", "target")):
        if message := unknown_message(train, side, name, options.tokenizers[side], options.learned):
            options.say(message)
    return train


def _held_out_pairs(store: _Store, corpus: DataConfig, options: _DatasetOptions) -> HeldOutPairs:
    """The validation pairs of a corpus, written if they are not there yet."""
    valid = open_dataset(store.valid, options.fingerprint)
    if valid is None:
        valid = _write_valid(store.valid, corpus.validation(), options)
    return HeldOutPairs(valid, [Pair(*pair) for pair in valid.note[KEPT_PAIRS]])


def train_stores(folder: Path, data: DataConfig) -> list[Path]:
    """The files of the training text that `prepare` writes: one, or one for each corpus of a mixture."""
    return [store.train for store in _stores(folder, data)]


def check_inputs(data: DataConfig) -> None:
    """Raise a DataError for text or word links that would fail, less clearly, after the vocabulary is trained."""
    if data.files() and not any(pair.source.strip() and pair.target.strip() for pair in data.training()):
        raise DataError(f"no pair is left to learn from: every pair of {data.origin} has an empty side")
    if not (data.holds_out or data.corpus):
        deque(islice(data.validation(), None if data.files() else CHECKED_LINES), maxlen=0)
    if data.has_links:
        deque(islice(data.training_with_links(), CHECKED_LINES), maxlen=0)


def _are_current(stores: list[_Store], sources: str, filters: FilterConfig, tokenizers: TokenizerPair | None) -> bool:
    """Whether all training text was prepared from these sources with these settings."""
    if tokenizers is None:
        return False
    fingerprint = _dataset_fingerprint(sources, filters, tokenizers)
    return all(open_dataset(store.train, fingerprint) for store in stores)


def _kept_input(folder: Path, data: DataConfig) -> DataConfig:
    """The same data, with the file that standard input ("-") was copied to when this folder was prepared."""
    key, path = _input_copy(folder, data)
    return _with_file(data, key, path) if key and path.exists() else data


def unknown_message(
    dataset: Dataset, side: int, name: str, tokenizer: Tokenizer, config: OneSidedTokenizer | None
) -> str:
    """A notice about many unknown tokens on a side of a dataset, with the setting to raise; "" if there are few.

    `config` is None for a tokenizer that was not learned from this text.
    """
    share = unknown_share(dataset, side)
    if share <= UNKNOWN_SHARE:
        return ""
    unknown = f"about {share:.0%} of the tokens of the {name} are unknown to the vocabulary"
    if config is None:
        return (
            f"{unknown}, which training.start_from or tokenizer.model gives; choose one made for such text, or leave "
            "it out to learn a vocabulary from this one"
        )
    return f"{unknown}, and a model cannot tell them apart; raise {_vocabulary_setting(tokenizer, config)}"


def unknown_share(dataset: Dataset, side: int) -> float:
    """The share of unknown tokens, BOS and EOS not counted, in rows from the whole dataset."""
    count = len(dataset)
    rows = range(count) if count <= SAMPLE else [number * count // SAMPLE for number in range(SAMPLE)]
    texts = [dataset[row][side] for row in rows]
    unknown, tokens = sum(int((ids == UNK).sum()) for ids in texts), sum(len(ids) - 2 for ids in texts)
    return unknown / max(tokens, 1)


def _vocabulary_setting(tokenizer: Tokenizer, config: OneSidedTokenizer) -> str:
    """The setting that kept tokens out of the vocabulary."""
    if tokenizer.kind in ("char", "word") and tokenizer.size >= config.size:
        pieces = ', or set tokenizer.kind = "unigram"' if tokenizer.kind == "word" else ""
        return f"tokenizer.size = {config.size}{pieces}"
    if config.coverage < 1:
        return f"tokenizer.coverage = {config.coverage}"
    return f"tokenizer.sentences = {config.sentences}"


def _copy_standard_input(folder: Path, data: DataConfig) -> DataConfig:
    """Copy standard input, if a setting names it, into the folder, and return the data with that file."""
    key, path = _input_copy(folder, data)
    if not key:
        return data
    with atomic_write(path) as file:
        if sys.stdin is not None and not sys.stdin.isatty():
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)  # it may be larger than memory
        if not file.tell():
            raise DataError(f"data.{key} is standard input, which is empty; pipe text in, or name a file")
    return _with_file(data, key, path)


def _with_file(data: DataConfig, key: str, path: Path) -> DataConfig:
    changed: dict[str, Any] = {key: str(path)}
    return replace(data, **changed)


def _input_copy(folder: Path, data: DataConfig) -> tuple[str, Path]:
    """The setting that names standard input, "" if none does, and the file to copy it to."""
    key = next((field.name for field in fields(data) if getattr(data, field.name) == STDIN), "")
    return key, folder / f"standard-input{'.tsv' if 'pairs' in key else '.txt'}"


def _vocabulary_fingerprint(sources: str, config: TokenizerConfig) -> str:
    return fingerprint_of(sources, asdict(replace(config, sampling=0)))


def _dataset_fingerprint(sources: str, filters: FilterConfig, tokenizers: TokenizerPair) -> str:
    return fingerprint_of(sources, asdict(filters), [side.model.hex() for side in tokenizers])


def _saved_tokenizers(folder: Path, fingerprint: str) -> TokenizerPair | None:
    try:
        saved = TokenizerPair.load(folder)
    except DataError:
        return None
    return saved if saved.source.fingerprint == saved.target.fingerprint == fingerprint else None


def _learn_tokenizers(
    data: DataConfig, config: TokenizerConfig, fingerprint: str, say: Callable[[str], None]
) -> TokenizerPair:
    say("learning the vocabulary")
    pairs, symbols = _Rereadable(data.training), data.symbols()
    return TokenizerPair.train(pairs, config, symbols=symbols, fingerprint=fingerprint, say=say)


class _Rereadable:
    """A stream of pairs that starts again each time it is iterated."""

    def __init__(self, start: Callable[[], Iterator[Pair]]) -> None:
        self.start = start

    def __iter__(self) -> Iterator[Pair]:
        return self.start()


def _write_train(path: Path, data: DataConfig, options: _DatasetOptions) -> Dataset:
    """A row for each pair that passes the filters: source, target and, if there are any, word links as a third side."""
    pair_filter, note = PairFilter(options.filters), dict[str, Any]()
    linked = data.alignments
    chunks = Chunk.of_linked(data.training_with_links(say=options.say)) if linked else Chunk.of_pairs(data.training())

    def rows(tokenised_chunks: Iterable[TokenisedChunk]) -> Iterator[Sentences]:
        for chunk in tokenised_chunks:
            yield chunk.rows(pair_filter.keeps(chunk.lengths, chunk.hashes, chunk.empty))
        note["filter"] = _checked_report(pair_filter, "learn from")

    size, sides = max(side.size for side in options.tokenizers), 2
    if data.alignments:
        size, sides = max(size, MOST_WORDS), 3
    with closing(tokenise_chunks(chunks, options.tokenizers)) as tokenised_chunks:
        return write_chunks(
            path, rows(tokenised_chunks), sides=sides, size=size, fingerprint=options.fingerprint, note=note
        )


def _write_valid(path: Path, pairs: Iterable[Pair], options: _DatasetOptions) -> Dataset:
    """Write a row for each validation pair that is not empty or too long: a very long line would outweigh all others.

    The note keeps their text, so that a resumed run translates the same pairs whatever became of the file.
    """
    pair_filter = PairFilter(FilterConfig(max_length=options.filters.max_length, duplicates=False))
    kept: list[Pair] = []
    note: dict[str, Any] = {KEPT_PAIRS: kept}

    def rows() -> Iterator[Sentences]:
        for texts in Chunk.of_pairs(pairs):
            chunk = tokenised(texts, options.tokenizers)
            keeps = pair_filter.keeps(chunk.lengths, chunk.hashes, chunk.empty)
            kept.extend(compress(texts.pairs(), keeps.tolist()))
            yield chunk.rows(keeps)
        note["filter"] = _checked_report(pair_filter, "validate on")

    size = max(side.size for side in options.tokenizers)
    valid = write_chunks(path, rows(), size=size, fingerprint=options.fingerprint, note=note)
    if longer := pair_filter.report.dropped["too long"]:
        options.say(
            f"skipped {longer:,} of {pair_filter.report.read:,} validation pairs, which are longer than "
            f"filter.max_length = {options.filters.max_length} tokens"
        )
    return valid


def _checked_report(pair_filter: PairFilter, purpose: str) -> dict[str, Any]:
    if not pair_filter.report.kept:
        raise DataError(f"no pair is left to {purpose}: {pair_filter.report}")
    return asdict(pair_filter.report)
