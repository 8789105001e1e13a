"""`jumok align`: word alignments of texts and their translations, in Pharaoh format."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import (
    PAIRS,
    ColumnNames,
    Device,
    FromLanguage,
    Tag,
    TaskFile,
    ToLanguage,
    parse_columns,
    task_or,
)
from jumok.cli.output import print_json, print_table, say
from jumok.cli.streams import is_typed
from jumok.errors import ArgumentError
from jumok.progress import ProgressBars

if TYPE_CHECKING:
    from jumok.analysis.alignment.error_rate import Gold
    from jumok.data import Pair
    from jumok.tasks.alignment import Alignment, Development

Model = Annotated[
    Path | None, Argument(help="Folder of a trained model; without one, jumok learns the links from the texts alone.")
]
Source = Annotated[str, Option(help=f'Texts, one per line, also .gz or .xz, "-" for standard input; {PAIRS}')]
Target = Annotated[str | None, Option(help="Their translations; leave it out if --source holds pairs.")]
Reverse = Annotated[Path | None, Option(help="Model of the opposite direction, to align in both directions.")]
JOINS = "grow-diag, intersection, union, grow-diag-final, grow-diag-final-and, product"
Symmetrise = Annotated[
    str | None, Option(help=f"How to combine the links of --reverse; defaults to grow-diag. One of {JOINS}.")
]
LINKS = (
    "argmax (the default): each target word's strongest link; mutual: only those that are also the source word's "
    "strongest; threshold: all links of at least --threshold."
)
Links = Annotated[str | None, Option(help=LINKS)]
DEFAULTS = "0.2 with --links threshold, 0.5 with --symmetrise product, 0.4 without a model"
THRESHOLD = f"Minimum weight of a link; defaults to {DEFAULTS}."
Threshold = Annotated[float | None, Option(min=0, max=1, help=THRESHOLD)]
CHOSEN = "counted from 0 (-1: the last); by default, chosen on the data."
Layer = Annotated[int | None, Option(help=f"Use only this layer, {CHOSEN}")]
Head = Annotated[int | None, Option(help=f"Use only this head, {CHOSEN}")]
SHIFT = (
    "Use the attention of the step that reads a word, not of the step that writes it; by default, chosen on the data."
)
Shift = Annotated[bool | None, Option("--shift/--no-shift", help=SHIFT)]
UNITS = "Align the model's tokens or words; defaults to words, or to tokens if the tokenizer is character-level."
Tokens = Annotated[bool | None, Option("--tokens/--words", help=UNITS)]
GoldLinks = Annotated[str | None, Option(help="File of gold links; prints AER, precision and recall instead of links.")]
DevSource = Annotated[str | None, Option(help="Texts on which to choose layer and head; needs --dev-gold.")]
DevTarget = Annotated[str | None, Option(help="Translations of --dev-source.")]
DevGold = Annotated[str | None, Option(help="Gold links of --dev-source.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object per line.")]


def align(
    model: Model = None,
    source: Source = "-",
    target: Target = None,
    columns: ColumnNames = None,
    tag: Tag = None,
    from_language: FromLanguage = None,
    to_language: ToLanguage = None,
    reverse: Reverse = None,
    symmetrise: Symmetrise = None,
    links: Links = None,
    threshold: Threshold = None,
    layer: Layer = None,
    head: Head = None,
    shift: Shift = None,
    tokens: Tokens = None,
    gold: GoldLinks = None,
    dev_source: DevSource = None,
    dev_target: DevTarget = None,
    dev_gold: DevGold = None,
    task: TaskFile = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Print word alignments of sentence pairs: 0-0 1-2 links words 0 and 0, and words 1 and 2.

    If the tokenizer of the model is character-level, as for pronunciation, the links are between tokens.
    """
    options: dict[str, Any] = {"links": links, "threshold": threshold, "symmetrise": symmetrise, "tokens": tokens}
    options |= {"layer": layer, "head": head, "shift": shift, "languages": (from_language, to_language), "tag": tag}
    options |= {"reverse": reverse, "task": None if task is None else task_or(library.tasks.TRANSLATION, task)}
    library.alignment.check_options(model, options | {"dev": dev_source or dev_target or dev_gold})
    pairs = _read_pairs(source, target, columns)
    gold_links = None if gold is None else library.alignment.read_gold_links(gold, pairs)
    with ProgressBars() as bars:
        dev = _development(dev_source, dev_target, dev_gold)
        alignments = library.alignment.align(pairs, model, dev=dev, device=device, say=say, watch=bars, **options)
        if gold_links is not None:
            _print_scores(list(alignments), gold_links, json)
        else:
            _print_links(alignments, pairs, json, warn=model is not None)


def _read_pairs(source: str, target: str | None, columns: str | None = None) -> list["Pair"]:
    if columns is not None and target is not None:
        raise ArgumentError(f"--columns {columns} applies to a file of pairs, but --target names a second file")
    if is_typed(source):
        what = "a text ||| its translation" if target is None else "the texts"
        say(f"type {what}, one per line; Ctrl-D ends")
    return list(library.data.read_pairs(source, target, columns=parse_columns(columns)))


def _development(source: str | None, target: str | None, gold: str | None) -> "Development | None":
    if source is None and target is None and gold is None:
        return None
    if source is None or gold is None:
        raise ArgumentError("to choose layer and head on gold links, give both --dev-source and --dev-gold")
    pairs = _read_pairs(source, target)
    return pairs, library.alignment.read_gold_links(gold, pairs)


def _print_links(alignments: Iterable["Alignment"], pairs: Sequence["Pair"], json: bool, *, warn: bool) -> None:
    """Print a line for every pair; warn about a pair with words for which a model found no links."""
    for number, (pair, alignment) in enumerate(zip(pairs, alignments, strict=True), start=1):
        links = alignment.links
        if json:
            tokens = {"source": alignment.source, "target": alignment.target}
            named = {"tokens": tokens} if alignment.of_tokens else {}
            print_json({"source": pair.source, "target": pair.target, "links": sorted(links), **named})
        else:
            print(library.word_links.format_word_links(links))
        if warn and not links and pair.source.strip() and pair.target.strip():
            say(f"line {number} has no links: it is too long for the model, or none of its words match")


def _print_scores(alignments: list["Alignment"], gold: list["Gold"], json: bool) -> None:
    lengths = [(len(alignment.source), len(alignment.target)) for alignment in alignments]
    scores = library.error_rate.alignment_scores([alignment.links for alignment in alignments], gold, lengths)
    for message in scores.dropped[:5]:
        say(message)
    if len(scores.dropped) > 5:
        say(f"{len(scores.dropped) - 5} more gold links lie past the end of their pair and are ignored")
    rates = {"aer": scores.error, "precision": scores.precision, "recall": scores.recall}
    if json:
        print_json({**rates, "pairs": len(alignments), "links": scores.links, "dropped": len(scores.dropped)})
        return
    print_table(["score", "%"], [[name, f"{100 * value:.2f}"] for name, value in rates.items()])
