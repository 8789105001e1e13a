"""The batch at (seed, epoch, step), read from a store: nothing to iterate, so nothing to save when training stops."""

from random import Random

from jumok.data.batches import Batch, BatchConfig, BatchPlan, Ids, collate
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
        return collate([self._row(epoch, int(number)) for number in self.plan.batch(epoch, step)])

    def _row(self, epoch: int, number: int) -> tuple[Ids, Ids]:
        source, target = self.store[number]
        if self._tokenizers is None:
            return source, target
        draws = Random(f"{self.seed}/{epoch}/{number}")
        from_, to = self._tokenizers
        return (
            from_.sample(from_.decode(source.tolist()), self._sampling, draws),
            to.sample(to.decode(target.tolist()), self._sampling, draws),
        )
