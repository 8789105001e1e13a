"""The batch at (seed, epoch, step), read from a store: nothing to iterate, so nothing to save when training stops."""

from random import Random

import numpy as np
from jaxtyping import Bool
from torch import Tensor

from jumok.data.batches import Batch, BatchConfig, BatchPlan, Ids, collate
from jumok.data.links import link_matrix
from jumok.data.sides import Tokenizers
from jumok.data.store import Store
from jumok.errors import ArgumentError


class Batches:
    """Batches of a store as a pure function of (seed, epoch, step).

    With `sampling` above 0 (subword regularisation) every sentence is joined and cut anew each epoch, by draws that
    depend on (seed, epoch, sentence) alone; batches then hold somewhat more tokens than planned.

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
        self.plan = BatchPlan(store.lengths()[:, :2] - 1, config, seed=seed, rank=rank, world=world)
        self._tokenizers, self._sampling = tokenizers, sampling
        if tokenizers is None and (sampling or store.sides > 2):
            raise ArgumentError("batches that are cut anew, or that have word links, need their tokenizers")

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> Batch:
        """The padded tensors of one step."""
        numbers = [int(number) for number in self.plan.batch(epoch, step)]
        rows = [self._row(epoch, number) for number in numbers]
        batch = collate(rows)
        return batch if self.store.sides == 2 else batch._replace(links=self._links(numbers, rows))

    def _links(self, numbers: list[int], rows: list[tuple[Ids, Ids]]) -> Bool[Tensor, "batch target source"]:
        assert self._tokenizers is not None
        from_, to = self._tokenizers
        return link_matrix(
            [np.asarray(self.store[number][2], np.int64) for number in numbers],
            [from_.word_numbers(source)[1:] for source, _ in rows],
            [to.word_numbers(target)[1:] for _, target in rows],
        )

    def _row(self, epoch: int, number: int) -> tuple[Ids, Ids]:
        source, target = self.store[number][:2]
        if self._tokenizers is None or not self._sampling:
            return source, target
        draws = Random(f"{self.seed}/{epoch}/{number}")
        from_, to = self._tokenizers
        return (
            from_.sample(from_.decode(source.tolist()), self._sampling, draws),
            to.sample(to.decode(target.tolist()), self._sampling, draws),
        )
