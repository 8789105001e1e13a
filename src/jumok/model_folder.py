"""A trained model as a folder: weights, recipe, tokenizers and a README. Loading one runs no code of its own."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from jumok.config import Recipe, is_caption_recipe, is_graph_recipe, read_recipe, write_recipe
from jumok.data import Tokenizer, Tokenizers
from jumok.data.files import atomic_write, check_place, sync_folder
from jumok.errors import ArgumentError, ModelError
from jumok.models.build import build_model
from jumok.models.seq2seq import Seq2Seq
from jumok.models.weights import from_bytes, load_weights, to_bytes, weights_of
from jumok.training.averaging import average_tensors
from jumok.training.checkpoint import is_checkpoint
from jumok.training.resume import DESCRIBED, has_checkpoints, why_foreign

BUNDLED = Path(__file__).parent / "bundled" / "en-ko"
"""The tiny model that comes with jumok: English dates, times, durations, measures, amounts and names into Korean."""

WEIGHTS, RECIPE, README, CHECKSUMS = "model.safetensors", "recipe.toml", "README.md", "checksums.json"
COMING = ".checksums.json"
"""The checksums of a folder that is being written, until all of it is there."""


class Trained(NamedTuple):
    """A model and what is needed to use it."""

    model: Seq2Seq
    recipe: Recipe
    tokenizers: Tokenizers


def new_model(recipe: Recipe, tokenizers: Tokenizers) -> Seq2Seq:
    """The recipe's model with fresh weights, the same ones for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        return build_model(
            recipe.encoder,
            recipe.decoder,
            source_vocabulary=tokenizers.source.size,
            target_vocabulary=tokenizers.target.size,
            shared_vocabulary=tokenizers.shared,
        )


def save_model(
    folder: str | Path, trained: Trained, *, half: bool = False, scores: Mapping[str, Any] | None = None
) -> None:
    """Write the whole folder, its weights in half precision if asked; every file appears complete or not at all."""
    folder, weights = Path(folder), weights_of(trained.model)
    if half:
        weights = {name: weight.half() if weight.is_floating_point() else weight for name, weight in weights.items()}
    write_file(folder / WEIGHTS, to_bytes(weights))
    describe_model(folder, trained, scores=scores)


def describe_model(
    folder: str | Path, trained: Trained, *, scores: Mapping[str, Any] | None = None, weights: Path | None = None
) -> None:
    """Write everything but the weights, and the checksums of all that must not change.

    The weights are there already, or are `weights`, a file in the folder that takes their place.
    """
    folder = Path(folder)
    trained.tokenizers.save(folder)
    seal(folder, write_recipe(trained.recipe), _readme(trained, scores or {}), weights)


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> Trained:
    """The model of a folder, checked and ready to use."""
    folder = model_path(folder)
    contents = read_translator(folder)
    recipe = read_recipe(folder / RECIPE, variables=False)
    tokenizers = Tokenizers.load(folder)
    model = new_model(recipe, tokenizers)
    path = folder / WEIGHTS
    load_weights(model, from_bytes(contents[WEIGHTS], path), path)
    return Trained(model.to(device).eval(), recipe, tokenizers)


def model_path(folder: Any) -> Path:
    """The path of a model's folder; an ArgumentError for what is no path at all."""
    if not isinstance(folder, str | os.PathLike):
        raise ArgumentError(f"folder must be the path of a model's folder, but it is {folder!r}")
    return Path(folder)


def read_translator(folder: Path) -> dict[str, bytes]:
    """The files of a model that must not change, by name; a ModelError unless it is whole and translates."""
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
    return read_sealed(folder)


def is_graph_model(folder: str | Path) -> bool:
    """Whether a folder holds a graph network; jumok.graph_model loads it."""
    try:
        return is_graph_recipe(Path(folder) / RECIPE)
    except ValueError:  # none, damaged, or no path at all: said where the folder is read
        return False


def is_captioner(folder: str | Path) -> bool:
    """Whether a folder holds a captioner; jumok.caption_model loads it."""
    try:
        return is_caption_recipe(Path(folder) / RECIPE)
    except ValueError:
        return False


