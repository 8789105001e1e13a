"""The batch at (seed, epoch, step), read from a store: nothing to iterate, so nothing to save when training stops."""

from hashlib import blake2b

import numpy as np
from jaxtyping import Int, UInt

from jumok.data.batches import Batch, BatchConfig, BatchPlan, collate
from jumok.data.resampling import Resampler, mixed
from jumok.data.sides import Tokenizers
from jumok.data.store import Store


class Batches:
    """Batches of a store as a pure function of (seed, epoch, step).

    With `sampling` above 0 (subword regularisation) every sentence is joined and cut anew each epoch, in a way that
    depends on (seed, epoch, sentence) alone; batches then hold somewhat more tokens than planned.
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
        self.plan = BatchPlan(store.lengths() - 1, config, seed=seed, rank=rank, world=world)
        self._samplers = [Resampler(side, sampling) for side in tokenizers or ()] if sampling else []

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> Batch:
        """The padded tensors of one step."""
        numbers = self.plan.batch(epoch, step)
        rows = [self.store[int(number)] for number in numbers]
        if not self._samplers:
            return collate([(source, target) for source, target in rows])
        keys = self._keys(epoch, numbers)
        sides = (sample([row[at] for row in rows], keys[at]) for at, sample in enumerate(self._samplers))
        return collate(list(zip(*sides, strict=True)))

    def _keys(self, epoch: int, numbers: Int[np.ndarray, " batch"]) -> UInt[np.ndarray, "2 batch"]:
        """A number for each sentence of both sides, from (seed, epoch, sentence)."""
        run = blake2b(f"{self.seed}/{epoch}".encode(), digest_size=8).digest()
        sentences = np.stack([2 * numbers, 2 * numbers + 1]).astype(np.uint64)
        return mixed(mixed(sentences) ^ np.frombuffer(run, np.uint64))
