"""Images and tokenised captions on disk, made once, memory-mapped afterwards; and batches of them.

data/train.images.npy    [image, side, side, 3], uint8: what the model sees
data/train.store         a row for every caption: (number of its image), (its tokens)
data/references.json     the captions of every image to validate on
"""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from jumok.data.arrays import open_npy
from jumok.data.batches import BatchConfig, BatchPlan, pad
from jumok.data.dataset import Dataset, open_dataset, write_dataset
from jumok.data.fingerprint import (
    Inputs,
    find,
    fingerprint_of,
    mismatch_message,
    missing_files_message,
    record_sources,
    state,
)
from jumok.data.pairs import Split
from jumok.data.prepare import unknown_message
from jumok.data.tokenizer import SHARED, Tokenizer, TokenizerConfig
from jumok.errors import DataError
from jumok.files import atomic_write, parse_json
from jumok.images.augment import AugmentConfig, augment
from jumok.images.files import ImageFolder
from jumok.images.pairs import Captioned, ImagesConfig, ImageSource, model_image, read_captions, read_split

FORMAT = 1


def image_fingerprint(config: ImagesConfig, tokenizer: TokenizerConfig) -> Inputs:
    """What a recipe for captions names."""
    places = ("path", "captions")
    files = {key: value for key in places if (value := getattr(config, key))}
    states = [state(path) if path else ("", -1, -1) for path in (config.path, config.captions)]
    settings = {key: value for key, value in asdict(config).items() if key not in places}
    return Inputs(
        fingerprint_of(asdict(config), asdict(tokenizer), states, FORMAT),
        fingerprint_of(settings, asdict(tokenizer), FORMAT),
        files,
        {"path": partial(images_digest, config)} if config.path else {},
    )


def images_digest(config: ImagesConfig) -> str:
    """Of the images that captions name: each name and size, and in a zip the checksum that stands there.

    Reading every image would take as long as preparing them. What else lies in the folder does not count.
    """
    folder = ImageFolder(config.path)
    found = sorted((image, *folder.facts(image)) for image in read_captions(config).lines)
    return hashlib.sha256("".join(f"{one}\n" for one in found).encode("utf-8", "surrogatepass")).hexdigest()


def why_outdated(folder: str | Path, config: ImagesConfig, tokenizer: TokenizerConfig) -> str:
    """Why `prepare_images` would write over what it made of other images or captions; "" if it would not."""
    folder, inputs = Path(folder), image_fingerprint(config, tokenizer)
    found = find(folder, inputs)
    if not found.recorded or not (folder / "valid.store").exists():
        return ""  # of an earlier jumok, or not done: made anew, and compared then
    whole = all(open_dataset(folder / f"{name}.store", found.fingerprint) for name in ("train", "valid"))
    return "" if whole else mismatch_message(folder, inputs, found, "images")


SPLITS: tuple[Split, ...] = ("train", "valid")
REFERENCES = "references.json"
Say = Callable[[str], None]
Watch = Callable[[Sequence[Captioned]], Iterable[Captioned]]
"""Passes images on, and sees them go by."""


class ImageBatch(NamedTuple):
    """Images, and a caption for each as a target: padded token ids, True where they are real."""

    images: UInt8[Tensor, "batch 3 side side"]
    target_in: Int[Tensor, "batch target"]
    target_out: Int[Tensor, "batch target"]
    target_visible: Bool[Tensor, "batch target"]

    def each(self, change: Callable[[Tensor], Tensor]) -> "ImageBatch":
        """The same batch with every tensor changed."""
        return ImageBatch(*(change(part) for part in self))

    def to(self, device: torch.device | str) -> "ImageBatch":
        """The same batch on another device."""
        return self.each(lambda part: part.to(device, non_blocking=True))

    def pinned(self) -> "ImageBatch":
        """The same batch in memory that a GPU can read while it computes."""
        return self.each(lambda part: part.pin_memory())


class ImageBatches:
    """Batches of captioned images as a pure function of (seed, epoch, step)."""

    def __init__(
        self, split: "PreparedSplit", config: BatchConfig, *, seed: int = 0, changes: AugmentConfig | None = None
    ) -> None:
        self.split, self.seed, self.changes = split, seed, changes or AugmentConfig()
        self.plan = BatchPlan(split.store.length_counts.shorter(1), config, seed=seed)

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> ImageBatch:
        """The tensors of one step."""
        numbers = self.split.store.sorted_rows(self.plan.batch(epoch, step))
        rows = [self.split.store[int(number)] for number in numbers]
        images = to_tensor([self.split.images[int(image[0])] for image, _ in rows])
        images = augment(images, numbers, self.changes, seed=self.seed, epoch=epoch)
        target_in, visible = pad([caption[:-1] for _, caption in rows])
        target_out, _ = pad([caption[1:] for _, caption in rows])
        return ImageBatch(images, target_in, target_out, visible)


class PreparedSplit(NamedTuple):
    """The images of a split as the model sees them, and the rows of its captions."""

    images: UInt8[np.ndarray, "image side side 3"]
    store: Dataset


class PreparedImages(NamedTuple):
    """Everything training needs to know about its data."""

    tokenizer: Tokenizer
    train: PreparedSplit
    valid: PreparedSplit
    references: list[tuple[str, ...]]
    """The captions of every image to validate on."""

    @property
    def identity(self) -> str:
        """What is trained on, whatever the files were called and whenever they were written."""
        return fingerprint_of(self.train.store.contents, self.train.store.note, self.tokenizer.pieces)


