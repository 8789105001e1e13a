"""`jumok inspect`: what a model folder holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from jumok.cli.output import print_json, print_table

if TYPE_CHECKING:
    from torch import Tensor

    from jumok.data.tokenizer import TokenizerConfig
    from jumok.graphs.network import GatConfig
    from jumok.training.config import TrainingConfig

SCORES = {"additive": "additive (Bahdanau's) attention", "none": "no attention: a fixed context"}
PIECES = {"unigram": "pieces of words (unigram)", "bpe": "pieces of words (BPE)", "char": "letters", "word": "words"}


def half_in_words(config: Any) -> str:
    """An encoder or a decoder of any family, as one would tell a colleague."""
    words = {"transformer": _transformer, "rnn": _rnn}.get(config.kind, _image)(config)
    return ", ".join(words)


def network_in_words(config: "GatConfig") -> str:
    """A graph network."""
    name = {"gat": "graph attention (GAT)", "gatv2": "graph attention (GATv2)"}[config.kind]
    read = "classifies nodes" if not config.pooling else f"classifies graphs, {config.pooling} of their nodes"
    sizes = f"{_count(config.layers, 'layer')}, {config.width} wide, {_count(config.heads, 'head')}"
    return f"{name}, {sizes}, {read}"


def tokenizer_in_words(config: "TokenizerConfig") -> str:
    """How text is cut, and what is done to it before."""
    forms = sorted({config.source_form, config.target_form})
    told = [PIECES[config.kind], f"Unicode form {' and '.join(forms)}"]
    told += ["lower case"] if config.lowercase else []
    told += ["numbers cut into digits"] if config.split_digits and config.kind not in ("char", "word") else []
    told += ["unknown letters as bytes"] if config.byte_fallback else []
    return ", ".join(told)


def parameters_by_part(tensors: Mapping[str, "Tensor"]) -> dict[str, int]:
    """How many numbers each part of a model has; a table that several parts share is counted where it comes first."""
    counts: dict[str, int] = {}
    for name, tensor in tensors.items():
        part = _part(name)
        counts[part] = counts.get(part, 0) + tensor.numel()
    if "target embeddings" not in counts and "source embeddings" in counts:
        counts = {"embeddings of both sides" if k == "source embeddings" else k: v for k, v in counts.items()}
    return counts


def training_so_far(folder: Path, config: "TrainingConfig") -> dict[str, Any]:
    """Steps, epochs, time and the best score, from the metrics beside the model; nothing where they are not there."""
    from jumok.training.metrics import read_metrics

    path = folder / "metrics.jsonl"
    records = read_metrics(path) if path.is_file() else []
    steps = [record for record in records if "validation" not in record]
    best = [record for record in records if record.get("best")]
    found: dict[str, Any] = {}
    if records:
        found["steps"] = max(record["step"] for record in records)
    if steps:
        found |= {"epochs": steps[-1].get("epoch", 0) + 1, "minutes": round(steps[-1].get("seconds", 0) / 60, 1)}
    if best and config.metric in best[-1]["validation"]:
        found |= {"metric": config.metric, "best": best[-1]["validation"][config.metric], "best step": best[-1]["step"]}
    return found


def training_in_words(found: Mapping[str, Any]) -> str:
    """The same as one line."""
    from jumok.training.progress import score_text

    if "steps" not in found:
        return "not known: metrics.jsonl is not in the folder"
    told = [_count(found["steps"], "step")]
    if "epochs" in found:
        told += [_count(found["epochs"], "epoch") + " begun", f"{found['minutes']:g} minutes"]
    if "best" in found:
        told.append(f"best {score_text(found['metric'], found['best'])} at step {found['best step']:,}")
    return ", ".join(told)


def files_of(folder: Path) -> dict[str, int]:
    """Bytes of every file, and of every folder all that is in it."""
    return {
        path.name + ("/" if path.is_dir() else ""): sum(one.stat().st_size for one in _inside(path) if one.is_file())
        for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
    }


def size_in_words(size: int) -> str:
    """12345678 as 12.3 MB."""
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} bytes"


def _transformer(config: Any) -> list[str]:
    positions = {"added": "sinusoidal positions added", "concatenated": "sinusoidal positions concatenated"}
    return [
        f"Transformer, {_count(config.layers, 'layer')}",
        f"{config.width} wide",
        _count(config.heads, "head"),
        f"feed-forward {config.hidden} wide",
        positions.get(config.positions, f"{config.positions} positions"),
        f"{config.norm}-norm",
        *_tied(config),
    ]


def _rnn(config: Any) -> list[str]:
    both = "bidirectional " if getattr(config, "bidirectional", False) else ""
    told = [f"{both}{_cell(config.cell)}, {_count(config.layers, 'layer')}", f"{config.width} wide"]
    told.append(f"embeddings {config.embedding} wide")
    if hasattr(config, "attention"):
        told.append(SCORES.get(config.attention, f"Luong's attention ({config.attention}, {config.reach})"))
        told += [name.replace("_", " ") for name in ("input_feeding", "coverage", "copy") if getattr(config, name)]
    return [*told, *_tied(config)]


def _image(config: Any) -> list[str]:
    if config.kind != "grid":
        return [f"{config.kind} of an image", f"{config.width} wide"]
    own = f"residual network of {_count(sum(config.blocks), 'block')}, {config.channels} channels and up"
    begun = ["begun with pretrained weights"] if config.weights else []
    return [own if config.layout == "own" else config.layout, f"regions {config.width} wide", *begun]


def _cell(cell: str) -> str:
    return {"gru": "GRU", "lstm": "LSTM"}.get(cell, "plain RNN")


def _tied(config: Any) -> list[str]:
    told = {
        "output": "output tied to its embeddings",
        "embeddings": "embeddings shared with the source",
        "all": "embeddings of both sides and output are one table",
    }
    return [told[config.tied]] if getattr(config, "tied", "none") in told else []


def _part(name: str) -> str:
    half, _, rest = name.partition(".")
    if half == "layers":
        return f"layer {rest.partition('.')[0]}"
    if "embedding" in rest:
        return "source embeddings" if half == "encoder" else "target embeddings"
    return "output" if rest.startswith("output") else half


def _inside(path: Path) -> list[Path]:
    return [path] if not path.is_dir() else list(path.rglob("*"))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def inspect(
    model: Annotated[Path, Argument(help="Folder written by `jumok train`.")],
    weights: Annotated[bool, Option("--weights", help="Also list every weight with its shape.")] = False,
    json: Annotated[bool, Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a model is made of, checking every file on the way."""
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
    from jumok.model_folder import load_model
    from jumok.models.weights import weights_of
    from jumok.tasks.translator import Translator

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
    from jumok.models.weights import weights_of
    from jumok.tasks.caption_model import load_captioner

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
    from jumok.cli.output import say
    from jumok.models.weights import weights_of
    from jumok.tasks.graph_model import load_graph_model

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
