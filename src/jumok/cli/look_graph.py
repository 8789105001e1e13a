"""`jumok look MODEL --node 42`: whom a node of a graph looked at."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.cli.output import say
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.analysis.attention_map import AttentionMap
    from jumok.models.gat import GraphAttentionNetwork


def looked_in_graph(
    model: str | None, node: str | None, *, layers: Sequence[int], heads: Sequence[int], device: str
) -> tuple[dict[str, Any], "AttentionMap"]:
    """What there is to say of the node, and its map in all layers and heads or in those asked for."""
    from jumok.analysis.graph_map import find_node, graph_map
    from jumok.graph_model import load_graph_model
    from jumok.translator import find_device

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
    from jumok.analysis.attention_map import place_of

    counts = [int(layer.heads) for layer in model.layers]  # type: ignore[arg-type]
    asked = [place_of(layer, len(counts), "layer") for layer in layers] or [len(counts) - 1]
    least = min(counts[layer] for layer in asked)
    return [place_of(head, least, f"layer {asked[-1]}, head") for head in heads]
