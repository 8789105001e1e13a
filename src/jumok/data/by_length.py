"""Sentences sorted by length, once, on disk: what batches of like length need without reading a single length.

A cell is all pairs of one length on either side; lengths from 64 on are rounded up by at most a 32nd. So there are as
many cells as there are kinds of pairs, however many pairs there are. Two passes over the lengths, a few at a time,
write the cells and the numbers of their pairs, cell by cell.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Integer

EXACT = 6  # bits of a length that are kept

Lengths = Int[np.ndarray, "sentences 2"]
"""Of source and target."""


class Cells(NamedTuple):
    """How many pairs there are of each two lengths, sorted by them."""

    lengths: Int[np.ndarray, "cells 2"]
    """Most tokens of source and target."""
    counts: Int[np.ndarray, " cells"]

    def shorter(self, by: int) -> "Cells":
        """The same pairs, every sentence `by` tokens shorter; none is shorter than one."""
        return Cells(np.maximum(self.lengths - by, 1), self.counts)

    def reached(self, pairs: int) -> int:
        """The longest source that so many pairs reach, if there are so many: one outlier teaches no length."""
        order = np.argsort(-self.lengths[:, 0], kind="stable")
        reached = np.searchsorted(self.counts[order].cumsum(), min(pairs, int(self.counts.sum())))
        return int(self.lengths[order[reached], 0])


def rounded(lengths: Integer[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """The longest length that counts as alike."""
    _, bits = np.frexp(lengths)
    spare = np.maximum(bits - EXACT, 0)
    found: np.ndarray = (((lengths >> spare) + 1) << spare) - 1
    return found.astype(np.int64)


def cells_of(chunks: Iterable[Lengths]) -> Cells:
    """Count the pairs of each cell."""
    counts: dict[int, int] = {}
    for chunk in chunks:
        for key, count in zip(*np.unique(_keys(chunk), return_counts=True), strict=True):
            counts[int(key)] = counts.get(int(key), 0) + int(count)
    keys = np.array(sorted(counts), np.int64)
    return Cells(np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1), np.array([counts[int(key)] for key in keys], int))


def rows_by_cell(chunks: Iterable[Lengths], cells: Cells) -> Iterator[tuple[int, Int[np.ndarray, "_"]]]:
    """Numbers of pairs and the place they go to: cell after cell, in a cell by their number."""
    keys, next_place = _keys(cells.lengths), cells.counts.cumsum() - cells.counts
    first = 0
    for chunk in chunks:
        cell = np.searchsorted(keys, _keys(chunk))
        order = np.argsort(cell, kind="stable")
        present, starts = np.unique(cell[order], return_index=True)
        for number, rows in zip(present.tolist(), np.split(order + first, starts[1:]), strict=True):
            yield int(next_place[number]), rows
            next_place[number] += len(rows)
        first += len(chunk)


def sort_by_length(lengths: Lengths) -> tuple[Cells, Int[np.ndarray, " sentences"]]:
    """The cells of sentences in memory, and the numbers of the sentences cell by cell."""
    cells = cells_of([lengths])
    order = np.zeros(len(lengths), np.int64)
    for place, rows in rows_by_cell([lengths], cells):
        order[place : place + len(rows)] = rows
    return cells, order


def _keys(lengths: Lengths) -> Int[np.ndarray, " sentences"]:
    alike = rounded(lengths)
    found: np.ndarray = (alike[:, 0] << 32) | alike[:, 1]
    return found
