"""`jumok look`: show what a model attends to in a translation, a caption or a graph."""

from collections.abc import Sequence
from os.path import isdir, isfile  # which are False for a text that is too long to be a file name
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import (
    BUNDLED_HELP,
    Beam,
    Device,
    FromLanguage,
    MapKindOption,
    MaxSource,
    Tag,
    TaskFile,
    ToLanguage,
    check_picture_kind,
    model_or_bundled,
    own_task,
)
from jumok.cli.output import print_json, save_all, say
from jumok.errors import ArgumentError
from jumok.files import checked_format, decode_argument

if TYPE_CHECKING:
    from jumok.analysis.maps.attention_map import AttentionMap
    from jumok.tasks.results import MappedOutput

UNITS = "Show the model's tokens or words; defaults to words, or to tokens if the tokenizer is character-level."


def look(
    arguments: Annotated[
        list[str] | None,
        Argument(
            metavar="[MODEL]... [TEXT]",
            help=f"{BUNDLED_HELP} Several folders form an ensemble. "
            'TEXT: what to translate, "-" for a line of standard input; for a captioner, an image.',
        ),
    ] = None,
    target: Annotated[str | None, Option(help="Show this translation or caption instead of the model's own.")] = None,
    out: Annotated[
        list[Path] | None,
        Option(
            "--out",
            "-o",
            help="Also save the map: .png, .svg, .pdf, .html, .json or .txt; for a split text, map-1, map-2 …",
        ),
    ] = None,
    layer: Annotated[
        list[int] | None, Option(help="Use only this layer, counted from 0 (-1: the last); repeatable.")
    ] = None,
    head: Annotated[
        list[int] | None, Option(help="Use only this head, counted from 0 (-1: the last); repeatable.")
    ] = None,
    kind: MapKindOption = "cross",
    grid: Annotated[
        bool, Option("--grid", help="In pictures, draw every layer and head separately instead of their average.")
    ] = False,
    tokens: Annotated[bool | None, Option("--tokens/--words", help=UNITS)] = None,
    beam: Beam = None,
    max_source: MaxSource = None,
    tag: Tag = None,
    from_language: FromLanguage = None,
    to_language: ToLanguage = None,
    node: Annotated[str | None, Option(help="For a graph model: the number or name of the node to show.")] = None,
    task: TaskFile = None,
    device: Device = "auto",
    json: Annotated[bool, Option("--json", help="Print the translation and all weights as JSON.")] = False,
) -> None:
    """Show what a model attends to in a translation, a caption or a graph.

    The map is the average over layers and heads unless --layer or --head selects some. A text that is too long for the
    model is translated in parts, and each part has its own map. For a captioner, the second argument is an image. For
    a graph model, --node shows the attention of a node.
    """
    for path in out or ():
        check_picture_kind(checked_format(path, library.draw.FORMATS))
        library.model_folder.check_output_path("--out", path, arguments or [])
    model, text, others = _models_and_text(arguments or [])
    own = own_task(task, models=1 + len(others))
    model, text = _model_and_text(model, text, node)
    options = library.tasks.MapOptions(
        target=None if target is None else decode_argument(target),
        layer=tuple(layer or ()),
        head=tuple(head or ()),
        kind=kind,
        tokens=tokens,
        grid=grid,
        beam=beam,
        max_source=max_source,
        tag=tag,
        languages=(from_language, to_language),
    )
    folder = model_or_bundled(None if model is None else Path(model))
    its_task, predictor = library.tasks.load_predictor([folder, *others], device=device, task=own)
    options.check_used(its_task.map_options, folder, its_task.does)
    source = its_task.map_source(library.map_source.MapSource(model, text, node))
    output = its_task.map(predictor, source, options)
    # The files come first: the reader of standard output may leave after one line.
    maps = {saved: shown for path in out or () for saved, shown in _output_paths(path, output.maps)}
    error = save_all(maps, lambda path: library.draw.save(maps[path], path, grid=grid))
    print_json(output.as_plain()) if json else _print(output)
    for message in output.warnings:
        say(message)
    if error is not None:
        raise error


def _models_and_text(arguments: Sequence[str]) -> tuple[str | None, str | None, Sequence[str]]:
    """The first model, the text, and the other models of an ensemble."""
    if len(arguments) < 3:
        model, text = (*arguments, None, None)[:2]
        return model, text, ()
    *models, text = arguments
    if wrong := next((model for model in models if not isdir(model)), None):
        hint = f'; put a text of several words in quotes: "{" ".join(arguments)}"' if wrong == arguments[0] else ""
        raise ArgumentError(f"there is no model folder {wrong}{hint}")
    return models[0], text, models[1:]


def _model_and_text(model: str | None, text: str | None, node: str | None) -> tuple[str | None, str | None]:
    """`look MODEL TEXT`, or `look TEXT` with the bundled model, which is None; a text of None is on standard input."""
    if model is None and node is not None:
        raise ArgumentError(f"--node needs a graph model: jumok look MODEL --node {node}")
    if model is None or isdir(model) or node is not None:
        return model, text
    if text is not None:
        if isdir(text):
            raise ArgumentError(f"{model!r} is not a model folder, but {text!r} is; the model comes first")
        return model, text
    if library.model_folder.is_model_file(Path(model)):
        raise ArgumentError(f'{model} is a file of a model; name its folder: jumok look {Path(model).parent} "text"')
    if isfile(model) or (model and Path(model).parent != Path() and isdir(Path(model).parent)):
        raise ArgumentError(f'there is no model folder {model}; to look at a text: jumok look MODEL "text"')
    return None, model


def _output_paths(path: Path, maps: Sequence["AttentionMap"]) -> list[tuple[Path, "AttentionMap"]]:
    """Where each map is saved: a single one at the path itself, those of several parts at map-1.svg, map-2.svg …"""
    if len(maps) == 1:
        return [(path, maps[0])]
    return [(path.with_stem(f"{path.stem}-{part}"), shown) for part, shown in enumerate(maps, start=1)]


def _print(output: "MappedOutput") -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    plain = console.color_system is None or console.no_color
    console.print(output.facts["text"], style=None if plain else "bold", soft_wrap=True)
    for part, shown in enumerate(output.maps, start=1):
        if len(output.maps) > 1:
            console.print(f"\npart {part} of {len(output.maps)}", style=None if plain else "dim", soft_wrap=True)
        console.print(library.draw.to_terminal(shown, width=console.width, plain=plain), soft_wrap=True)
