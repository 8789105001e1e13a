"""Images and tokenised captions on disk, prepared once and memory-mapped afterwards; and batches of them.

data/train.images.npy    [image, side, side, 3], uint8: the images as the model sees them
data/train.store         a row for every caption: (number of its image), (its tokens)
data/references.json     the captions of every validation image
"""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from jumok.data.arrays import open_npy
from jumok.data.batches import BatchConfig, BatchPlan, pad, round_size
from jumok.data.dataset import Dataset, open_dataset, write_dataset
from jumok.data.fingerprint import (
    SourceFingerprint,
    compare_sources,
    file_state,
    fingerprint_of,
    mismatch_message,
    missing_files_message,
    record_sources,
)
from jumok.data.pairs import Split
from jumok.data.prepare import unknown_message
from jumok.data.tokenizer import OneSidedTokenizer, Tokenizer
from jumok.data.tokenizer_pair import SHARED
from jumok.errors import ConfigError, DataError
from jumok.files import atomic_write, parse_json
from jumok.images.augment import AugmentConfig, augment
from jumok.images.files import ImageFolder, Pixels
from jumok.images.pairs import CaptionedImage, ImagesConfig, ImageSource, model_image, read_captions, read_splits
from jumok.progress import Watch, unwatched

FORMAT = 1
SPLITS: tuple[Split, ...] = ("train", "valid")
REFERENCES = "references.json"


class ImageBatch(NamedTuple):
    """Images and a caption for each: padded token ids, and a mask that is True on real tokens."""

    images: UInt8[Tensor, "batch 3 side side"]
    target_in: Int[Tensor, "batch target"]
    target_out: Int[Tensor, "batch target"]
    target_visible: Bool[Tensor, "batch target"]

    def each(self, change: Callable[[Tensor], Tensor]) -> "ImageBatch":
        """The same batch with `change` applied to every tensor."""
        return ImageBatch(*(change(part) for part in self))

    def to(self, device: torch.device | str) -> "ImageBatch":
        """The same batch on another device."""
        return self.each(lambda part: part.to(device, non_blocking=True))

    def rounded(self, limit: int | None = None) -> "ImageBatch":
        """The same batch with captions padded to one of a few lengths; an image more would change batch norms."""
        length = self.target_in.shape[1]
        more = (0, round_size(length, limit=limit) - length)
        captions = (F.pad(part, more) for part in (self.target_in, self.target_out, self.target_visible))
        return ImageBatch(self.images, *captions)


class ImageBatches:
    """Batches of captioned images as a pure function of (seed, epoch, step)."""

    def __init__(
        self, split: "PreparedSplit", config: BatchConfig, *, seed: int = 0, changes: AugmentConfig | None = None
    ) -> None:
        self.split, self.seed, self.changes = split, seed, changes or AugmentConfig()
        self.plan = BatchPlan(split.captions.length_counts.shorter(1), config, seed=seed)

    def steps(self, epoch: int) -> int:
        """The number of batches of an epoch."""
        return self.plan.steps(epoch)

    def batch(self, epoch: int, step: int) -> ImageBatch:
        """The tensors of one step."""
        numbers = self.split.captions.sorted_rows(self.plan.batch(epoch, step))
        rows = [self.split.captions[int(number)] for number in numbers]
        images = to_tensor([self.split.images[int(image[0])] for image, _ in rows])
        images = augment(images, numbers, self.changes, seed=self.seed, epoch=epoch)
        target_in, visible = pad([caption[:-1] for _, caption in rows])
        target_out, _ = pad([caption[1:] for _, caption in rows])
        return ImageBatch(images, target_in, target_out, visible)


class PreparedSplit(NamedTuple):
    """The images of a split as the model sees them, and its captions: rows of (image number,) and token ids."""

    images: UInt8[np.ndarray, "image side side 3"]
    captions: Dataset


class PreparedImages(NamedTuple):
    """Everything that training needs from its data."""

    tokenizer: Tokenizer
    train: PreparedSplit
    valid: PreparedSplit
    references: list[tuple[str, ...]]
    """The captions of every validation image."""

    @property
    def identity(self) -> str:
        """Identifies what is trained on, whatever the names and times of its files."""
        return fingerprint_of(self.train.captions.contents, self.train.captions.note, self.tokenizer.pieces)


