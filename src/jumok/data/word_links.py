"""Word links between the two sides of a pair, in Pharaoh format: "0-0 1-2" links the words with these numbers, from 0.

Words are what white space divides in the text as it was given. A tokenizer works on the normalised text, whose words
are what single spaces divide; the two nearly always agree, and `spaced_words` says where they do not.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from jumok.data.normalise import NOT_TEXT, Normaliser
from jumok.data.pairs import Pair
from jumok.errors import DataError
from jumok.files import name, read_lines

Link = tuple[int, int]
"""The number of a source word and that of a target word."""

LINK = re.compile(r"(\d{1,9})-(\d{1,9})")  # no text has a billion words
WORD = re.compile(r"\S+")
ODD_SPACE = re.compile(r"[^\S ]")  # white space that a normaliser may leave as it is


def parse_word_links(line: str, where: str) -> list[Link]:
    """The links of one line."""
    found = []
    for item in line.split():
        match = LINK.fullmatch(item)
        if match is None:
            raise DataError(
                f"{where}: {item[:40]!r} is not a link; wanted pairs of word numbers counted from 0, such as 0-0 1-2"
            )
        found.append((int(match[1]), int(match[2])))
    return found


def format_word_links(links: Iterable[Link]) -> str:
    """One line, in the order of the words."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_word_links(path: str | Path) -> Iterator[list[Link]]:
    """The links of every line of a file."""
    for number, line in enumerate(read_lines(path), start=1):
        yield parse_word_links(line, f"{name(path)}, line {number}")


def with_word_links(
    pairs: Iterable[Pair], path: str | Path, *, tell: Callable[[str], None] = lambda message: None
) -> Iterator[tuple[Pair, list[Link]]]:
    """Every training pair with its line of a file of links; those past its end are left out, and told in the end."""
    outside, first = 0, ""
    for count, (pair, links) in enumerate(zip_longest(pairs, read_word_links(path))):
        if pair is None or links is None:
            left, lines = ("no more", "more") if pair is None else ("more", "no more")
            raise DataError(
                f"{name(path)} must have a line of links for every training pair, but after {count} there are "
                f"{left} pairs and {lines} lines; make the links from the same text"
            )
        source, target = len(pair.source.split()), len(pair.target.split())
        inside = [(i, j) for i, j in links if i < source and j < target]
        if len(inside) < len(links):
            outside += len(links) - len(inside)
            i, j = next(link for link in links if link not in inside)
            first = first or f"line {count + 1}: {i}-{j} (counted from 0), in a pair of {source} and {target} words"
        yield pair, inside
    if outside:
        are = "1 link is" if outside == 1 else f"{outside:,} links are"
        tell(f"{name(path)}: {are} past the end of their pair and left out; the first in {first}")


class Words(NamedTuple):
    """How many words a text has, and for each spaced word of the normalised text the words it is made from."""

    size: int
    of_spaced: list[list[int]] | None
    """None where word n simply is spaced word n."""

    def given(self, spaced: int) -> list[int]:
        """The words behind a spaced word."""
        if self.of_spaced is None:
            return [spaced] if spaced < self.size else []
        return self.of_spaced[spaced] if spaced < len(self.of_spaced) else []

    def spaced(self) -> list[list[int]]:
        """For each word the spaced words that hold some of it."""
        if self.of_spaced is None:
            return [[number] for number in range(self.size)]
        found: list[list[int]] = [[] for _ in range(self.size)]
        for spaced, words in enumerate(self.of_spaced):
            for word in words:
                found[word].append(spaced)
        return found


def spaced_words(text: str, normaliser: Normaliser) -> Words:
    """The words of a text, and how the spaced words of its normalised form come from them."""
    count = len(text.split())
    plain = normaliser.spaces == "collapse" and not ODD_SPACE.search(text) and not NOT_TEXT.search(text)
    if plain and len(normaliser(text).split(" ")) == max(count, 1):
        return Words(count, None)
    normalised, starts, ends = normaliser.trace(text)
    spans = [found.span() for found in WORD.finditer(text)]
    firsts = [start for start, _ in spans]
    of_spaced: list[set[int]] = [set() for _ in normalised.split(" ")]
    spaced = 0
    for letter, start, end in zip(normalised, starts, ends, strict=True):
        if letter == " ":
            spaced += 1
            continue
        first, last = bisect_right(firsts, start) - 1, bisect_right(firsts, end - 1) - 1
        of_spaced[spaced].update(
            word for word in range(max(first, 0), last + 1) if spans[word][0] < end and start < spans[word][1]
        )
    return Words(count, [sorted(words) for words in of_spaced])


def spaced_links(links: Iterable[Link], source: Words, target: Words) -> list[Link]:
    """Links between words as links between spaced words; those past the end are left out."""
    from_, to = source.spaced(), target.spaced()
    return sorted(
        {(one, other) for i, j in links if i < source.size and j < target.size for one in from_[i] for other in to[j]}
    )


def link_matrix(
    links: Sequence[Integer[np.ndarray, "_"]],
    sources: Int[np.ndarray, "batch source"],
    targets: Int[np.ndarray, "batch target"],
) -> Bool[Tensor, "batch target source"]:
    """True where the word of a target token is linked to the word of a source token; -1 is the word of no token.

    `links` holds numbers of source and target words in turn, one array a pair.
    """
    table = np.zeros((len(links), targets.max(initial=-1) + 2, sources.max(initial=-1) + 2), bool)
    pair = np.repeat(np.arange(len(links)), [len(row) // 2 for row in links])
    one, other = np.concatenate([*links, np.zeros(0, np.int64)]).astype(np.int64).reshape(-1, 2).T
    inside = (other < table.shape[1] - 1) & (one < table.shape[2] - 1)  # the last row and column stay empty, for -1
    table[pair[inside], other[inside], one[inside]] = True
    batch = np.arange(len(links))[:, None, None]
    return torch.from_numpy(table[batch, targets[:, :, None], sources[:, None, :]])
