"""The batch at (seed, epoch, step), read from a store: nothing to iterate, so nothing to save when training stops."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from jaxtyping import Bool, Int, UInt
from torch import Tensor

from jumok.data.batches import Batch, BatchConfig, Ids, collate
from jumok.data.links import link_matrix
from jumok.data.plan import BatchPlan
from jumok.data.resampling import Resampler
from jumok.data.shuffle import mixed
from jumok.data.sides import Tokenizers
from jumok.data.store import Store
from jumok.errors import ArgumentError


class Batches:
    """Batches of a store as a pure function of (seed, epoch, step).

    With `sampling` above 0 (subword regularisation) every sentence is joined and cut anew each epoch, in a way that
    depends on (seed, epoch, sentence) alone; batches then hold somewhat more tokens than planned.

    A store with a third side holds word links, which become links between the tokens of this batch, however cut.
    """

    def __init__(
        self,
        store: Store,
        config: BatchConfig,
        *,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        tokenizers: Tokenizers | None = None,
        sampling: float = 0.0,
    ) -> None:
        self.store, self.seed = store, seed
        self.plan = BatchPlan(store.cells.shorter(1), config, seed=seed, rank=rank, world=world)
        self._samplers = [Resampler(side, sampling) for side in tokenizers or ()] if sampling else []
        if tokenizers is None and store.sides > 2:
            raise ArgumentError("batches that have word links need their tokenizers")
        self._tokenizers = tokenizers

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> Batch:
        """The padded tensors of one step."""
        numbers = self.store.by_length(self.plan.batch(epoch, step))
        stored = [self.store[int(number)] for number in numbers]
        rows: list[tuple[Ids, Ids]] = [(row[0], row[1]) for row in stored]
        if self._samplers:
            keys = self._keys(epoch, numbers)
            sides = (sample([row[at] for row in stored], keys[at]) for at, sample in enumerate(self._samplers))
            rows = list(zip(*sides, strict=True))
        batch = collate(rows)
        return batch if self.store.sides == 2 else batch._replace(links=self._links([row[2] for row in stored], batch))

    def _links(self, links: Sequence[UInt[np.ndarray, "_"]], batch: Batch) -> Bool[Tensor, "batch target source"]:
        assert self._tokenizers is not None
        from_, to = self._tokenizers
        return link_matrix(links, from_.word_numbers(batch.source.numpy()), to.word_numbers(batch.target_out.numpy()))

    def _keys(self, epoch: int, numbers: Int[np.ndarray, " batch"]) -> UInt[np.ndarray, "2 batch"]:
        """A number for each sentence of both sides, from (seed, epoch, sentence)."""
        run = blake2b(f"{self.seed}/{epoch}".encode(), digest_size=8).digest()
        sentences = np.stack([2 * numbers, 2 * numbers + 1]).astype(np.uint64)
        return mixed(mixed(sentences) ^ np.frombuffer(run, np.uint64))
