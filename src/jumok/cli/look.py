"""`jumok look`: translate one text, or caption one image, and show where every word looked."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from os.path import exists, isdir, isfile  # a text too long to be a name is none of them
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument, Option

from jumok.cli.output import HELP, MAX_SOURCE, WIDEST_BEAM, named_or_bundled, print_json, save_all, say
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.analysis.maps.attention_map import AttentionMap
    from jumok.graphs.network import GraphAttentionNetwork


def looked_in_graph(
    model: str | None, node: str | None, *, layers: Sequence[int], heads: Sequence[int], device: str
) -> tuple[dict[str, Any], "AttentionMap"]:
    """What there is to say of the node, and its map in all layers and heads or in those asked for."""
    from jumok.graphs.map import find_node, graph_map
    from jumok.tasks.graph_model import load_graph_model
    from jumok.tasks.translator import find_device

    _check(model, node)
    trained, graph = load_graph_model(str(model), find_device(device), say=say)
    number = find_node(graph, str(node))
    chosen = _own_heads(trained.model, layers, heads)
    shown = graph_map(trained.model, graph, number).select(layer=list(layers) or None, head=chosen or None)
    return {"node": number, "text": shown.title}, shown


def _check(model: str | None, node: str | None) -> None:
    from jumok.model_folder import is_captioner, is_graph_model

    if model is None:
        raise ArgumentError(f"--node needs a graph model: jumok look MODEL --node {node}")
    if Path(model).is_dir() and not is_graph_model(model):
        does, wanted = ("captions images", "image.jpg") if is_captioner(model) else ("translates", '"text"')
        raise ArgumentError(f"--node is for graph models, and {model} {does}; write: jumok look {model} {wanted}")
    if node is None:
        raise ArgumentError(f"{model} is a graph model; say which node to look at: jumok look {model} --node 0")


def _own_heads(model: "GraphAttentionNetwork", layers: Sequence[int], heads: Sequence[int]) -> list[int]:
    """The heads counted from 0; one that the layers asked for lack is refused: the map has an average in its place."""
    from jumok.analysis.maps.attention_map import resolve_index

    counts = [int(layer.heads) for layer in model.layers]  # type: ignore[arg-type]
    asked = [resolve_index(layer, len(counts), "layer") for layer in layers] or [len(counts) - 1]
    least = min(counts[layer] for layer in asked)
    return [resolve_index(head, least, f"layer {asked[-1]}, head") for head in heads]


LONGEST_TITLE = 90


class Looked(NamedTuple):
    """What there is to say of an output, and its map; one for every part of a text that was too long for the model."""

    facts: dict[str, Any]
    maps: "list[AttentionMap]"
    warnings: tuple[str, ...] = ()

    def select(self, layer: list[int] | None, head: list[int] | None) -> "Looked":
        """The same with these layers and heads of the maps, all of them where none are asked for."""
        return self._replace(maps=[shown.select(layer=layer or None, head=head or None) for shown in self.maps])

    def as_plain(self) -> dict[str, Any]:
        """For JSON: `attention` is the map, `parts` are the maps where there are several."""
        maps = [shown.as_plain() for shown in self.maps]
        return self.facts | ({"attention": maps[0]} if len(maps) == 1 else {"parts": maps})


def looked_in_text(
    model: str | None,
    text: str | None,
    target: str | None,
    *,
    beam: int | None,
    max_source: int | None,
    words: bool,
    device: str,
) -> Looked:
    """The model's own translation, or one that is given, and its maps."""
    from jumok.tasks.translator import Translator

    folder, text = _model_and_text(model, text)
    text, target = _typed(text), None if target is None else _typed(target)
    translator = Translator.load(folder, device=device)
    if target is not None:
        shown = translator.attention(text, target, words=words, max_source=max_source)
        return Looked({"source": text, "text": target}, [_titled(shown, text, target)])
    (own,) = translator.translate([text], beam=beam, max_source=max_source)
    facts = {"source": text, "text": own.text, "score": round(own.score, 4)}
    decode = translator.trained.tokenizers.target.decode
    titles = [(source.strip(), decode(ids)) for source, ids in own.pieces]
    maps = own.attention_maps(words=words)
    titled = [_titled(shown, *title) for shown, title in zip(maps, titles, strict=True)]
    return Looked(facts, titled, tuple(own.warnings().values()))


