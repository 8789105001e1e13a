"""Which tokens an output may take on its way to a text it must begin with or contain, as tables of states.

A pattern reads the letters that tokens write, so that a text may be cut into tokens in any way: the prefix "파일" is
also the beginning of a token "파일을". Its state after a token is `after[state, token]`, and `left[state]` is the
number of tokens that it still needs at least.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Int16
from torch import Tensor

from jumok.data.subwords import BOS, EOS, PAD, SPACE, UNK
from jumok.data.terms import letter_kind
from jumok.data.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.files import quoted

FORBIDDEN = 10_000
"""`left` of a state from which the pattern cannot be met any more."""
KEPT_BYTES = 1 << 28
"""Size of the patterns kept for further sentences."""


class TextPattern(NamedTuple):
    """A text that outputs must begin with or contain; the first state is 0."""

    after: Int16[np.ndarray, "state token"]
    left: Int[np.ndarray, " state"]
    tokens: int
    """The number of tokens that write the text, at least, from anywhere in an output."""


class PatternMaker:
    """Makes the patterns of texts in the vocabulary of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.spellings = tokenizer.spellings
        self.by_spelling: dict[str, list[int]] = {}
        for id, spelling in enumerate(self.spellings):
            self.by_spelling.setdefault(spelling, []).append(id)
        self.sorted = sorted(self.by_spelling)
        self.letters = _letters(self.spellings)
        self.silent = np.array([not spelling for spelling in self.spellings])
        self.joining = np.array([bool(text) and letter_kind(text[0]) == "joining" for text in self.spellings])
        self._known: dict[tuple[str, str], tuple[str, list[int]]] = {}
        self._patterns: dict[tuple[str, str, bool], TextPattern | None] = {}

    def prefix(self, text: str, *, shortest: bool) -> TextPattern | None:
        """The pattern of outputs that begin with a text; None for an empty text.

        With `shortest` the text is written in as few tokens as possible: a search that compares no hypotheses would
        write it letter by letter, because a short piece is likelier than the long ones that begin with it.
        """
        return self._make("prefix", text, shortest)

    def term(self, text: str) -> TextPattern:
        """The pattern of outputs that contain a text."""
        pattern = self._make("term", text, False)
        assert pattern is not None
        return pattern

    def writes(self, term: str) -> bool:
        """Whether the model can write a term."""
        try:
            self._spelt("term", term)
        except ArgumentError:
            return False
        return True

    def _spelt(self, kind: str, text: str) -> tuple[str, list[int]]:
        """The letters of a text with spaces as ▁, and its tokens; an ArgumentError if the model cannot write it."""
        if (kind, text) not in self._known:
            ids = [id for id in self.tokenizer.encode(text)[1:-1] if not self.silent[id]]
            surface = self.tokenizer.surface(ids)
            if UNK in ids or (kind == "term" and not surface.strip(SPACE)):
                raise ArgumentError(f"the model's vocabulary cannot spell the {kind} {quoted(text)}; leave it out")
            self._known[kind, text] = surface.strip(SPACE) if kind == "term" else surface, ids
        return self._known[kind, text]

    def _make(self, kind: str, text: str, shortest: bool) -> TextPattern | None:
        if (kind, text, shortest) not in self._patterns:
            if sum(kept.after.nbytes for kept in self._patterns.values() if kept) > KEPT_BYTES:
                self._patterns.clear()
            letters, ids = self._spelt(kind, text)
            pattern = self._term(letters, ids) if kind == "term" else self._prefix(letters, ids, shortest)
            self._patterns[kind, text, shortest] = pattern
        return self._patterns[kind, text, shortest]

    def _prefix(self, text: str, ids: list[int], shortest: bool) -> TextPattern | None:
        """States: the letters written so far, all of them, those and more, something else."""
        edges = [self._edges(text, start) for start in range(len(text))]
        needed = _needed(edges)
        if needed[0] == FORBIDDEN:  # letters written in bytes: only as the tokenizer writes them
            edges = [{id: state + 1} for state, id in enumerate(ids)]
            needed = _needed(edges)
        if not edges:
            return None
        written, anything, dead = len(edges), len(edges) + 1, len(edges) + 2
        after = np.full((dead + 1, len(self.spellings)), dead, np.int16)
        for state, forward in enumerate(edges):
            for id, next_state in forward.items():
                if needed[next_state] < (needed[state] if shortest else FORBIDDEN):
                    after[state, id] = next_state
        after[written] = np.where(self.joining, dead, anything)
        after[anything] = anything
        states = np.arange(len(after), dtype=np.int16)
        after[:, self.silent] = states[:, None]
        after[:, EOS] = np.where((states == written) | (states == anything), anything, dead)
        left = np.where(states == dead, FORBIDDEN, 0)
        return TextPattern(after, left, needed[0])

    def _edges(self, text: str, start: int) -> dict[int, int]:
        """The tokens that continue a text from a letter on, and how many of its letters are then written."""
        rest = text[start:]
        edges = {id: start + size for size in range(1, len(rest) + 1) for id in self.by_spelling.get(rest[:size], ())}
        first = bisect_right(self.sorted, rest)
        for spelling in takewhile(lambda spelling: spelling.startswith(rest), islice(self.sorted, first, None)):
            if letter_kind(spelling[len(rest)]) != "joining":
                edges |= dict.fromkeys(self.by_spelling[spelling], len(text) + 1)
        return edges

    def _term(self, text: str, ids: list[int]) -> TextPattern:
        """States: the letters written so far, all of them (which a letter after it may undo), met, inside a word."""
        letters = sorted(set(text))
        classes = [(letter, letter_kind(letter)) for letter in letters]
        classes += [("", "word"), ("", "joining"), ("", "other")]
        states = len(text) + 3
        step = np.array([[_next(text, state, *each) for each in classes] for state in range(states)], np.int16)
        codes, kinds = self.letters
        numbers = len(letters) + kinds
        for number, letter in enumerate(letters):
            numbers[codes == ord(letter)] = number
        after = np.repeat(np.arange(states, dtype=np.int16)[:, None], len(codes), 1)
        for column in range(codes.shape[1]):
            rows = (codes[:, column] >= 0).nonzero()[0]
            after[:, rows] = step[after[:, rows], numbers[rows, column]]
        after[len(text), EOS] = len(text) + 1
        met = [len(text), len(text) + 1]
        left = _least_tokens(after, met)
        if left[0] == FORBIDDEN:  # letters written in bytes: only as the tokenizer writes them
            after = _with_path(after, ids, met[0])
            left = _least_tokens(after, met)
        return TextPattern(after, left, int(left.max()))


