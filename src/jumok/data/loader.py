"""The batch at (seed, epoch, step), read from a store: nothing to iterate, so nothing to save when training stops."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from random import Random
from zlib import crc32

import numpy as np
from jaxtyping import Bool, Int, UInt
from torch import Tensor

from jumok.data.batches import Batch, BatchConfig, BatchPlan, Ids, collate, splitmix64
from jumok.data.dataset import Dataset
from jumok.data.subwords import BOS, EOS
from jumok.data.tokenizer import Tokenizer, TokenizerPair
from jumok.data.word_links import link_matrix
from jumok.errors import ArgumentError

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
        """Cut `number` of the word that these ids spell."""
        word = self.tokenizer.surface(np.frombuffer(ids, np.uint32).tolist())
        return tuple(self.tokenizer.cut(word, self.amount, Random(CUTS * crc32(ids) + number)))


class Batches:
    """Batches of a store as a pure function of (seed, epoch, step).

    With `sampling` above 0 (subword regularisation) every sentence is joined and cut anew each epoch, in a way that
    depends on (seed, epoch, sentence) alone; batches then hold somewhat more tokens than planned.

    A store with a third side holds word links, which become links between the tokens of this batch, however cut.
    """

    def __init__(
        self,
        store: Dataset,
        config: BatchConfig,
        *,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        tokenizers: TokenizerPair | None = None,
        sampling: float = 0.0,
    ) -> None:
        self.store, self.seed = store, seed
        self.plan = BatchPlan(store.length_counts.shorter(1), config, seed=seed, rank=rank, world=world)
        self._samplers = [Resampler(side, sampling) for side in tokenizers or ()] if sampling else []
        if tokenizers is None and store.sides > 2:
            raise ArgumentError("batches that have word links need their tokenizers")
        self._tokenizers = tokenizers

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> Batch:
        """The padded tensors of one step."""
        numbers = self.store.sorted_rows(self.plan.batch(epoch, step))
        stored = [self.store[int(number)] for number in numbers]
        rows: list[tuple[Ids, Ids]] = [(row[0], row[1]) for row in stored]
        if self._samplers:
            keys = self._keys(epoch, numbers)
            sides = (sample([row[at] for row in stored], keys[at]) for at, sample in enumerate(self._samplers))
            rows = list(zip(*sides, strict=True))
        batch = collate(rows)
        return (
            batch
            if self.store.sides == 2
            else batch._replace(word_links=self._links([row[2] for row in stored], batch))
        )

    def _links(self, links: Sequence[UInt[np.ndarray, "_"]], batch: Batch) -> Bool[Tensor, "batch target source"]:
        assert self._tokenizers is not None
        from_, to = self._tokenizers
        return link_matrix(links, from_.word_numbers(batch.source.numpy()), to.word_numbers(batch.target_out.numpy()))

    def _keys(self, epoch: int, numbers: Int[np.ndarray, " batch"]) -> UInt[np.ndarray, "2 batch"]:
        """A number for each sentence of both sides, from (seed, epoch, sentence)."""
        run = blake2b(f"{self.seed}/{epoch}".encode(), digest_size=8).digest()
        sentences = np.stack([2 * numbers, 2 * numbers + 1]).astype(np.uint64)
        return splitmix64(splitmix64(sentences) ^ np.frombuffer(run, np.uint64))
