"""`jumok look MODEL --node 42`: whom a node of a graph looked at."""

from pathlib import Path
from typing import TYPE_CHECKING

from jumok.cli.output import print_json, say

if TYPE_CHECKING:
    from rich.text import Text

    from jumok.analysis.graph_map import GraphMap

BAR = 24
"""Cells of the longest bar."""
SHOWN = 30
"""Rows of the table."""


def look_graph(
    model: str | None, node: str | None, *, layer: list[int], heads: list[int], out: list[Path], device: str, json: bool
) -> None:
    """Print the table, and write the drawing to the files of `out`."""
    from jumok.analysis.graph_map import find_node, graph_map
    from jumok.errors import ArgumentError
    from jumok.graph_model import load_graph_model
    from jumok.model_folder import is_captioner, is_graph_model
    from jumok.translator import find_device

    if model is None:
        raise ArgumentError(f"--node needs a graph model: jumok look MODEL --node {node}")
    if Path(model).is_dir() and not is_graph_model(model):
        does, wanted = ("captions images", "image.jpg") if is_captioner(model) else ("translates", '"text"')
        raise ArgumentError(f"--node is for graph models, and {model} {does}; write: jumok look {model} {wanted}")
    if node is None:
        raise ArgumentError(f"{model} is a graph model; say which node to look at: jumok look {model} --node 0")
    if len(layer) > 1:
        raise ArgumentError("--layer can be given once for a graph model: a node is shown in one layer at a time")
    trained, graph = load_graph_model(model, find_device(device), say=say)
    shown = graph_map(
        trained.model, graph, find_node(graph, node), layer=layer[0] if layer else None, heads=heads or None
    )
    for path in out:
        shown.save(path)
        say(f"wrote {path}")
    if json:
        print_json(shown.as_plain())
    else:
        _print(shown)


def _print(shown: "GraphMap") -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    plain = console.color_system is None or console.no_color
    console.print(shown.title(), style=None if plain else "bold", soft_wrap=True)
    if not shown.seen:
        console.print("it has no neighbour and looked at nothing")
        return
    console.print(table(shown, plain=plain), soft_wrap=True)
    if len(shown.seen) > SHOWN:
        rest = shown.seen[SHOWN:]
        console.print(f"and {len(rest)} more, together {sum(one.weight for one in rest):.3f}; --json has all")


def table(shown: "GraphMap", *, plain: bool) -> "Text":
    """A row for every node looked at: its name, its class, the weight as a number and as a bar."""
    from rich.text import Text

    from jumok.analysis.colours import colour
    from jumok.analysis.width import cells, fitted

    seen = shown.seen[:SHOWN]
    names = [one.name + (" (itself)" if one.node == shown.node else "") for one in seen]
    wide, label = (max(map(cells, column)) for column in (["node", *names], ["class", *(one.label for one in seen)]))
    top = max(one.weight for one in seen) or 1.0
    lines = [Text(f"{fitted('node', wide)}  {fitted('class', label)}  weight")]
    for name, one in zip(names, seen, strict=True):
        length = round(BAR * one.weight / top)
        bar = Text("█" * length) if plain else Text(" " * length, style=f"on {colour(0.25 + 0.75 * one.weight / top)}")
        lines.append(Text(f"{fitted(name, wide)}  {fitted(one.label, label)}   {one.weight:.3f}  ") + bar)
    return Text("\n").join(lines)