def _letters(spellings: Sequence[str]) -> tuple[Int[np.ndarray, "token letter"], Int[np.ndarray, "token letter"]]:
    """The code points of every token, with -1 after the last, and their kinds: of a word 0, joining 1, other 2."""
    codes = np.full((len(spellings), max(map(len, spellings))), -1, np.int32)
    for token, spelling in enumerate(spellings):
        codes[token, : len(spelling)] = [ord(letter) for letter in spelling]
    points, places = np.unique(codes, return_inverse=True)
    names = ("word", "joining", "other")
    kinds = np.array([0 if point < 0 else names.index(letter_kind(chr(point))) for point in points], np.int16)
    of_tokens = kinds[places.reshape(codes.shape)]
    of_tokens[UNK] = 0  # an unknown word does not divide others
    return codes, of_tokens


def _next(text: str, state: int, letter: str, kind: str) -> int:
    """The state of a term after a letter; "" is any letter that is not in the term."""
    written, met, inside = len(text), len(text) + 1, len(text) + 2
    in_words = letter_kind(text[-1]) == "word" and kind == "word"
    if state == met or (state == written and kind != "joining" and not in_words):
        return met
    before = "" if state == inside else text[:state]
    tail = before + (letter or "\0")
    for count in range(min(len(tail), written), 0, -1):
        start = len(tail) - count
        opened = tail[start - 1] if start else ("a" if state == inside else SPACE)
        if tail.endswith(text[:count]) and not (letter_kind(text[0]) == letter_kind(opened) == "word"):
            return count
    return 0 if kind == "other" else inside


