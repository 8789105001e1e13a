"""A trained captioner as a recipe and a folder: weights, recipe, tokenizer, README; loading one runs no code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from jumok.config import BY_KIND, read_by_kind, read_file, with_variables, write_recipe
from jumok.data.augment import AugmentConfig
from jumok.data.batches import BatchConfig
from jumok.data.image_pairs import ImagesConfig
from jumok.data.sides import SHARED
from jumok.data.tokenizer import Tokenizer, TokenizerConfig
from jumok.decoding.config import DecodingConfig
from jumok.errors import ConfigError, ModelError
from jumok.model_folder import (
    RECIPE,
    WEIGHTS,
    check_same_words,
    folders_to_average,
    how_many,
    is_captioner,
    load_mean,
    model_path,
    read_sealed,
    seal,
    write_file,
)
from jumok.models.build import DecoderConfig
from jumok.models.captioner import IMAGE_ENCODERS, EncoderConfig, ImageCaptioner, build_captioner
from jumok.models.weights import from_bytes, load_weights, to_bytes, weights_of
from jumok.sections import check_names, read_section, with_defaults
from jumok.training.config import TrainingConfig

PLAIN = {
    "images": ImagesConfig,
    "tokenizer": TokenizerConfig,
    "augment": AugmentConfig,
    "batch": BatchConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "tokenizer": {"shared": False},  # there is one side only
    "training": {"metric": "bleu"},
    "decoding": {"max_length": 60},
}
"""Where the usual setting is not that of texts."""
PATHS = ("path", "captions", "weights")


@dataclass(frozen=True, kw_only=True)
class CaptionRecipe:
    """Everything that decides what a run gives: images and captions, the model, how it is trained and used."""

    images: ImagesConfig
    tokenizer: TokenizerConfig
    augment: AugmentConfig
    batch: BatchConfig
    encoder: EncoderConfig
    decoder: DecoderConfig
    training: TrainingConfig
    decoding: DecodingConfig

    def __post_init__(self) -> None:
        if self.training.metric == "accuracy":
            raise ConfigError('training.metric = "accuracy" is for graphs; for captions there is "exact_match"')
        if self.training.guided_alignment:
            raise ConfigError("training.guided_alignment teaches word links, and an image has no words; set it to 0")
        if self.augment.flip and self.images.scenes:
            raise ConfigError("augment.flip = true would turn left into right, and the captions of scenes say which")
        if self.decoder.vectors:
            raise ConfigError("decoder.vectors is for texts; leave it out")


class TrainedCaptioner(NamedTuple):
    """A model and what is needed to use it."""

    model: ImageCaptioner
    recipe: CaptionRecipe
    tokenizer: Tokenizer


def read_caption_recipe(path: str | Path, changes: Sequence[str] = (), *, variables: bool = True) -> CaptionRecipe:
    """The recipe of a captioner in a file, with changes such as "encoder.width=256" made to it."""
    return read_file(path, changes, lambda tables: make_caption_recipe(tables, variables=variables))


def make_caption_recipe(tables: Mapping[str, Any], *, variables: bool = True) -> CaptionRecipe:
    """The recipe of a captioner from the tables of a TOML file."""
    names = [field.name for field in fields(CaptionRecipe)]
    check_names(tables, names, " in the recipe of a captioner")
    given = {name: with_defaults(tables.get(name, {}), DEFAULTS.get(name, {})) for name in names}
    if variables:
        given = {name: with_variables(table, name, PATHS) for name, table in given.items()}
    sections: dict[str, Any] = {name: read_section(cls, given[name], name) for name, cls in PLAIN.items()}
    sections["encoder"] = read_by_kind(IMAGE_ENCODERS, given["encoder"], "encoder")
    sections["decoder"] = read_by_kind(BY_KIND["decoder"], given["decoder"], "decoder")
    return CaptionRecipe(**sections)


def new_captioner(recipe: CaptionRecipe, tokenizer: Tokenizer) -> ImageCaptioner:
    """The recipe's model with fresh weights, the same ones for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        return build_captioner(recipe.encoder, recipe.decoder, side=recipe.images.size, vocabulary=tokenizer.size)


def describe_captioner(
    folder: str | Path,
    trained: TrainedCaptioner,
    *,
    scores: Mapping[str, Any] | None = None,
    weights: Path | None = None,
) -> None:
    """Write everything but the weights, which are there already or in the file `weights`, and the checksums."""
    folder = Path(folder)
    trained.tokenizer.save(folder / SHARED)
    seal(folder, write_recipe(trained.recipe), _readme(trained, scores or {}), weights)


def load_captioner(folder: str | Path, device: torch.device | str = "cpu") -> TrainedCaptioner:
    """The captioner of a folder, checked and ready to use."""
    folder = model_path(folder)
    contents = read_sealed(folder)
    if not is_captioner(folder):
        raise ModelError(
            f"{folder} is a model, but not a captioner; jumok inspect {folder} says what it is, and "
            "jumok train with a section [images] makes captioners"
        )
    recipe = read_caption_recipe(folder / RECIPE, variables=False)
    tokenizer = Tokenizer.load(folder / SHARED)
    model = new_captioner(recipe, tokenizer)
    load_weights(model, from_bytes(contents[WEIGHTS], folder / WEIGHTS), folder / WEIGHTS)
    return TrainedCaptioner(model.to(device).eval(), recipe, tokenizer)


def average_captioners(models: Sequence[str | Path], out: str | Path) -> None:
    """Write a captioner whose weights are the mean of those of some; all else is that of the first folder."""
    folders = folders_to_average(models, out)
    trained = load_captioner(folders[0])
    for folder in folders[1:]:
        check_same_words(folder, folders[0], [load_captioner(folder).tokenizer], [trained.tokenizer])
    load_mean(trained.model, models)
    write_file(Path(out) / WEIGHTS, to_bytes(weights_of(trained.model)))
    describe_captioner(out, trained, scores={"averaged over": how_many(models)})


def _readme(trained: TrainedCaptioner, scores: Mapping[str, Any]) -> str:
    rows, columns = trained.model.encoder.grid
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    return "\n".join(
        [
            "# A captioner trained with jumok",
            "",
            f"- learnt from: {trained.recipe.images.origin}",
            f"- images: {trained.recipe.images.size} pixels a side, seen as {rows} × {columns} regions",
            f"- parameters: {parameters:,}",
            f"- vocabulary: {trained.tokenizer.size:,} tokens",
            *(f"- {name}: {value}" for name, value in scores.items()),
            "",
            "Use it: `jumok caption THIS_FOLDER image.jpg`, `jumok look THIS_FOLDER image.jpg`",
            "",
        ]
    )
