"""One alignment from two: that of source to target words, and that of target to source words (Koehn et al. 2003).

Where both directions agree, links are precise; where either has one, little is missed. The growing methods begin with
the first and add from the second what stands beside a link already made, and what would leave a word without any.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Literal

from jumok.data.links import Link

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