def prepare_images(
    folder: str | Path,
    config: ImagesConfig,
    tokenizer: TokenizerConfig,
    *,
    say: Say = lambda message: None,
    watch: Watch = iter,
) -> PreparedImages:
    """Bring images to one size and captions to tokens, unless that was done already; `watch` sees images go by."""
    folder, inputs = Path(folder), image_fingerprint(config, tokenizer)
    known = find(folder, inputs)
    found = _opened(folder, known.fingerprint)
    if found is not None:
        if known.gone:
            say(missing_files_message(known.gone, folder))
        return found
    train, valid = (read_split(config, split, say=say) for split in SPLITS)
    _check_rows(train, valid, config)
    record_sources(folder, inputs, known.fingerprint)
    say("learning the vocabulary")
    words = Tokenizer.train((text for row in train.rows for text in row.captions), tokenizer, side="target")
    words.save(folder / SHARED)
    train, valid = (
        _fitting(source, words, config, name, say) for name, source in zip(SPLITS, (train, valid), strict=True)
    )
    with atomic_write(folder / REFERENCES) as file:
        file.write(json.dumps([row.captions for row in valid.rows], ensure_ascii=False).encode())
    say(f"reading {len(train.rows) + len(valid.rows):,} images")
    for name, source in zip(SPLITS, (train, valid), strict=True):
        note = _write_images(folder / f"{name}.images.npy", source, config, watch)
        # The rows come last, so that a store means that all is there.
        store = write_dataset(
            folder / f"{name}.store",
            ([[number], words.encode(text)] for number, row in enumerate(source.rows) for text in row.captions),
            size=max(words.size, len(source.rows)),
            fingerprint=known.fingerprint,
            note=note,
        )
        if name == "train" and (message := unknown_message(store, 1, "captions", words, tokenizer)):
            say(message)
    found = _opened(folder, known.fingerprint)
    assert found is not None
    return found


def to_tensor(images: Sequence[UInt8[np.ndarray, "side side 3"]]) -> UInt8[Tensor, "batch 3 side side"]:
    """Images with their colours first, as networks want them."""
    return torch.from_numpy(np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2)))


def _check_rows(train: ImageSource, valid: ImageSource, config: ImagesConfig) -> None:
    for source, purpose in ((valid, "validate on"), (train, "learn from")):
        if not source.rows:
            where = "see images.split_column and images.splits"
            raise DataError(f"{config.captions} has no captions to {purpose}; {where}")


def _opened(folder: Path, made_from: str) -> PreparedImages | None:
    stores = [open_dataset(folder / f"{name}.store", made_from) for name in SPLITS]
    if any(store is None for store in stores) or not (folder / REFERENCES).exists():
        return None
    train, valid = (PreparedSplit(_images(folder, store), store) for store in stores if store is not None)
    return PreparedImages(Tokenizer.load(folder / SHARED), train, valid, _references(folder / REFERENCES))


def _references(path: Path) -> list[tuple[str, ...]]:
    try:
        return [tuple(captions) for captions in parse_json(path.read_bytes())]
    except (OSError, ValueError, TypeError):
        raise DataError(f"{path} is damaged; delete {path.parent} and it will be written again") from None


def _images(folder: Path, store: Dataset) -> UInt8[np.ndarray, "image side side 3"]:
    path = folder / f"{store.path.stem}.images.npy"
    try:
        found = open_npy(path)
    except DataError:
        found = np.zeros(0, np.uint8)
    if list(found.shape) != store.note["shape"] or found.dtype != np.uint8:
        raise DataError(f"{path} is damaged or missing; delete {folder} and it will be written again")
    return found


def _write_images(path: Path, source: ImageSource, config: ImagesConfig, watch: Watch) -> dict[str, Any]:
    """Every image as the model sees it; gives back their checksum and shape."""
    unfinished = path.with_name(f".{path.stem}.unfinished.npy")
    shape = (len(source.rows), config.size, config.size, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    images = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=shape)
    check = 0
    for number, row in enumerate(watch(source.rows)):
        image = model_image(source.read(row.image), config)
        images[number] = image
        check = zlib.crc32(image.tobytes(), check)
    images.flush()
    del images
    os.replace(unfinished, path)
    return {"images": check, "shape": list(shape)}


def _fitting(source: ImageSource, tokenizer: Tokenizer, config: ImagesConfig, name: str, say: Say) -> ImageSource:
    """The images with a caption that is not too long, and those captions; how many are left out is said.

    So it is of images to validate on, too: one caption of 100,000 words would outweigh all others in loss and scores.
    """

    def fits(text: str) -> bool:
        return len(tokenizer.encode(text)) - 2 <= config.max_length

    rows = [row._replace(captions=tuple(filter(fits, row.captions))) for row in source.rows]
    before, after = (sum(len(row.captions) for row in some) for some in (source.rows, rows))
    limit = f"longer than images.max_length = {config.max_length} tokens"
    if not after:
        raise DataError(f"every caption of {name} is {limit}")
    if before > after:
        say(f"{before - after:,} captions of {name} are {limit} and left out")
    return source._replace(rows=[row for row in rows if row.captions])
