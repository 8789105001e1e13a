"""`jumok align`: which words of a text and its translation belong together, in Pharaoh format."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, cast, get_args

from typer import Argument, Option

from jumok.analysis.alignment.attention import Aligner, Extraction, Join, TwoWayAligner, turned
from jumok.analysis.alignment.choice import SAMPLE, Watch, choose_by_agreement, choose_look, links_of_looks
from jumok.analysis.alignment.error_rate import Gold
from jumok.analysis.alignment.word_attention import Look, all_looks
from jumok.analysis.maps.attention_map import place_of
from jumok.cli.output import COLUMNS, are_same, print_json, progress, say
from jumok.data import Pair
from jumok.errors import ArgumentError
from jumok.model_folder import Trained, load_model
from jumok.tasks.guided_head import taught_look
from jumok.tasks.translator import find_device

if TYPE_CHECKING:
    from jumok.analysis.alignment.error_rate import Gold, Scores
    from jumok.data import Pair

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


Model = Annotated[
    Path | None, Argument(help="Folder written by `jumok train`; without one, links are learnt from the text.")
]
PAIRS = 'Texts, one a line, also .gz or .xz; or pairs: .tsv, .jsonl, lines of `a ||| b`, "-".'
Source = Annotated[str, Option(help=PAIRS)]
Target = Annotated[str | None, Option(help="Their translations; leave it out if --source holds pairs.")]
Columns = Annotated[str | None, Option(help=COLUMNS)]
Reverse = Annotated[Path | None, Option(help="A model of the other direction, to align from both sides.")]
JOINS = "grow-diag (unless given), intersection, union, grow-diag-final, grow-diag-final-and, product"
Symmetrise = Annotated[str | None, Option(help=f"With --reverse: {JOINS}.")]
Links = Annotated[str | None, Option(help="argmax: one link a target word (unless given); mutual; threshold.")]
LEAST = "Least weight of a link: --links threshold (0.2), --symmetrise product or no model (0.5)."
Threshold = Annotated[float | None, Option(min=0, max=1, help=LEAST)]
CHOSEN = "counted from 0, -1 the last; chosen on the data if not given."
Layer = Annotated[int | None, Option(help=f"Only this layer, {CHOSEN}")]
Head = Annotated[int | None, Option(help=f"Only this head, {CHOSEN}")]
READ = "Look when a word was read, not written; chosen unless given."
Shift = Annotated[bool | None, Option("--shift/--no-shift", help=READ)]
GoldLinks = Annotated[str | None, Option(help="Links made by hand: prints AER, precision, recall, and no links.")]
DevSource = Annotated[str | None, Option(help="Texts to choose layer and head on; with --dev-gold.")]
DevTarget = Annotated[str | None, Option(help="Their translations.")]
DevGold = Annotated[str | None, Option(help="Their links, made by hand.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, Option("--json", help="One JSON object a line.")]


def align(
    model: Model = None,
    source: Source = "-",
    target: Target = None,
    columns: Columns = None,
    reverse: Reverse = None,
    symmetrise: Symmetrise = None,
    links: Links = None,
    threshold: Threshold = None,
    layer: Layer = None,
    head: Head = None,
    shift: Shift = None,
    gold: GoldLinks = None,
    dev_source: DevSource = None,
    dev_target: DevTarget = None,
    dev_gold: DevGold = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Print word alignments of texts and their translations: 0-0 1-2 links words 0 and 0, 1 and 2, a line a pair."""
    asked: dict[str, Any] = {"symmetrise": symmetrise, "links": links, "layer": layer, "head": head, "shift": shift}
    dev = {"dev-source": dev_source, "dev-target": dev_target, "dev-gold": dev_gold}
    _check(model, {"reverse": reverse, **asked, **dev}, threshold)
    pairs = _pairs(source, target, columns)
    wanted = None if gold is None else _gold(gold, pairs)
    if model is None:
        found = _from_text(pairs, threshold)
    else:
        how = {**asked, "threshold": threshold}
        found = _from_models(model, reverse, pairs, how, _dev(*dev.values()), device)
    found = progress(found, "aligning", "pairs", total=len(pairs))
    if wanted is not None:
        _print_scores(list(found), wanted, pairs, json)
    else:
        _print_links(found, pairs, json, complain=model is not None)