def prepare_images(
    folder: str | Path,
    config: ImagesConfig,
    tokenizer: OneSidedTokenizer,
    *,
    resumed: bool = False,
    say: Callable[[str], None] = lambda message: None,
    watch: Watch = unwatched,
) -> PreparedImages:
    """Resize images and tokenise captions, unless they are up to date; images pass through `watch` one by one.

    A `resumed` run needs the images and captions it began with; a ConfigError says why they are others.
    """
    folder, sources = Path(folder), image_fingerprint(config, tokenizer)
    comparison = compare_sources(folder, sources)
    if prepared := _open_prepared(folder, comparison.fingerprint):
        if comparison.missing:
            say(missing_files_message(comparison.missing, folder))
        return prepared
    if resumed and (folder / "valid.store").exists():
        raise ConfigError(mismatch_message(folder, sources, comparison, "images"))
    splits = dict(zip(SPLITS, read_splits(config, SPLITS, say=say), strict=True))
    for split, source in splits.items():
        if not source.rows:
            raise DataError(f"{config.captions} has no captions for {split}; see images.split_column and images.splits")
    record_sources(folder, sources, comparison.fingerprint)
    say("learning the vocabulary")
    captions = (caption for row in splits["train"].rows for caption in row.captions)
    vocabulary = Tokenizer.train(captions, tokenizer, side="target", say=say)
    vocabulary.save(folder / SHARED)
    encoded = {split: _encoded_captions(split, source, vocabulary, config, say) for split, source in splits.items()}
    with atomic_write(folder / REFERENCES) as file:
        file.write(json.dumps([row.captions for row, _ in encoded["valid"]], ensure_ascii=False).encode())
    say(f"reading {sum(map(len, encoded.values())):,} images")
    for split, rows in encoded.items():
        images = [row for row, _ in rows]
        note = _write_images(folder / f"{split}.images.npy", images, splits[split].read, config, watch)
        # The captions come last, so that their dataset means that everything is there.
        dataset = write_dataset(
            folder / f"{split}.store",
            ([[number], ids] for number, (_, captions) in enumerate(rows) for ids in captions),
            size=max(vocabulary.size, len(rows)),
            fingerprint=comparison.fingerprint,
            note=note,
        )
        if split == "train" and (message := unknown_message(dataset, 1, "captions", vocabulary, tokenizer)):
            say(message)
    written = _open_prepared(folder, comparison.fingerprint)
    assert written is not None
    return written


def image_fingerprint(config: ImagesConfig, tokenizer: OneSidedTokenizer) -> SourceFingerprint:
    """The fingerprint of the sources of captioned images."""
    paths = ("path", "captions")
    states = [file_state(path) if path else ("", -1, -1) for path in (config.path, config.captions)]
    settings = {key: value for key, value in asdict(config).items() if key not in paths}
    vocabulary = asdict(tokenizer)
    return SourceFingerprint(
        fingerprint_of(asdict(config), vocabulary, states, FORMAT),
        fingerprint_of(settings, vocabulary, FORMAT),
        {key: value for key in paths if (value := getattr(config, key))},
        {"path": partial(images_digest, config)} if config.path else {},
    )


def images_digest(config: ImagesConfig) -> str:
    """Identifies the images with captions by name and size, and in a zip by their checksums.

    Reading every image would take as long as preparing them. Other files in the folder do not count.
    """
    folder = ImageFolder(config.path)
    facts = sorted((image, *folder.facts(image)) for image in read_captions(config).lines)
    return hashlib.sha256("".join(f"{fact}\n" for fact in facts).encode("utf-8", "surrogatepass")).hexdigest()


def to_tensor(images: Sequence[UInt8[np.ndarray, "side side 3"]]) -> UInt8[Tensor, "batch 3 side side"]:
    """Images with the colour axis first, as networks expect them."""
    return torch.from_numpy(np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2)))


def _encoded_captions(
    split: str, source: ImageSource, tokenizer: Tokenizer, config: ImagesConfig, say: Callable[[str], None]
) -> list[tuple[CaptionedImage, list[list[int]]]]:
    """The images that have a caption that is short enough, and the token ids of those captions.

    The limit also applies to validation: one endless caption would outweigh all others in loss and scores.
    """
    rows, dropped = [], 0
    for row in source.rows:
        encoded = [(caption, tokenizer.encode(caption)) for caption in row.captions]
        short = [(caption, ids) for caption, ids in encoded if len(ids) - 2 <= config.max_length]
        dropped += len(encoded) - len(short)
        if short:
            rows.append((row._replace(captions=tuple(text for text, _ in short)), [ids for _, ids in short]))
    limit = f"longer than images.max_length = {config.max_length} tokens"
    if not rows:
        raise DataError(f"every caption of {split} is {limit}")
    if dropped:
        say(f"skipped {dropped:,} captions of {split}, which are {limit}")
    return rows


def _write_images(
    path: Path, rows: Sequence[CaptionedImage], read: Callable[[str], Pixels], config: ImagesConfig, watch: Watch
) -> dict[str, Any]:
    """Write every image as the model sees it, and return their checksum and shape."""
    unfinished = path.with_name(f".{path.stem}.unfinished.npy")
    shape = (len(rows), config.size, config.size, 3)
    images = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=shape)
    checksum = 0
    for number, row in enumerate(watch(rows, "reading images", len(rows))):
        images[number] = model_image(read(row.image), config)
        checksum = zlib.crc32(images[number].tobytes(), checksum)
    images.flush()
    del images
    os.replace(unfinished, path)
    return {"images": checksum, "shape": list(shape)}


def _open_prepared(folder: Path, fingerprint: str) -> PreparedImages | None:
    datasets = [open_dataset(folder / f"{split}.store", fingerprint) for split in SPLITS]
    train, valid = (PreparedSplit(_open_images(folder, opened), opened) if opened else None for opened in datasets)
    if train is None or valid is None:
        return None
    try:
        references = [tuple(captions) for captions in parse_json((folder / REFERENCES).read_bytes())]
    except (OSError, ValueError, TypeError):
        raise _damaged(folder / REFERENCES) from None
    return PreparedImages(Tokenizer.load(folder / SHARED), train, valid, references)


def _open_images(folder: Path, captions: Dataset) -> UInt8[np.ndarray, "image side side 3"]:
    path = folder / f"{captions.path.stem}.images.npy"
    try:
        images = open_npy(path)
    except DataError:
        raise _damaged(path) from None
    if list(images.shape) != captions.note["shape"] or images.dtype != np.uint8:
        raise _damaged(path)
    return images


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is damaged or missing; delete {path.parent}, and jumok writes it again")
