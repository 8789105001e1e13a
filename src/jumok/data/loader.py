"""The batch at (seed, epoch, step), read from a dataset; and subword regularisation."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from random import Random
from zlib import crc32

import numpy as np
from jaxtyping import Bool, Int, UInt
from torch import Tensor

from jumok.data.batches import Batch, BatchConfig, BatchPlan, Ids, collate, collate_sides, splitmix64
from jumok.data.dataset import Dataset
from jumok.data.mixture import MixedPlan, Mixture
from jumok.data.subwords import BOS, EOS
from jumok.data.tokenizer import Tokenizer
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.data.word_links import link_matrix

CUTS = 16
"""Different random cuts of a word."""
CACHED_CUTS = 1 << 19


class Resampler:
    """Joins tokens to words, and cuts each word anew at random."""

    def __init__(self, tokenizer: Tokenizer, amount: float) -> None:
        self.tokenizer, self.amount = tokenizer, amount
        self._whole = [tokenizer.is_symbol(id) for id in range(tokenizer.size)]
        self._begins = np.array([piece.startswith("▁") for piece in tokenizer.pieces]) | np.array(self._whole)
        self._cut = lru_cache(maxsize=CACHED_CUTS)(self._cut_word)

    def __call__(
        self, rows: Sequence[Int[np.ndarray, "_"] | UInt[np.ndarray, "_"]], keys: UInt[np.ndarray, " rows"]
    ) -> list[Int[np.ndarray, "_"]]:
        """Every row [BOS, ..., EOS] cut anew, in a way that depends on its key alone."""
        ids = np.concatenate([row[1:-1] for row in rows]).astype(np.uint32)
        lengths = np.array([len(row) - 2 for row in rows])
        firsts = lengths.cumsum() - lengths
        begins = self._begins[ids]
        begins[firsts[lengths > 0]] = True  # a sentence begins with a word
        starts = begins.nonzero()[0]
        of_row = np.repeat(np.arange(len(rows)), lengths)[starts]
        chosen = splitmix64(keys[of_row] + starts.astype(np.uint64) - firsts[of_row].astype(np.uint64)) % np.uint64(
            CUTS
        )
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
        """The cut with this number of the word that these ids spell."""
        pieces = np.frombuffer(ids, np.uint32).tolist()
        if self._whole[pieces[0]]:
            return tuple(pieces)
        word = self.tokenizer.surface(pieces)
        return tuple(self.tokenizer.cut(word, self.amount, Random(CUTS * crc32(ids) + number)))


class Batches:
    """Batches of a dataset as a pure function of (seed, epoch, step): nothing has to be saved when training stops.

    With `sampling` above 0 (subword regularisation) every sentence is cut anew each epoch, in a way that depends on
    (seed, epoch, sentence) alone; batches then hold slightly more tokens than planned.

    Word links, the third side of a dataset that has them, become links between the tokens of the batch, however cut.
    """

    def __init__(
        self,
        dataset: Dataset | Mixture,
        config: BatchConfig,
        *,
        seed: int = 0,
        tokenizers: TokenizerPair | None = None,
        sampling: float = 0.0,
    ) -> None:
        self.dataset, self.seed = dataset, seed
        self.plan: BatchPlan = (
            MixedPlan(dataset, config, seed=seed)
            if isinstance(dataset, Mixture)
            else BatchPlan(dataset.length_counts.shorter(1), config, seed=seed)
        )
        self._samplers = [Resampler(side, sampling) for side in tokenizers or ()] if sampling else []
        self._tokenizers = tokenizers

    def steps(self, epoch: int) -> int:
        """The number of batches of an epoch."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> Batch:
        """The padded tensors of one step."""
        numbers = self.dataset.rows_of(epoch, self.plan.batch(epoch, step))
        if self.dataset.sides == 2 and not self._samplers:
            return collate_sides(self.dataset.sentences(numbers, 0), self.dataset.sentences(numbers, 1))
        rows = [self.dataset[int(number)] for number in numbers]
        pairs: list[tuple[Ids, Ids]] = [(row[0], row[1]) for row in rows]
        if self._samplers:
            keys = self._keys(epoch, numbers)
            sides = (sample([row[side] for row in rows], keys[side]) for side, sample in enumerate(self._samplers))
            pairs = list(zip(*sides, strict=True))
        batch = collate(pairs)
        if self.dataset.sides == 2:
            return batch
        return batch._replace(word_links=self._word_links([row[2] for row in rows], batch))

    def _word_links(self, links: Sequence[UInt[np.ndarray, "_"]], batch: Batch) -> Bool[Tensor, "batch target source"]:
        assert self._tokenizers is not None, "batches with word links need their tokenizers"
        source, target = self._tokenizers
        return link_matrix(
            links, source.word_numbers(batch.source.numpy()), target.word_numbers(batch.target_out.numpy())
        )

    def _keys(self, epoch: int, numbers: Int[np.ndarray, " batch"]) -> UInt[np.ndarray, "2 batch"]:
        """A key for each sentence of both sides, from (seed, epoch, sentence)."""
        run = blake2b(f"{self.seed}/{epoch}".encode(), digest_size=8).digest()
        sentences = np.stack([2 * numbers, 2 * numbers + 1]).astype(np.uint64)
        return splitmix64(splitmix64(sentences) ^ np.frombuffer(run, np.uint64))
