"""From what was asked of `jumok align` to an aligner: models are loaded, layers and heads looked up or chosen."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast, get_args

from jumok.analysis.alignment import Aligner, Extraction, Join, TwoWayAligner, turned
from jumok.analysis.alignment_choice import SAMPLE, Watch, choose_by_agreement, choose_look, links_of_looks
from jumok.analysis.alignment_score import Gold
from jumok.analysis.attention_map import place_of
from jumok.analysis.word_attention import Look, all_looks
from jumok.cli.output import progress
from jumok.data import Pair
from jumok.errors import ArgumentError
from jumok.model_folder import Trained, load_model
from jumok.taught import taught_look
from jumok.translator import find_device

Dev = tuple[Sequence[Pair], Sequence[Gold]]


class Wanted(NamedTuple):
    """What was asked for on the command line; None is left to choose."""

    links: str = "argmax"
    threshold: float | None = None
    layer: int | None = None
    head: int | None = None
    shift: bool | None = None
    symmetrise: str = "grow-diag"

    def check(self) -> None:
        """Say what is not known before anything is loaded."""
        for option, known in (("links", Extraction), ("symmetrise", Join)):
            if getattr(self, option) not in get_args(known):
                raise ArgumentError(f"--{option} {getattr(self, option)!r} is not one of {', '.join(get_args(known))}")

    @property
    def how(self) -> tuple[Extraction, float]:
        """How one direction makes links of its weights."""
        return cast(Extraction, self.links), 0.2 if self.threshold is None else self.threshold


def make_aligner(
    model: Path,
    reverse: Path | None,
    wanted: Wanted,
    pairs: Sequence[Pair],
    *,
    dev: Dev | None = None,
    device: str = "auto",
    say: Callable[[str], None] = lambda message: None,
) -> Aligner | TwoWayAligner:
    """The aligner for these pairs; what was not asked for is chosen on some of them, or on `dev`."""
    wanted.check()
    where = find_device(device)
    there = load_model(model, where)
    if reverse is None:
        look = _choose(there, wanted, _sample(pairs), dev)
        say(f"aligning with {look}")
        return _aligner(there, look, wanted)
    back = load_model(reverse, where)
    looks = _choose_both(there, back, wanted, _sample(pairs), dev)
    for folder, look in zip((model, reverse), looks, strict=True):
        say(f"aligning with {look} of {folder}")
    one, other = (_aligner(trained, look, wanted) for trained, look in zip((there, back), looks, strict=True))
    return TwoWayAligner(
        one, other, cast(Join, wanted.symmetrise), 0.5 if wanted.threshold is None else wanted.threshold
    )


def candidates(trained: Trained, wanted: Wanted) -> list[Look]:
    """The looks of a model that fit what was asked for; of a model with guided alignment, the one that was guided."""
    layer, head, shift = wanted.layer, wanted.head, wanted.shift
    taught = taught_look(trained) if layer is None and head is None else None
    if taught is not None:
        return [taught if shift is None else taught._replace(shift=shift)]
    every = all_looks(trained.model)
    layers, heads = (1 + max(part or 0 for part in column) for column in list(zip(*every, strict=True))[:2])
    layer = None if layer is None else place_of(layer, layers, "layer")
    head = None if head is None else place_of(head, heads, "head")
    return [
        look
        for look in every
        if layer in (None, look.layer) and head in (None, look.head) and shift in (None, look.shift)
    ]


def _choose(trained: Trained, wanted: Wanted, pairs: Sequence[Pair], dev: Dev | None) -> Look:
    sample, gold = (pairs, None) if dev is None else dev
    method, threshold = wanted.how
    return choose_look(
        trained.model,
        trained.tokenizers,
        sample,
        candidates(trained, wanted),
        gold=gold,
        method=method,
        threshold=threshold,
        watch=_watch(len(sample)),
    )


def _watch(pairs: int) -> Watch:
    return partial(progress, verb="choosing a head", unit="pairs", total=pairs)


def _choose_both(
    there: Trained, back: Trained, wanted: Wanted, pairs: Sequence[Pair], dev: Dev | None
) -> tuple[Look, Look]:
    if dev is not None:
        return _choose(there, wanted, pairs, dev), _choose(back, wanted, pairs, _turned(dev))
    looks, back_looks = candidates(there, wanted), candidates(back, wanted)
    if len(looks) == len(back_looks) == 1:
        return looks[0], back_looks[0]
    watch, other_way = _watch(len(pairs)), [turned(pair) for pair in pairs]
    found = links_of_looks(there.model, there.tokenizers, pairs, looks, *wanted.how, watch=watch)
    found_back = links_of_looks(back.model, back.tokenizers, other_way, back_looks, *wanted.how, watch=watch)
    return choose_by_agreement(found, found_back)


def _aligner(trained: Trained, look: Look, wanted: Wanted) -> Aligner:
    return Aligner(trained.model, trained.tokenizers, look, *wanted.how)


def _sample(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs with words on both sides, evenly from the whole text."""
    full = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
    return full[:: max(len(full) // SAMPLE, 1)][:SAMPLE]


def _turned(dev: Dev) -> Dev:
    pairs, gold = dev
    back = [Gold(*(frozenset((j, i) for i, j in links) for links in row)) for row in gold]
    return [turned(pair) for pair in pairs], back
