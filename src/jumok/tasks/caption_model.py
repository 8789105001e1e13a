"""A trained captioner as a recipe and a folder: weights, recipe, tokenizer, README; loading one runs no code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from jumok.data.batches import BatchConfig
from jumok.data.tokenizer import SHARED, Tokenizer, TokenizerConfig, TokenizerPair
from jumok.decoding.config import DecodingConfig
from jumok.errors import ConfigError, ModelError
from jumok.images.augment import AugmentConfig
from jumok.images.captioner import IMAGE_ENCODERS, EncoderConfig, ImageCaptioner, build_captioner
from jumok.images.pairs import ImagesConfig
from jumok.model_folder import (
    check_same_words,
    folders_to_average,
    how_many,
    is_captioner,
    load_mean,
    model_path,
)
from jumok.models.build import DecoderConfig
from jumok.models.weights import check_model_fits, from_bytes, load_weights, to_bytes, weights_of
from jumok.recipe import BY_KIND, of_contents, read_by_kind, read_file, with_variables, write_recipe
from jumok.sealed_folder import NEW_WEIGHTS, RECIPE, WEIGHTS, SealedFolder, publish, read_folder, write_file
from jumok.settings import check_names, read_section, with_defaults
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


def publish_captioner(
    folder: str | Path, trained: TrainedCaptioner, weights: Path, *, scores: Mapping[str, Any] | None = None
) -> None:
    """Make the file `weights`, which is in the folder, its captioner's, with all that is needed to use it."""
    files = {RECIPE: write_recipe(trained.recipe).encode(), SHARED: trained.tokenizer.model}
    publish(Path(folder), files, _readme(trained, scores or {}), weights)


def load_captioner(folder: str | Path, device: torch.device | str = "cpu") -> TrainedCaptioner:
    """The captioner of a folder, checked and ready to use."""
    trained = read_folder(model_path(folder), _read)
    return trained._replace(model=trained.model.to(device).eval())


def _read(folder: SealedFolder) -> TrainedCaptioner:
    content, path = folder.recipe(), folder.path / WEIGHTS
    if not is_captioner(folder.path):
        raise ModelError(
            f"{folder.path} is a model, but not a captioner; jumok inspect {folder.path} says what it is, and "
            "jumok train with a section [images] makes captioners"
        )
    recipe = of_contents(content, folder.path / RECIPE, lambda tables: make_caption_recipe(tables, variables=False))
    tokenizer, header = TokenizerPair.of_files(folder.tokenizers(), folder.path).target, folder.header()

    def build(encoder: EncoderConfig, decoder: DecoderConfig) -> ImageCaptioner:
        return build_captioner(encoder, decoder, side=recipe.images.size, vocabulary=tokenizer.size)

    check_model_fits(build, recipe.encoder, recipe.decoder, header=header, path=path)
    weights = from_bytes(folder.weights(header), path)
    model = new_captioner(recipe, tokenizer)
    load_weights(model, weights, path)
    return TrainedCaptioner(model, recipe, tokenizer)


def average_captioners(models: Sequence[str | Path], out: str | Path) -> None:
    """Write a captioner whose weights are the mean of those of some; all else is that of the first folder."""
    folders = folders_to_average(models, out)
    trained = load_captioner(folders[0])
    for folder in folders[1:]:
        check_same_words(folder, folders[0], [load_captioner(folder).tokenizer], [trained.tokenizer])
    load_mean(trained.model, models)
    weights = Path(out) / NEW_WEIGHTS
    write_file(weights, to_bytes(weights_of(trained.model)))
    publish_captioner(out, trained, weights, scores={"averaged over": how_many(models)})


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
