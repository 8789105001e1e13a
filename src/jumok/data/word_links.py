"""Word links between the two sides of a pair, in Pharaoh format: "0-0 1-2" links words by their numbers, from 0.

Words are separated by white space in the given text. A tokenizer sees the normalised text, whose words are separated
by single spaces; the two nearly always agree, and `spaced_words` maps one to the other where they do not.
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
from jumok.files import display_name, read_lines, shards

Link = tuple[int, int]
"""The number of a source word and that of a target word."""

LINK = re.compile(r"(\d{1,9})-(\d{1,9})")
WORD = re.compile(r"\S+")
UNUSUAL_SPACE = re.compile(r"[^\S ]")
"""White space that a normaliser may keep."""


def parse_word_links(line: str, where: str) -> list[Link]:
    """The links of one line; `where` begins the error message."""
    links = []
    for text in line.split():
        match = LINK.fullmatch(text)
        if match is None:
            raise DataError(
                f"{where}: {text[:40]!r} is not a link; expected pairs of word numbers counted from 0, such as 0-0 1-2"
            )
        links.append((int(match[1]), int(match[2])))
    return links


def format_word_links(links: Iterable[Link]) -> str:
    """One line of links, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_word_links(path: str | Path) -> Iterator[list[Link]]:
    """The links of every line of a file, or of the files of a pattern."""
    for part in shards(path):
        for number, line in enumerate(read_lines(part), start=1):
            yield parse_word_links(line, f"{display_name(part)}, line {number}")


def with_word_links(
    pairs: Iterable[Pair], path: str | Path, *, say: Callable[[str], None] = lambda message: None
) -> Iterator[tuple[Pair, list[Link]]]:
    """Every training pair with its line of a file of links.

    Links to words that do not exist are dropped, and `say` receives one notice about them.
    """
    dropped, example = 0, ""
    for count, (pair, links) in enumerate(zip_longest(pairs, read_word_links(path))):
        if pair is None or links is None:
            longer, shorter = ("line", "pair") if pair is None else ("pair", "line")
            raise DataError(
                f"{display_name(path)} must have one line of links for every training pair, but {longer} "
                f"{count + 1} has no {shorter}; make the links from the same text"
            )
        source, target = len(pair.source.split()), len(pair.target.split())
        inside = [(i, j) for i, j in links if i < source and j < target]
        if len(inside) < len(links):
            dropped += len(links) - len(inside)
            i, j = next(link for link in links if link not in inside)
            example = example or f"line {count + 1}: {i}-{j} in a pair of {source} and {target} words"
        yield pair, inside
    if dropped:
        point = "link that points" if dropped == 1 else "links that point"
        say(f"{display_name(path)}: dropped {dropped:,} {point} past the end of a sentence, first in {example}")


class WordMap(NamedTuple):
    """The words of a text, and which of them each word of the normalised text comes from."""

    size: int
    """The number of words of the given text."""
    of_spaced: list[list[int]] | None
    """For each word of the normalised text the words of the given text; None if the two agree."""

    def given(self, spaced: int) -> list[int]:
        """The words of the given text behind a word of the normalised text."""
        if self.of_spaced is None:
            return [spaced] if spaced < self.size else []
        return self.of_spaced[spaced] if spaced < len(self.of_spaced) else []

    def spaced(self) -> list[list[int]]:
        """For each word of the given text the words of the normalised text that contain part of it."""
        if self.of_spaced is None:
            return [[number] for number in range(self.size)]
        numbers: list[list[int]] = [[] for _ in range(self.size)]
        for spaced, words in enumerate(self.of_spaced):
            for word in words:
                numbers[word].append(spaced)
        return numbers


def spaced_words(text: str, normaliser: Normaliser) -> WordMap:
    """Map the words of a text to those of its normalised form."""
    count = len(text.split())
    plain = normaliser.spaces == "collapse" and not UNUSUAL_SPACE.search(text) and not NOT_TEXT.search(text)
    if plain and len(normaliser(text).split(" ")) == max(count, 1):
        return WordMap(count, None)
    normalised, starts, ends = normaliser.trace(text)
    spans = [match.span() for match in WORD.finditer(text)]
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
    return WordMap(count, [sorted(words) for words in of_spaced])


def spaced_links(links: Iterable[Link], source: WordMap, target: WordMap) -> list[Link]:
    """Links between words of the given text as links between words of the normalised text."""
    sources, targets = source.spaced(), target.spaced()
    return sorted({(i, j) for given_i, given_j in links for i in sources[given_i] for j in targets[given_j]})


def link_matrix(
    links: Sequence[Integer[np.ndarray, "_"]],
    sources: Int[np.ndarray, "batch source"],
    targets: Int[np.ndarray, "batch target"],
) -> Bool[Tensor, "batch target source"]:
    """True where the word of a target token is linked to the word of a source token.

    `sources` and `targets` hold the word of each token, -1 for none. `links` has one array per pair, with the numbers
    of source and target words in turn.
    """
    table = np.zeros((len(links), targets.max(initial=-1) + 2, sources.max(initial=-1) + 2), bool)
    pair = np.repeat(np.arange(len(links)), [len(row) // 2 for row in links])
    source, target = np.concatenate([*links, np.zeros(0, np.int64)]).astype(np.int64).reshape(-1, 2).T
    inside = (target < table.shape[1] - 1) & (source < table.shape[2] - 1)  # the last row and column are for -1
    table[pair[inside], target[inside], source[inside]] = True
    batch = np.arange(len(links))[:, None, None]
    return torch.from_numpy(table[batch, targets[:, :, None], sources[:, None, :]])
