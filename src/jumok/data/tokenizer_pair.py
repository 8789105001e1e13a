"""The tokenizers of both sides of a model: how they are trained, read from its folder and written to it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from jumok.data.edits import EditTokenizer
from jumok.data.pairs import Pair
from jumok.data.subwords import settings_of
from jumok.data.tokenizer import MOST_BYTES, NO_SYMBOLS, Symbols, Tokenizer, TokenizerConfig
from jumok.errors import ArgumentError, DataError
from jumok.files import read_plain

SHARED = "tokenizer.model"
SEPARATE = ("tokenizer.source.model", "tokenizer.target.model")


class TokenizerPair(NamedTuple):
    """The tokenizers of source and target; the same object twice if they share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        """Whether both sides share a vocabulary; two tokenizers may cut different languages into it."""
        return self.source is self.target or self.source.pieces == self.target.letters.pieces

    @property
    def is_character_level(self) -> bool:
        """Whether a side is cut into letters; maps and links are then between tokens unless words are asked for."""
        return any(side.kind == "char" for side in self)

    def encode(self, pair: Pair) -> tuple[list[int], list[int]]:
        """The token ids of both sides."""
        source = self.source.encode(pair.source)
        return source, self.target.encode_after(source, pair.target)

    def encode_all(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """The token ids of many pairs, as `encode` gives them."""
        encoded = self.source.encode_all(sources)
        return encoded, self.target.encode_all_after(encoded, targets)

    @classmethod
    def train(
        cls,
        pairs: Iterable[Pair],
        config: TokenizerConfig,
        *,
        symbols: Symbols = NO_SYMBOLS,
        fingerprint: str = "",
        say: Callable[[str], None] = lambda message: None,
    ) -> "TokenizerPair":
        """Train the vocabularies; `pairs` is iterated once for each. `symbols` are those of the source."""
        learn = partial(Tokenizer.train, config=config, fingerprint=fingerprint, say=say)
        if config.shared:
            both = learn(chain.from_iterable(pairs), symbols=symbols)
            return cls(both, EditTokenizer.learn(both, both, pairs) if config.edits else both)
        sources, targets = (pair.source for pair in pairs), (pair.target for pair in pairs)
        source, target = learn(sources, side="source", symbols=symbols), learn(targets, side="target")
        return cls(source, EditTokenizer.learn(source, target, pairs) if config.edits else target)

    @property
    def tags(self) -> list[str]:
        """The tags that a source may begin with; where every text begins with its language, that is none of them."""
        return list(self.source.symbols.tags) if self.target.language else self.source.tags

    @property
    def language_choices(self) -> tuple[list[str], list[str]]:
        """The languages of source and target that `between` accepts; none if there is only one."""
        if self.target.language:
            return self.source.languages, self.target.languages
        return [], self.source.languages

    def with_symbols(self, symbols: Symbols) -> "TokenizerPair":
        """The same tokenizers with more symbols in the source, and in a vocabulary that both sides share."""
        source = self.source.with_symbols(symbols)
        if self.source is self.target:
            return TokenizerPair(source, source)
        return TokenizerPair(source, self.target.with_symbols(symbols) if self.shared else self.target)

    @classmethod
    def load(cls, folder: str | Path) -> "TokenizerPair":
        """Read tokenizer.model, or tokenizer.source.model and tokenizer.target.model, from a folder."""
        if Path(folder, SEPARATE[0]).exists():
            return cls(*(_read(Path(folder, name)) for name in SEPARATE))
        both = Tokenizer.load(Path(folder, SHARED))
        return cls(both, both)

    @classmethod
    def of_files(cls, contents: Mapping[str, bytes], folder: Path) -> "TokenizerPair":
        """The tokenizers from the contents of those files, which were read from `folder`."""
        names = SEPARATE if SEPARATE[0] in contents else (SHARED,)
        for name in names:
            if name not in contents:
                raise DataError(f"{folder} is not a complete model: {name} is missing")
        source, *others = (_of_model(contents[name], origin=str(folder / name)) for name in names)
        return cls(source, *(others or [source]))

    def between(self, source: str | None = None, target: str | None = None) -> "TokenizerPair":
        """The tokenizers of a multilingual model for these two languages; None leaves a language as it is.

        Models such as M2M-100 begin a text with its own language; Marian's begin the source with that of the target.
        """
        if source is None and target is None:
            return self
        if self.target.language:
            return TokenizerPair(
                self.source if source is None else self.source.with_language(source),
                self.target if target is None else self.target.with_language(target),
            )
        if not self.source.languages:
            raise ArgumentError(
                "this model has no languages to choose from; leave out --from and --to (in Python source and target)"
            )
        if source is not None or target is None:
            raise ArgumentError(
                f"this model has a choice of target languages only; leave out --from {source} (in Python source)"
            )
        return TokenizerPair(self.source.with_language(target), self.target)

    def files(self) -> dict[str, bytes]:
        """The contents of the file or files that `load` reads, by name."""
        names = (SHARED,) if self.source is self.target else SEPARATE
        return {name: tokenizer.model for name, tokenizer in zip(names, self, strict=False)}

    def save(self, folder: str | Path) -> None:
        """Write the file or files that `load` reads, and remove those of the other kind."""
        files = self.files()
        for name, tokenizer in zip(files, self, strict=False):
            tokenizer.save(Path(folder, name))
        for name in {SHARED, *SEPARATE} - files.keys():
            Path(folder, name).unlink(missing_ok=True)


def _read(path: Path) -> Tokenizer:
    return _of_model(read_plain(path, most=MOST_BYTES), origin=str(path))


def _of_model(model: bytes, *, origin: str) -> Tokenizer:
    """A tokenizer of pieces or, if the file has an alignment, of edits."""
    has_edits = False
    with suppress(ValueError, RecursionError):  # the tokenizer itself tells what is wrong with its file
        has_edits = "edits" in settings_of(model)
    return (EditTokenizer if has_edits else Tokenizer)(model, origin=origin)
