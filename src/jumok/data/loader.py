"""The batch at (seed, epoch, step), read from a store: nothing to iterate, so nothing to save when training stops."""

from random import Random

from jumok.data.batches import Batch, BatchConfig, BatchPlan, collate
from jumok.data.sides import Tokenizers
from jumok.data.store import Store


class Batches:
    """Batches of a store as a pure function of (seed, epoch, step).

    With `sampling` above 0 (subword regularisation) every sentence is joined and cut anew each epoch, by draws that
    depend on (seed, epoch, sentence) alone; batches then hold somewhat more tokens than planned.
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
        self._tokenizers = tokenizers if sampling else None
        self._sampling = sampling

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> Batch:
        """The padded tensors of one step."""
        rows = []
        for number in self.plan.batch(epoch, step):
            source, target = self.store[int(number)]
            if self._tokenizers is not None:
                draws = Random(f"{self.seed}/{epoch}/{number}")
                source = self._tokenizers.source.sample(self._tokenizers.source.decode(source), self._sampling, draws)
                target = self._tokenizers.target.sample(self._tokenizers.target.decode(target), self._sampling, draws)
            rows.append((source, target))
        return collate(rows)