def _needed(edges: Sequence[dict[int, int]]) -> list[int]:
    """The fewest tokens from every state to the end of a prefix."""
    needed = [FORBIDDEN] * len(edges) + [0, 0]
    for state in range(len(edges) - 1, -1, -1):
        needed[state] = min((1 + needed[next_state] for next_state in set(edges[state].values())), default=FORBIDDEN)
    return [min(tokens, FORBIDDEN) for tokens in needed]


def _least_tokens(after: Int16[np.ndarray, "state token"], met: list[int]) -> Int[np.ndarray, " state"]:
    """The fewest tokens from every state to one in which the term is written."""
    left = np.full(len(after), FORBIDDEN)
    left[met] = 0
    usable = np.ones(after.shape[1], bool)
    usable[[PAD, BOS, EOS, UNK]] = False
    reached = [np.unique(row) for row in after[:, usable]]
    for _ in left:
        left = np.minimum(left, [1 + left[states].min() for states in reached])
    return left


def _with_path(
    after: Int16[np.ndarray, "state token"], ids: Sequence[int], end: int
) -> Int16[np.ndarray, "more_states token"]:
    """The table with more states, for a term that is written in these tokens alone."""
    path = [*range(len(after), len(after) + len(ids) - 1), end]
    open_states = [state for state in range(len(after)) if state not in (end, end + 1)]
    more = np.repeat(after[:1], len(ids) - 1, 0)
    table = np.concatenate([after, more])
    table[[*open_states, *path[:-1]], ids[0]] = path[0]
    for state, id, next_state in zip(path, ids[1:], path[1:], strict=False):
        table[state, id] = next_state
    return table


class Constraints(NamedTuple):
    """The patterns of a batch in one table; every sentence has as many, the last of which may ask for nothing."""

    after: Int[Tensor, "state token"]
    left: Int[Tensor, "state token"]
    """The tokens that are still needed after a token."""
    start: Int[Tensor, "sentence pattern"]
    most: Int[Tensor, " sentence"]
    """The most tokens that its terms can need."""

    @classmethod
    def of(cls, sentences: Sequence[Sequence[TextPattern]], vocabulary: int, device: torch.device) -> "Constraints":
        """The patterns of every sentence of a batch, in states that are numbered anew; state 0 asks for nothing."""
        patterns = list({id(pattern): pattern for patterns in sentences for pattern in patterns}.values())
        afters, needed, first = [np.zeros((1, vocabulary), np.int32)], [np.zeros(1, np.int64)], {}
        states = 1
        for pattern in patterns:
            first[id(pattern)] = states
            afters.append(pattern.after.astype(np.int32) + states)
            needed.append(pattern.left)
            states += len(pattern.left)
        after, left = np.concatenate(afters), np.concatenate(needed).astype(np.int16)
        width = max((len(each) for each in sentences), default=0)
        start = [[first[id(pattern)] for pattern in each] + [0] * (width - len(each)) for each in sentences]
        begin = torch.tensor(start, dtype=torch.long, device=device).view(len(sentences), width)
        most = [sum(int(pattern.left[pattern.left < FORBIDDEN].max()) for pattern in each) for each in sentences]
        states_after, left_after = (torch.from_numpy(table).to(device) for table in (after, left[after]))
        return cls(states_after, left_after, begin, torch.tensor(most, device=device))

    def left_after(self, states: Int[Tensor, "sentence beam pattern"]) -> Int[Tensor, "sentence beam token"]:
        """How many tokens the patterns still need after each token."""
        needed = torch.zeros(*states.shape[:2], self.left.shape[1], dtype=torch.int16, device=states.device)
        for pattern in states.unbind(-1):
            needed += self.left[pattern]
        return needed

    def advance(self, states: Int[Tensor, "sentence beam pattern"], tokens: Int[Tensor, "sentence beam"]) -> Tensor:
        """The states after these tokens."""
        return self.after[states, tokens[..., None]].long()
