"""The batch at (seed, epoch, step), read from a dataset."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from jaxtyping import Bool, Int, Integer, UInt
from torch import Tensor

from jumok.data.batches import Batch, BatchConfig, BatchPlan, Sentences, collate_sides, splitmix64
from jumok.data.dataset import Dataset
from jumok.data.mixture import MixedPlan, Mixture
from jumok.data.resampling import Resampler
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.data.word_links import link_matrix


class Batches:
    """Batches of a dataset as a pure function of (seed, epoch, step): nothing has to be saved when training stops.

    With `sampling` above 0 (subword regularisation) every sentence is cut anew each epoch, in a way that depends on
    (seed, epoch, sentence) alone (`Resampler`); batches then hold slightly more tokens than planned.

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
        sides = list(tokenizers or ()) if sampling else []
        self._samplers = [Resampler(side, sampling) for side in (sides[:1] if sides[:1] == sides[1:] else sides)]
        self._tokenizers = tokenizers

    def steps(self, epoch: int) -> int:
        """The number of batches of an epoch."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> Batch:
        """The padded tensors of one step."""
        numbers = self.dataset.rows_of(epoch, self.plan.batch(epoch, step))
        source, target = (self.dataset.sentences(numbers, side) for side in range(2))
        if self._samplers:
            source, target = self._cut_anew(source, target, self._keys(epoch, numbers))
        batch = collate_sides(source, target)
        if self.dataset.sides == 2:
            return batch
        links = self.dataset.sentences(numbers, 2)
        return batch._replace(word_links=self._word_links(np.split(links.ids, links.lengths.cumsum()[:-1]), batch))

    def _cut_anew(
        self, source: Sentences, target: Sentences, keys: UInt[np.ndarray, "2 batch"]
    ) -> tuple[Sentences, Sentences]:
        """Both sides cut at random; together if they have one vocabulary, which takes less time."""
        if len(self._samplers) == 2:
            return self._samplers[0](source, keys[0]), self._samplers[1](target, keys[1])
        ids, lengths = (np.concatenate(parts) for parts in zip(source, target, strict=True))
        both = self._samplers[0](Sentences(ids, lengths), keys.ravel())
        first, second = np.split(both.lengths, 2)
        middle = first.sum()
        return Sentences(both.ids[:middle], first), Sentences(both.ids[middle:], second)

    def _word_links(
        self, links: Sequence[Integer[np.ndarray, "_"]], batch: Batch
    ) -> Bool[Tensor, "batch target source"]:
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
