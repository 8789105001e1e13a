"""A shortlist of target pieces for every source piece, from word alignments of the training text."""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from jumok.analysis.alignment.statistical import fit
from jumok.data import BOS, EOS, PAD, UNK, Pair
from jumok.decoding.shortlist import Shortlist

FREQUENT = 200
"""Target pieces that every sentence may use."""
LIKELY = 40
"""Translations of a source piece."""
ROUNDS = (4, 0)
"""Rounds of training; which word comes where matters little here."""
MOST_PAIRS = 100_000
FIRST, FIRST_TARGET = 0x4E00, 0xF0000
"""A piece becomes one character, as the aligner reads texts; these are the characters of the first pieces."""


def make_shortlist(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    shared: bool,
    least: int = 1,
    tell: Callable[[int], None] = lambda done: None,
) -> Shortlist:
    """The shortlist of a text; `shared` says that source and target pieces are of one vocabulary.

    A shared piece may always be copied, as names and numbers are. Source pieces that occur fewer than `least` times are
    left out. `tell` is called with the rounds of training done.
    """
    first = FIRST if shared else FIRST_TARGET
    pairs = [Pair(_text(source, FIRST), _text(target, first)) for source, target in zip(sources, targets, strict=True)]
    corpus, model = fit(pairs, rounds=ROUNDS, lowercase=False, parts=[str], tell=tell)
    # The aligner numbers words as they come.
    source_ids, target_ids = (np.fromiter(dict.fromkeys(chain.from_iterable(side)), int) for side in (sources, targets))
    best = np.lexsort((-model.counts[:, 0], corpus.source.of))
    starts = np.searchsorted(corpus.source.of[best], np.arange(len(corpus.source.frequency) + 1))
    likely: dict[int, tuple[int, ...]] = {}
    occurrences = np.bincount(np.fromiter(chain.from_iterable(sources), int), minlength=1)
    for piece, start, end in zip(source_ids.tolist(), starts[:-1], starts[1:], strict=True):
        if occurrences[piece] < least:
            continue
        translations = target_ids[corpus.target.of[best[start : min(end, start + LIKELY)]]].tolist()
        likely[piece] = tuple(dict.fromkeys([*translations, *([piece] if shared else [])]))
    counts = np.bincount(np.fromiter(chain.from_iterable(targets), int), minlength=1)
    frequent = np.argsort(-counts, kind="stable")[:FREQUENT].tolist()
    return Shortlist(frozenset(frequent) | {PAD, BOS, EOS, UNK}, likely)


def _text(ids: Sequence[int], first: int) -> str:
    """A character for each id, none of which is a space or half of a surrogate pair."""
    codes = (first + id for id in ids)
    return " ".join(chr(code if code < 0xD800 else code + 0x800) for code in codes)
