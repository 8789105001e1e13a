"""`jumok look`: translate one text, or caption one image, and show where every word looked."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from jumok.cli.bundled import HELP
from jumok.cli.output import MAX_SOURCE, WIDEST_BEAM, print_json, save_all, say
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.analysis.attention_map import AttentionMap
    from jumok.cli.look_words import Looked


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
        Option("--out", "-o", help="Also write the map (map-1, map-2 … of parts): .png .svg .pdf .html .json."),
    ] = None,
    layer: Annotated[list[int] | None, Option(help="Only this layer, counted from 0, -1 the last; repeatable.")] = None,
    head: Annotated[list[int] | None, Option(help="Only this head, counted from 0, -1 the last; repeatable.")] = None,
    grid: Annotated[bool, Option(help="Draw every layer and head by itself in pictures, not their average.")] = False,
    tokens: Annotated[bool, Option(help="Show the model's own tokens instead of words.")] = False,
    beam: Annotated[
        int | None, Option(min=1, max=WIDEST_BEAM, help="Hypotheses kept at each step; 1 is greedy.")
    ] = None,
    max_source: Annotated[int | None, Option(min=1, help=MAX_SOURCE)] = None,
    node: Annotated[str | None, Option(help="For a graph model: the node to look at, by its number or name.")] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, Option("--json", help="The translation and all weights as JSON.")] = False,
) -> None:
    """Translate a text and show where each word looked, averaged over layers and heads unless some are chosen.

    A text that is too long for the model is translated in parts, and each part has its map.
    Of a captioner, the second argument is an image. Of a graph model, --node shows whom a node looked at.
    """
    from jumok.analysis.saving import check_kind
    from jumok.cli.look_graph import looked_in_graph
    from jumok.cli.look_words import Looked, looked_in_image, looked_in_text
    from jumok.cli.places import check_written
    from jumok.model_folder import is_captioner, is_graph_model

    for path in out or ():
        check_kind(path.suffix.lstrip(".").lower(), path)
        check_written("--out", path, [model, text])
    if node is not None or (model is not None and is_graph_model(model)):
        given = {"--target": target is not None, "--beam": beam is not None, "--tokens": tokens, "--grid": grid}
        _only_for_texts(str(model), "a graph model", {**given, "--max-source": max_source is not None})
        facts, shown = looked_in_graph(model, node, layers=layer or [], heads=head or [], device=device)
        looked = Looked(facts, [shown])
    elif model is not None and is_captioner(model):
        _only_for_texts(model, "a captioner", {"--grid": grid, "--max-source": max_source is not None})
        looked = looked_in_image(model, text, target, beam=beam, words=not tokens, device=device).select(layer, head)
    else:
        limits = {"beam": beam, "max_source": max_source}
        looked = looked_in_text(model, text, target, words=not tokens, device=device, **limits).select(layer, head)
    # Before printing: whoever reads may have gone after the first line.
    maps = {place: shown for path in out or () for place, shown in _numbered(path, looked.maps)}
    failed = save_all(maps, lambda place: maps[place].save(place, grid=grid))
    if json:
        print_json(looked.as_plain())
    else:
        _print(looked)
    for message in looked.warnings:
        say(message)
    if failed is not None:
        raise failed


def _only_for_texts(model: str, what: str, given: dict[str, bool]) -> None:
    for option, is_given in given.items():
        if is_given:
            raise ArgumentError(f"{model} is {what}; {option} is for models that translate")


def _numbered(path: Path, maps: Sequence["AttentionMap"]) -> list[tuple[Path, "AttentionMap"]]:
    """Where each map goes: one to the path itself, those of several parts to map-1.svg, map-2.svg and so on."""
    if len(maps) == 1:
        return [(path, maps[0])]
    return [(path.with_stem(f"{path.stem}-{part}"), shown) for part, shown in enumerate(maps, start=1)]


def _print(looked: "Looked") -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    plain = console.color_system is None or console.no_color
    console.print(looked.facts["text"], style=None if plain else "bold", soft_wrap=True)
    for part, shown in enumerate(looked.maps, start=1):
        if len(looked.maps) > 1:
            console.print(f"\npart {part} of {len(looked.maps)}", style=None if plain else "dim", soft_wrap=True)
        console.print(shown.terminal(width=console.width, plain=plain), soft_wrap=True)
