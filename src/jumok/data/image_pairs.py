"""Images and their captions: a folder or a zip of images and a TSV or JSONL of captions, or built-in scenes."""

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8

from jumok.data.files import bare_suffix, name, read_lines
from jumok.data.images import MOST_BYTES, Fit, Pixels, decode_image, read_image, squared
from jumok.data.pairs import Split
from jumok.data.scenes import Language, scene
from jumok.errors import ArgumentError, ConfigError, DataError

Column = int | str


@dataclass(frozen=True, kw_only=True)
class ImagesConfig:
    """The section [images] of a recipe: what a captioner learns from."""

    path: str = ""
    """Folder or .zip of the images."""
    captions: str = ""
    """Captions, .tsv or .jsonl, plain, .gz or .xz: a row for each, an image may have several."""
    image_column: Column = 1
    """Where a row names its image: a TSV column counted from 1 or named by a header, or a JSONL key."""
    caption_column: Column = 2
    """Where its caption is."""
    split_column: Column = 0
    """Where its split is; 0 for none: then every tenth image is for validation and every tenth for the test."""
    splits: tuple[str, str, str] = ("train", "valid", "test")
    """What the splits are called there: to learn from, to validate on, to test with."""
    scenes: Language | Literal[""] = ""
    """Instead of files, built-in scenes of coloured shapes with captions in this language: "en" or "ko"."""
    count: int = 8000
    """Scenes to learn from."""
    valid_count: int = 300
    """Scenes to validate on, and again as many to test with."""
    size: int = 64
    """Side of the square that images are brought to, in pixels."""
    fit: Fit = "crop"
    """How: "crop" keeps the middle, "stretch" keeps all and changes the proportions."""
    max_length: int = 100
    """Longest caption to learn from, in tokens."""

    def __post_init__(self) -> None:
        if bool(self.scenes) == bool(self.path):
            raise ConfigError('give images.path with images.captions, or images.scenes = "en" or "ko", one of them')
        if bool(self.path) != bool(self.captions):
            raise ConfigError("images.path and images.captions belong together; only one of them is given")
        for key in ("count", "valid_count", "max_length"):
            if getattr(self, key) < 1:
                raise ConfigError(f"images.{key} = {getattr(self, key)} must be at least 1")
        if not 8 <= self.size <= 1024:
            raise ConfigError(f"images.size = {self.size} must lie between 8 and 1024 pixels")
        if len(set(self.splits)) != 3:
            raise ConfigError(f"images.splits = {list(self.splits)} must be three names that differ")

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


def _source(captions: dict[str, list[str]], folder: "ImageFolder") -> ImageSource:
    return ImageSource([Captioned(image, tuple(texts)) for image, texts in captions.items() if texts], folder.read)


def _checked(config: ImagesConfig) -> tuple["Captions", "ImageFolder"]:
    """The captions and the images, once every image that is named is found."""
    rows, folder = read_captions(config), ImageFolder(config.path)
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


class ImageFolder:
    """A folder or a zip of images, by name."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._zip = self._opened() if self.path.suffix == ".zip" else None
        if self._zip is None and not self.path.is_dir():
            what = "is a file, neither a folder nor a .zip" if self.path.exists() else "does not exist"
            raise DataError(f"images.path = {str(path)!r} {what}")
        self._infos = {} if self._zip is None else {info.filename: info for info in self._zip.infolist()}

    def __contains__(self, image: str) -> bool:
        return image in self._infos if self._zip is not None else (self.path / image).is_file()

    def names(self) -> list[str]:
        """The files there are, as captions name them."""
        if self._zip is not None:
            return [name for name in self._infos if not name.endswith("/")]
        return [path.relative_to(self.path).as_posix() for path in sorted(self.path.rglob("*")) if path.is_file()]

    def read(self, image: str) -> Pixels:
        """One image in its own size."""
        if self._zip is None:
            return read_image(self.path / image)
        info, called = self._infos[image], f"{self.path}:{image}"
        if info.file_size > MOST_BYTES:
            raise DataError(f"the image {called} has {info.file_size:,} bytes; the most is {MOST_BYTES:,}")
        try:
            with self._zip.open(info) as file:
                content = file.read(MOST_BYTES)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            raise DataError(f"{called} cannot be unpacked ({error}); make or copy the zip again") from None
        return decode_image(content, called)

    def _opened(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except FileNotFoundError:
            raise DataError(f"images.path = {str(self.path)!r} does not exist") from None
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{self.path} is not a whole zip ({error}); make or copy it again") from None


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
    suffix = bare_suffix(config.captions)
    if suffix not in (".tsv", ".tab", ".jsonl", ".ndjson"):
        raise ArgumentError(f"images.captions = {config.captions!r} must be a .tsv or .jsonl file, plain, .gz or .xz")
    read = _tsv if suffix in (".tsv", ".tab") else _jsonl
    for number, cells in read(config.captions, columns):
        yield number, cells[0], cells[1], cells[2] if len(cells) > 2 else None


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


def _jsonl(path: str, columns: list[Column]) -> Iterator[tuple[int, list[str]]]:
    # Columns are numbers unless told, which is nothing a key can be.
    keys = [{1: "image", 2: "caption", 3: "split"}.get(key, "") if isinstance(key, int) else key for key in columns]
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f"{name(path)}, line {number} is not JSON: {line[:60]!r}") from None
        for key in keys:
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                raise DataError(f"{name(path)}, line {number} has no text under the key {key!r}: {line[:60]!r}")
        yield number, [row[key] for key in keys]


def prepared_image(image: Pixels, config: ImagesConfig) -> UInt8[np.ndarray, "side side 3"]:
    """An image as the model sees it."""
    return squared(image, config.size, fit=config.fit)
