"""The [data] of a recipe, and the streams of training and validation pairs it names."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from jumok.data.pairs import Columns, Corpus, Pair, Split, parts_of, read_dataset, read_pairs
from jumok.data.symbols import SYMBOL, symbols_in
from jumok.data.tokenizer import LEADING_TAG, Symbols
from jumok.data.word_links import Link, with_word_links
from jumok.errors import ConfigError, DataError
from jumok.files import STDIN, display_name, shards
from jumok.settings import FilePath, OnlyWith, PositiveFloat, PositiveInt, Settings

LinkedPair = tuple[Pair, list[Link]]
"""A pair and the links between its words."""


def join_sentences(pairs: Iterable[LinkedPair], sizes: Sequence[int]) -> Iterator[LinkedPair]:
    """For each n of `sizes`, join every n consecutive pairs into one; an incomplete last group is dropped.

    Only pairs with text on both sides are joined: an empty side would teach the model to leave words out.
    """
    if list(sizes) == [1]:
        yield from pairs
        return
    groups: dict[int, list[LinkedPair]] = {size: [] for size in sizes}
    read = joined = 0
    for pair in pairs:
        read += 1
        for size, group in groups.items():
            if size == 1 or all(text.strip() for text in pair[0]):
                group.append(pair)
            if len(group) == size:
                joined += 1
                yield _joined(group)
                group.clear()
    if read and not joined:
        raise DataError(f"data.joined = {list(sizes)} leaves none of {read} pairs; use smaller numbers such as [1, 2]")


def _joined(group: Sequence[LinkedPair]) -> LinkedPair:
    """The pairs as one, with the words of links counted from the beginning of the joined text."""
    if len(group) == 1:
        return group[0]
    links: list[Link] = []
    source_words = target_words = 0
    for pair, pair_links in group:
        links += [(source_words + source, target_words + target) for source, target in pair_links]
        source_words, target_words = source_words + len(pair.source.split()), target_words + len(pair.target.split())
    sides = (" ".join(text.strip() for text in side) for side in zip(*(pair for pair, _ in group), strict=True))
    return Pair(*sides), links


ONE_OF = ("source", "pairs", "dataset", "corpus", "imported", "mix")


@dataclass(frozen=True, kw_only=True)
class ParallelText(Settings):
    """Training and validation pairs in files: two text files, or one file of pairs.

    The fingerprint of prepared data depends on the order of the settings, here and in subclasses.
    """

    source: FilePath = ""
    """Text file with one source sentence per line, may be .gz or .xz; "a/*.en" is many files, "-" standard input."""
    target: FilePath = ""
    """Text file whose line n translates line n of `source`."""
    valid_source: FilePath = ""
    """Source sentences of the validation set; without one, every hundredth training pair is held out."""
    valid_target: FilePath = ""
    """Translations of `valid_source`."""
    pairs: FilePath = ""
    """One file of sentence pairs instead: .tsv, .jsonl or lines of `a ||| b`, also .gz or .xz; "-" is TSV on stdin."""
    valid_pairs: FilePath = ""
    """File of sentence pairs to validate on."""
    alignments: FilePath = ""
    """Word alignments of the training pairs in Pharaoh format, one line per pair, for training.guided_alignment."""
    columns: Columns | None = None
    """Columns of source and target in `pairs`: TSV columns counted from 1 or named by a header, or JSONL keys. A side
    may join several: [[3, 1], 2].
    """
    features: Annotated[tuple[int | str, ...], OnlyWith("pairs")] = ()
    """Columns of `pairs` whose cells, such as "V;PST", are features: each becomes one symbol, <V> <PST>."""


@dataclass(frozen=True, kw_only=True)
class MixtureShare(Settings):
    """The name and the weight of a corpus in a mixture."""

    name: str = ""
    """Name of the corpus in the scores of a validation; defaults to its tag, or to the name of its file."""
    weight: PositiveFloat = 1.0
    """Share of the training pairs that come from this corpus, relative to the weights of the others."""


@dataclass(frozen=True, kw_only=True)
class MixedCorpus(ParallelText, MixtureShare):
    """One of several corpora that are mixed, with a weight and perhaps a tag."""

    section: ClassVar[str] = "data.mix"

    only: Annotated[tuple[int, str] | None, OnlyWith("pairs")] = None
    """Use only the TSV rows with this text in this column, counted from 1: [2, "kor"]."""
    tag: str = ""
    """Tag in front of every source text, such as "<medical>": one token, whatever the tokenizer."""
    validate: bool = True
    """Validate on this corpus; false trains on all of it, as suits back-translated text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.validate and (path := self.valid_source or self.valid_pairs):
            raise ConfigError(f"{self.shown('validate')}, but {path} is given to validate on; leave one of them out")

    def alone(self, data: "DataConfig") -> "DataConfig":
        """The corpus as data of its own."""
        files = {field.name: getattr(self, field.name) for field in fields(ParallelText)}
        valid_size = max(data.valid_size // max(sum(corpus.validate for corpus in data.mix), 1), 1)
        kind = DataConfig if self.validate else TrainingOnly
        return kind(**files, only=self.only, tag=self.tag, joined=data.joined, valid_size=valid_size)

    @property
    def shown_name(self) -> str:
        """Its name in the scores of a validation."""
        return self.name or self.tag.strip("<>") or Path(self.source or self.pairs).name.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class DataConfig(ParallelText):
    """What to learn from: two text files, one file of pairs, a Hugging Face dataset, or a built-in corpus."""

    section: ClassVar[str] = "data"

    tag: str = ""
    """Tag in front of every source text, such as "<medical>": one token, whatever the tokenizer."""
    mix: tuple[MixedCorpus, ...] = ()
    """Several corpora instead, mixed by their weights: each is a table [[data.mix]]."""
    only: Annotated[tuple[int, str] | None, OnlyWith("pairs")] = None
    """Use only the TSV rows with this text in this column, counted from 1: [2, "kor"]."""
    dataset: FilePath = ""
    """A Hugging Face dataset instead of files (needs the extra `datasets`); `columns` names its keys."""
    train_split: Annotated[str, OnlyWith("dataset")] = "train"
    """Split of the dataset to train on."""
    valid_split: Annotated[str, OnlyWith("dataset")] = "validation"
    """Split of the dataset to validate on; "" holds out pairs of `train_split`."""
    corpus: Corpus | Literal[""] = ""
    """A built-in corpus instead of files: "cldr", "phrases", "dates" or "reverse"."""
    locales: Annotated[tuple[str, str], OnlyWith("corpus")] = ("en", "ko")
    """Languages of the built-in corpus, source and target."""
    size: Annotated[PositiveInt, OnlyWith("corpus")] = 50_000
    """Number of training pairs of the built-in corpus."""
    longest: Annotated[PositiveInt, OnlyWith("corpus", "reverse")] = 12
    """Maximum number of digits in a line of the "reverse" corpus."""
    imported: str = ""
    """Name of the model of another toolkit that this one was imported from; there are no training data."""
    joined: tuple[PositiveInt, ...] = (1,)
    """Numbers of consecutive training pairs to join into one text: [1, 2, 3] adds texts of two and three sentences."""
    valid_size: PositiveInt = 1000
    """Maximum number of validation pairs, for a built-in corpus or held-out pairs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sources = [key for key in ONE_OF if getattr(self, key)]
        if len(sources) != 1:
            listing = " and ".join(f"data.{key}" for key in sources)
            raise ConfigError(
                "give one of data.source (with data.target), data.pairs, data.dataset, data.corpus or data.mix; "
                + (f"{listing} are given" if sources else "none of them is given")
            )
        if self.mix:
            self._check_mix()
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if bool(getattr(self, one)) != bool(getattr(self, other)):
                raise ConfigError(
                    f"data.{one} and data.{other} belong together; only one of them is given. A file with both sides, "
                    "such as .tsv or .jsonl, is data.pairs"
                )
        if self.valid_source and self.valid_pairs:
            raise ConfigError("give data.valid_source with data.valid_target, or data.valid_pairs, not both")
        if self.files().count(STDIN) > 1:
            raise ConfigError('only one file can be "-", standard input; name the others')
        if not self.joined or len(set(self.joined)) < len(self.joined):
            raise ConfigError(f"{self.shown('joined')} must be different numbers, such as [1, 2, 3]")
        if self.tag and not (SYMBOL.fullmatch(self.tag) or LEADING_TAG.fullmatch(self.tag)):
            raise ConfigError(f'{self.shown("tag")} must be one word in angle brackets, such as "<medical>"')
        if len({type(part) for column in self.columns or () for part in parts_of(column)}) > 1:
            raise ConfigError(f"data.columns = {list(self.columns or ())!r} must be all numbers or all names")

    def _check_mix(self) -> None:
        own = ("valid_source", "valid_pairs", "alignments", "columns", "tag")
        if wrong := [key for key in own if getattr(self, key)]:
            raise ConfigError(f"data.{wrong[0]} is set beside data.mix; set it in each [[data.mix]]")
        if STDIN in self.files():
            raise ConfigError('a corpus of data.mix cannot be "-", standard input; name files')
        if len({bool(corpus.alignments) for corpus in self.mix}) > 1:
            raise ConfigError("only some corpora of data.mix have alignments; give them to all or to none")
        if not any(corpus.validate for corpus in self.mix):
            raise ConfigError("no corpus of data.mix is validated on; leave out validate = false in one of them")
        names = [corpus.shown_name for corpus in self.mix]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(f"two corpora of data.mix are called {twice!r}; give each a name of its own: name = ...")

    @property
    def corpora(self) -> list["DataConfig"]:
        """The corpora of a mixture, each as data of its own; otherwise a list of this data alone."""
        return [corpus.alone(self) for corpus in self.mix] or [self]

    @property
    def copies(self) -> bool:
        """Whether source and target are the same file."""
        return bool(self.source) and Path(self.source).resolve() == Path(self.target).resolve()

    @property
    def has_links(self) -> bool:
        """Whether the training pairs have word links."""
        return bool(self.alignments) or any(corpus.alignments for corpus in self.mix)

    def symbols(self) -> Symbols:
        """The tags, and every feature of the training pairs."""
        tags = dict.fromkeys(corpus.tag for corpus in self.corpora if corpus.tag)
        with_features = [corpus for corpus in self.corpora if corpus.features]
        features = symbols_in(side for corpus in with_features for pair in corpus.training() for side in pair)
        return Symbols(tuple(tags), tuple(feature for feature in features if feature not in tags))

    @property
    def validates(self) -> bool:
        """Whether there are pairs to validate on."""
        return True

    @property
    def origin(self) -> str:
        """The source of the training data, in words."""
        if self.mix:
            return ", ".join(corpus.origin for corpus in self.corpora)
        files = f"{display_name(self.source)} and {display_name(self.target)}"
        return self.corpus or self.dataset or self.imported or (display_name(self.pairs) if self.pairs else files)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The languages of source and target if known: from the locales of a built-in corpus, or file names."""
        if self.mix:
            return self.corpora[0].languages
        if not self.corpus:
            return _file_language(self.source), _file_language(self.target)
        source, target = self.locales
        by_corpus = {"cldr": (source, target), "phrases": (source, target), "dates": (source, None)}
        return by_corpus.get(self.corpus, (None, None))

    @property
    def holds_out(self) -> bool:
        """Whether validation pairs are held out from the training pairs."""
        if self.mix:
            return any(corpus.holds_out for corpus in self.corpora)
        return not (self.corpus or self.valid_source or self.valid_pairs or (self.dataset and self.valid_split))

    def files(self) -> list[str]:
        """Every file that is read."""
        if self.mix:
            return [path for corpus in self.corpora for path in corpus.files()]
        named = (self.source, self.target, self.pairs, self.valid_source, self.valid_target, self.valid_pairs)
        return [shard for path in (*named, self.alignments) if path for shard in shards(path)]

    def validation(self) -> Iterator[Pair]:
        """The pairs to validate on."""
        if self.mix:
            return chain.from_iterable(corpus.validation() for corpus in self.corpora)
        return (_tagged(pair, self.tag) for pair in self._validation())

    def _validation(self) -> Iterator[Pair]:
        if self.corpus:
            return self._built_in("valid", self.valid_size)
        if self.valid_source:
            return read_pairs(self.valid_source, self.valid_target)
        if self.valid_pairs:
            return read_pairs(self.valid_pairs, columns=self.columns, features=self.features, only=self.only)
        if self.dataset and self.valid_split:
            return read_dataset(self.dataset, split=self.valid_split, columns=self.columns or ("source", "target"))
        return islice(self._all_pairs(), 0, 100 * self.valid_size, 100)

    def training(self) -> Iterator[Pair]:
        """The pairs to train on, without those whose source is held out for validation."""
        if self.mix:
            return chain.from_iterable(corpus.training() for corpus in self.corpora)
        pairs: Iterator[LinkedPair] = ((pair, []) for pair in self._all_pairs())
        joined = join_sentences(self._without_held_out(pairs), self.joined)
        return (_tagged(pair, self.tag) for pair, _ in joined)

    def training_with_links(self, *, say: Callable[[str], None] = lambda message: None) -> Iterator[LinkedPair]:
        """The pairs to train on, each with its word links; `say` receives a notice about links that are dropped."""
        if self.mix:
            return chain.from_iterable(corpus.training_with_links(say=say) for corpus in self.corpora)
        pairs = with_word_links(self._all_pairs(), self.alignments, say=say)
        joined = join_sentences(self._without_held_out(pairs), self.joined)
        return (_tagged_links(pair, links, self.tag) for pair, links in joined)

    def _without_held_out(self, pairs: Iterable[LinkedPair]) -> Iterator[LinkedPair]:
        if not self.holds_out:
            yield from pairs
            return
        held_out = {pair.source for pair in self._validation() if pair.source.strip()}
        count = kept = 0
        for pair, links in pairs:
            count += 1
            if pair.source not in held_out:
                kept += 1
                yield pair, links
        if not kept:
            raise self._all_held_out(count, len(held_out))

    def _all_held_out(self, pairs: int, sources: int) -> DataError:
        """The error for a single pair, or for pairs that all repeat the held-out sources."""
        why, wanted = "", "more than one sentence"
        if pairs > 1:
            why, wanted = f", and none of its {pairs:,} pairs has another source", "sentences that differ"
            why += ": all are equal" if sources == 1 else ""
        return DataError(
            f"{display_name(self.source or self.pairs or self.dataset)} leaves no pair to train on: every hundredth "
            f"pair, starting with the first, is held out for validation{why}; give {wanted}, or separate validation "
            "pairs (data.valid_source with data.valid_target, or data.valid_pairs)"
        )

    def _all_pairs(self) -> Iterator[Pair]:
        if self.imported:
            raise ConfigError(
                f"{self.shown('imported')} has no training data; give data.source and data.target, or data.pairs"
            )
        if self.corpus:
            return self._built_in("train", self.size)
        if self.dataset:
            return read_dataset(self.dataset, split=self.train_split, columns=self.columns or ("source", "target"))
        if self.pairs:
            return read_pairs(self.pairs, columns=self.columns, features=self.features, only=self.only)
        return read_pairs(self.source, self.target)

    def examples(self, count: int) -> list[str]:
        """Short test sentences of the built-in corpus; none for other data."""
        from jumok.data.corpora.built_in import example_texts  # Babel is slow to import

        return example_texts(self.corpus, count, locales=self.locales, longest=self.longest) if self.corpus else []

    def _built_in(self, split: Split, count: int) -> Iterator[Pair]:
        from jumok.data.corpora.built_in import corpus_pairs  # Babel is slow to import

        assert self.corpus
        source, target = self.locales
        return corpus_pairs(self.corpus, count, split=split, source=source, target=target, longest=self.longest)


class TrainingOnly(DataConfig):
    """A corpus of a mixture that is not validated on: nothing is held out."""

    @property
    def validates(self) -> bool:
        """It has no pairs to validate on."""
        return False

    @property
    def holds_out(self) -> bool:
        """All pairs are trained on."""
        return False

    def _validation(self) -> Iterator[Pair]:
        return iter(())


def _tagged(pair: Pair, tag: str) -> Pair:
    """The pair with a tag in front of its source; an empty source stays empty."""
    return Pair(f"{tag} {pair.source}", pair.target) if tag and pair.source.strip() else pair


def _tagged_links(pair: Pair, links: list[Link], tag: str) -> LinkedPair:
    """The same; the tag is a word, so that all words of the source move by one."""
    tagged = _tagged(pair, tag)
    return tagged, links if tagged is pair else [(source + 1, target) for source, target in links]


def _file_language(path: str) -> str | None:
    """The language of a file such as train.ko or train.en.gz."""
    ending = Path(path.removesuffix(".gz").removesuffix(".xz")).suffix[1:]
    return ending if 2 <= len(ending) <= 3 and ending.isalpha() and ending != "txt" else None
