"""What can be wrong with images and captions: one line that says where, what was seen and what to do."""

import struct
import zipfile
import zlib
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from jumok.data.tokenizer import TokenizerConfig
from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.images.encoder import GridEncoder, GridEncoderConfig, PatchEncoder, PatchEncoderConfig, build_captioner
from jumok.images.files import ImageFolder, decode_image, read_image, squared
from jumok.images.pairs import ImagesConfig, read_everything, read_split
from jumok.images.resnet import begin_with_weights
from jumok.images.store import AugmentConfig, prepare_images
from jumok.models.rnn.decoder import RnnDecoderConfig
from jumok.tasks import make_recipe
from jumok.tasks.captioning import Caption, Captioner
from jumok.tasks.run import train
from support.commands import jumok, write


def png(width=8, height=8):
    file = BytesIO()
    Image.new("RGB", (width, height), "red").save(file, format="PNG")
    return file.getvalue()


def bomb(width, height):
    """A PNG of a few hundred bytes whose header promises many pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not an image"),
        (b"hello", "is not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "is not an image"),
        (png()[:50], "damaged or cut short"),
        (png()[:45] + b"garbage" * 10, "damaged or cut short|is not an image"),
        (bomb(20_000, 20_000), "20000 × 20000 pixels.*not decoded|far too many pixels.*not decoded"),
        (bomb(60_000, 60_000), "not decoded"),
        (bomb(88_000, 2_000), "88000 × 2000 pixels, which take .* MB of memory to decode, more than the 1,074 MB"),
    ],
    ids=["nothing", "text", "postscript", "cut", "garbage", "bomb", "larger bomb", "smaller bomb"],
)
def test_a_file_that_is_no_image_is_refused_by_its_name(tmp_path, content, said):
    path = tmp_path / "holiday.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as raised:
        read_image(path)
    assert "holiday.png" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("end", range(0, 1200, 37))
def test_a_photo_cut_short_anywhere_is_refused_or_read_but_never_crashes(end):
    file = BytesIO()
    noise = np.random.default_rng(0).integers(256, size=(24, 24, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, format="JPEG")
    whole = file.getvalue()
    with pytest.raises(DataError):
        decode_image(whole[: min(end, len(whole) - 20)], "photo")


def test_there_is_no_image_and_a_folder_is_none(tmp_path):
    with pytest.raises(DataError, match=r"there is no image .*x\.png"):
        read_image(tmp_path / "x.png")
    with pytest.raises(DataError, match="is a folder, not an image"):
        read_image(tmp_path)


@pytest.mark.parametrize("image", [np.zeros((4, 4)), np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)])
def test_pixels_must_be_bytes_of_three_colours(image):
    with pytest.raises(ArgumentError, match=r"an image must be uint8 \[height, width, 3\]"):
        squared(image, 8)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(10):
        (tmp_path / f"images/{number}.png").write_bytes(png())
    (tmp_path / "captions.tsv").write_text("".join(f"{number}.png\tpicture {number}\n" for number in range(10)))
    return tmp_path


def settings(files, **changes):
    return ImagesConfig(
        **{"path": str(files / "images"), "captions": str(files / "captions.tsv"), "size": 16, **changes}
    )


def prepared(files, **changes):
    config = TokenizerConfig(kind="word", size=30, shared=False)
    return prepare_images(files / "data", settings(files, **changes), config)


@pytest.mark.parametrize(
    ("line", "changes", "said"),
    [
        (
            "11.png\tnot there\n",
            {},
            r"captions\.tsv, line 11: there is no image '11\.png' in .*/images; add",
        ),
        ("11.png\tnot there\n12.png\tnor this\n", {}, "line 11"),
        ("3.png\n", {}, "line 11"),
        ("\ta caption of nothing\n", {}, "line 11"),
        ("", {"split_column": 3}, "line 1 "),
        ("", {"split_column": 2}, r"line 1: split 'picture 0' .* images\.splits"),
        ("", {"image_column": "file"}, "'file'"),
        ("", {"path": "nowhere"}, r"images\.path = 'nowhere'"),
        ("", {"captions": "nowhere.tsv"}, r"nowhere\.tsv"),
        ("", {"captions": "captions.doc"}, r"captions\.doc"),
        ("", {"max_length": 1}, r"images\.max_length = 1"),
    ],
)
def test_what_is_wrong_with_captions_is_named(files, line, changes, said):
    with (files / "captions.tsv").open("a") as file:
        file.write(line)
    with pytest.raises((DataError, ArgumentError), match=said):
        prepared(files, **changes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"file": "1.png", "caption": "a"}', r"'image'.*images\.image_column"),
        ('{"image": "1.png", "text": "a"}', r"'caption'.*images\.caption_column"),
    ],
)
def test_keys_of_captions_that_are_called_otherwise_are_told_their_setting(files, line, said):
    (files / "captions.jsonl").write_text(f"{line}\n")
    with pytest.raises(DataError, match=said):
        prepared(files, captions=str(files / "captions.jsonl"))


@pytest.mark.parametrize("above", ["../other.png", "sub/../../other.png", "{files}/other.png", "../images-2/1.png"])
def test_an_image_outside_of_the_folder_of_images_is_refused(files, above):
    (files / "images-2").mkdir()
    for place in ("other.png", "images-2/1.png"):
        (files / place).write_bytes(png())
    outside = above.format(files=files)
    with (files / "captions.tsv").open("a") as file:
        file.write(f"{outside}\tnot one of them\n")
    with pytest.raises(DataError, match="line 11: there is no image") as raised:
        prepared(files)
    assert repr(outside) in str(raised.value)


def test_an_image_inside_of_the_folder_can_be_named_in_any_way(files):
    (files / "images/sub").mkdir()
    for place in ("11.png", "12.png"):
        (files / "images" / place).write_bytes(png())
    with (files / "captions.tsv").open("a") as file:
        file.write(f"sub/../11.png\tpicture 11\n{files}/images/12.png\tpicture 12\n")
    found = read_everything(settings(files))
    images = [row.image for row in found.rows]
    for given in ("sub/../11.png", f"{files}/images/12.png"):
        assert given in images
        assert found.read(given).shape[2] == 3


def test_a_corrupt_image_among_many_stops_with_its_name(files):
    (files / "images/4.png").write_bytes(png()[:50])
    with pytest.raises(DataError, match=r"4\.png is damaged"):
        prepared(files)
    assert not (files / "data/train.store").exists()


def test_no_captions_and_only_empty_captions(files):
    (files / "captions.tsv").write_text("")
    with pytest.raises(DataError, match="holds no captions"):
        prepared(files)
    (files / "captions.tsv").write_text("".join(f"{number}.png\t \n" for number in range(10)))
    with pytest.raises(DataError, match=r"images\.split_column"):
        prepared(files)


def test_an_image_in_two_splits(files):
    (files / "captions.tsv").write_text("train\t1.png\ta\ntest\t1.png\tb\n")
    changes = {"image_column": 2, "caption_column": 3, "split_column": 1}
    with pytest.raises(DataError, match=r"line 2: '1\.png' is in split 'test'"):
        read_split(settings(files, **changes), "train")


@pytest.mark.slow
def test_zips_that_are_none_or_hold_bombs(files):
    (files / "broken.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match="is not a complete zip"):
        ImageFolder(files / "broken.zip")
    with pytest.raises(DataError, match="does not exist"):
        ImageFolder(files / "absent.zip")
    with zipfile.ZipFile(files / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.png", b"\0" * 201_000_000)
        archive.writestr("many.png", bomb(50_000, 50_000))
    folder = ImageFolder(files / "bomb.zip")
    with pytest.raises(DataError, match=r"zeros\.png has 201,000,000 bytes; at most"):
        folder.read("zeros.png")
    with pytest.raises(DataError, match=r"many\.png.*not decoded"):
        folder.read("many.png")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"images": {}}, r"give images\.path with images\.captions, or images\.scenes"),
        ({"images": {"path": "x"}}, r"images\.path and images\.captions belong together"),
        ({"images": {"scenes": "fr"}}, r"images\.scenes = 'fr'"),
        ({"images": {"scenes": "en"}, "augment": {"flip": True}}, r"augment\.flip = true would turn left into right"),
        ({"images": {"scenes": "en"}, "data": {}}, r"no section \[data\]; there are images"),
        (
            {"images": {"scenes": "en"}, "encoder": {"kind": "rnn"}},
            r"encoder\.kind = 'rnn' is not one of grid, patches",
        ),
        (
            {"images": {"scenes": "en"}, "encoder": {"blocks": []}},
            r"encoder\.blocks = \[\] must have at least one",
        ),
        ({"images": {"scenes": "en"}, "encoder": {"freeze": True}}, r"encoder\.freeze = true needs encoder\.weights"),
        (
            {"images": {"scenes": "en"}, "training": {"metric": "accuracy"}},
            r"metric = 'accuracy' is not one of",
        ),
    ],
)
def test_a_recipe_that_cannot_work_says_why(tables, said):
    with pytest.raises(ConfigError, match=said):
        make_recipe(tables)


def test_a_caption_must_find_its_positions(tmp_path):
    decoder = {"kind": "transformer", "positions": "learned", "longest": 40}
    recipe = make_recipe({"images": {"scenes": "en", "max_length": 40}, "decoder": decoder})
    with pytest.raises(ConfigError, match=r"decoder.longest = 40 positions are too few for images.max_length = 40"):
        train(recipe, out=tmp_path / "model", device="cpu")
    assert not (tmp_path / "model").exists()


def test_models_that_cannot_be():
    grid = GridEncoderConfig(width=8)
    with pytest.raises(ConfigError, match="an image has none"):
        build_captioner(grid, RnnDecoderConfig(tied="embeddings"), side=16, vocabulary=9)
    with pytest.raises(ConfigError, match=r"decoder\.copy = true copies words of the source"):
        build_captioner(grid, RnnDecoderConfig(copy=True), side=16, vocabulary=9)
    with pytest.raises(ConfigError, match=r"encoder\.patch = 7 does not divide images\.size = 16"):
        PatchEncoder(PatchEncoderConfig(patch=7), side=16)
    with pytest.raises(
        ConfigError, match=r"images\.size = 16 leaves a single region, .* 32 pixels a side; wanted at least 33"
    ):
        GridEncoder(GridEncoderConfig(layout="resnet18"), side=16)
    with pytest.raises(ConfigError, match=r"augment\.colour = 1\.0"):
        AugmentConfig(colour=1.0)


def test_weights_of_another_network_are_named(tmp_path):
    network = GridEncoderConfig(blocks=(1,), channels=8).network()
    other = GridEncoderConfig(blocks=(1,), channels=4).network()
    torch.save(other.state_dict(), tmp_path / "other.pth")
    with pytest.raises(DataError, match=r"conv1\.weight as \[4, 3, 3, 3\], but .* \[8, 3, 3, 3\]; set encoder\.layout"):
        begin_with_weights(network, tmp_path / "other.pth")
    torch.save({"a": torch.zeros(1)}, tmp_path / "a.pth")
    with pytest.raises(DataError, match=r"has no conv1\.weight"):
        begin_with_weights(network, tmp_path / "a.pth")
    torch.save({**network.state_dict(), "head.weight": torch.zeros(1)}, tmp_path / "more.pth")
    with pytest.raises(DataError, match=r"holds head\.weight, which this model does not have"):
        begin_with_weights(network, tmp_path / "more.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(DataError, match="holds no tensors by name"):
        begin_with_weights(network, tmp_path / "list.pth")
    with pytest.raises(DataError, match="there is no file"):
        begin_with_weights(network, tmp_path / "absent.pth")


def test_a_file_of_weights_that_would_run_code_does_not(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "touched"), "w"))

    torch.save({"conv1.weight": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(DataError, match="is damaged or holds more than weights"):
        begin_with_weights(GridEncoderConfig(blocks=(1,)).network(), tmp_path / "evil.pth")
    assert not (tmp_path / "touched").exists()


TINY = """
[images]
scenes = "en"
count = 30
valid_count = 4
size = 16
[tokenizer]
kind = "word"
[encoder]
blocks = [1, 1]
stem = "large"
channels = 4
width = 8
[decoder]
kind = "rnn"
width = 8
embedding = 8
[training]
steps = 2
warmup = 1
metric = "loss"
[decoding]
beam = 1
max_length = 5
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captioner")
    done = jumok("train", write(folder / "tiny.toml", TINY), "--out", folder / "model", "--device", "cpu")
    assert done.code == 0, done.err
    return folder / "model"