def _titled(shown: "AttentionMap", source: str, target: str) -> "AttentionMap":
    title = f"{source} → {target}"
    return replace(shown, title=title if len(title) <= LONGEST_TITLE else "")


def looked_in_image(
    model: str, image: str | None, target: str | None, *, beam: int | None, words: bool, device: str
) -> Looked:
    """The model's own caption, or one that is given, and its map."""
    from jumok.tasks.captioner import Captioner

    image, target = _image(model, image), None if target is None else _typed(target)
    captioner = Captioner.load(model, device=device)
    if target is not None:
        return Looked({"image": image, "text": target}, [captioner.attention(image, target, words=words)])
    (own,) = captioner.caption([image], beam=beam)
    return Looked({"image": image, "text": own.text, "score": round(own.score, 4)}, [own.attention(words=words)])


def _typed(text: str) -> str:
    """A text of the command line in UTF-8; in another locale Python hides its bytes in half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode(errors="replace")
    return text


def _model_and_text(model: str | None, text: str | None) -> tuple[Path, str]:
    """`look MODEL TEXT`, `look TEXT` with the bundled model, or either with the text on standard input."""
    if model is not None and text is None and not isdir(model):
        if isfile(model) or (model and Path(model).parent != Path() and isdir(Path(model).parent)):
            raise ArgumentError(f'there is no model folder {model}; to look at a text: jumok look MODEL "text"')
        model, text = None, model
    if model is not None and text is not None and isdir(text) and not isdir(model):
        raise ArgumentError(f"{model!r} is no model folder, but {text!r} is; the model comes first")
    if text not in (None, "-") and isfile(str(text)) and (model is None or isdir(model)):
        named = model or "[MODEL]"
        if kind := _kind(str(text)):
            raise ArgumentError(
                f"{model or 'the model'} reads text, and {text} is {kind}; images are for captioners, and this one is "
                f'given a text: jumok look {named} "text"'
            )
        raise ArgumentError(
            f"{model or 'the model'} reads text, and {text} is a file; give it the text itself: jumok look {named} "
            f'"text", or a line of the file: jumok look {named} - < {text}'
        )
    folder = named_or_bundled(Path(model) if model is not None else None)
    return folder, _first_line() if text in (None, "-") else str(text)


def _kind(path: str) -> str:
    """What a file is that is no text, by its beginning."""
    from jumok.files import known_kind, open_bytes

    with open_bytes(path) as file:
        return known_kind(file.read(8))


def _first_line() -> str:
    from jumok.data import read_lines

    if sys.stdin is not None and sys.stdin.isatty():
        raise ArgumentError('there is no text to look at; write: jumok look [MODEL] "text"')
    return next(read_lines("-"), "")


def _image(model: str, image: str | None) -> str:
    if image is None:
        raise ArgumentError(f"{model} is a captioner; say which image to look at: jumok look {model} image.jpg")
    if not exists(image):
        raise ArgumentError(
            f"there is no image {image}; {model} is a captioner and looks at images: jumok look {model} image.jpg, and "
            "a caption of your own goes behind --target"
        )
    return image


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
        Option("--out", "-o", help="Also write the map (map-1, map-2 … of parts): .png .svg .pdf .html .json .txt."),
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
    from jumok.analysis import draw
    from jumok.analysis.draw.formats import check_format
    from jumok.cli.output import check_written
    from jumok.model_folder import is_captioner, is_graph_model

    for path in out or ():
        check_format(path.suffix.lstrip(".").lower(), path)
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
    maps = {file: shown for path in out or () for file, shown in _numbered(path, looked.maps)}
    failed = save_all(maps, lambda path: draw.save(maps[path], path, grid=grid))
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

    from jumok.analysis import draw

    console = Console(highlight=False, markup=False, emoji=False)
    plain = console.color_system is None or console.no_color
    console.print(looked.facts["text"], style=None if plain else "bold", soft_wrap=True)
    for part, shown in enumerate(looked.maps, start=1):
        if len(looked.maps) > 1:
            console.print(f"\npart {part} of {len(looked.maps)}", style=None if plain else "dim", soft_wrap=True)
        console.print(draw.to_terminal(shown, width=console.width, plain=plain), soft_wrap=True)
