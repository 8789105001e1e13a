"""The two tokenizers of a model, source and target: one shared vocabulary in one file, or one each."""

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from jumok.data.pairs import Pair
from jumok.data.tokenizer import Tokenizer, TokenizerConfig
from jumok.errors import DataError

SHARED = "tokenizer.model"
SEPARATE = ("tokenizer.source.model", "tokenizer.target.model")


class Tokenizers(NamedTuple):
    """A tokenizer for each side; the same object twice where the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source is self.target

    @classmethod
    def train(cls, pairs: Iterable[Pair], config: TokenizerConfig, *, fingerprint: str = "") -> "Tokenizers":
        """Learn the vocabularies; `pairs` is gone through once for each."""
        if config.shared:
            one = Tokenizer.train(chain.from_iterable(pairs), config, fingerprint=fingerprint)
            return cls(one, one)
        source = Tokenizer.train((pair.source for pair in pairs), config, side="source", fingerprint=fingerprint)
        target = Tokenizer.train((pair.target for pair in pairs), config, side="target", fingerprint=fingerprint)
        return cls(source, target)

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizers":
        """Read tokenizer.model, or tokenizer.source.model and tokenizer.target.model, from a folder."""
        if Path(folder, SEPARATE[0]).exists():
            return cls(*(Tokenizer.load(Path(folder, name)) for name in SEPARATE))
        one = Tokenizer.load(Path(folder, SHARED))
        return cls(one, one)

    @classmethod
    def of_files(cls, contents: Mapping[str, bytes], folder: Path) -> "Tokenizers":
        """The same from the contents of those files, which were read from `folder`."""
        names = SEPARATE if SEPARATE[0] in contents else (SHARED,)
        for name in names:
            if name not in contents:
                raise DataError(f"{folder} is not a complete model: {name} is missing")
        source, *others = (Tokenizer(contents[name], origin=str(folder / name)) for name in names)
        return cls(source, *(others or [source]))

    def files(self) -> dict[str, bytes]:
        """The contents of the file or files that `load` reads, by name."""
        names = (SHARED,) if self.shared else SEPARATE
        return {name: tokenizer.model for name, tokenizer in zip(names, self, strict=False)}

    def save(self, folder: str | Path) -> None:
        """Write the file or files that `load` reads, and remove those of the other kind."""
        files = self.files()
        for name, tokenizer in zip(files, self, strict=False):
            tokenizer.save(Path(folder, name))
        for name in {SHARED, *SEPARATE} - files.keys():
            Path(folder, name).unlink(missing_ok=True)
