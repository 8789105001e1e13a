"""Longer texts from short ones: consecutive pairs as one, their word links with them."""

from collections.abc import Iterable, Iterator, Sequence

from jumok.data.links import Link
from jumok.data.pairs import Pair
from jumok.errors import DataError

Row = tuple[Pair, list[Link]]
"""A pair and the links between its words."""


def join_rows(rows: Iterable[Row], together: Sequence[int]) -> Iterator[Row]:
    """For each number n of `together`, every n consecutive pairs as one; what is left at the end is left out.

    Only whole pairs are joined with others: one whose side is empty would teach to leave its words out.
    """
    waiting: dict[int, list[Row]] = {size: [] for size in together}
    read = made = 0
    for row in rows:
        read += 1
        for size, run in waiting.items():
            if size == 1 or all(text.strip() for text in row[0]):
                run.append(row)
            if len(run) == size:
                made += 1
                yield _one(run)
                run.clear()
    if read and not made:
        raise DataError(f"data.joined = {list(together)} makes no text of {read} pairs; set it to less, such as [1, 2]")


def _one(run: Sequence[Row]) -> Row:
    """The pairs as one; a link counts the words of the texts before it, too."""
    if len(run) == 1:
        return run[0]
    links: list[Link] = []
    before, before_target = 0, 0
    for pair, of_pair in run:
        links += [(before + source, before_target + target) for source, target in of_pair]
        before, before_target = before + len(pair.source.split()), before_target + len(pair.target.split())
    sides = (" ".join(text.strip() for text in side) for side in zip(*(pair for pair, _ in run), strict=True))
    return Pair(*sides), links
