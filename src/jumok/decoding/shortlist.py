"""The target words that a source sentence is likely to need, out of the whole vocabulary.

For every source piece its likeliest translations, and for all sentences the most frequent pieces. The file is
CTranslate2's vocabulary map: "piece TAB pieces", where no piece before the TAB stands for all sentences.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.data import EOS, TokenizerPair
from jumok.errors import DataError
from jumok.files import atomic_write, read_plain

FILE = "shortlist.txt"
MOST_BYTES = 1 << 28


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Ids of target pieces: those for every sentence, and those for each source piece."""

    always: frozenset[int]
    likely: dict[int, tuple[int, ...]]

    def ids(self, sources: Iterable[Sequence[int]]) -> Int[Tensor, " pieces"]:
        """The ids for a batch of source sentences, in ascending order."""
        pieces = {piece for source in sources for piece in source}
        target_ids = self.always.union(*(self.likely.get(piece, ()) for piece in pieces))
        return torch.tensor(sorted(target_ids))

    def covers(self, source: Sequence[int]) -> bool:
        """Whether translations of every piece of a source are known; the others need the whole vocabulary."""
        return all(piece == EOS or piece in self.likely for piece in source)

    def __or__(self, other: "Shortlist") -> "Shortlist":
        """What either has."""
        pieces = self.likely.keys() | other.likely.keys()
        likely = {piece: (*self.likely.get(piece, ()), *other.likely.get(piece, ())) for piece in pieces}
        return Shortlist(
            self.always | other.always, {piece: tuple(dict.fromkeys(ids)) for piece, ids in likely.items()}
        )

    def text(self, tokenizers: TokenizerPair) -> str:
        """The lines of the file."""
        source, target = tokenizers.source.pieces, tokenizers.target.pieces
        rows = [("", sorted(self.always)), *((source[piece], ids) for piece, ids in sorted(self.likely.items()))]
        return "".join(f"{piece}\t{' '.join(target[id] for id in ids)}\n" for piece, ids in rows)

    def write(self, path: Path, tokenizers: TokenizerPair) -> None:
        """Write the file, completely or not at all."""
        with atomic_write(path) as file:
            file.write(self.text(tokenizers).encode())


def read_shortlist(path: Path, tokenizers: TokenizerPair) -> Shortlist | None:
    """The shortlist in a file; None if there is none, or if it is not of these vocabularies."""
    if not path.exists():
        return None
    known = [{piece: number for number, piece in enumerate(side.pieces)} for side in tokenizers]
    try:
        lines = read_plain(path, most=MOST_BYTES, within=path.parent).decode().split("\n")
        rows = [line.partition("\t") for line in lines if line]
        table = {piece: tuple(known[1][each] for each in pieces.split(" ") if each) for piece, _, pieces in rows}
        always = frozenset(table.pop(""))
        return Shortlist(always, {known[0][piece]: ids for piece, ids in table.items()})
    except (KeyError, UnicodeDecodeError, DataError):
        return None
