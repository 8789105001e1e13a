"""How many rows beam search on a GPU computes for finished sentences, and what refilling those rows could save.

    JUMOK_DATA=path/to/data python -m benchmarks.decode_rows

Counted, not timed: sentences of Multi30k's test set of 2016 are sorted and batched as `jumok translate` does, each
output has as many tokens as its reference, and a search drops finished sentences when half of its rows are theirs. A
search that refilled the row of a finished sentence at once would compute no row in vain. Writes decode_rows.json.
"""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.results import Row, write
from jumok.data.tokenizer import Tokenizer, TokenizerConfig
from jumok.decoding.static_search import SMALLEST, rounded

DATA = Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k"
BEAM = 5
BUDGETS = (20_480, 81_920)
"""Source tokens times beam of a batch: the default, and four times as many."""


class Count(NamedTuple):
    """Steps of a search, and the rows that they compute."""

    steps: int
    rows: int


def lines(name: str) -> list[str]:
    return gzip.decompress((DATA / f"{name}.gz").read_bytes()).decode().splitlines()


def lengths() -> list[tuple[int, int]]:
    """Tokens of every test sentence and of its reference, with a joint vocabulary of 8,000."""
    tokenizer = Tokenizer.train([*lines("train.en"), *lines("train.de")], TokenizerConfig(size=8_000))
    pairs = zip(lines("test_2016_flickr.en"), lines("test_2016_flickr.de"), strict=True)
    return [(len(tokenizer.encode(source)) - 1, len(tokenizer.encode(target)) - 1) for source, target in pairs]


def batches(pairs: list[tuple[int, int]], budget: int) -> Iterator[list[int]]:
    """Output lengths of sentences of like source length, the longest first, as `Translator` batches them."""
    batch: list[int] = []
    longest = 0
    for source, target in sorted(pairs, key=lambda pair: -pair[0]):
        if batch and (len(batch) + 1) * longest * BEAM > budget:
            yield batch
            batch = []
        longest = longest if batch else source
        batch.append(target)
    yield batch


def count(batch: list[int]) -> Count:
    """One search: every step computes all rows of the present size."""
    size, rows = rounded(len(batch), least=1), 0
    for step in range(1, max(batch) + 1):
        rows += size
        smaller = rounded(sum(length > step for length in batch), least=1)
        if size > SMALLEST and 2 * smaller <= size:
            size = smaller
    return Count(max(batch), rows)


def main() -> None:
    pairs = lengths()
    needed = sum(target for _, target in pairs)
    rows = []
    for budget in BUDGETS:
        counts = [count(batch) for batch in batches(pairs, budget)]
        sentences = f"{len(counts)} batches of up to {budget:,} source tokens × beam, beam {BEAM}"
        steps = sum(searched.steps for searched in counts)
        computed = sum(searched.rows for searched in counts)
        rows.append(Row(f"decoding-rows/{budget:,}, steps", "jumok", steps, "", sentences))
        rows.append(Row(f"decoding-rows/{budget:,}, rows", "jumok", computed, "", sentences))
        rows.append(Row(f"decoding-rows/{budget:,}, rows", "if refilled", needed, "", sentences))
    for row in rows:
        print(*row[:3])
    write("decode_rows", rows, device="counted, not timed", packages=("sentencepiece",))


if __name__ == "__main__":
    main()
