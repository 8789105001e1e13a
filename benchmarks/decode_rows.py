"""How many steps beam search on a GPU takes, and how many rows it computes for sentences that have finished.

    JUMOK_DATA=path/to/data python -m benchmarks.decode_rows

Counted, not timed: sentences of Multi30k's test set of 2016 are sorted, batched and searched as `jumok translate` does
on a GPU, but by a decoder that computes nothing, and each output has as many tokens as its reference. Waiting sentences
take the rows of finished ones, or one batch follows another. Writes decode_rows.json.
"""

import gzip
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.results import Row, write
from jumok.bench import JUMOK
from jumok.data.tokenizer import Tokenizer, TokenizerConfig
from jumok.decoding import DecodingConfig, Specials, static_search
from jumok.models.encoder_decoder import Decoder, Encoding, Hidden, StaticState
from jumok.tasks.part_search import joined_batches, part_batches
from jumok.tasks.required_text import SourcePart

DATA = Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k"
BEAM = 5
BUDGETS = (20_480, 81_920)
"""Source tokens times beam of a batch: the default, and four times as many."""
SPECIALS = Specials(pad=0, bos=1, eos=2)
VOCABULARY = 16


class Count(NamedTuple):
    """Steps of all searches, and the rows that they compute."""

    steps: int
    rows: int


class NoState(StaticState):
    """The state of a decoder that remembers nothing."""

    def begin(self, encoding: Encoding) -> None:
        """Nothing to do."""

    def advance(self, tokens: Tensor, parents: Tensor) -> Hidden:
        """Nothing but the number of hypotheses."""
        return Hidden(torch.zeros(*tokens.shape, 1))

    def take(self, other: StaticState, sentences: Tensor) -> None:
        """Nothing to do."""

    def put(self, other: StaticState, rows: Tensor) -> None:
        """Nothing to do."""


class EndlessDecoder(Decoder):
    """A decoder that never ends an output before its greatest length."""

    def hidden(self, encoding: Encoding, target_in: Tensor) -> Hidden:
        """Not needed for search."""
        raise NotImplementedError

    def static_state(self, encoding: Encoding, *, beam: int, capacity: int) -> StaticState:
        """Nothing."""
        return NoState()

    def logits(self, hidden: Hidden) -> Tensor:
        """The end of the sentence is the least likely token."""
        logits = torch.zeros(*hidden.states.shape[:-1], VOCABULARY)
        logits[..., SPECIALS.eos] = -1e4
        return logits


class LateWatch(static_search.FinishWatch):
    """The host hears some steps late which sentences have finished, as on a GPU."""

    earlier: deque[set[int] | None]

    def after_step(self, sentences: list[int]) -> set[int] | None:
        """Those that had finished then."""
        self.earlier = getattr(self, "earlier", deque([None] * static_search.LAG))
        self.earlier.append(super().after_step(sentences))
        return self.earlier.popleft()


def lines(name: str) -> list[str]:
    return gzip.decompress((DATA / f"{name}.gz").read_bytes()).decode().splitlines()


def lengths() -> list[tuple[int, int]]:
    """Tokens of every test sentence and of its reference, with a joint vocabulary of 8,000."""
    tokenizer = Tokenizer.train([*lines("train.en"), *lines("train.de")], TokenizerConfig(size=8_000))
    pairs = zip(lines("test_2016_flickr.en"), lines("test_2016_flickr.de"), strict=True)
    return [(len(tokenizer.encode(source)) - 1, len(tokenizer.encode(target)) - 1) for source, target in pairs]


def search(longest: Tensor, source: int, rows: int) -> None:
    """One search of sentences with outputs of these lengths."""
    states = torch.zeros(len(longest), source, 1)
    encoding = Encoding(states, states[:, :, 0] == 0, states[:, 0])
    config = DecodingConfig(beam=BEAM)
    found = static_search.static_search(DECODER, encoding, SPECIALS, config, longest, n_best=1, rows=rows)
    assert [len(best.ids) for (best,) in found] == longest.tolist()


DECODER = EndlessDecoder()


def count(searches: Iterable[Callable[[], None]]) -> Count:
    """Run searches and count; every step computes all rows of its search."""
    rows: list[int] = []
    step, watch = static_search.StaticSearch.step, static_search.FinishWatch

    def counted(self: static_search.StaticSearch) -> None:
        rows.append(self.shape.sentences)
        step(self)

    static_search.StaticSearch.step, static_search.FinishWatch = counted, LateWatch  # type: ignore[method-assign, misc]
    try:
        for run in searches:
            run()
    finally:
        static_search.StaticSearch.step, static_search.FinishWatch = step, watch  # type: ignore[method-assign, misc]
    return Count(len(rows), sum(rows))


def counts(pairs: list[tuple[int, int]], budget: int) -> tuple[int, Count, Count]:
    """The number of batches, and what is counted with refilled rows and without."""
    parts = [SourcePart("", number, 0, [3] * source) for number, (source, _) in enumerate(pairs)]
    outputs = torch.tensor([target for _, target in pairs])
    batches = list(part_batches(parts, BEAM, tokens=budget // 5))

    def searches(groups: Iterable[tuple[list[int], int]]) -> list[Callable[[], None]]:
        return [
            lambda numbers=numbers, rows=rows: search(outputs[numbers], len(parts[numbers[0]].ids), rows)  # type: ignore[misc]
            for numbers, rows in groups
        ]

    refilled = count(searches(joined_batches(parts, iter(batches))))
    return len(batches), refilled, count(searches((batch, len(batch)) for batch in batches))


def main() -> None:
    pairs = lengths()
    needed = sum(target + 1 for _, target in pairs)
    rows = []
    for budget in BUDGETS:
        batches, refilled, apart = counts(pairs, budget)
        about = f"{batches} batches of up to {budget:,} source tokens × beam, beam {BEAM}"
        steps, computed = f"decoding-rows/{budget:,}, steps", f"decoding-rows/{budget:,}, rows"
        for system, counted in ((JUMOK, refilled), ("one batch after another", apart)):
            rows.append(Row(steps, system, counted.steps, "", about))
            rows.append(Row(computed, system, counted.rows, "", about))
        rows.append(Row(computed, "without a row in vain", needed, "", about))
    for row in rows:
        print(*row[:3])
    write("decode_rows", rows, device="counted, not timed", packages=("sentencepiece",))


if __name__ == "__main__":
    main()
