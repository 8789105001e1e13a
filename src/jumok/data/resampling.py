"""Subword regularisation: the words of whole batches cut anew at random, with arrays instead of a loop over words.

How a word is cut depends on its key alone, and every cut is as probable as `Tokenizer.sample` makes it. Memory holds
what does not depend on the key: of each word that was cut, the pieces that its letters spell.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, UInt

from jumok.data.batches import Sentences, ranges, splitmix64
from jumok.data.sentencepiece_model import UNUSED, USER_DEFINED, read_model
from jumok.data.subwords import BOS, EOS, SPACE, UNK, BpeSampler, UnigramSampler
from jumok.data.tokenizer import Tokenizer

LIMIT = 1 << 24
"""Numbers kept about words, above which they are forgotten and collected anew: 64 MB."""


class Resampler:
    """Joins tokens to words, and cuts each word anew at random."""

    def __init__(self, tokenizer: Tokenizer, amount: float, *, limit: int = LIMIT) -> None:
        self.tokenizer, self.amount, self.limit = tokenizer, amount, limit
        self._whole = np.array([tokenizer.is_symbol(id) for id in range(tokenizer.size)])
        self._begins = np.array([piece.startswith(SPACE) for piece in tokenizer.pieces]) | self._whole
        self._numbers = PieceNumbers(tokenizer)
        self._forget()

    def __call__(self, sentences: Sentences, keys: UInt[np.ndarray, " sentences"]) -> Sentences:
        """Every sentence [BOS, ..., EOS] cut anew, in a way that depends on its key alone."""
        lengths = sentences.lengths - 2
        ids = sentences.ids[_inside(lengths)].astype(np.uint32)
        begins = self._begins[ids]
        begins[(lengths.cumsum() - lengths)[lengths > 0]] = True  # a sentence begins with a word
        starts = begins.nonzero()[0]
        sentence = np.repeat(np.arange(len(lengths)), lengths)[starts]
        words = np.bincount(sentence, minlength=len(lengths))
        place = np.arange(len(starts)) - np.repeat(words.cumsum() - words, words)
        cuts = self._cut(ids, starts, splitmix64(keys[sentence] + place.astype(np.uint64)))
        return _enclosed(cuts.ids, np.bincount(sentence, cuts.lengths, len(lengths)).astype(np.int64))

    def _cut(
        self, ids: UInt[np.ndarray, " tokens"], starts: Int[np.ndarray, " words"], keys: UInt[np.ndarray, " words"]
    ) -> Sentences:
        """The words that begin at `starts`, cut anew."""
        lengths = np.diff(starts, append=len(ids))
        if not len(starts):
            return Sentences(ids, lengths)
        changed = (self._cuts.change(ids, starts, keys) & ~self._whole[ids[starts]]).nonzero()[0]
        if not len(changed):
            return Sentences(ids, lengths)
        if self._cuts.size > self.limit:
            self._forget()
        words = self._words(ids, starts[changed], lengths[changed])
        cuts = self._numbers.ids(self._cuts.draw(words, keys[changed]))
        starts[changed] = len(ids) + cuts.lengths.cumsum() - cuts.lengths
        lengths[changed] = cuts.lengths
        return Sentences(np.concatenate([ids, cuts.ids])[ranges(starts, lengths)], lengths)

    def _forget(self) -> None:
        self._cuts = _cuts_of(self.tokenizer, self.amount, self._numbers)
        self._known: dict[bytes, int] = {}

    def _words(
        self, ids: UInt[np.ndarray, " tokens"], starts: Int[np.ndarray, " words"], lengths: Int[np.ndarray, " words"]
    ) -> Int[np.ndarray, " words"]:
        """The numbers by which `Cuts` know words."""
        spelt, known = ids.tobytes(), self._known  # four bytes an id
        places = zip((4 * starts).tolist(), (4 * (starts + lengths)).tolist(), strict=True)
        words = [spelt[start:end] for start, end in places]
        numbers = list(map(known.get, words))
        if None in numbers:
            new = list(dict.fromkeys(word for word, number in zip(words, numbers, strict=True) if number is None))
            texts = [self.tokenizer.surface(np.frombuffer(word, np.uint32).tolist()) for word in new]
            known.update(zip(new, self._cuts.add(texts), strict=True))
            numbers = list(map(known.get, words))
        return np.array(numbers, np.int64)


class PieceNumbers(dict[str, int]):
    """A number for every piece and letter: its id if it has one, otherwise a number beyond those of the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lengths, self._ids = Rows(np.int64), Rows(np.int64)
        self._lengths.append(np.ones(tokenizer.size, np.int64))
        self._ids.append(np.arange(tokenizer.size))

    def __missing__(self, text: str) -> int:
        ids = self._tokenizer.ids_of(text)
        if len(ids) == 1 and ids != [UNK]:
            self[text] = ids[0]
        else:
            self._ids.append(np.array(ids))
            self[text] = self._lengths.append(np.array([len(ids)]))
        return self[text]

    def ids(self, cuts: Sentences) -> Sentences:
        """The ids of words given by the numbers of their pieces; a run of unknown letters is one token."""
        numbers, lengths = cuts
        if numbers.max(initial=0) < self._tokenizer.size:
            return cuts
        each = self._lengths.all[numbers]
        firsts = self._lengths.all.cumsum() - self._lengths.all
        ids = self._ids.all[ranges(firsts[numbers], each)]
        word = np.repeat(np.repeat(np.arange(len(lengths)), lengths), each)
        again = (ids[1:] == UNK) & (ids[:-1] == UNK) & (word[1:] == word[:-1])
        kept = np.append(True, ~again)
        return Sentences(ids[kept], np.bincount(word[kept], minlength=len(lengths)))


