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
    from jumok.cli.inspect_parts import files_of, parameters_by_part
    from jumok.model_folder import is_captioner, is_graph_model

    found = _captioner if is_captioner(model) else _graph if is_graph_model(model) else _translator
    facts, tensors = found(model)
    facts |= {"parts": parameters_by_part(tensors), "files": files_of(model)}
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()} if weights else {}
    if json:
        print_json({**facts, **({"weights": shapes} if weights else {})})
        return
    print_table(["", str(model)], _rows(facts))
    if weights:
        print_table(["weight", "shape"], [[name, " × ".join(map(str, shape))] for name, shape in shapes.items()])


def _rows(facts: dict[str, Any]) -> list[list[str]]:
    """Words instead of the names of kinds, parts and files below one another."""
    from jumok.cli.inspect_parts import size_in_words, training_in_words

    words, parts, files = (facts[name] for name in ("in words", "parts", "files"))
    rows = []
    for name, value in facts.items():
        if name == "training":
            rows.append(["trained for", training_in_words(value)])
        elif name not in ("in words", "parts", "files"):
            rows.append([name, words.get(name) or _shown(value)])
        if name == "parameters":
            rows += [[f"  {part}", f"{count:,}"] for part, count in parts.items()]
    return [*rows, ["files", ""], *([f"  {name}", size_in_words(size)] for name, size in files.items())]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _translator(model: Path) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    from jumok.cli.inspect_parts import half_in_words, tokenizer_in_words, training_so_far
    from jumok.model_folder import load_model
    from jumok.models.weights import weights_of
    from jumok.translator import Translator

    trained = load_model(model)
    tensors, recipe = weights_of(trained.model), trained.recipe
    return {
        "does": "translates text",
        "encoder": recipe.encoder.kind,
        "decoder": recipe.decoder.kind,
        "in words": {"encoder": half_in_words(recipe.encoder), "decoder": half_in_words(recipe.decoder)},
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "tokenizer": tokenizer_in_words(recipe.tokenizer),
        "source vocabulary": trained.tokenizers.source.size,
        "target vocabulary": trained.tokenizers.target.size,
        "shared vocabulary": trained.tokenizers.shared,
        "longest source": f"{Translator(trained).longest:,} tokens; longer texts are translated in parts",
        "trained on": recipe.data.origin,
        "training": training_so_far(model, recipe.training),
    }, tensors


def _captioner(model: Path) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    from jumok.caption_model import load_captioner
    from jumok.cli.inspect_parts import half_in_words, tokenizer_in_words, training_so_far
    from jumok.models.weights import weights_of

    trained = load_captioner(model)
    tensors, recipe = weights_of(trained.model), trained.recipe
    rows, columns = trained.model.encoder.grid
    return {
        "does": "captions images",
        "encoder": recipe.encoder.kind,
        "decoder": recipe.decoder.kind,
        "in words": {"encoder": half_in_words(recipe.encoder), "decoder": half_in_words(recipe.decoder)},
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "image": f"{recipe.images.size} × {recipe.images.size} pixels",
        "regions": f"{rows} × {columns}",
        "tokenizer": tokenizer_in_words(recipe.tokenizer),
        "vocabulary": trained.tokenizer.size,
        "trained on": recipe.images.origin,
        "training": training_so_far(model, recipe.training),
    }, tensors


def _graph(model: Path) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    from jumok.cli.inspect_parts import network_in_words, training_so_far
    from jumok.cli.output import say
    from jumok.graph_model import load_graph_model
    from jumok.models.weights import weights_of

    (network, recipe), graph = load_graph_model(model, say=say)
    tensors = weights_of(network)
    return {
        "does": "classifies whole graphs" if recipe.network.pooling else "classifies the nodes of a graph",
        "network": recipe.network.kind,
        "in words": {"network": network_in_words(recipe.network)},
        "layers": recipe.network.layers,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "features": graph.width,
        "classes": graph.classes,
        "trained on": recipe.graph.origin,
        "the graph": str(graph),
        "training": training_so_far(model, recipe.training),
    }, tensors