def _check(model: Path | None, given: dict[str, Any], threshold: float | None) -> None:
    """Refuse options that would do nothing, or no good."""
    idle = [option for option, value in given.items() if value is not None and model is None]
    if idle:
        _refuse(f"--{idle[0]} is about a model; name its folder first: jumok align MODEL --{idle[0]} …")
    if given["symmetrise"] is not None and given["reverse"] is None:
        _refuse("--symmetrise makes one of two directions; name a model of the other one, too: --reverse FOLDER")
    by_product = given["symmetrise"] == "product"
    if given["links"] is not None and by_product:
        _refuse("--links makes links of one direction, but --symmetrise product joins both before; leave it out")
    if threshold is not None and model is not None and given["links"] != "threshold" and not by_product:
        _refuse("--threshold is for --links threshold or --symmetrise product; other links have no least weight")
    if model is not None and given["reverse"] is not None and are_same(model, given["reverse"]):
        _refuse(
            f"--reverse {given['reverse']} is the model itself, of the same direction; name one that was trained on "
            "the same text with source and target exchanged, or leave --reverse out"
        )


def _refuse(why: str) -> NoReturn:
    from jumok.errors import ArgumentError

    raise ArgumentError(why)


def _from_text(pairs: "Sequence[Pair]", threshold: float | None) -> "Iterator[set[tuple[int, int]]]":
    from jumok.analysis.alignment.statistical import ROUNDS, align_text

    rounds = sum(ROUNDS)
    least = 0.5 if threshold is None else threshold
    yield from align_text(pairs, threshold=least, tell=lambda done: say(f"round {done} of {rounds}"))


def _from_models(
    model: Path,
    reverse: Path | None,
    pairs: "Sequence[Pair]",
    asked: dict[str, Any],
    dev: "tuple[list[Pair], list[Gold]] | None",
    device: str,
) -> "Iterator[set[tuple[int, int]]]":
    from jumok.analysis.alignment.attention import aligned

    wanted = Wanted(**{name: value for name, value in asked.items() if value is not None})
    return aligned(make_aligner(model, reverse, wanted, pairs, dev=dev, device=device, say=say), pairs)


def _pairs(source: str, target: str | None, columns: str | None = None) -> "list[Pair]":
    from jumok.cli.systems import parsed_columns
    from jumok.data import read_pairs

    if columns is not None and target is not None:
        _refuse(f"--columns {columns} is for a file of pairs, but --target names a file of its own")
    return list(read_pairs(source, target, columns=parsed_columns(columns)))


def _gold(path: str, pairs: "Sequence[Pair]") -> "list[Gold]":
    from jumok.analysis.alignment.error_rate import read_gold
    from jumok.errors import DataError

    found = read_gold(path, pairs=len(pairs))
    if len(found) != len(pairs):
        raise DataError(f"{path} has links for {len(found)} pairs, but there are {len(pairs)} pairs")
    return found


def _dev(source: str | None, target: str | None, gold: str | None) -> "tuple[list[Pair], list[Gold]] | None":
    from jumok.errors import ArgumentError

    if source is None and target is None and gold is None:
        return None
    if source is None or gold is None:
        raise ArgumentError("to choose layer and head on links made by hand, give --dev-source and --dev-gold together")
    pairs = _pairs(source, target)
    return pairs, _gold(gold, pairs)


def _print_links(
    found: "Iterable[set[tuple[int, int]]]", pairs: "Sequence[Pair]", json: bool, *, complain: bool
) -> None:
    """A line for every pair; where a model found nothing in a pair that has words, that is said."""
    for number, (pair, links) in enumerate(zip(pairs, found, strict=True), start=1):
        _print(pair, links, json)
        if complain and not links and pair.source.strip() and pair.target.strip():
            say(f"line {number} has no links: it is too long for the model, or no two of its words found each other")


def _print(pair: "Pair", links: set[tuple[int, int]], json: bool) -> None:
    from jumok.data.word_links import format_word_links

    if json:
        print_json({"source": pair.source, "target": pair.target, "links": sorted(links)})
    else:
        print(format_word_links(links))


def _print_scores(found: list[Any], gold: "list[Gold]", pairs: "Sequence[Pair]", json: bool) -> None:
    from jumok.analysis.alignment.error_rate import alignment_scores
    from jumok.cli.output import print_table

    lengths = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs]
    scores: Scores = alignment_scores(found, gold, lengths)
    for message in scores.dropped[:5]:
        say(message)
    if len(scores.dropped) > 5:
        say(f"and {len(scores.dropped) - 5} more gold links past the end of their pair, all left out")
    rates = {"aer": scores.error, "precision": scores.precision, "recall": scores.recall}
    if json:
        print_json({**rates, "pairs": len(pairs), "links": scores.found, "dropped": len(scores.dropped)})
        return
    print_table(["score", "%"], [[name, f"{100 * value:.2f}"] for name, value in rates.items()])
