"""Encoded sentences cut anew at random, a batch at a time and as a pure function of a number for each sentence.

A word can be cut in `CUTS` ways drawn once and for all by its letters, and each time it comes one of them is chosen. So
the words of a language, few of which are most of any text, are cut once and then only looked up.
"""

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from zlib import crc32

import numpy as np
from jaxtyping import Int, UInt

from jumok.data.shuffle import mixed
from jumok.data.subwords import BOS, EOS
from jumok.data.tokenizer import Tokenizer

CUTS = 16
REMEMBERED = 1 << 18


class Resampler:
    """Joins the tokens of a tokenizer to words again and cuts those by its `sampling`."""

    def __init__(self, tokenizer: Tokenizer, amount: float) -> None:
        self.tokenizer, self.amount = tokenizer, amount
        self._begins = np.array([piece.startswith("▁") for piece in tokenizer.pieces])
        self._cut = lru_cache(maxsize=REMEMBERED)(self._cut_word)

    def __call__(
        self, rows: Sequence[Int[np.ndarray, "_"] | UInt[np.ndarray, "_"]], keys: UInt[np.ndarray, " rows"]
    ) -> list[Int[np.ndarray, "_"]]:
        """Every row [BOS, ..., EOS] cut anew; which way depends on its key alone."""
        ids = np.concatenate([row[1:-1] for row in rows]).astype(np.uint32)
        lengths = np.array([len(row) - 2 for row in rows])
        firsts = lengths.cumsum() - lengths
        begins = self._begins[ids]
        begins[firsts[lengths > 0]] = True  # whatever a sentence begins with begins a word
        starts = begins.nonzero()[0]
        of_row = np.repeat(np.arange(len(rows)), lengths)[starts]
        chosen = mixed(keys[of_row] + starts.astype(np.uint64) - firsts[of_row].astype(np.uint64)) % np.uint64(CUTS)
        cuts = self._cut_all(ids.tobytes(), starts, len(ids), chosen)
        ends = np.searchsorted(of_row, np.arange(len(rows)), side="right")
        return [
            np.array([BOS, *(id for cut in cuts[start:end] for id in cut), EOS])
            for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]

    def _cut_all(
        self, ids: bytes, starts: Int[np.ndarray, " words"], end: int, chosen: UInt[np.ndarray, " words"]
    ) -> list[tuple[int, ...]]:
        places = [*(4 * starts).tolist(), 4 * end]  # four bytes an id
        cut = self._cut
        return [
            cut(ids[start:stop], number)
            for start, stop, number in zip(places, places[1:], chosen.tolist(), strict=False)
        ]

    def _cut_word(self, ids: bytes, number: int) -> tuple[int, ...]:
        """Cut `number` of the word that these ids spell."""
        word = self.tokenizer.surface(np.frombuffer(ids, np.uint32).tolist())
        return tuple(self.tokenizer.cut(word, self.amount, Random(CUTS * crc32(ids) + number)))
