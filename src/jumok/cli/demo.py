"""`jumok demo`: what attention is and what it is for, in a few minutes on a laptop."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from jumok.cli.output import named_folder, print_json, say
from jumok.errors import ArgumentError, MissingExtraError


def demo(
    out: Annotated[
        Path,
        Option(parser=named_folder, metavar="<path>", help="Folder for models and pictures; made if it is not there."),
    ] = Path("demo"),
    steps: Annotated[int, Option(min=1, help="Training steps of each of the two models.")] = 1800,
    minutes: Annotated[float, Option(min=0.01, help="Most minutes of training of each, on a slow machine.")] = 12,
    quick: Annotated[bool, Option("--quick", help="Only the part that trains nothing.")] = False,
    json: Annotated[bool, Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Kernel regression, a soft database, and two translators: one with a fixed context, one with attention."""
    from jumok.cli.demo_folders import check_models

    _make_folder(out)
    if not quick:
        check_models(out)
    found = _beginnings(out, json)
    if not quick:
        found |= _translators(out, steps, minutes, json)
    if json:
        print_json(found)


def _beginnings(out: Path, json: bool) -> dict[str, Any]:
    from jumok.cli import demo_regression as beginnings

    say("1. the oldest forms of attention: fitting and drawing ...")
    try:
        found = beginnings.begin(out)
    except MissingExtraError as error:
        say(f"skipped: {error}")
        return {}
    if not json:
        beginnings.show(found, _console())
    for picture in found.pictures:
        say(f"wrote {picture}")
    return beginnings.as_plain(found)


def _translators(out: Path, steps: int, minutes: float, json: bool) -> dict[str, Any]:
    from jumok.cli import demo_translation as translation_demo

    say(f"\n2. two translators from English to Korean, {steps:,} steps of training each: some three minutes on two")
    say(f"quiet cores; a slow or busy machine takes longer, but at most {minutes:g} minutes for each:")
    found = translation_demo.compare(out, steps=steps, minutes=minutes, say=say)
    if not json:
        translation_demo.show(found, _console())
    say(f"wrote {found.picture}; the models are in {out / 'fixed'} and {out / 'attention'}")
    return translation_demo.as_plain(found)


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def _make_folder(out: Path) -> None:
    """Make the folder, and find out whether it can be written to before any work is done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".jumok-can-write"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise ArgumentError(f"cannot write into the folder {out} ({reason}); choose another with --out") from None
