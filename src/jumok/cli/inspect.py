"""`jumok inspect`: what a model folder holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from jumok.cli.output import print_json, print_table

if TYPE_CHECKING:
    from torch import Tensor


def inspect(
    model: Annotated[Path, Argument(help="Folder written by `jumok train`.")],
    weights: Annotated[bool, Option("--weights", help="Also list every weight with its shape.")] = False,
    json: Annotated[bool, Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a model is made of, checking every file on the way."""
    from jumok.model_folder import is_captioner, is_graph_model

    found = _captioner if is_captioner(model) else _graph if is_graph_model(model) else _translator
    facts, tensors = found(model)
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()} if weights else {}
    if json:
        print_json({**facts, **({"weights": shapes} if weights else {})})
        return
    shown = [[name, f"{value:,}" if type(value) is int else str(value)] for name, value in facts.items()]
    print_table(["", str(model)], shown)
    if weights:
        print_table(["weight", "shape"], [[name, " × ".join(map(str, shape))] for name, shape in shapes.items()])


def _translator(model: Path) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    from jumok.model_folder import load_model
    from jumok.models.weights import weights_of

    trained = load_model(model)
    tensors = weights_of(trained.model)
    return {
        "encoder": trained.recipe.encoder.kind,
        "decoder": trained.recipe.decoder.kind,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "source vocabulary": trained.tokenizers.source.size,
        "target vocabulary": trained.tokenizers.target.size,
        "shared vocabulary": trained.tokenizers.shared,
        "trained on": trained.recipe.data.origin,
    }, tensors


def _captioner(model: Path) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    from jumok.caption_model import load_captioner
    from jumok.models.weights import weights_of

    trained = load_captioner(model)
    tensors = weights_of(trained.model)
    rows, columns = trained.model.encoder.grid
    return {
        "encoder": trained.recipe.encoder.kind,
        "decoder": trained.recipe.decoder.kind,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "image": f"{trained.recipe.images.size} × {trained.recipe.images.size} pixels",
        "regions": f"{rows} × {columns}",
        "vocabulary": trained.tokenizer.size,
        "trained on": trained.recipe.images.origin,
    }, tensors


def _graph(model: Path) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    from jumok.cli.output import say
    from jumok.graph_model import load_graph_model
    from jumok.models.weights import weights_of

    (network, recipe), graph = load_graph_model(model, say=say)
    tensors = weights_of(network)
    return {
        "network": recipe.network.kind,
        "layers": recipe.network.layers,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "features": graph.width,
        "classes": graph.classes,
        "trained on": recipe.graph.origin,
        "the graph": str(graph),
    }, tensors
