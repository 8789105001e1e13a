"""The search as a tree: every step's hypotheses, each with the one it extends."""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from jumok.decoding.beam import Survivors


class Node(NamedTuple):
    """A hypothesis that a step kept, known by what it appends to its parent."""

    parent: int
    """Which node of the step before it extends; 0 in the first step, where all extend the empty output."""
    token: int
    total: float
    """The log-probability of the whole hypothesis."""


def nodes_of(survivors: Survivors) -> Iterator[tuple[int, list[Node]]]:
    """For each sentence still searched, its number in the batch and the hypotheses this step kept."""
    # Those that grow come first and best first, so parents count the same without the empty places.
    for sentence, *row in zip(*(field.tolist() for field in survivors), strict=True):
        yield sentence, [Node(*node) for node in zip(*row, strict=True) if node[-1] > -inf]


class BeamTree:
    """Grows by a step at a time."""

    def __init__(self, eos: int) -> None:
        self.eos = eos
        self.steps: list[list[Node]] = []

    def grow(self, nodes: list[Node]) -> None:
        """One more step of the search."""
        self.steps.append(nodes)

    def path(self, step: int, index: int) -> list[int]:
        """The places in their steps, from the first to this one, of the hypotheses that led to a node."""
        places = [index]
        for at in range(step, 0, -1):
            places.append(self.steps[at][places[-1]].parent)
        return places[::-1]

    def ids(self, step: int, index: int) -> list[int]:
        """The output a node stands for, without its end."""
        tokens = [self.steps[at][place].token for at, place in enumerate(self.path(step, index))]
        return tokens[:-1] if tokens[-1] == self.eos else tokens

    def best(self, length_penalty: float) -> tuple[list[int], float]:
        """The best output so far, finished or not, and its score."""
        ended = [(at, i) for at, nodes in enumerate(self.steps) for i, node in enumerate(nodes) if self.is_end(node)]
        growing = [(len(self.steps) - 1, i) for i, node in enumerate(self.steps[-1]) if not self.is_end(node)]
        places = ended + growing
        step, index = max(places, key=lambda place: self.score(place[0], place[1], length_penalty))
        return self.ids(step, index), self.score(step, index, length_penalty)

    def score(self, step: int, index: int, length_penalty: float) -> float:
        """Log-probability over length to the length penalty, as hypotheses are compared by."""
        return float(self.steps[step][index].total / (step + 1) ** length_penalty)

    def is_end(self, node: Node) -> bool:
        """Whether the hypothesis ends here."""
        return node.token == self.eos
