"""Captioned images from files to batches: once on disk, the same from a folder and a zip, pure functions after that."""

import gzip
import json
import unicodedata
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from jumok.data.batches import BatchConfig
from jumok.data.tokenizer import OneSidedTokenizer
from jumok.images.augment import AugmentConfig
from jumok.images.files import ImageFolder
from jumok.images.pairs import ImagesConfig, read_split
from jumok.images.store import ImageBatches, prepare_images

WORDS = OneSidedTokenizer(kind="word", size=50)
ROWS = [
    (split, f"{split}-{number}.png", f"a thing of kind {number} seen {time}")
    for split, count in (("train", 6), ("dev", 2), ("test", 2))
    for number in range(count)
    for time in ("once", "again")
]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "images").mkdir()
    for number, name in enumerate(dict.fromkeys(name for _, name, _ in ROWS)):
        pixels = np.full((20, 30, 3), 20 * number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / name)
    (tmp_path / "captions.tsv").write_text("".join("\t".join(row) + "\n" for row in ROWS))
    return tmp_path


def config(files, **changes):
    settings = {
        "path": str(files / "images"),
        "captions": str(files / "captions.tsv"),
        "image_column": 2,
        "caption_column": 3,
        "split_column": 1,
        "splits": ("train", "dev", "test"),
        "size": 16,
    }
    return ImagesConfig(**{**settings, **changes})


def prepared(files, name="data", **changes):
    return prepare_images(files / name, config(files, **changes), WORDS)


def test_a_caption_too_long_is_no_reference_and_an_image_with_no_other_is_left_out(files):
    rows = [*ROWS, ("dev", "dev-0.png", "word " * 1000)]
    rows = [(split, name, "word " * 1000 if name == "dev-1.png" else text) for split, name, text in rows]
    (files / "captions.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    said = []
    found = prepare_images(files / "data", config(files, max_length=20), WORDS, say=said.append)
    assert found.references == [("a thing of kind 0 seen once", "a thing of kind 0 seen again")]
    assert found.valid.images.shape[0] == 1
    assert "skipped 3 captions of valid, which are longer than images.max_length = 20 tokens" in said


def test_an_image_has_all_its_captions_and_the_right_pixels(files):
    found = prepared(files)
    assert found.train.images.shape == (6, 16, 16, 3)
    assert len(found.train.captions) == 12
    assert found.references == [(f"a thing of kind {n} seen once", f"a thing of kind {n} seen again") for n in (0, 1)]
    for (image,), ids in (found.train.captions[row] for row in range(12)):
        text = found.tokenizer.decode(ids.tolist())
        assert text.startswith(f"a thing of kind {image}")
        assert (found.train.images[image] == 20 * image).all()


def test_a_zip_jsonl_and_named_columns_say_the_same(files):
    wanted = prepared(files)
    with zipfile.ZipFile(files / "images.zip", "w") as archive:
        for path in (files / "images").iterdir():
            archive.write(path, path.name)
    with gzip.open(files / "captions.jsonl.gz", "wt") as file:
        for split, image, caption in ROWS:
            file.write(json.dumps({"split": split, "image": image, "caption": caption}) + "\n")
    header = "split\tfile\ttext\n" + (files / "captions.tsv").read_text()
    (files / "named.tsv").write_text(header)
    keys = {"image_column": "image", "caption_column": "caption", "split_column": "split"}
    others = [
        prepared(files, "zip", path=str(files / "images.zip")),
        prepared(files, "jsonl", captions=str(files / "captions.jsonl.gz"), **keys),
        prepared(
            files,
            "named",
            captions=str(files / "named.tsv"),
            image_column="file",
            caption_column="text",
            split_column="split",
        ),
    ]
    assert {other.identity for other in others} == {wanted.identity}


def test_without_splits_every_tenth_image_is_held_out(tmp_path):
    (tmp_path / "images").mkdir()
    rows = []
    for number in range(30):
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / f"{number}.png")
        rows.append(f"{number}.png\tpicture {number}\n{number}.png\tagain {number}\n")
    (tmp_path / "captions.tsv").write_text("".join(rows))
    settings = ImagesConfig(path=str(tmp_path / "images"), captions=str(tmp_path / "captions.tsv"))
    counts = {split: len(read_split(settings, split).rows) for split in ("train", "valid", "test")}
    assert counts == {"train": 24, "valid": 3, "test": 3}


def test_what_is_prepared_is_used_again_until_something_changes(files):
    prepared(files)
    store = files / "data/train.images.npy"
    before = store.stat().st_mtime_ns
    prepared(files)
    assert store.stat().st_mtime_ns == before
    with (files / "captions.tsv").open("a") as file:
        file.write("train\ttrain-0.png\tone more\n")
    assert len(prepared(files).train.captions) == 13


def test_empty_captions_and_unused_images_are_left_out_and_said(files):
    with (files / "captions.tsv").open("a") as file:
        file.write("train\ttrain-0.png\t \n")
    Image.new("RGB", (4, 4)).save(files / "images/nobody.png")
    said = []
    found = prepare_images(files / "data", config(files), WORDS, say=said.append)
    assert len(found.train.captions) == 12
    assert any("1 files" in line and "no caption" in line for line in said)
    assert any("skipped 1 empty captions" in line for line in said)


def test_a_batch_is_a_function_of_seed_epoch_and_step(files):
    split = prepared(files).train
    make = lambda: ImageBatches(split, BatchConfig(tokens=40), seed=3, changes=AugmentConfig(crop=0.5, colour=0.2))  # noqa: E731
    one, other = make(), make()
    one.batch(0, 0)  # what was asked before makes no difference
    first, again = one.batch(2, 1), other.batch(2, 1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    seen = sum(len(one.batch(2, step).images) for step in range(one.steps(2)))
    assert seen == 12


def test_korean_names_that_a_mac_wrote_in_letters_are_found_in_a_folder_and_a_zip(tmp_path):
    inside = unicodedata.normalize("NFD", "사진 모음/바다.png")
    (tmp_path / inside).parent.mkdir()
    Image.fromarray(np.full((9, 9, 3), 77, np.uint8)).save(tmp_path / inside)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / inside, inside)
    for path in (tmp_path, tmp_path / "all.zip"):
        folder = ImageFolder(path)
        for name in (inside, "사진 모음/바다.png"):
            assert name in folder
            assert (folder.read(name) == 77).all()
        assert "사진 모음/하늘.png" not in folder


def test_a_vocabulary_that_knows_little_of_the_captions_is_told(files):
    said = []
    prepare_images(files / "data", config(files), OneSidedTokenizer(kind="word", size=6), say=said.append)
    (line,) = [line for line in said if "unknown" in line]
    assert line.startswith("about 71% of the tokens of the captions are unknown to the vocabulary")  # 5 of 7
    assert line.endswith('raise tokenizer.size = 6, or set tokenizer.kind = "unigram"')
    prepare_images(files / "enough", config(files), WORDS, say=said.append)
    assert len([line for line in said if "unknown" in line]) == 1