def test_the_commands_say_in_one_line_what_is_wrong(model, tmp_path):
    (tmp_path / "empty").mkdir()
    for words, said in (
        (("caption", model, tmp_path / "absent.jpg"), "there is no image"),
        (("caption", model, tmp_path / "empty"), "there are no images in the folder"),
        (("caption", tmp_path / "nothing", tmp_path / "absent.jpg"), "there is no model folder"),
        (("evaluate", model, "--source", tmp_path), "belong together"),
        (("evaluate", model, "--report", "r.html"), "--report applies to models that translate"),
        (("look", model, tmp_path / "mistyped.jpg"), "there is no image"),
        (("look", "mistyped.jpg"), "there is no image mistyped.jpg"),
        (("translate", model), "holds a model that captions images"),
    ):
        done = jumok(*words)
        assert done.code == 1
        assert done.err.startswith("jumok: ")
        assert said in done.err
        assert done.err.count("\n") == 1


def test_a_captioner_wants_a_list_of_images(model):
    captioner = Captioner.load(model)
    with pytest.raises(ArgumentError, match=r"write \[image\]"):
        captioner.caption("a.jpg")
    with pytest.raises(ArgumentError, match="head = 3 does not exist; there are 1"):
        captioner.attention(np.zeros((16, 16, 3), np.uint8), "a red circle").select(head=3)
    with pytest.raises(ArgumentError, match="the caption is empty"):
        captioner.attention(np.zeros((16, 16, 3), np.uint8), "")
    with pytest.raises(ArgumentError, match="no attention map of a caption without its image"):
        Caption("a.jpg", "a circle", 0.0).attention()
    with pytest.raises(ArgumentError, match="width is not a setting of decoding"):
        captioner.caption([np.zeros((16, 16, 3), np.uint8)], width=3)


def test_test_images_that_have_gone_must_be_named(files, tmp_path):
    recipe = TINY.replace('scenes = "en"\ncount = 30\nvalid_count = 4', 'path = "images"\ncaptions = "captions.tsv"')
    recipe = recipe.replace('"images"', f'"{files / "images"}"').replace(
        '"captions.tsv"', f'"{files / "captions.tsv"}"'
    )
    done = jumok("train", write(tmp_path / "files.toml", recipe), "--out", tmp_path / "model", "--device", "cpu")
    assert done.code == 0, done.err
    (files / "images").rename(files / "moved")
    done = jumok("evaluate", tmp_path / "model")
    assert done.code == 1
    assert "name the test images: --source FOLDER" in done.err
    done = jumok("evaluate", tmp_path / "model", "--source", files / "moved", "--reference", files / "captions.tsv")
    assert done.code == 0, done.err
