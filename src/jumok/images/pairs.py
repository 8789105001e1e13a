"""Images and their captions: a folder or a zip of images and a TSV or JSONL of captions, or built-in scenes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Le
from jaxtyping import UInt8

from jumok.data.pairs import Split
from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.files import bare_suffix, display_name, parse_json, read_lines
from jumok.images.files import Fit, ImageFolder, Pixels, squared
from jumok.images.scenes import Language, scene
from jumok.settings import FilePath, OnlyWith, PositiveInt, Settings

Column = int | str
"""A column counted from 1, or the name of one: in a header line, or a key of JSON objects."""
KEYS = {1: "image", 2: "caption", 3: "split"}
"""The keys of JSON objects that column numbers, the default, stand for."""


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(Settings):
    """The section [images] of a recipe: what a captioner learns from."""

    section: ClassVar[str] = "images"

    path: FilePath = ""
    """Folder or .zip of the images."""
    captions: FilePath = ""
    """File of captions, .tsv or .jsonl, optionally .gz or .xz: one caption per row; an image may have several."""
    image_column: Column = 1
    """Column of the image's name: a TSV column counted from 1 or named by a header, or a JSONL key."""
    caption_column: Column = 2
    """Column of the caption."""
    split_column: Column = 0
    """Column of the split; 0 for none: then a tenth of the images is for validation and a tenth for the test."""
    splits: Annotated[tuple[str, str, str], OnlyWith("split_column")] = ("train", "valid", "test")
    """Names of the training, validation and test splits in that column."""
    scenes: Language | Literal[""] = ""
    """Built-in scenes of coloured shapes instead of files, with captions in this language: "en" or "ko"."""
    count: Annotated[PositiveInt, OnlyWith("scenes")] = 8000
    """Number of scenes to train on."""
    valid_count: Annotated[PositiveInt, OnlyWith("scenes")] = 300
    """Number of scenes to validate on, and of further ones to test on."""
    size: Annotated[int, Ge(8), Le(1024)] = 64
    """Side length in pixels of the square images that the encoder sees."""
    fit: Fit = "crop"
    """How to make images square: "crop" keeps the centre, "stretch" keeps everything and distorts."""
    max_length: PositiveInt = 100
    """Longest caption to train on, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.scenes) == bool(self.path):
            raise ConfigError('give either images.path with images.captions, or images.scenes = "en" or "ko"')
        if bool(self.path) != bool(self.captions):
            raise ConfigError("images.path and images.captions belong together; only one of them is given")
        if len(set(self.splits)) != 3:
            raise ConfigError(f"{self.shown('splits')} must be three names that differ")

    @property
    def origin(self) -> str:
        """The source of the images, in words."""
        return f"built-in scenes ({self.scenes})" if self.scenes else f"{self.path} and {self.captions}"


class CaptionedImage(NamedTuple):
    """The name of an image and its captions."""

    image: str
    captions: tuple[str, ...]


class ImageSource(NamedTuple):
    """The captioned images of a split, and a function that reads an image by name in its own size."""

    rows: list[CaptionedImage]
    read: Callable[[str], Pixels]


class Captions(NamedTuple):
    """The contents of a file of captions."""

    captions: dict[Split, dict[str, list[str]]]
    """For every split its images and their captions, without empty ones."""
    lines: dict[str, int]
    """The line that first names each image."""
    empty: int
    """The number of empty captions."""


def read_splits(
    config: ImagesConfig, splits: Sequence[Split], *, say: Callable[[str], None] = lambda message: None
) -> list[ImageSource]:
    """The captioned images of each of `splits`: all images are known to exist, and none is decoded yet."""
    if config.scenes:
        return [_scenes(config, split) for split in splits]
    captions, folder = _checked(config)
    if "train" in splits and (unused := len(folder.names()) - len(captions.lines)) > 0:
        say(f"{unused:,} files in {folder.path} have no caption and are not used")
    if "train" in splits and captions.empty:
        say(f"skipped {captions.empty:,} empty captions")
    return [_source(captions.captions[split], folder) for split in splits]


def read_split(config: ImagesConfig, split: Split) -> ImageSource:
    """The captioned images of one split."""
    return read_splits(config, [split])[0]


def read_everything(config: ImagesConfig) -> ImageSource:
    """All captioned images of all splits."""
    captions, folder = _checked(config)
    return _source({image: texts for split in captions.captions.values() for image, texts in split.items()}, folder)


def read_captions(config: ImagesConfig) -> Captions:
    """Every row of the file of captions."""
    known: dict[str, Split] = dict(zip(config.splits, ("train", "valid", "test"), strict=True))
    captions: dict[Split, dict[str, list[str]]] = {"train": {}, "valid": {}, "test": {}}
    lines: dict[str, int] = {}
    splits: dict[str, Split] = {}
    empty = 0
    columns = [config.image_column, config.caption_column, *([config.split_column] if config.split_column else [])]
    for number, (image, caption, *label) in table_columns(config.captions, columns):
        where = f"{display_name(config.captions)}, line {number}"
        if not image.strip():
            raise DataError(f"{where} names no image")
        if label and label[0] not in known:
            raise DataError(f"{where}: split {label[0]!r} is not one of images.splits = {list(known)}")
        split = known[label[0]] if label else splits.get(image) or _default_split(len(lines))
        if splits.setdefault(image, split) != split:
            raise DataError(
                f"{where}: {image!r} is in split {split!r} here, but in {splits[image]!r} in an earlier line"
            )
        lines.setdefault(image, number)
        texts = captions[split].setdefault(image, [])
        if caption.strip():
            texts.append(caption.strip())
        else:
            empty += 1
    if not lines:
        raise DataError(f"{display_name(config.captions)} holds no captions; is it the file you meant?")
    return Captions(captions, lines, empty)


def model_image(image: Pixels, config: ImagesConfig) -> UInt8[np.ndarray, "side side 3"]:
    """An image as the model sees it."""
    return squared(image, config.size, fit=config.fit)


def table_columns(path: str, columns: list[Column]) -> Iterator[tuple[int, list[str]]]:
    """The line number and the values of these columns for every row of a TSV or JSONL file; empty lines are skipped."""
    suffix = bare_suffix(path)
    if suffix in (".tsv", ".tab"):
        return _tsv_columns(path, columns)
    if suffix in (".jsonl", ".ndjson"):
        return _json_values(path, [KEYS.get(key, "") if isinstance(key, int) else key for key in columns])
    raise ArgumentError(f"{path} must be a .tsv or .jsonl file, optionally compressed as .gz or .xz")


def _tsv_columns(path: str, columns: list[Column]) -> Iterator[tuple[int, list[str]]]:
    has_header = any(isinstance(column, str) for column in columns)
    places = [] if has_header else [int(column) for column in columns]
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        if has_header and number == 1:
            if absent := [column for column in columns if isinstance(column, str) and column not in cells]:
                raise DataError(
                    f"the header of {display_name(path)} has no column {absent[0]!r}, only {', '.join(cells[:8])}"
                )
            places = [cells.index(column) + 1 if isinstance(column, str) else column for column in columns]
        elif line.strip():
            if len(cells) < max(places) or min(places) < 1:
                raise DataError(
                    f"{display_name(path)}, line {number} has {len(cells)} columns separated by tabs, but columns "
                    f"{places} are needed: {line[:60]!r}"
                )
            yield number, [cells[place - 1] for place in places]


def _json_values(path: str, keys: list[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row: Any = parse_json(line)
        except ValueError:
            raise DataError(f"{display_name(path)}, line {number} is not JSON: {line[:60]!r}") from None
        for key, setting in zip(keys, KEYS.values(), strict=False):
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                raise DataError(
                    f"{display_name(path)}, line {number} has no text under the key {key!r}: {line[:60]!r}; set "
                    f"images.{setting}_column if the key has another name"
                )
        yield number, [row[key] for key in keys]


def _source(captions: dict[str, list[str]], folder: ImageFolder) -> ImageSource:
    return ImageSource([CaptionedImage(image, tuple(texts)) for image, texts in captions.items() if texts], folder.read)


def _checked(config: ImagesConfig) -> tuple[Captions, ImageFolder]:
    """The captions and the folder of images, in which every image exists."""
    captions, folder = read_captions(config), ImageFolder(config.path)
    absent = [(image, number) for image, number in captions.lines.items() if image not in folder]
    if absent:
        image, number = absent[0]
        others = f", nor {len(absent) - 1:,} others of {len(captions.lines):,}" if len(absent) > 1 else ""
        raise DataError(
            f"{display_name(config.captions)}, line {number}: there is no image {image!r} in {config.path}{others}; "
            "add the missing images, or remove their captions"
        )
    return captions, folder


def _scenes(config: ImagesConfig, split: Split) -> ImageSource:
    assert config.scenes
    language, count = config.scenes, config.count if split == "train" else config.valid_count
    rows = [CaptionedImage(f"{split}/{n}", (scene(n, split=split).caption(language),)) for n in range(count)]
    return ImageSource(rows, lambda image: scene(int(image.split("/")[1]), split=split).picture(config.size))


def _default_split(number: int) -> Split:
    """Of every ten images without a given split, eight are for training."""
    return {8: "valid", 9: "test"}.get(number % 10, "train")  # type: ignore[return-value]
