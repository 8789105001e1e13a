"""Word alignments from attention: which words of a source the words of its translation look at.

links = extract(weights)                       of one pair, [target word, source word]
aligner = Aligner(model, tokenizers, look)     of many pairs, with one layer and head
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float

from jumok.analysis.alignment.word_attention import Look, word_weights
from jumok.data import Pair, TokenizerPair
from jumok.data.word_links import Link
from jumok.errors import ArgumentError
from jumok.models.encoder_decoder import Seq2Seq

Method = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]

AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrise(forward: Collection[Link], backward: Collection[Link], method: Method) -> set[Link]:
    """Both are links (source word, target word), the first found from source to target, the second the other way."""
    forward, backward = set(forward), set(backward)
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    grown = Growing(forward & backward)
    grown.grow_diagonally(forward | backward)
    if method == "grow-diag-final":
        grown.add_all(forward, backward, where=grown.leaves_one_bare)
    elif method == "grow-diag-final-and":
        grown.add_all(forward, backward, where=grown.leaves_both_bare)
    return grown.links


class Growing:
    """An alignment that grows, and the words of either side that have a link."""

    def __init__(self, links: Iterable[Link]) -> None:
        self.links = set(links)
        self.sources = {source for source, _ in self.links}
        self.targets = {target for _, target in self.links}

    def grow_diagonally(self, union: set[Link]) -> None:
        """Add links of the union beside those there are, while one of their words has none yet."""
        waiting = sorted(union - self.links)
        while True:
            before = len(waiting)
            waiting = [link for link in waiting if not self._added_beside(link)]
            if len(waiting) == before:
                return

    def add_all(self, *directions: Iterable[Link], where: Callable[[Link], bool]) -> None:
        """Add what is still missing of each direction, link by link."""
        for links in directions:
            for link in sorted(links):
                if where(link):
                    self.add(link)

    def add(self, link: Link) -> None:
        """One more link."""
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def leaves_one_bare(self, link: Link) -> bool:
        """Whether one of its words, or both, would have no link without it."""
        return link[0] not in self.sources or link[1] not in self.targets

    def leaves_both_bare(self, link: Link) -> bool:
        """Whether both of its words would have no link without it."""
        return link[0] not in self.sources and link[1] not in self.targets

    def _added_beside(self, link: Link) -> bool:
        source, target = link
        beside = any((source + down, target + right) in self.links for down, right in AROUND)
        if not (beside and self.leaves_one_bare(link)):
            return False
        self.add(link)
        return True


Extraction = Literal["argmax", "mutual", "threshold"]


def extract(
    weights: Float[np.ndarray, "target source"], method: Extraction = "argmax", threshold: float = 0.2
) -> set[Link]:
    """Links (source word, target word) from where each target word looks.

    argmax: every target word with the source word it looks at most, unless it looks more at none (rows that do not sum
    to 1). mutual: of those, the ones where that source word
    is looked at most by this target word. threshold: all pairs with at least this weight.
    """
    if method not in get_args(Extraction):
        raise ArgumentError(f"links = {method!r} is not one of {', '.join(get_args(Extraction))}")
    if not weights.size:
        return set()
    if method == "threshold":
        return {(int(source), int(target)) for target, source in np.argwhere(weights >= threshold)}
    best, looks = weights.argmax(1), weights.max(1) > 1 - weights.sum(1)  # more than went to no word
    links = {(int(best[target]), int(target)) for target in np.flatnonzero(looks)}
    if method == "mutual":
        back = weights.argmax(0)
        links = {(source, target) for source, target in links if back[source] == target}
    return links


class Aligner(NamedTuple):
    """A model and the part of its attention that aligns best."""

    model: Seq2Seq
    tokenizers: TokenizerPair
    look: Look
    method: Extraction = "argmax"
    threshold: float = 0.2

    def align(self, pairs: Sequence[Pair]) -> list[set[Link]]:
        """The links of every pair; none for a pair with an empty side, or too long for the model."""
        return [extract(weights, self.method, self.threshold) for weights in self.weights(pairs)]

    def weights(self, pairs: Sequence[Pair]) -> list[Float[np.ndarray, "target source"]]:
        """Where the target words of every pair look; [0, 0] for a pair that has no links."""
        found = [np.zeros((0, 0), np.float32) for _ in pairs]
        for number, weights in word_weights(self.model, self.tokenizers, pairs, [self.look]):
            found[number] = weights[0]
        return found


Join = Literal[Method, "product"]


class TwoWayAligner(NamedTuple):
    """Models of both directions, and how their alignments become one; the second one's source is our target.

    The join "product" makes one of their weights, before there are links: those of `joined`. The others are ways to
    `symmetrise` the links of each.
    """

    forward: Aligner
    backward: Aligner
    method: Join = "grow-diag"
    threshold: float = 0.5

    def align(self, pairs: Sequence[Pair]) -> list[set[Link]]:
        """The links of every pair."""
        pairs_back = [turned(pair) for pair in pairs]
        if self.method == "product":
            both = zip(self.forward.weights(pairs), self.backward.weights(pairs_back), strict=True)
            return [joined(one, other, self.threshold) for one, other in both]
        there = self.forward.align(pairs)
        back = [flipped(links) for links in self.backward.align(pairs_back)]
        return [symmetrise(one, other, self.method) for one, other in zip(there, back, strict=True)]


def joined(
    forward: Float[np.ndarray, "target source"], backward: Float[np.ndarray, "_ _"], threshold: float
) -> set[Link]:
    """Links where √(product of the weights of both directions) ≥ `threshold`: each as far as both believe in it.

    `backward` is [source, target]; none where one of the models could not take the pair.
    """
    if forward.shape != backward.shape[::-1]:
        return set()
    return extract(np.sqrt(forward * backward.T), "threshold", threshold)


def aligned(aligner: Aligner | TwoWayAligner, pairs: Iterable[Pair], *, chunk: int = 1024) -> Iterator[set[Link]]:
    """Like `align` for any number of pairs, a chunk at a time, in their order."""
    pairs = iter(pairs)
    while waiting := list(islice(pairs, chunk)):
        yield from aligner.align(waiting)


def turned(pair: Pair) -> Pair:
    """The pair the other way round."""
    return Pair(pair.target, pair.source)


def flipped(links: Iterable[Link]) -> set[Link]:
    """Links the other way round."""
    return {(target, source) for source, target in links}
