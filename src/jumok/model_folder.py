"""A trained model as a folder: weights, recipe, tokenizers and a README. Loading one runs no code of its own."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from jumok.data import Tokenizer, TokenizerPair
from jumok.errors import ArgumentError, ModelError
from jumok.files import check_place, read_plain
from jumok.models.build import DecoderConfig, EncoderConfig, build_model
from jumok.models.encoder_decoder import Seq2Seq
from jumok.models.weights import (
    check_model_fits,
    check_shapes,
    from_bytes,
    load_weights,
    read_header,
    to_bytes,
    weights_of,
)
from jumok.recipe import CAPTION_SECTIONS, GRAPH_SECTIONS, Recipe, make_recipe, of_contents, write_recipe
from jumok.sealed_folder import (
    COMING,
    NEW_WEIGHTS,
    RECIPE,
    WEIGHTS,
    SealedFolder,
    check_whole,
    publish,
    read_folder,
    withdraw,
    write_file,
)
from jumok.settings import MOST_BYTES, parse_toml
from jumok.training.checkpoint import is_checkpoint
from jumok.training.resume import DESCRIBED, has_checkpoints, why_foreign
from jumok.training.snapshot import average_tensors

BUNDLED = Path(__file__).parent / "bundled" / "en-ko"
"""The tiny model that comes with jumok: English dates, times, durations, measures, amounts and names into Korean."""


class Trained(NamedTuple):
    """A model and what is needed to use it."""

    model: Seq2Seq
    recipe: Recipe
    tokenizers: TokenizerPair


def new_model(recipe: Recipe, tokenizers: TokenizerPair) -> Seq2Seq:
    """The recipe's model with fresh weights, the same ones for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        return _built(recipe.encoder, recipe.decoder, tokenizers)


def _built(encoder: EncoderConfig, decoder: DecoderConfig, tokenizers: TokenizerPair) -> Seq2Seq:
    return build_model(
        encoder,
        decoder,
        source_vocabulary=tokenizers.source.size,
        target_vocabulary=tokenizers.target.size,
        shared_vocabulary=tokenizers.shared,
    )


def save_model(
    folder: str | Path, trained: Trained, *, half: bool = False, scores: Mapping[str, Any] | None = None
) -> None:
    """Write the whole folder, its weights in half precision if asked; a model that was there is gone meanwhile."""
    folder, weights = Path(folder), weights_of(trained.model)
    if half:
        weights = {name: weight.half() if weight.is_floating_point() else weight for name, weight in weights.items()}
    write_file(folder / NEW_WEIGHTS, to_bytes(weights))
    withdraw(folder)
    publish_model(folder, trained, folder / NEW_WEIGHTS, scores=scores)


def publish_model(
    folder: str | Path, trained: Trained, weights: Path, *, scores: Mapping[str, Any] | None = None
) -> None:
    """Make the file `weights`, which is in the folder, its model's, with all that is needed to use it."""
    files = {RECIPE: write_recipe(trained.recipe).encode(), **trained.tokenizers.files()}
    publish(Path(folder), files, _readme(trained, scores or {}), weights)


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> Trained:
    """The model of a folder, checked and ready to use."""
    folder = model_path(folder)
    _check_translates(folder)
    trained = read_folder(folder, _read)
    return trained._replace(model=trained.model.to(device).eval())


def _read(folder: SealedFolder) -> Trained:
    """The recipe, the tokenizers and the weights' header first: a model that does not fit them is never built."""
    path = folder.path / WEIGHTS
    recipe = of_contents(folder.recipe(), folder.path / RECIPE, lambda tables: make_recipe(tables, variables=False))
    tokenizers, header = TokenizerPair.of_files(folder.tokenizers(), folder.path), folder.header()

    def build(encoder: EncoderConfig, decoder: DecoderConfig) -> Seq2Seq:
        return _built(encoder, decoder, tokenizers)

    check_model_fits(build, recipe.encoder, recipe.decoder, header=header, path=path)
    weights = from_bytes(folder.weights(header), path)
    model = new_model(recipe, tokenizers)
    load_weights(model, weights, path)
    return Trained(model, recipe, tokenizers)


def model_path(folder: Any) -> Path:
    """The path of a model's folder; an ArgumentError for what is no path at all."""
    if not isinstance(folder, str | os.PathLike):
        raise ArgumentError(f"folder must be the path of a model's folder, but it is {folder!r}")
    return Path(folder)


def check_translator(folder: Path) -> None:
    """Raise a ModelError unless a folder is a whole model, and one that translates."""
    _check_translates(folder)
    check_whole(folder)


