"""`jumok shortlist`: build a shortlist of target words for int8 decoding from your own text."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import ColumnNames, Device, FromLanguage, Tag, ToLanguage, parse_columns
from jumok.cli.output import print_json, say
from jumok.cli.streams import is_typed
from jumok.errors import ArgumentError
from jumok.files import read_lines
from jumok.progress import ProgressBars

FEW = 0.8
"""A smaller share of covered texts calls for more text."""


def shortlist(
    model: Annotated[Path, Argument(help="Model folder, such as an imported one.")],
    source: Annotated[
        str,
        Option(
            help='Texts like those you translate, one per line, also .gz or .xz, "-" for standard input; or .tsv pairs.'
        ),
    ] = "-",
    target: Annotated[
        str | None, Option(help="Their translations; without them, the model translates the texts first.")
    ] = None,
    columns: ColumnNames = None,
    tag: Tag = None,
    from_language: FromLanguage = None,
    to_language: ToLanguage = None,
    device: Device = "auto",
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Build a shortlist of target words from your own text, to speed up --precision int8."""
    translator = library.tasks.load(model, device=device).between(from_language, to_language)
    texts, translations = _texts(source, target, columns)
    with ProgressBars() as bars:

        def show(numbers: range, share: float) -> None:
            bars.show_share(f"translating {numbers[0]:,} to {numbers[-1]:,}", share)

        saved = library.own_shortlist.save_shortlist(translator, texts, translations, tag=tag, tell=show)
    if json:
        print_json({**asdict(saved), "path": str(saved.path)})
        return
    say(
        f"{saved.path}: from {saved.pairs:,} pairs. It covers {saved.covered:.0%} of these texts, for which "
        f"--precision int8 considers {saved.considered:,.0f} of {saved.vocabulary:,} tokens on average"
    )
    if saved.covered < FEW:
        say("for all other texts it considers the whole vocabulary; add more texts like those you translate")


def _texts(source: str, target: str | None, columns: str | None) -> tuple[list[str], list[str] | None]:
    """The texts and, where there are any, their translations."""
    if is_typed(source):
        say("type the texts, one per line; Ctrl-D ends")
    if columns is not None and target is not None:
        raise ArgumentError(f"--columns {columns} applies to a file of pairs, but --target names a second file")
    if target is None and columns is None and {".tsv", ".jsonl"}.isdisjoint(Path(source).suffixes):
        return list(read_lines(source)), None
    pairs = list(library.data.read_pairs(source, target, columns=parse_columns(columns)))
    return [pair.source for pair in pairs], [pair.target for pair in pairs]
