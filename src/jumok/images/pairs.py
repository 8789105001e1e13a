"""Images and their captions: a folder or a zip of images and a TSV or JSONL of captions, or built-in scenes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Le
from jaxtyping import UInt8

from jumok.data.pairs import Split
from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.files import bare_suffix, name, parse_json, read_lines
from jumok.images.files import Fit, ImageFolder, Pixels, squared
from jumok.images.scenes import Language, scene
from jumok.settings import PositiveInt, Settings

Column = int | str
"""A column counted from 1, or the name of one: in a header line, or a key of JSON objects."""
SETTINGS = ("image_column", "caption_column", "split_column")
"""Those of `ImagesConfig` that name the columns, in their order."""
KEYS = {1: "image", 2: "caption", 3: "split"}
"""The keys of JSON objects that columns stand for, which are numbers unless told."""


def table_columns(path: str, columns: list[Column]) -> Iterator[tuple[int, list[str]]]:
    """The number of every line that is not empty, and what is in the columns."""
    suffix = bare_suffix(path)
    if suffix in (".tsv", ".tab"):
        return _tsv(path, columns)
    if suffix in (".jsonl", ".ndjson"):
        return _jsonl(path, [KEYS.get(key, "") if isinstance(key, int) else key for key in columns])
    raise ArgumentError(f"{path} must be a .tsv or .jsonl file, plain, .gz or .xz")


def _tsv(path: str, columns: list[Column]) -> Iterator[tuple[int, list[str]]]:
    named = any(isinstance(column, str) for column in columns)
    places = [] if named else [int(column) for column in columns]
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        if named and number == 1:
            absent = [column for column in columns if isinstance(column, str) and column not in cells]
            if absent:
                raise DataError(f"the first line of {name(path)} names no column {absent[0]!r}; there are {cells[:8]}")
            places = [cells.index(column) + 1 if isinstance(column, str) else column for column in columns]
            continue
        if not line.strip():
            continue
        if len(cells) < max(places) or min(places) < 1:
            raise DataError(
                f"{name(path)}, line {number} has {len(cells)} columns separated by tabs, but columns {places} are "
                f"asked for: {line[:60]!r}"
            )
        yield number, [cells[place - 1] for place in places]


def _jsonl(path: str, keys: list[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row: Any = parse_json(line)
        except ValueError:
            raise DataError(f"{name(path)}, line {number} is not JSON: {line[:60]!r}") from None
        for key in keys:
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                setting = f"images.{SETTINGS[keys.index(key)]}"
                raise DataError(
                    f"{name(path)}, line {number} has no text under the key {key!r}: {line[:60]!r}; if it is under "
                    f"another, name that: {setting}"
                )
        yield number, [row[key] for key in keys]


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(Settings):
    """The section [images] of a recipe: what a captioner learns from."""

    section: ClassVar[str] = "images"

    path: str = ""
    """Folder or .zip of the images."""
    captions: str = ""
    """File of captions, .tsv or .jsonl, optionally .gz or .xz: one caption per row; an image may have several."""
    image_column: Column = 1
    """Column of the image's name: a TSV column counted from 1 or named by a header, or a JSONL key."""
    caption_column: Column = 2
    """Column of the caption."""
    split_column: Column = 0
    """Column of the split; 0 for none: then a tenth of the images is for validation and a tenth for the test."""
    splits: tuple[str, str, str] = ("train", "valid", "test")
    """Names of the training, validation and test splits in that column."""
    scenes: Language | Literal[""] = ""
    """Built-in scenes of coloured shapes instead of files, with captions in this language: "en" or "ko"."""
    count: PositiveInt = 8000
    """Number of scenes to train on."""
    valid_count: PositiveInt = 300
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
            raise ConfigError('give images.path with images.captions, or images.scenes = "en" or "ko", one of them')
        if bool(self.path) != bool(self.captions):
            raise ConfigError("images.path and images.captions belong together; only one of them is given")
        if len(set(self.splits)) != 3:
            raise ConfigError(f"{self.shown('splits')} must be three names that differ")

    @property
    def origin(self) -> str:
        """What is learnt from, in words."""
        return f"built-in scenes ({self.scenes})" if self.scenes else f"{self.path} and {self.captions}"


class Captioned(NamedTuple):
    """An image, by its name, and what is said of it."""

    image: str
    captions: tuple[str, ...]


class ImageSource(NamedTuple):
    """The images of one split, and a way to see each."""

    rows: list[Captioned]
    read: Callable[[str], Pixels]
    """The image of a name, in its own size."""


