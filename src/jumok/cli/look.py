"""`jumok look`: translate one text, or caption one image, and show where every word looked."""

import sys
from os.path import isdir, isfile  # a text too long to be a name is none of them
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from jumok.cli.bundled import HELP, named_or_bundled
from jumok.cli.output import print_json, save_all
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.analysis.attention_map import AttentionMap
    from jumok.translator import Translator

LONGEST_TITLE = 90


def look(
    model: Annotated[str | None, Argument(metavar="[MODEL]", help=HELP)] = None,
    text: Annotated[
        str | None, Argument(help='Text to translate, "-" for a line of standard input; an image for a captioner.')
    ] = None,
    target: Annotated[
        str | None, Option(help="Look at this translation or caption instead of the model's own.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        Option("--out", "-o", help="Also write the map: .png .svg .pdf .html .json; can be repeated."),
    ] = None,
    layer: Annotated[list[int] | None, Option(help="Only this layer, counted from 0, -1 the last; repeatable.")] = None,
    head: Annotated[list[int] | None, Option(help="Only this head, counted from 0, -1 the last; repeatable.")] = None,
    grid: Annotated[bool, Option(help="Draw every layer and head by itself in pictures, not their average.")] = False,
    tokens: Annotated[bool, Option(help="Show the model's own tokens instead of words.")] = False,
    beam: Annotated[int | None, Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    node: Annotated[str | None, Option(help="For a graph model: the node to look at, by its number or name.")] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, Option("--json", help="The translation and all weights as JSON.")] = False,
) -> None:
    """Translate a text and show where each word looked, averaged over layers and heads unless some are chosen.

    Of a captioner, the second argument is an image. Of a graph model, --node shows whom a node looked at.
    """
    from jumok.analysis.saving import check_kind
    from jumok.cli.look_graph import look_graph
    from jumok.cli.look_image import look_image
    from jumok.model_folder import is_captioner, is_graph_model
    from jumok.translator import Translator

    for path in out or ():
        check_kind(path.suffix.lstrip(".").lower(), path)
    if node is not None or (model is not None and is_graph_model(model)):
        look_graph(model, node, layer=layer or [], heads=head or [], out=out or [], device=device, json=json)
        return
    if model is not None and is_captioner(model):
        if grid or tokens:
            raise ArgumentError(
                f"{model} is a captioner; --{'grid' if grid else 'tokens'} is for models that translate"
            )
        look_image(
            model, text, caption=target, layer=layer or [], heads=head or [], beam=beam, out=out or [], device=device,
            json=json,
        )  # fmt: skip
        return
    folder, text = _model_and_text(model, text)
    found = _translated(Translator.load(folder, device=device), text, target, beam, words=not tokens)
    shown = found.pop("attention").select(layer=layer or None, head=head or None)
    title = f"{text} → {found['text']}"
    title = title if len(title) <= LONGEST_TITLE else ""
    # Before printing: whoever reads may have gone after the first line.
    failed = save_all(out or [], lambda path: shown.save(path, title=title, grid=grid))
    if json:
        print_json({**found, "attention": shown.as_plain()})
    else:
        _print(found["text"], shown)
    if failed is not None:
        raise failed


def _model_and_text(model: str | None, text: str | None) -> tuple[Path, str]:
    """`look MODEL TEXT`, `look TEXT` with the bundled model, or either with the text on standard input."""
    if model is not None and text is None and not isdir(model):
        if isfile(model) or (model and Path(model).parent != Path() and isdir(Path(model).parent)):
            raise ArgumentError(f'there is no model folder {model}; to look at a text: jumok look MODEL "text"')
        model, text = None, model
    if model is not None and text is not None and isdir(text) and not isdir(model):
        raise ArgumentError(f"{model!r} is no model folder, but {text!r} is; the model comes first")
    if text not in (None, "-") and isfile(str(text)):
        named = model or "[MODEL]"
        raise ArgumentError(
            f"{model or 'the model'} reads text, and {text} is a file; give it the text itself: jumok look {named} "
            f'"text", or a line of the file: jumok look {named} - < {text}'
        )
    folder = named_or_bundled(Path(model) if model is not None else None)
    return folder, _first_line() if text in (None, "-") else str(text)


def _translated(
    translator: "Translator", text: str, target: str | None, beam: int | None, words: bool
) -> dict[str, Any]:
    """The translation, its score if it is the model's own, and its map."""
    if target is not None:
        return {"source": text, "text": target, "attention": translator.attention(text, target, words=words)}
    settings: dict[str, Any] = {} if beam is None else {"beam": beam}
    (found,) = translator.translate([text], split=False, **settings)
    return {
        "source": text,
        "text": found.text,
        "score": round(found.score, 4),
        "attention": found.attention(words=words),
    }


def _print(translation: str, shown: "AttentionMap") -> None:
    from rich.console import Console

    from jumok.analysis.terminal import terminal_map

    console = Console(highlight=False, markup=False, emoji=False)
    plain = console.color_system is None or console.no_color
    console.print(translation, style=None if plain else "bold", soft_wrap=True)
    console.print(terminal_map(shown, width=console.width, plain=plain), soft_wrap=True)


def _first_line() -> str:
    from jumok.data import read_lines

    if sys.stdin is not None and sys.stdin.isatty():
        raise ArgumentError('there is no text to look at; write: jumok look [MODEL] "text"')
    for line in read_lines("-"):
        return line
    return ""