def _check_translates(folder: Path) -> None:
    if is_graph_model(folder):
        raise ModelError(
            f"{folder} is a graph model, which knows no sentences; use it with jumok evaluate {folder} or "
            f"jumok look {folder} --node 0"
        )
    if is_captioner(folder):
        raise ModelError(
            f"{folder} is a captioner, which reads images; use it with jumok caption {folder} image.jpg or "
            f"jumok look {folder} image.jpg"
        )


def is_graph_model(folder: str | Path) -> bool:
    """Whether a folder holds a graph network; jumok.tasks.graph_model loads it."""
    return not GRAPH_SECTIONS.isdisjoint(_sections(Path(folder)))


def is_captioner(folder: str | Path) -> bool:
    """Whether a folder holds a captioner; jumok.tasks.caption_model loads it."""
    return not CAPTION_SECTIONS.isdisjoint(_sections(Path(folder)))


def _sections(folder: Path) -> set[str]:
    """The sections of a folder's recipe; none where it has no readable one, which is said where the folder is read."""
    path = folder / RECIPE
    try:
        return set(parse_toml(read_plain(path, most=MOST_BYTES, within=folder), path))
    except ValueError:
        return set()


def average_models(models: Sequence[str | Path], out: str | Path) -> None:
    """Write a model whose weights are the mean of those of some models; all else is that of the first folder."""
    folders = folders_to_average(models, out)
    trained = load_model(folders[0])
    for folder in folders[1:]:
        check_same_words(folder, folders[0], load_model(folder).tokenizers, trained.tokenizers)
    load_mean(trained.model, models)
    save_model(out, trained, scores={"averaged over": how_many(models)})


def folders_to_average(models: Sequence[str | Path], out: str | Path) -> list[Path]:
    """The folders of the models, of checkpoints those of their runs; the first decides all but the weights."""
    if missing := [model for model in models if not Path(model).exists()]:
        raise ModelError(f"there is no model {missing[0]}; name folders of models or .safetensors files")
    folders = list(dict.fromkeys(run_of(Path(model)) for model in models if Path(model).is_dir()))
    if not folders:
        raise ModelError(f"none of {', '.join(map(str, models))} is a model folder; at least one must be")
    check_place(out)
    if (Path(out) / WEIGHTS).exists():
        raise ModelError(f"{out} holds a model already; write the mean into another folder")
    if has_checkpoints(Path(out) / "checkpoints"):
        raise ModelError(f"{out} holds a training run; write the mean into another folder")
    if not (Path(out) / COMING).exists() and (why := why_foreign(Path(out), DESCRIBED)):
        raise ModelError(f"{why}; write the mean into another folder")
    return folders


def run_of(folder: Path) -> Path:
    """The model folder that a checkpoint of a run belongs to; any other folder itself."""
    return folder.resolve().parent.parent if is_checkpoint(folder) else folder


def how_many(models: Sequence[str | Path]) -> str:
    """The number of models, in words."""
    return f"{len(models)} model{'s' if len(models) != 1 else ''}"


def load_mean(model: nn.Module, models: Sequence[str | Path]) -> None:
    """Give the model the mean of the weights of some models: folders, checkpoints or files."""
    paths = [Path(model) for model in models]
    files = [path / WEIGHTS if path.is_dir() and not is_checkpoint(path) else path for path in paths]
    for path in files:
        check_shapes(weights_of(model), read_header(path / WEIGHTS if path.is_dir() else path).shapes, path)
    load_weights(model, average_tensors(files), files[0])


def check_same_words(folder: Path, first: Path, found: Sequence[Tokenizer], wanted: Sequence[Tokenizer]) -> None:
    """Raise a ModelError unless the weights of two models stand for the same words."""
    if [side.pieces for side in found] != [side.pieces for side in wanted]:
        raise ModelError(f"{folder} has another vocabulary than {first}, so their weights have no mean")


def _readme(trained: Trained, scores: Mapping[str, Any]) -> str:
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    lines = [
        "# A model trained with jumok",
        "",
        f"- learnt from: {trained.recipe.data.origin}",
        f"- parameters: {parameters:,}",
        f"- vocabulary: {trained.tokenizers.source.size:,} source, {trained.tokenizers.target.size:,} target tokens"
        + (" (shared)" if trained.tokenizers.shared else ""),
        *(f"- {name}: {value}" for name, value in scores.items()),
        "",
        "Use it: `jumok translate THIS_FOLDER < input.txt > output.txt`",
        "",
    ]
    return "\n".join(lines)
