"""Stochastic edit distance (Ristad & Yianilos 1998): letters of a source aligned with those of a target, learned by EM.

A pair (x, y) is drawn by edits, each with a probability of its own: x̂ and ŷ together, x̂ alone or ŷ alone.

    p(x₁…ᵢ, y₁…ⱼ) = p(xᵢ, yⱼ) p(x₁…ᵢ₋₁, y₁…ⱼ₋₁) + p(xᵢ, -) p(x₁…ᵢ₋₁, y₁…ⱼ) + p(-, yⱼ) p(x₁…ᵢ, y₁…ⱼ₋₁)

The expected number of each edit over all ways to draw the training pairs gives its next probability. The way of least
cost, -log p, is the alignment of a pair. Letters are numbers here, and the two alphabets need have nothing in common.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

ROUNDS = 10
"""Rounds of EM."""
EQUAL = 100.0
"""Initial factor of the probability of substituting a letter by itself, if both sides share an alphabet."""
LEAST = 1e-6
"""Expected number of times below which an edit is forgotten."""
UNSEEN = 25.0
"""Cost of an edit that was never seen: exp(-25) is about 1e-11."""

Operation = Literal["substitute", "delete", "insert"]
Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]


class Edit(NamedTuple):
    """One edit: of the current source letter, of a target letter, or of both."""

    operation: Operation
    letter: int | None = None
    """The letter written; None if the source letter is deleted."""


@dataclass(frozen=True)
class EditDistance:
    """The costs of edits: -log p(x, y), -log p(x, -) and -log p(-, y)."""

    substitute: Mapping[tuple[int, int], float]
    delete: Mapping[int, float]
    insert: Mapping[int, float]

    def align(self, source: Sequence[int], target: Sequence[int]) -> list[Edit]:
        """The edits of least cost that turn the source into the target; of equal ones, always the same."""
        deletions = [self.delete.get(letter, UNSEEN) for letter in source]
        insertions = [self.insert.get(letter, UNSEEN) for letter in target]
        costs = [[0.0, *np.cumsum(insertions).tolist()]]
        for row, letter in enumerate(source):
            above, current = costs[-1], [costs[-1][0] + deletions[row]]
            for column, other in enumerate(target):
                both = above[column] + self.substitute.get((letter, other), UNSEEN)
                single = min(above[column + 1] + deletions[row], current[column] + insertions[column])
                current.append(both if both <= single else single)
            costs.append(current)
        return self._path(source, target, costs)

    def _path(self, source: Sequence[int], target: Sequence[int], costs: list[list[float]]) -> list[Edit]:
        row, column, edits = len(source), len(target), list[Edit]()
        while row or column:
            cost = costs[row][column]
            both = (source[row - 1], target[column - 1]) if row and column else None
            if both and costs[row - 1][column - 1] + self.substitute.get(both, UNSEEN) == cost:
                row, column = row - 1, column - 1
                edits.append(Edit("substitute", target[column]))
            elif row and costs[row - 1][column] + self.delete.get(source[row - 1], UNSEEN) == cost:
                row -= 1
                edits.append(Edit("delete"))
            else:
                column -= 1
                edits.append(Edit("insert", target[column]))
        return edits[::-1]

    def settings(self) -> dict[str, Any]:
        """The costs as plain data, from which `of_settings` makes them again."""
        return {
            "substitute": [[*letters, cost] for letters, cost in self.substitute.items()],
            "delete": [[letter, cost] for letter, cost in self.delete.items()],
            "insert": [[letter, cost] for letter, cost in self.insert.items()],
        }

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "EditDistance":
        """Costs that were saved."""
        return cls(
            {(int(x), int(y)): float(cost) for x, y, cost in settings["substitute"]},
            *({int(x): float(cost) for x, cost in settings[name]} for name in ("delete", "insert")),
        )


class _Probabilities(NamedTuple):
    """Logarithms of the probabilities of all edits, over letters numbered from 0."""

    substitute: Float[np.ndarray, "x y"]
    delete: Float[np.ndarray, " x"]
    insert: Float[np.ndarray, " y"]

    @classmethod
    def of(cls, counts: "Sequence[np.ndarray]") -> "_Probabilities":
        with np.errstate(divide="ignore"):
            return cls(*(np.log(part) - math.log(sum(float(part.sum()) for part in counts)) for part in counts))


def learn_edit_distance(pairs: Pairs, *, same_alphabet: bool = False, rounds: int = ROUNDS) -> EditDistance:
    """The costs under which the pairs are likely.

    With `same_alphabet`, equal numbers are the same letter, which probably stands for itself.
    """
    letters = [sorted({letter for pair in pairs for letter in pair[side]}) for side in (0, 1)]
    if not any(letters):
        return EditDistance({}, {}, {})
    numbers = [{letter: number for number, letter in enumerate(side)} for side in letters]
    groups = _groups([([numbers[0][x] for x in one], [numbers[1][y] for y in other]) for one, other in pairs])
    sizes = len(letters[0]), len(letters[1])
    first = np.ones(sizes)
    if same_alphabet:
        first[np.array(letters[0])[:, None] == np.array(letters[1])] = EQUAL
    counts = [first, np.ones(sizes[0]), np.ones(sizes[1])]
    for _ in range(rounds):
        log_p, counts = _Probabilities.of(counts), [np.zeros(sizes), np.zeros(sizes[0]), np.zeros(sizes[1])]
        for source, target in groups:
            for total, part in zip(counts, expected_edits(source, target, log_p), strict=True):
                total += part
    return _costs(letters, counts)


def _costs(letters: list[list[int]], counts: list[np.ndarray]) -> EditDistance:
    costs = [np.round(-part, 4) for part in _Probabilities.of([np.where(part < LEAST, 0, part) for part in counts])]
    substitute, delete, insert = (
        {at: float(part[at]) for at in zip(*np.isfinite(part).nonzero(), strict=True)} for part in costs
    )
    return EditDistance(
        {(letters[0][x], letters[1][y]): cost for (x, y), cost in substitute.items()},
        {letters[0][x]: cost for (x,), cost in delete.items()},
        {letters[1][y]: cost for (y,), cost in insert.items()},
    )


def _groups(pairs: Pairs) -> list[tuple[Int[np.ndarray, "pair source"], Int[np.ndarray, "pair target"]]]:
    """The pairs of equal lengths together, in arrays."""
    by_length: dict[tuple[int, int], list[tuple[Sequence[int], Sequence[int]]]] = defaultdict(list)
    for source, target in pairs:
        by_length[len(source), len(target)].append((source, target))

    groups = []
    for lengths, group in by_length.items():
        sides = zip(zip(*group, strict=True), lengths, strict=True)
        groups.append(tuple(np.array(side, np.int64).reshape(len(group), length) for side, length in sides))
    return groups  # type: ignore[return-value]


def expected_edits(
    source: Int[np.ndarray, "pair source"], target: Int[np.ndarray, "pair target"], log_p: _Probabilities
) -> tuple[Float[np.ndarray, "x y"], Float[np.ndarray, " x"], Float[np.ndarray, " y"]]:
    """The expected number of every edit over all ways to draw the pairs, by the forward-backward algorithm."""
    substitutions = log_p.substitute[source[:, :, None], target[:, None, :]]
    deletions, insertions = log_p.delete[source], log_p.insert[target]
    before = _prefixes(substitutions, deletions, insertions)
    after = _prefixes(substitutions[:, ::-1, ::-1], deletions[:, ::-1], insertions[:, ::-1])[:, ::-1, ::-1]
    inside = after - before[:, -1:, -1:]  # what follows a cell, over the whole
    counts = tuple(np.zeros_like(part) for part in log_p)
    np.add.at(
        counts[0],
        (source[:, :, None], target[:, None]),
        np.exp(before[:, :-1, :-1] + substitutions + inside[:, 1:, 1:]),
    )
    np.add.at(counts[1], source, np.exp(before[:, :-1] + deletions[:, :, None] + inside[:, 1:]).sum(2))
    np.add.at(counts[2], target, np.exp(before[:, :, :-1] + insertions[:, None] + inside[:, :, 1:]).sum(1))
    return counts  # type: ignore[return-value]


def _prefixes(
    substitutions: Float[np.ndarray, "pair source target"],
    deletions: Float[np.ndarray, "pair source"],
    insertions: Float[np.ndarray, "pair target"],
) -> Float[np.ndarray, "pair source+1 target+1"]:
    """log p(x₁…ᵢ, y₁…ⱼ) for all i and j."""
    count, rows, columns = substitutions.shape
    prefixes = np.full((count, rows + 1, columns + 1), -np.inf)
    prefixes[:, 0, 0] = 0
    for row in range(rows + 1):
        for column in range(columns + 1):
            if row:
                extended = prefixes[:, row - 1, column] + deletions[:, row - 1]
                prefixes[:, row, column] = np.logaddexp(prefixes[:, row, column], extended)
            if column:
                extended = prefixes[:, row, column - 1] + insertions[:, column - 1]
                prefixes[:, row, column] = np.logaddexp(prefixes[:, row, column], extended)
            if row and column:
                extended = prefixes[:, row - 1, column - 1] + substitutions[:, row - 1, column - 1]
                prefixes[:, row, column] = np.logaddexp(prefixes[:, row, column], extended)
    return prefixes