def seal(folder: Path, recipe: str, readme: str, weights: Path | None = None) -> None:
    """Put the weights in place if they are new, write recipe and README, and the checksums of what must not change.

    The new checksums are there before anything changes, and the old ones go last: whenever this is cut short, every
    file has one.
    """
    content = recipe.encode()
    digests = {WEIGHTS: _digest((weights or folder / WEIGHTS).read_bytes()), RECIPE: _digest(content)}
    digests |= {path.name: _digest(path.read_bytes()) for path in _tokenizers(folder)}
    write_file(folder / COMING, json.dumps(digests, indent=1).encode())
    if weights is not None:
        os.replace(weights, folder / WEIGHTS)
    write_file(folder / RECIPE, content)
    write_file(folder / README, readme.encode())
    os.replace(folder / COMING, folder / CHECKSUMS)
    sync_folder(folder)


def read_sealed(folder: Path) -> dict[str, bytes]:
    """The files of a model that must not change, by name, each found to be as it was written."""
    if not folder.is_dir():
        raise ModelError(f"there is no model folder {folder}; `jumok train` writes one")
    try:
        return _read_sealed(folder)
    except ModelError:
        return _read_sealed(folder)  # training may have written a better one meanwhile


def _read_sealed(folder: Path) -> dict[str, bytes]:
    _existing(folder / RECIPE)
    coming = [_checksums(folder / COMING)] if (folder / COMING).exists() else []
    checksums = [_checksums(folder / CHECKSUMS), *coming] if (folder / CHECKSUMS).exists() or not coming else coming
    names = dict.fromkeys([*(path.name for path in _sealed(folder)), *(name for found in checksums for name in found)])
    return {name: _verified(folder / name, {found.get(name) for found in checksums}) for name in names}


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
    if why := why_foreign(Path(out), DESCRIBED):
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


def _sealed(folder: Path) -> list[Path]:
    """The files that must not change."""
    return [folder / WEIGHTS, folder / RECIPE, *_tokenizers(folder)]


def _tokenizers(folder: Path) -> list[Path]:
    return sorted(folder.glob("tokenizer*.model"))


def own_files(folder: Path) -> list[Path]:
    """The files that make a folder a model."""
    return [*_sealed(folder), folder / README, folder / CHECKSUMS]


def write_file(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with atomic_write(path) as file:
        file.write(content)


def _existing(path: Path) -> Path:
    if not path.exists():
        inside = sorted(str(recipe.parent) for recipe in path.parent.glob("*/recipe.toml"))
        hint = f"; the models in it: {', '.join(inside[:5])}{', …' if len(inside) > 5 else ''}" if inside else ""
        if any(path.parent.glob("checkpoints/step-*")):
            hint = "; it holds a training run: go on with it by --resume, and the model is there once it is validated"
        raise ModelError(f"{path.parent} is not a complete model: {path.name} is missing{hint}")
    return path


def _checksums(path: Path) -> dict[str, str]:
    try:
        found = json.loads(_existing(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError:
        raise ModelError(f"{path} is damaged: it is not JSON; copy the folder again") from None
    if not isinstance(found, dict) or not found.keys() >= {WEIGHTS, RECIPE}:
        raise ModelError(f"{path} is damaged: it does not name {WEIGHTS} and {RECIPE}; copy the folder again")
    for name, digest in found.items():
        if not re.fullmatch(r"[^/\\]+", name) or not re.fullmatch(r"[0-9a-f]{64}", str(digest)):
            raise ModelError(f"{path} is damaged: what it says of {name!r} is no checksum; copy the folder again")
    return found


def _verified(path: Path, digests: Set[str | None]) -> bytes:
    try:
        content = _existing(path).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    if _digest(content) not in digests:
        raise ModelError(
            f"{path} is not the file that was saved, or {CHECKSUMS} is not: its checksum there is another; "
            "one of the two was cut short, damaged or changed; copy the folder again"
        )
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
