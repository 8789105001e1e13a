"""Precision, recall and alignment error rate of word alignments against links made by hand (Och & Ney 2003).

Annotators mark links as sure (S) or possible (P, which contains S). For predicted links A,

    precision = |A ∩ P| / |A|     recall = |A ∩ S| / |S|     AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jumok.data.word_links import Link
from jumok.errors import ArgumentError, DataError
from jumok.files import display_name, read_lines

MARKED = re.compile(r"(\d{1,9})([-p?:])(\d{1,9})")
SHARED_TASK = re.compile(r"(\d{1,7})\s+(\d{1,9})\s+(\d{1,9})(?:\s+([SP]))?")
"""Numbers are bounded, because memory is allocated for every pair up to the last."""


class Gold(NamedTuple):
    """The gold links of one pair; every sure link is also possible."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass
class Scores:
    """Counts over many pairs, and the rates computed from them, from 0 to 1."""

    links: int = 0
    sure: int = 0
    links_sure: int = 0
    links_possible: int = 0
    dropped: list[str] = field(default_factory=list)
    """Messages about gold links past the end of their sentence."""

    @property
    def precision(self) -> float:
        """The share of the predicted links that are possible."""
        return self.links_possible / self.links if self.links else 0.0

    @property
    def recall(self) -> float:
        """The share of the sure links that were predicted."""
        return self.links_sure / self.sure if self.sure else 0.0

    @property
    def error(self) -> float:
        """The alignment error rate."""
        both = self.links + self.sure
        return 1 - (self.links_sure + self.links_possible) / both if both else 0.0

    def add(self, links: Collection[Link], gold: Gold) -> None:
        """Count one pair."""
        self.links += len(links)
        self.sure += len(gold.sure)
        self.links_sure += len(gold.sure.intersection(links))
        self.links_possible += len(gold.possible.intersection(links))


def alignment_scores(
    alignments: Iterable[Collection[Link]], gold: Sequence[Gold], lengths: Sequence[tuple[int, int]] | None = None
) -> Scores:
    """Score alignments; with the `lengths` of the pairs in words, gold links past the end are dropped and reported."""
    scores, rows = Scores(), list(alignments)
    if len(rows) != len(gold):
        raise ArgumentError(f"there are {len(rows)} alignments but {len(gold)} lines of gold links")
    for number, (links, wanted) in enumerate(zip(rows, gold, strict=True)):
        if lengths is not None:
            wanted, dropped = _inside(wanted, lengths[number])
            scores.dropped += [
                f"line {number + 1}: the gold link {i}-{j} (counted from 0) is past the end of a pair of "
                f"{lengths[number][0]} and {lengths[number][1]} words; it is left out"
                for i, j in sorted(dropped)
            ]
        scores.add(links, wanted)
    return scores


def read_gold(path: str | Path, *, first: int | None = None, pairs: int | None = None) -> list[Gold]:
    """The links of a gold standard, words counted from 0.

    Either a line for each pair, with links "2-3" (sure) and "2p3" (or "2?3", possible), or the format of the 2003
    shared task, with a line "pair source target S" (or P, or neither: sure) for each link and all counted from 1.
    `first` is the number of the first word in the file; it defaults to 1 for the shared task's format, else to 0 if
    the file has a word 0, else to 1. `pairs` is the number of pairs, for files that leave out the last ones.
    """
    lines = list(read_lines(path))
    if any(SHARED_TASK.fullmatch(line.strip()) for line in lines[:1]):
        rows = _by_pair(_shared_task(lines, path), pairs)
        offset = 1
    else:
        rows = [_marked(line, f"{display_name(path)}, line {number}") for number, line in enumerate(lines, start=1)]
        offset = 0 if any(0 in link for row in rows for link in row.possible) else 1
    offset = offset if first is None else first
    if any(min(link) < offset for row in rows for link in row.possible):
        raise DataError(f"{display_name(path)} holds a word number below {offset}, the number of the first word")
    return [Gold(_moved(row.sure, offset), _moved(row.possible, offset)) for row in rows]


def _marked(line: str, where: str) -> Gold:
    sure, possible = set(), set()
    for item in line.split():
        match = MARKED.fullmatch(item)
        if match is None:
            raise DataError(
                f"{where}: {item[:40]!r} is not a link; expected sure links as 2-3 and possible ones as 2p3"
            )
        link = (int(match[1]), int(match[3]))
        possible.add(link)
        if match[2] in "-:":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def _shared_task(lines: Sequence[str], path: str | Path) -> Iterator[tuple[int, Link, bool]]:
    for number, line in enumerate(lines, start=1):
        match = SHARED_TASK.fullmatch(line.strip())
        if match is None or int(match[1]) < 1:
            raise DataError(
                f"{display_name(path)}, line {number}: {line[:40]!r} is not a link; expected the numbers of the pair "
                "and of its source and target words, counted from 1, then S or P"
            )
        yield int(match[1]) - 1, (int(match[2]), int(match[3])), match[4] != "P"


def _by_pair(links: Iterable[tuple[int, Link, bool]], pairs: int | None) -> list[Gold]:
    sure: defaultdict[int, set[Link]] = defaultdict(set)
    possible: defaultdict[int, set[Link]] = defaultdict(set)
    for pair, link, is_sure in links:
        possible[pair].add(link)
        if is_sure:
            sure[pair].add(link)
    count, nothing = max([pairs or 0, *(pair + 1 for pair in possible)]), Gold(frozenset(), frozenset())
    return [
        Gold(frozenset(sure[pair]), frozenset(possible[pair])) if pair in possible else nothing for pair in range(count)
    ]


def _moved(links: Iterable[Link], offset: int) -> frozenset[Link]:
    return frozenset((source - offset, target - offset) for source, target in links)


def _inside(gold: Gold, lengths: tuple[int, int]) -> tuple[Gold, set[Link]]:
    outside = {link for link in gold.possible if link[0] >= lengths[0] or link[1] >= lengths[1]}
    return Gold(gold.sure - outside, gold.possible - outside), outside
