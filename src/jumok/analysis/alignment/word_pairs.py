"""A parallel text as numbers: which words occur together, and which beginnings and endings of words do."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jumok.data import Pair

Words = dict[str, int]
"""Words and their numbers."""

Part = Callable[[str], str]

PARTS: tuple[Part, ...] = (
    lambda word: letters(word)[:2],
    lambda word: letters(word)[:3],
    lambda word: letters(word)[:4],
    lambda word: letters(word)[:5],
    lambda word: letters(word)[-3:],
)
"""Parts of a word that stand for it while little is known of the word itself."""
ALIKE = 4
"""Words are alike that begin with as many common letters, or with the same number."""
IDEOGRAM = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
NUMBER = re.compile(r"\d([\d.,]*\d)?")
LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]+")
CHUNK = 1 << 17
"""Cells in memory at a time."""
LONGEST = 500
"""The most words of a text; time grows with the cube of their number."""


class Group(NamedTuple):
    """Pairs of the same lengths. A cell is one source word with one target word of the same pair."""

    numbers: Int[np.ndarray, " pair"]
    cells: Int[np.ndarray, "pair source target"]
    """The entry of each cell."""
    source: Int[np.ndarray, "pair source"]
    target: Int[np.ndarray, "pair target"]


class WordTable(NamedTuple):
    """The words of one language."""

    of: Int[np.ndarray, " entry"]
    """The word of each entry."""
    frequency: Float[np.ndarray, " word"]
    parts: list[Int[np.ndarray, " word"]]
    """Each part of each word, as a number."""
    start: Int[np.ndarray, " word"]
    """The beginning by which words are alike, as a number common to both languages."""


class Corpus(NamedTuple):
    """Pairs as numbers. An entry is a source word and a target word that occur in the same pair."""

    groups: list[Group]
    source: WordTable
    target: WordTable
    part_pairs: list[Int[np.ndarray, " entry"]]
    """For each kind of part, the number of the pair of parts of each entry."""

    def alike(self, group: Group) -> Bool[np.ndarray, "pair source target"]:
        """Whether the two words of each cell begin alike."""
        alike: np.ndarray = self.source.start[group.source][:, :, None] == self.target.start[group.target][:, None, :]
        return alike

    def chunks(self) -> Iterator[Group]:
        """The groups in pieces of at most CHUNK cells, or one pair."""
        for group in self.groups:
            step = max(1, CHUNK // group.cells[0].size)
            for start in range(0, len(group.numbers), step):
                yield Group(*(part[start : start + step] for part in group))


def index(pairs: Sequence[Pair], *, lowercase: bool, parts: Sequence[Part] = PARTS) -> Corpus:
    """Words to numbers, and pairs of the same lengths together; pairs with an empty side or a long one are left out."""
    known: tuple[Words, Words] = ({}, {})
    members: dict[tuple[int, int], list[int]] = {}
    rows = []
    for number, pair in enumerate(pairs):
        texts = ("", "") if is_long(pair) else [text.lower() if lowercase else text for text in pair]
        rows.append([_numbers(text.split(), words) for text, words in zip(texts, known, strict=True)])
        if all(rows[-1]):
            members.setdefault((len(rows[-1][0]), len(rows[-1][1])), []).append(number)
    sides = [tuple(np.array([rows[number][side] for number in group]) for side in (0, 1)) for group in members.values()]
    entries, cells = _entries(sides, max(len(known[1]), 1))
    groups = [
        Group(np.array(group), part.reshape(*source.shape, -1), source, target)
        for group, part, (source, target) in zip(members.values(), cells, sides, strict=True)
    ]
    starts: Words = {}
    source, target = (
        _side(words, of, [group[side] for group in sides], parts, starts)
        for side, (words, of) in enumerate(zip(known, entries, strict=True))
    )
    part_pairs = [
        _pair_numbers(ones[source.of], others[target.of])
        for ones, others in zip(source.parts, target.parts, strict=True)
    ]
    return Corpus(groups, source, target, part_pairs)


def is_long(pair: Pair) -> bool:
    """Whether a side has more than LONGEST words."""
    return any(len(text.split()) > LONGEST for text in pair)


def _entries(sides: list[tuple[np.ndarray, ...]], width: int) -> tuple[tuple[np.ndarray, np.ndarray], list[np.ndarray]]:
    """The source and the target word of every entry, and the entries of the cells of every group."""
    keys = [(source[:, :, None] * width + target[:, None, :]).ravel() for source, target in sides]
    unique, cells = np.unique(np.concatenate([*keys, np.zeros(0, np.int64)]).astype(np.int64), return_inverse=True)
    ends = np.cumsum([len(key) for key in keys])
    return (unique // width, unique % width), np.split(cells.astype(np.int32), ends)[:-1]


def _side(words: Words, of: np.ndarray, texts: list[np.ndarray], parts: Sequence[Part], starts: Words) -> WordTable:
    frequency = sum((np.bincount(text.ravel(), minlength=len(words)) for text in texts), np.zeros(len(words)))
    numbers = [np.array(_numbers(map(part, words), {}), int) for part in parts]
    return WordTable(of, frequency, numbers, np.array(_numbers(map(_start, words), starts), int))


def letters(word: str) -> str:
    """The word in letters: a Korean syllable has two or three, and an ideogram, which says as much, counts as three."""
    return IDEOGRAM.sub(lambda match: 3 * match[0], unicodedata.normalize("NFD", word))


def _start(word: str) -> str:
    """The number with which a word begins ("29" of "29th" and "29日"), or else its first letters, of one script."""
    if number := NUMBER.match(word):
        return number[0]
    latin = LATIN.match(word)
    return (latin[0] if latin else word)[:ALIKE]


def _pair_numbers(ones: Int[np.ndarray, " entry"], others: Int[np.ndarray, " entry"]) -> Int[np.ndarray, " entry"]:
    width = others.max(initial=0) + 1
    return np.unique(ones * width + others, return_inverse=True)[1].astype(np.int32)


def _numbers(words: Iterable[str], known: Words) -> list[int]:
    return [known.setdefault(word, len(known)) for word in words]