@runtime_checkable
class Cuts(Protocol):
    """Draws the pieces of words."""

    @property
    def size(self) -> int:
        """How many numbers are kept about words."""

    def change(
        self, ids: UInt[np.ndarray, " tokens"], starts: Int[np.ndarray, " words"], keys: UInt[np.ndarray, " words"]
    ) -> Bool[np.ndarray, " words"]:
        """Which words may get other tokens than these."""

    def add(self, texts: Sequence[str]) -> list[int]:
        """A number for each word."""

    def draw(self, words: Int[np.ndarray, " words"], keys: UInt[np.ndarray, " words"]) -> Sentences:
        """The numbers of the pieces of each word, cut in a way that depends on its key."""


NEVER = 1 << 61
"""The rank of pairs that are not merged; ranks are multiples of 2^32, so that a place can be added."""
DROPPED = 1 << 62
"""Added to the rank of a dropped merge, which may be done in a later step."""
FAR = 1 << 40
"""Where a piece ends that would begin behind the last of its word."""
LOW = (1 << 32) - 1
MANY = 1 << 40
"""More merges than are ever kept in a row."""


class BpeCuts:
    """BPE-dropout (Provilkov et al. 2020): of all possible merges, each dropped with probability p, the best is done.

    Only whether the best is dropped needs to be drawn; then the second becomes the best of this step. How many merges
    are done until the next is dropped follows a geometric distribution. Most words lose no merge at all, and keep the
    tokens they have. The merges of all others are done together, one of each word at a time.
    """

    def __init__(self, tokenizer: Tokenizer, sampler: BpeSampler, numbers: PieceNumbers) -> None:
        self._numbers, self._log_keep = numbers, math.log1p(-sampler.dropout)
        merged = {piece: numbers[piece] for piece in sampler.scores if SPACE not in piece[1:] and len(piece) > 1}
        scores = np.array([sampler.scores[piece] for piece in merged])
        self.rank = np.full(tokenizer.size, NEVER)
        self.rank[list(merged.values())] = np.unique(-scores, return_inverse=True)[1] << 32
        self._prefixes = Prefixes(merged, numbers)
        self.width = max(map(len, merged), default=1) + 2
        self.spans, self.first, self.letters = Rows(np.int32), Rows(np.int64), Rows(np.int64)
        self._merges = np.array([len(piece) - 1 for piece in tokenizer.pieces])
        self._merges[UNK] = 0
        types = {piece.type for piece in read_model(tokenizer.model, "the tokenizer").pieces}
        if types & {USER_DEFINED, UNUSED}:  # then the tokens of a word may be others than merging its letters gives
            self._merges[:] = MANY

    @property
    def size(self) -> int:
        """How many numbers are kept about words."""
        return len(self.spans)

    def change(
        self, ids: UInt[np.ndarray, " tokens"], starts: Int[np.ndarray, " words"], keys: UInt[np.ndarray, " words"]
    ) -> Bool[np.ndarray, " words"]:
        """Which words may get other tokens than these."""
        changed: np.ndarray = self._kept(keys) < np.add.reduceat(self._merges[ids], starts)
        return changed

    def _kept(self, keys: UInt[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The number of merges until the next is dropped."""
        kept: np.ndarray = (np.log(1 - uniform(keys)) / self._log_keep).astype(np.int64)
        return kept

    def add(self, texts: Sequence[str]) -> list[int]:
        """A number for each word; for all spans of its letters, the number of the piece that they spell is kept."""
        letters = np.array([self._numbers[letter] for text in texts for letter in text], np.int64)
        lengths = np.array([len(text) for text in texts])
        spans = np.zeros((len(letters), self.width), np.int32)
        spans[:, 1] = letters
        ends = np.repeat(lengths.cumsum(), lengths)
        for length, starts, numbers in self._prefixes.spans(letters, ends):
            spans[starts, length] = numbers
        self.first.append(self.spans.append(spans.ravel()) + (lengths.cumsum() - lengths) * self.width)
        first = self.letters.append(lengths)
        return list(range(first, first + len(texts)))

    def draw(self, words: Int[np.ndarray, " words"], keys: UInt[np.ndarray, " words"]) -> Sentences:
        """The numbers of the pieces of each word, cut in a way that depends on its key."""
        order = np.argsort(-self.letters.all[words], kind="stable")  # the longest take the most steps
        merging = _Merging(self, words[order])
        keys = keys[order]
        kept = self._kept(keys)
        while True:
            word, start = merging.best()
            if not word.size:
                return _reordered(merging.pieces(), np.argsort(order))
            drops = kept[word] == 0
            if drops.any():
                dropped = word[drops]
                merging.drop(dropped, start[drops])
                keys[dropped] = again = splitmix64(keys[dropped])
                kept[dropped] = self._kept(again)
                word, start = word[~drops], start[~drops]
            kept[word] -= 1
            merging.merge(word, start)


def _reordered(words: Sentences, order: Int[np.ndarray, " words"]) -> Sentences:
    lengths = words.lengths[order]
    return Sentences(words.ids[ranges((words.lengths.cumsum() - words.lengths)[order], lengths)], lengths)


class Prefixes:
    """The pieces that begin at any letter of many words, found by reading all of them at once, letter by letter."""

    def __init__(self, pieces: dict[str, int], letters: dict[str, int]) -> None:
        nodes = {"": 0}
        for piece in pieces:
            for end in range(1, len(piece) + 1):
                nodes.setdefault(piece[:end], len(nodes))
        del nodes[""]
        parents = {text: nodes.get(text[:-1], 0) for text in nodes}
        steps = np.array([(parents[text] << 32) + letters[text[-1]] for text in nodes], np.int64)
        order = np.argsort(steps)
        self._steps = np.append(steps[order], np.iinfo(np.int64).max)
        self._nodes = np.append(np.array(list(nodes.values()), np.int64)[order], 0)
        self._pieces = np.array([0, *(pieces.get(text, 0) for text in nodes)])

    def spans(
        self, letters: Int[np.ndarray, " letters"], ends: Int[np.ndarray, " letters"]
    ) -> Iterator[tuple[int, Int[np.ndarray, " n"], Int[np.ndarray, " n"]]]:
        """For each length from two letters on, where pieces begin, and their numbers; `ends` are those of the words."""
        starts, nodes, length = np.arange(len(letters)), np.zeros(len(letters), np.int64), 0
        while starts.size:
            steps = (nodes << 32) + letters[starts + length]
            places = np.searchsorted(self._steps, steps)
            known = self._steps[places] == steps
            starts, nodes, length = starts[known], self._nodes[places[known]], length + 1
            if length > 1:
                yield length, starts, self._pieces[nodes]
            inside = starts + length < ends[starts]
            starts, nodes = starts[inside], nodes[inside]


class _Merging:
    """Words while their pieces are being merged.

    Every letter has a place, and so has the end of every word. A piece is known by the place where it begins.
    """

    def __init__(self, cuts: BpeCuts, words: Int[np.ndarray, " words"]) -> None:
        self._spans, self._rank, self._most = cuts.spans.all, cuts.rank, cuts.width - 1
        letters = cuts.letters.all[words]
        ends = (letters + 1).cumsum() - 1
        self._firsts, self._ends = ends - letters, ends
        places = np.arange(ends[-1] + 1)
        self._row = np.repeat(cuts.first.all[words] - self._firsts * cuts.width, letters + 1) + places * cuts.width
        self._row[ends] = 0
        self._after, self._before = places + 1, places - 1  # where the next piece begins, and the one before
        self._after[ends], self._before[self._firsts] = FAR, self._firsts
        self._best = self._merge_of(places, np.append(self._after[1:], FAR))
        self._best[ends] = NEVER
        self._unready = len(words)  # all words from this one on are ready
        self._is_merged = np.zeros(len(words), bool)
        self._dropped_words = self._dropped = np.zeros(0, np.int64)

    def _merge_of(self, start: Int[np.ndarray, " n"], end: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The rank of a merge that makes the piece from start to end, and the start, in one number."""
        spans = self._spans[self._row[start] + np.minimum(end - start, self._most)]
        merges: np.ndarray = self._rank[spans] | start
        return merges

    def best(self) -> tuple[Int[np.ndarray, " unready"], Int[np.ndarray, " unready"]]:
        """The words that are not ready, and where the best merge of each begins."""
        best = np.minimum.reduceat(self._best[: self._ends[self._unready - 1] + 1], self._firsts[: self._unready])
        words = (best < NEVER).nonzero()[0]
        self._unready = int(words[-1]) + 1 if words.size else 1
        return words, best[words] & LOW

    def drop(self, words: Int[np.ndarray, " n"], starts: Int[np.ndarray, " n"]) -> None:
        """Leave out merges until the next merge of their words."""
        self._dropped_words = np.concatenate([self._dropped_words, words])
        self._dropped = np.concatenate([self._dropped, starts])
        self._best[starts] += DROPPED

    def merge(self, words: Int[np.ndarray, " n"], starts: Int[np.ndarray, " n"]) -> None:
        """Merge the pieces that begin at `starts` with those after them."""
        if self._dropped.size:
            self._is_merged[words] = True
            back = self._is_merged[self._dropped_words]
            self._is_merged[words] = False
            self._best[self._dropped[back]] -= DROPPED
            self._dropped_words, self._dropped = self._dropped_words[~back], self._dropped[~back]
        middles = self._after[starts]
        ends = self._after[middles]
        self._after[starts], self._before[ends], self._after[middles] = ends, starts, -1
        self._best[middles] = NEVER
        changed = np.concatenate([self._before[starts], starts])  # a first piece has none before it, but itself
        self._best[changed] = self._merge_of(changed, np.concatenate([ends, self._after[ends]]))

    def pieces(self) -> Sentences:
        """The numbers of the pieces of each word."""
        after = self._after
        after[self._ends] = -1
        starts = (after >= 0).nonzero()[0]
        numbers = self._spans[self._row[starts] + after[starts] - starts]
        return Sentences(numbers, np.add.reduceat(after >= 0, self._firsts, dtype=np.int64))


class UnigramCuts:
    """A unigram model (Kudo 2018): the last piece of a word is drawn first, then the one before, and so on.

    Every beginning of a word has a number, and so has the empty one. The pieces that may end it follow one another in
    one array, with sums of their probabilities added to this number, so that one search finds what all words draw.
    """

    def __init__(self, sampler: UnigramSampler, numbers: PieceNumbers) -> None:
        self._sampler, self._numbers = sampler, numbers
        self._sums, self._before, self._piece = Rows(np.float64), Rows(np.int64), Rows(np.int64)
        self._is_empty = Rows(np.bool_)

    @property
    def size(self) -> int:
        """How many numbers are kept about words."""
        return 6 * len(self._piece)  # as many of 32 bits

    def change(
        self, ids: UInt[np.ndarray, " tokens"], starts: Int[np.ndarray, " words"], keys: UInt[np.ndarray, " words"]
    ) -> Bool[np.ndarray, " words"]:
        """Which words may get other tokens than these."""
        return np.ones(len(starts), bool)

    def add(self, texts: Sequence[str]) -> list[int]:
        """A number for each word."""
        return [self._add(text) for text in texts]

    def _add(self, text: str) -> int:
        empty, sums, before, pieces = len(self._is_empty), list[float](), list[int](), list[int]()
        for end, (starts, weights) in enumerate(self._sampler.arcs(text), start=1):
            sums += [empty + end + weight / weights[-1] for weight in weights]
            before += [empty + start for start in starts]
            pieces += [self._numbers[text[start:end]] for start in starts]
        self._sums.append(np.array(sums))
        self._before.append(np.array(before))
        self._piece.append(np.array(pieces))
        return self._is_empty.append(np.arange(len(text) + 1) == 0) + len(text)

    def draw(self, words: Int[np.ndarray, " words"], keys: UInt[np.ndarray, " words"]) -> Sentences:
        """The numbers of the pieces of each word, cut in a way that depends on its key."""
        unready, here = np.arange(len(words)), words
        drawn: list[tuple[np.ndarray, np.ndarray]] = []
        while unready.size:
            keys = splitmix64(keys)
            places = np.searchsorted(self._sums.all, here + uniform(keys), side="right")
            drawn.append((unready, self._piece.all[places]))
            here = self._before.all[places]
            going = (~self._is_empty.all[here]).nonzero()[0]
            unready, here, keys = unready[going], here[going], keys[going]
        return _backwards(drawn, len(words))


def _backwards(drawn: list[tuple[np.ndarray, np.ndarray]], count: int) -> Sentences:
    """The pieces of words, of which every step drew one piece for some words, the last piece first."""
    lengths = np.zeros(count, np.int64)
    for words, _ in drawn:
        lengths[words] += 1
    ends = lengths.cumsum()
    pieces = np.empty(lengths.sum(), np.int64)
    for step, (words, drawn_pieces) in enumerate(drawn, start=1):
        pieces[ends[words] - step] = drawn_pieces
    return Sentences(pieces, lengths)


def _cuts_of(tokenizer: Tokenizer, amount: float, numbers: PieceNumbers) -> Cuts:
    sampler = tokenizer.sampler(amount)
    if isinstance(sampler, UnigramSampler):
        return UnigramCuts(sampler, numbers)
    return BpeCuts(tokenizer, sampler, numbers)


class Rows:
    """An array that grows at its end."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._memory: np.ndarray[Any, Any] = np.empty(1024, dtype)
        self.all = self._memory[:0]

    def __len__(self) -> int:
        return len(self.all)

    def append(self, values: np.ndarray) -> int:
        """Add values, and return the place of the first."""
        start, end = len(self.all), len(self.all) + len(values)
        if end > len(self._memory):
            self._memory = np.empty(2 * end, self._memory.dtype)
            self._memory[:start] = self.all
        self._memory[start:end] = values
        self.all = self._memory[:end]
        return start


def uniform(numbers: UInt[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Random numbers of 64 bits as numbers from 0 to below 1."""
    return (numbers >> np.uint64(11)) * 2.0**-53


def _inside(lengths: Int[np.ndarray, " sentences"]) -> np.ndarray:
    """Which tokens of sentences with BOS and EOS are neither; `lengths` do not count these."""
    inside = np.ones(lengths.sum() + 2 * len(lengths), bool)
    ends = (lengths + 2).cumsum()
    inside[ends - 1] = inside[ends - lengths - 2] = False
    return inside


def _enclosed(ids: Integer[np.ndarray, " tokens"], lengths: Int[np.ndarray, " sentences"]) -> Sentences:
    """Sentences with BOS before and EOS behind each."""
    inside = _inside(lengths)
    enclosed = np.full(len(inside), EOS, np.int64)
    enclosed[inside] = ids
    enclosed[(lengths + 2).cumsum() - lengths - 2] = BOS
    return Sentences(enclosed, lengths + 2)
