"""Word alignments from attention: the source words that the words of a translation attend to.

links = extract(weights)                       links of one pair, from weights [target word, source word]
aligner = Aligner(model, tokenizers, head)     links of many pairs, from one layer and head
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float

from jumok.analysis.alignment.word_attention import AlignmentHead, units_of, word_weights
from jumok.data import Pair, TokenizerPair
from jumok.data.word_links import Link
from jumok.errors import ArgumentError
from jumok.models.encoder_decoder import EncoderDecoder

Method = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]

AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrise(forward: Collection[Link], backward: Collection[Link], method: Method) -> set[Link]:
    """One alignment from those of both directions; links are (source word, target word) in both (Koehn et al. 2003)."""
    forward, backward = set(forward), set(backward)
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    grown = Growing(forward & backward)
    grown.grow_diagonally(forward | backward)
    if method == "grow-diag-final":
        grown.add_all(forward, backward, where=grown.has_unlinked_word)
    elif method == "grow-diag-final-and":
        grown.add_all(forward, backward, where=grown.has_no_linked_word)
    return grown.links


class Growing:
    """A growing alignment, and the words of either side that have a link."""

    def __init__(self, links: Iterable[Link]) -> None:
        self.links = set(links)
        self.sources = {source for source, _ in self.links}
        self.targets = {target for _, target in self.links}

    def grow_diagonally(self, union: set[Link]) -> None:
        """Add links of the union that neighbour a link and have a word without one, until there are none left."""
        waiting = sorted(union - self.links)
        while True:
            before = len(waiting)
            waiting = [link for link in waiting if not self._added_beside(link)]
            if len(waiting) == before:
                return

    def add_all(self, *directions: Iterable[Link], where: Callable[[Link], bool]) -> None:
        """Add the remaining links of each direction, one by one, if `where` holds at that moment."""
        for links in directions:
            for link in sorted(links):
                if where(link):
                    self.add(link)

    def add(self, link: Link) -> None:
        """Add a link."""
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def has_unlinked_word(self, link: Link) -> bool:
        """Whether one of its words, or both, has no link yet."""
        return link[0] not in self.sources or link[1] not in self.targets

    def has_no_linked_word(self, link: Link) -> bool:
        """Whether neither of its words has a link yet."""
        return link[0] not in self.sources and link[1] not in self.targets

    def _added_beside(self, link: Link) -> bool:
        source, target = link
        beside = any((source + down, target + right) in self.links for down, right in AROUND)
        if not (beside and self.has_unlinked_word(link)):
            return False
        self.add(link)
        return True


Extraction = Literal["argmax", "mutual", "threshold"]


def extract(
    weights: Float[np.ndarray, "target source"], method: Extraction = "argmax", threshold: float = 0.2
) -> set[Link]:
    """Links (source word, target word) from the attention of each target word.

    argmax: each target word with the source word of largest weight, unless more weight is missing to 1 than that.
    mutual: those of argmax where this target word is also the one with the largest weight on the source word.
    threshold: all pairs with at least this weight.
    """
    if method not in get_args(Extraction):
        raise ArgumentError(f"links = {method!r} is not one of {', '.join(get_args(Extraction))}")
    if not weights.size:
        return set()
    if method == "threshold":
        return {(int(source), int(target)) for target, source in np.argwhere(weights >= threshold)}
    best, is_linked = weights.argmax(1), weights.max(1) > 1 - weights.sum(1)  # more than went to no word
    links = {(int(best[target]), int(target)) for target in np.flatnonzero(is_linked)}
    if method == "mutual":
        back = weights.argmax(0)
        links = {(source, target) for source, target in links if back[source] == target}
    return links


class Aligner(NamedTuple):
    """A model and the attention head to align with."""

    model: EncoderDecoder
    tokenizers: TokenizerPair
    head: AlignmentHead
    method: Extraction = "argmax"
    threshold: float = 0.2
    tokens: bool = False
    """Whether links connect tokens instead of words."""
    tag: str = ""
    """A tag of the model in front of every source, which no link counts."""

    def units(self, pair: Pair) -> tuple[list[str], list[str]]:
        """The words or tokens of both sides that links connect."""
        return units_of(pair, self.tokenizers, tokens=self.tokens)

    def align(self, pairs: Sequence[Pair]) -> list[set[Link]]:
        """The links of every pair; none for a pair with an empty side, or too long for the model."""
        return [extract(weights, self.method, self.threshold) for weights in self.weights(pairs)]

    def weights(self, pairs: Sequence[Pair]) -> list[Float[np.ndarray, "target source"]]:
        """The attention between the words or tokens of every pair; [0, 0] for a pair that has no links."""
        rows = [np.zeros((0, 0), np.float32) for _ in pairs]
        options: dict[str, Any] = {"tokens": self.tokens, "tag": self.tag}
        for number, weights in word_weights(self.model, self.tokenizers, pairs, [self.head], **options):
            rows[number] = weights[0]
        return rows


Join = Literal[Method, "product"]


class TwoWayAligner(NamedTuple):
    """Models of both directions, and how to join their alignments; the source of `backward` is our target.

    The method "product" joins their weights, see `product_links`; the others `symmetrise` the links of each.
    """

    forward: Aligner
    backward: Aligner
    method: Join = "grow-diag"
    threshold: float = 0.5

    @property
    def tokens(self) -> bool:
        """Whether links connect tokens instead of words."""
        return self.forward.tokens

    def units(self, pair: Pair) -> tuple[list[str], list[str]]:
        """The words or tokens of both sides that links connect."""
        return self.forward.units(pair)

    def align(self, pairs: Sequence[Pair]) -> list[set[Link]]:
        """The links of every pair."""
        pairs_back = [turned(pair) for pair in pairs]
        if self.method == "product":
            both = zip(self.forward.weights(pairs), self.backward.weights(pairs_back), strict=True)
            return [product_links(forward, backward, self.threshold) for forward, backward in both]
        both_links = zip(self.forward.align(pairs), self.backward.align(pairs_back), strict=True)
        return [symmetrise(forward, flipped(backward), self.method) for forward, backward in both_links]


def product_links(
    forward: Float[np.ndarray, "target source"], backward: Float[np.ndarray, "_ _"], threshold: float
) -> set[Link]:
    """Links where √(product of the weights of both directions) ≥ `threshold`.

    `backward` is [source, target]. There are none where one of the models could not take the pair.
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
    """The pair with source and target exchanged."""
    return Pair(pair.target, pair.source)


def flipped(links: Iterable[Link]) -> set[Link]:
    """Links with source and target exchanged."""
    return {(target, source) for source, target in links}
