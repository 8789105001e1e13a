"""Word alignments from text alone: two hidden Markov models, one for each direction, trained to agree.

    p(f, a | e) = Π p(a_j | a_{j-1}) t(f_j | e_{a_j})

Each target word f_j is written by a source word, its state a_j, or by none. States move by jumps, whose widths have
probabilities of their own (Vogel et al. 1996). The model of the other direction is alike, and what is counted is the
product of both posteriors (Liang et al. 2006): a link counts as far as both believe in it. That keeps a rare word from
taking up whatever nobody else explains, which one direction cannot see for itself.

In the first rounds every state is as likely as any other (IBM model 1); then jumps are learnt as well. Before the
first, words that begin alike (names, numbers, punctuation, "nation" and "nationale") are taken to be likelier pairs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jumok.data import Pair
from jumok.data.word_links import Link

WIDEST = 12
"""Longer jumps are as likely as this one."""
NULL = 0.05
"""How likely a word is written by none."""
LEAST = 1e-7
"""Added to every count, so that no pair of words becomes impossible."""
ALIKE = 10.0
"""How much likelier at first are words that begin with the same letters, these many:"""
LETTERS = 4
CHUNK = 1 << 18
"""Pairs of words held at a time."""


ROUNDS = (4, 4)
"""Of learning without and with jumps."""
FIRST_JUMPS = np.exp(-np.abs(np.arange(-WIDEST, WIDEST + 1) - 1) / 2)
"""Before any is seen: one word on is likeliest."""


class Group(NamedTuple):
    """Pairs of the same lengths."""

    numbers: Int[np.ndarray, " pair"]
    cells: Int[np.ndarray, "pair source target"]
    """For each source word with each target word, the number of their entry in the word tables."""
    source: Int[np.ndarray, "pair source"]
    target: Int[np.ndarray, "pair target"]


class Corpus(NamedTuple):
    """Pairs as numbers, and the pairs of words that ever stand in one pair of texts."""

    groups: list[Group]
    source_of: Int[np.ndarray, " entry"]
    target_of: Int[np.ndarray, " entry"]
    sources: int
    targets: int
    alike: Bool[np.ndarray, " entry"]
    """Whether the two words begin alike."""


@dataclass(frozen=True, eq=False)
class Direction:
    """The parameters of one model: what each word becomes, what is written by none, and how states jump."""

    words: Float[np.ndarray, " entry"]
    null: Float[np.ndarray, " target"]
    jumps: Float[np.ndarray, " width"] | None = None
    """Of widths -WIDEST to WIDEST; None while every state is as likely as any other."""

    def transitions(self, states: int) -> Float[np.ndarray, "states_and_start states"]:
        """p(state | state before); the last row is the start, which stands before the first word."""
        if self.jumps is None:
            return np.full((states + 1, states), 1 / states)
        here = np.append(np.arange(states), -1)
        table = self.jumps[np.clip(np.arange(states) - here[:, None], -WIDEST, WIDEST) + WIDEST]
        found: np.ndarray = 0.95 * table / table.sum(1, keepdims=True) + 0.05 / states
        return found


class Believed(NamedTuple):
    """Posteriors of one direction over a group: of links, of words written by none, and of jumps."""

    links: Float[np.ndarray, "pair state time"]
    null: Float[np.ndarray, "pair time"]
    jumps: Float[np.ndarray, " width"]


def align_text(
    pairs: Sequence[Pair],
    *,
    rounds: tuple[int, int] = ROUNDS,
    threshold: float = 0.5,
    lowercase: bool = True,
    tell: Callable[[int], None] = lambda done: None,
) -> list[set[Link]]:
    """The links of every pair, learnt from the pairs themselves: √(product of both posteriors) ≥ `threshold`.

    `rounds` are those without and with jumps; `tell` hears of each that is done. An empty side has no links.
    """
    corpus, (there, back) = learnt(pairs, rounds=rounds, lowercase=lowercase, tell=tell)
    return read_off(corpus, there, back, len(pairs), threshold)


def learnt(
    pairs: Sequence[Pair],
    *,
    rounds: tuple[int, int] = ROUNDS,
    lowercase: bool = True,
    tell: Callable[[int], None] = lambda done: None,
) -> tuple[Corpus, tuple[Direction, Direction]]:
    """The corpus in numbers, and both directions after all rounds."""
    corpus = index(pairs, lowercase=lowercase)
    there, back = first_guess(corpus)
    for done in range(sum(rounds) if corpus.groups else 0):
        if done == rounds[0]:
            there, back = (replace(one, jumps=FIRST_JUMPS) for one in (there, back))
        there, back = learn(corpus, there, back)
        tell(done + 1)
    return corpus, (there, back)


def read_off(corpus: Corpus, there: Direction, back: Direction, pairs: int, threshold: float) -> list[set[Link]]:
    """The links that both directions together believe in enough."""
    found: list[set[Link]] = [set() for _ in range(pairs)]
    for group in _chunks(corpus):
        one, other = believe_both(group, there, back)
        joint = np.sqrt(one.links * other.links.transpose(0, 2, 1))
        for at, source, target in np.argwhere(joint >= threshold):
            found[group.numbers[at]].add((int(source), int(target)))
    return found


def learn(corpus: Corpus, there: Direction, back: Direction) -> tuple[Direction, Direction]:
    """One round: believe, count what both directions believe in, and estimate anew."""
    counts = np.zeros(len(corpus.source_of))
    nulls = (np.zeros(corpus.targets), np.zeros(corpus.sources))
    jumps = (np.zeros(2 * WIDEST + 1), np.zeros(2 * WIDEST + 1))
    for group in _chunks(corpus):
        one, other = believe_both(group, there, back)
        joint = one.links * other.links.transpose(0, 2, 1)
        counts += np.bincount(group.cells.ravel(), joint.ravel(), len(counts))
        for total, words, believed in zip(nulls, (group.target, group.source), (one, other), strict=True):
            total += np.bincount(words.ravel(), believed.null.ravel(), len(total))
        for widths, believed in zip(jumps, (one, other), strict=True):
            widths += believed.jumps
    return (
        estimate(counts, corpus.source_of, nulls[0], jumps[0], there),
        estimate(counts, corpus.target_of, nulls[1], jumps[1], back),
    )


def estimate(
    counts: Float[np.ndarray, " entry"],
    given: Int[np.ndarray, " entry"],
    null: Float[np.ndarray, " word"],
    jumps: Float[np.ndarray, " width"],
    before: Direction,
) -> Direction:
    """Each count as its share of what the same word became, `given` being that word; jumps only once they are known."""
    counts, null = counts + LEAST, null + LEAST
    words = counts / np.bincount(given, counts)[given]
    return Direction(words, null / null.sum(), None if before.jumps is None else jumps / max(jumps.sum(), LEAST) + 1e-4)


def believe_both(group: Group, there: Direction, back: Direction) -> tuple[Believed, Believed]:
    """The posteriors of both directions, the second with source and target exchanged."""
    one = believe(there.words[group.cells], there.null[group.target], there)
    other = believe(back.words[group.cells].transpose(0, 2, 1), back.null[group.source], back)
    return one, other


def believe(
    emit: Float[np.ndarray, "pair state time"], null: Float[np.ndarray, "pair time"], model: Direction
) -> Believed:
    """Forward and backward through the states of every pair; a word of none stays at the state before it."""
    moves = (1 - NULL) * model.transitions(emit.shape[1])
    nowhere = NULL * null.T[:, :, None]
    forward, scale = _forward(emit, nowhere, moves)
    links, nulls = np.empty_like(emit), np.empty_like(null)
    inner, ahead = moves[:-1], np.ones(emit.shape[:2])
    widths = np.zeros_like(inner)
    for time in range(emit.shape[2] - 1, -1, -1):
        links[:, :, time] = forward[time, 0] * ahead
        nulls[:, time] = (forward[time, 1] * ahead).sum(1)
        if time:
            coming = emit[:, :, time] * ahead / scale[time]
            widths += forward[time - 1].sum(0).T @ coming
            ahead = coming @ inner.T + nowhere[time] * ahead / scale[time]
    return Believed(links, nulls, _by_width(widths * inner, links[:, :, 0].sum(0)))


def _forward(
    emit: Float[np.ndarray, "pair state time"],
    nowhere: Float[np.ndarray, "time pair 1"],
    moves: Float[np.ndarray, "states_and_start state"],
) -> tuple[Float[np.ndarray, "time 2 pair state"], Float[np.ndarray, "time pair 1"]]:
    """How likely each state is after each word, having written it or not; scaled to sum to 1, and the scales."""
    pairs, states, times = emit.shape
    forward, scale = np.empty((times, 2, pairs, states)), np.empty((times, pairs, 1))
    for time in range(times):
        if time:
            reached = forward[time - 1].sum(0)
            forward[time] = (reached @ moves[:-1]) * emit[:, :, time], reached * nowhere[time]
        else:
            forward[0, 0] = moves[-1] * emit[:, :, 0]
            forward[0, 1] = nowhere[0] / states
        scale[time] = np.maximum(forward[time].sum((0, 2))[:, None], 1e-300)
        forward[time] /= scale[time]
    return forward, scale


def first_guess(corpus: Corpus) -> tuple[Direction, Direction]:
    """Every word becomes any word it stands with, likelier so if they begin alike."""
    likely = 1 + ALIKE * corpus.alike
    there = likely / np.bincount(corpus.source_of, likely)[corpus.source_of]
    back = likely / np.bincount(corpus.target_of, likely)[corpus.target_of]
    nulls = (np.full(size, 1 / max(size, 1)) for size in (corpus.targets, corpus.sources))
    return Direction(there, next(nulls)), Direction(back, next(nulls))


def index(pairs: Sequence[Pair], *, lowercase: bool) -> Corpus:
    """Words to numbers, and pairs of the same lengths together; pairs with an empty side are left out."""
    seen: tuple[dict[str, int], dict[str, int]] = ({}, {})
    members: dict[tuple[int, int], list[int]] = {}
    rows = []
    for number, pair in enumerate(pairs):
        texts = [text.lower() if lowercase else text for text in pair]
        rows.append([_numbers(text, known) for text, known in zip(texts, seen, strict=True)])
        if all(rows[-1]):
            members.setdefault((len(rows[-1][0]), len(rows[-1][1])), []).append(number)
    sides = [tuple(np.array([rows[number][side] for number in group]) for side in (0, 1)) for group in members.values()]
    width = max(len(seen[1]), 1)
    keys = [(source[:, :, None] * width + target[:, None, :]).ravel() for source, target in sides]
    unique, cells = np.unique(np.concatenate([*keys, np.zeros(0, np.int64)]).astype(np.int64), return_inverse=True)
    parts = np.split(cells.astype(np.int32), np.cumsum([len(key) for key in keys]))
    groups = [
        Group(np.array(group), part.reshape(*source.shape, -1), source, target)
        for group, part, (source, target) in zip(members.values(), parts, sides, strict=False)
    ]
    return Corpus(groups, unique // width, unique % width, len(seen[0]), len(seen[1]), _alike(unique, *seen))


def _alike(entries: Int[np.ndarray, " entry"], source: dict[str, int], target: dict[str, int]) -> np.ndarray:
    beginnings: dict[str, int] = {}
    one, other = (
        np.array(_numbers(" ".join(word[:LETTERS] for word in words), beginnings)) for words in (source, target)
    )
    width = max(len(target), 1)
    found: np.ndarray = one[entries // width] == other[entries % width]
    return found


def _numbers(text: str, seen: dict[str, int]) -> list[int]:
    return [seen.setdefault(word, len(seen)) for word in text.split()]


def _chunks(corpus: Corpus) -> Iterator[Group]:
    for group in corpus.groups:
        step = max(1, CHUNK // group.cells[0].size)
        for start in range(0, len(group.numbers), step):
            yield Group(*(part[start : start + step] for part in group))


def _by_width(
    moves: Float[np.ndarray, "before after"], first: Float[np.ndarray, " state"]
) -> Float[np.ndarray, " width"]:
    states = np.arange(len(first))
    widths = np.clip(states - states[:, None], -WIDEST, WIDEST) + WIDEST
    found = np.bincount(widths.ravel(), moves.ravel(), 2 * WIDEST + 1)
    return found + np.bincount(np.clip(states + 1, None, WIDEST) + WIDEST, first, 2 * WIDEST + 1)
