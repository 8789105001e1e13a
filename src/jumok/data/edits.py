"""Targets as edits of their sources (Makarov & Clematide 2018): the tokens of a decoder that walks along its source.

    delete         skip the current source letter
    insert a       write a
    substitute a   write a for the current source letter, and advance; to write that letter itself is to copy it

An edit has an even number if it advances to the next source letter, and an odd one if it stays:

    0 … 3   PAD, BOS, EOS, UNK, which stay
    4       delete
    2p - 3  insert piece p of the vocabulary, for p from 4
    2p - 2  substitute piece p
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
from jaxtyping import Int, Integer

from jumok.data.edit_distance import Edit, EditDistance, learn_edit_distance
from jumok.data.pairs import Pair
from jumok.data.subwords import BOS, EOS, PAD, SPECIALS, append_settings, settings_of
from jumok.data.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError, first_line

DELETE = 4
MOVES = "→"
"""Ends the name of an edit that advances to the next source letter."""
MOST_PAIRS = 20_000
"""Pairs that the alignment is learned from."""
LONGEST = 200
"""Letters of a pair that it is learned from, at most."""


def edit_ids(edit: Edit) -> list[int]:
    """The ids of an edit: one, or two for substituting an unknown letter, which has no id of its own."""
    if edit.letter is None:
        return [DELETE]
    if edit.letter < SPECIALS:
        return [edit.letter, DELETE] if edit.operation == "substitute" else [edit.letter]
    return [2 * edit.letter - (2 if edit.operation == "substitute" else 3)]


def piece_of(id: int) -> int:
    """The piece that an edit writes; PAD for a deletion."""
    if id == DELETE:
        return PAD
    return id if id < SPECIALS else (id + 3) // 2


class EditTokenizer(Tokenizer):
    """A tokenizer of targets whose tokens are edits of a source, aligned by stochastic edit distance."""

    def __init__(self, model: bytes, *, origin: str = "the tokenizer") -> None:
        super().__init__(model, origin=origin)
        self._letters = Tokenizer(model, origin=origin)
        try:
            self.distance = EditDistance.of_settings(settings_of(model)["edits"])
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{origin} is not a tokenizer of edits, or is damaged ({first_line(error)})") from None
        names = [name for piece in self.letters.pieces[SPECIALS:] for name in (piece, piece + MOVES)]
        self.pieces = [*self.letters.pieces[:SPECIALS], MOVES, *names]

    @classmethod
    def learn(cls, source: Tokenizer, target: Tokenizer, pairs: Iterable[Pair]) -> "EditTokenizer":
        """The tokenizer of a target as one of edits, with an alignment learned from some pairs."""
        encoded = ((source.encode(pair.source)[1:-1], target.encode(pair.target)[1:-1]) for pair in pairs)
        sample = [pair for pair in islice(encoded, MOST_PAIRS) if max(map(len, pair)) <= LONGEST]
        distance = learn_edit_distance(sample, same_alphabet=source.pieces == target.pieces)
        return cls(append_settings(target.model, settings_of(target.model) | {"edits": distance.settings()}))

    @property
    def letters(self) -> Tokenizer:
        """The tokenizer of what edits write."""
        return self._letters

    def encode(self, text: str) -> list[int]:
        """The edits that write a text without a source: all of its letters are inserted."""
        return self.encode_after([BOS, EOS], text)

    def encode_after(self, source: Sequence[int], text: str) -> list[int]:
        """The edits that turn a source, given in its tokens, into a text: [BOS, edits, EOS]."""
        edits = self.distance.align(source[1:-1], self.letters.encode(text)[1:-1])
        return [BOS, *(id for edit in edits for id in edit_ids(edit)), EOS]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of every text."""
        return [self.encode(text) for text in texts]

    def encode_all_after(self, sources: Sequence[Sequence[int]], texts: Sequence[str]) -> list[list[int]]:
        """`encode_after` of every source and text."""
        return list(map(self.encode_after, sources, texts))

    def written(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """The pieces that edits write, and which of the edits those are."""
        pieces = [(piece_of(id), place) for place, id in enumerate(ids) if id != DELETE]
        return [piece for piece, _ in pieces], [place for _, place in pieces]

    @cached_property
    def spellings(self) -> list[str]:
        """What every edit writes: nothing for a deletion."""
        return [self.letters.spellings[piece_of(id)] for id in range(self.size)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text that edits write up to the first EOS."""
        edits = list(map(int, ids))
        if edits and not 0 <= min(edits) <= max(edits) < self.size:
            raise ArgumentError(
                f"ids must lie between 0 and {self.size - 1}, but run from {min(edits)} to {max(edits)}"
            )
        return self.letters.decode(map(piece_of, edits))

    def surface(self, ids: Sequence[int]) -> str:
        """The text of edits, with spaces written ▁."""
        return self.letters.surface(self.written(ids)[0])

    def is_symbol(self, id: int) -> bool:
        """Whether an edit writes a symbol, which stands alone in a text."""
        return self.letters.is_symbol(piece_of(id))

    def word_numbers(self, ids: Sequence[int] | Integer[np.ndarray, "*texts ids"]) -> Int[np.ndarray, "*texts ids"]:
        """For each edit the number of the word it writes a part of; -1 for a deletion."""
        pieces = np.vectorize(piece_of, otypes=[np.int64])(np.asarray(ids, np.int64))
        return self.letters.word_numbers(pieces)