def read_split(config: ImagesConfig, split: Split, *, say: Callable[[str], None] = lambda message: None) -> ImageSource:
    """The captioned images of a split; all of them are known to be there, none is decoded yet."""
    if config.scenes:
        return _scenes(config, split)
    rows, folder = _checked(config)
    if split == "train":
        _say_unused(rows, folder, say)
    return _source(rows.captions[split], folder)


def read_everything(config: ImagesConfig) -> ImageSource:
    """All captioned images, whatever their split."""
    rows, folder = _checked(config)
    return _source({image: texts for split in rows.captions.values() for image, texts in split.items()}, folder)


def _source(captions: dict[str, list[str]], folder: ImageFolder) -> ImageSource:
    return ImageSource([Captioned(image, tuple(texts)) for image, texts in captions.items() if texts], folder.read)


def _checked(config: ImagesConfig) -> tuple["Captions", ImageFolder]:
    """The captions and the images, once every image that is named is found where images are."""
    rows, folder = read_captions(config), ImageFolder(config.path)
    outside = next(((image, number) for image, number in rows.lines.items() if folder.is_outside(image)), None)
    if outside:
        raise DataError(
            f"{name(config.captions)}, line {outside[1]}: the image {outside[0]!r} lies outside of images.path = "
            f"{config.path!r}; name images in it, or set images.path to a folder that holds them all"
        )
    missing = [(row, number) for row, number in rows.lines.items() if row not in folder]
    if missing:
        image, number = missing[0]
        others = f", nor {len(missing) - 1:,} others of {len(rows.lines):,}" if len(missing) > 1 else ""
        raise DataError(
            f"{name(config.captions)}, line {number}: there is no image {image!r} in {config.path}{others}; "
            "add what is missing, or take its captions out"
        )
    return rows, folder


class Captions(NamedTuple):
    """What a file of captions holds."""

    captions: dict[Split, dict[str, list[str]]]
    """For every split its images and their captions, without empty ones."""
    lines: dict[str, int]
    """Where each image is first named."""
    empty: int
    """How many captions were empty."""


def read_captions(config: ImagesConfig) -> Captions:
    """Every row of the file of captions."""
    known: dict[str, Split] = dict(zip(config.splits, ("train", "valid", "test"), strict=True))
    found = Captions({"train": {}, "valid": {}, "test": {}}, {}, 0)
    home: dict[str, Split] = {}
    empty = 0
    for number, image, caption, label in _rows(config):
        where = f"{name(config.captions)}, line {number}"
        if not image.strip():
            raise DataError(f"{where} names no image")
        if label is not None and label not in known:
            raise DataError(f"{where}: split {label!r} is not one of images.splits = {list(known)}")
        split = known[label] if label is not None else home.get(image) or _tenth(len(found.lines))
        if home.setdefault(image, split) != split:
            raise DataError(f"{where}: {image!r} is in split {split!r}, but before it was in {home[image]!r}")
        found.lines.setdefault(image, number)
        texts = found.captions[split].setdefault(image, [])
        if caption.strip():
            texts.append(caption.strip())
        else:
            empty += 1
    if not found.lines:
        raise DataError(f"{name(config.captions)} holds no captions; is it the file you meant?")
    return found._replace(empty=empty)


def _scenes(config: ImagesConfig, split: Split) -> ImageSource:
    assert config.scenes
    language, count = config.scenes, config.count if split == "train" else config.valid_count
    rows = [Captioned(f"{split}/{n}", (scene(n, split=split).caption(language),)) for n in range(count)]
    return ImageSource(rows, lambda image: scene(int(image.split("/")[1]), split=split).picture(config.size))


def _tenth(number: int) -> Split:
    """Of images without splits: 8 of 10 to learn from."""
    return {8: "valid", 9: "test"}.get(number % 10, "train")  # type: ignore[return-value]


def _say_unused(rows: Captions, folder: ImageFolder, say: Callable[[str], None]) -> None:
    unused = len(folder.names()) - len(rows.lines)
    if unused > 0:
        say(f"{unused:,} files in {folder.path} have no caption and are not used")
    if rows.empty:
        say(f"{rows.empty:,} captions are empty and left out")


def _rows(config: ImagesConfig) -> Iterator[tuple[int, str, str, str | None]]:
    """Line, image, caption and split (None where none are given) of every row."""
    columns = [config.image_column, config.caption_column]
    if config.split_column:
        columns.append(config.split_column)
    for number, cells in table_columns(config.captions, columns):
        yield number, cells[0], cells[1], cells[2] if len(cells) > 2 else None


def model_image(image: Pixels, config: ImagesConfig) -> UInt8[np.ndarray, "side side 3"]:
    """An image as the model sees it."""
    return squared(image, config.size, fit=config.fit)
