"""Pairs of texts as token ids, a chunk at a time: in this process, and for a large corpus in one process per core.

Chunk n goes to process n mod N, and results are read in the same order. The rows therefore do not depend on the number
of processes, and there are never more than N chunks in memory.

The processes run this file rather than the program that started them, so that a script which trains needs no
`if __name__ == "__main__"`. They end when their standard input does, and Ctrl-C reaches only the process that waits for
them.
"""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, cycle, islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt64

from jumok.data.batches import Sentences
from jumok.data.filters import pair_hash
from jumok.data.pairs import Pair
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.data.word_links import Link, spaced_links, spaced_words
from jumok.errors import DataError

CHUNK = 2048
"""Pairs tokenised at a time."""
ALONE = 100_000
"""Pairs that this process tokenises itself: starting others takes seconds, which only a larger corpus is worth."""
MOST_PROCESSES = 16
"""What one process reads, filters and writes keeps about as many busy."""
MOST_WORDS = 1 << 16
"""Words of a sentence that can have links."""
BEGIN = "import sys; sys.path[:] = {path!r}; from jumok.data.tokenise import answer_chunks; answer_chunks()"
"""The program of a process that tokenises."""


class Chunk(NamedTuple):
    """Some pairs, and perhaps the links between their words."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    links: tuple[list[Link], ...] | None = None

    @classmethod
    def of_pairs(cls, pairs: Iterable[Pair]) -> "Iterator[Chunk]":
        """A stream of pairs, in chunks."""
        pairs = iter(pairs)
        while chunk := list(islice(pairs, CHUNK)):
            sources, targets = zip(*chunk, strict=True)
            yield cls(sources, targets)

    @classmethod
    def of_linked(cls, linked: Iterable[tuple[Pair, list[Link]]]) -> "Iterator[Chunk]":
        """The same for pairs with links."""
        linked = iter(linked)
        while chunk := list(islice(linked, CHUNK)):
            pairs, links = zip(*chunk, strict=True)
            sources, targets = zip(*pairs, strict=True)
            yield cls(sources, targets, links)

    def pairs(self) -> Iterator[Pair]:
        """Its pairs."""
        return map(Pair, self.sources, self.targets)


class TokenisedChunk(NamedTuple):
    """The token ids of a chunk, and what the filters ask of its texts."""

    sentences: Sentences
    """All sides of the first pair, then of the second, and so on."""
    sides: int
    hashes: UInt64[np.ndarray, " pair"]
    empty: Bool[np.ndarray, " pair"]
    """Whether a side of the pair has no text."""

    @property
    def lengths(self) -> Int[np.ndarray, "pair 2"]:
        """Tokens of source and target without BOS and EOS."""
        return self.sentences.lengths.reshape(-1, self.sides)[:, :2] - 2

    def rows(self, kept: Bool[np.ndarray, " pair"]) -> Sentences:
        """The sentences of the pairs that are kept."""
        ids, lengths = self.sentences
        sentences = np.repeat(kept, self.sides)
        return Sentences(ids[np.repeat(sentences, lengths)], lengths[sentences])


def tokenise_chunks(chunks: Iterator[Chunk], tokenizers: TokenizerPair) -> Generator[TokenisedChunk, None, None]:
    """Tokenise every chunk, in their order; close the iterator to end the processes that it started."""
    for number, chunk in enumerate(chunks, start=1):
        yield tokenised(chunk, tokenizers)
        if number * CHUNK >= ALONE and (processes := process_count()) > 1:
            yield from _in_processes(chunks, tokenizers, processes)


def process_count() -> int:
    """The number of processes that tokenise a large corpus: one for each core that this one may use."""
    if not sys.executable:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_PROCESSES)


def tokenised(chunk: Chunk, tokenizers: TokenizerPair) -> TokenisedChunk:
    """The token ids of a chunk."""
    sides: list[Sequence[list[int]]] = [*tokenizers.encode_all(chunk.sources, chunk.targets)]
    if chunk.links is not None:
        sides.append([_link_numbers(*linked, tokenizers) for linked in zip(chunk.links, chunk.pairs(), strict=True)])
    rows = list(chain.from_iterable(zip(*sides, strict=True)))
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    ids = np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum()))
    hashes = np.fromiter(map(pair_hash, chunk.pairs()), np.uint64, len(chunk.sources))
    empty = np.array([not (source.strip() and target.strip()) for source, target in chunk.pairs()], bool)
    return TokenisedChunk(Sentences(ids, lengths), len(sides), hashes, empty)


def _link_numbers(links: list[Link], pair: Pair, tokenizers: TokenizerPair) -> list[int]:
    """Numbers of linked words of source and target in turn, counted in the normalised text."""
    source = spaced_words(pair.source, tokenizers.source.normaliser)
    target = spaced_words(pair.target, tokenizers.target.normaliser)
    return [number for link in spaced_links(links, source, target) if max(link) < MOST_WORDS for number in link]


class TokenisingProcess:
    """A process that answers every chunk with its token ids; it holds one chunk at a time."""

    def __init__(self, tokenizers: TokenizerPair) -> None:
        command = [sys.executable, "-c", BEGIN.format(path=sys.path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.answers = self.process.stdin, self.process.stdout
        self.tokenizers: TokenizerPair | None = tokenizers

    def send(self, chunk: Chunk) -> None:
        """Give it a chunk, after the tokenizers."""
        try:
            if self.tokenizers is not None:
                pickle.dump(self.tokenizers, self.requests)
                self.tokenizers = None
            pickle.dump(chunk, self.requests)
            self.requests.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> TokenisedChunk:
        """Wait for the chunk it was given last."""
        try:
            chunk: TokenisedChunk = pickle.load(self.answers)  # our own worker wrote it
        except (EOFError, pickle.UnpicklingError):
            raise self._ended() from None
        return chunk

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        for pipe in (self.requests, self.answers):
            with suppress(BrokenPipeError):
                pipe.close()
        self.process.wait()

    def _ended(self) -> DataError:
        return DataError(
            f"a process that tokenises the text ended with code {self.process.wait()}; was it killed, or is memory "
            "short? Run the command again; with fewer cores (taskset -c 0,1 jumok …) there are fewer processes"
        )


def _in_processes(chunks: Iterator[Chunk], tokenizers: TokenizerPair, count: int) -> Iterator[TokenisedChunk]:
    with ExitStack() as ending:
        processes = []
        for _ in range(count):
            processes.append(TokenisingProcess(tokenizers))
            ending.callback(processes[-1].end)
        busy: deque[TokenisingProcess] = deque()
        for process, chunk in zip(cycle(processes), chunks, strict=False):
            done = busy.popleft().receive() if len(busy) == count else None  # that of the same process
            process.send(chunk)
            busy.append(process)
            if done is not None:
                yield done
        while busy:
            yield busy.popleft().receive()


def answer_chunks() -> None:
    """Tokenise what comes from standard input until it ends: what a TokenisingProcess runs."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError, pickle.UnpicklingError):  # the process that asks has ended
        tokenizers = pickle.load(requests)
        while True:
            pickle.dump(tokenised(pickle.load(requests), tokenizers), answers)
            answers.flush()
