"""What can be wrong with images and captions: one line that says where, what was seen and what to do."""

import struct
import zipfile
import zlib
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from jumok.data.tokenizer import OneSidedTokenizer
from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.images.encoder import GridEncoder, GridEncoderConfig, PatchEncoder, PatchEncoderConfig
from jumok.images.files import ImageFolder, decode_image, read_image, squared
from jumok.images.pairs import ImagesConfig, read_everything, read_split
from jumok.images.resnet import begin_with_weights
from jumok.images.store import prepare_images
from jumok.tasks import CAPTIONING, make_recipe
from jumok.tasks.captioner import Caption
from support.commands import well, write
from support.refusals import names, refused, refuses


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
    ("content", "facts"),
    [
        (b"", "not an image"),
        (b"hello", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not an image"),
        (png()[:50], "damaged"),
        (png()[:45] + b"garbage" * 10, ""),
        (bomb(20_000, 20_000), "not decoded"),
        (bomb(60_000, 60_000), "not decoded"),
        (bomb(88_000, 2_000), "88000 × 2000 pixels … 1,074 MB"),
    ],
    ids=["nothing", "text", "postscript", "cut", "garbage", "bomb", "larger bomb", "smaller bomb"],
)
def test_a_file_that_is_no_image_is_refused_by_its_name(tmp_path, content, facts):
    path = tmp_path / "holiday.png"
    path.write_bytes(content)
    with refuses(DataError, path, facts):
        read_image(path)


def test_a_photo_cut_short_anywhere_is_refused():
    file = BytesIO()
    noise = np.random.default_rng(0).integers(256, size=(24, 24, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, format="JPEG")
    whole = file.getvalue()
    for end in range(0, 1200, 37):
        with refuses(DataError, "photo"):
            decode_image(whole[: min(end, len(whole) - 20)], "photo")


def test_there_is_no_image_and_a_folder_is_none(tmp_path):
    with refuses(DataError, "no image", tmp_path / "x.png"):
        read_image(tmp_path / "x.png")
    with refuses(DataError, tmp_path, "folder"):
        read_image(tmp_path)


@pytest.mark.parametrize("image", [np.zeros((4, 4)), np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)])
def test_pixels_must_be_bytes_of_three_colours(image):
    with refuses(ArgumentError, "uint8 [height, width, 3]"):
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
    config = OneSidedTokenizer(kind="word", size=30)
    return prepare_images(files / "data", settings(files, **changes), config)


@pytest.mark.parametrize(
    ("line", "changes", "facts"),
    [
        ("11.png\tnot there\n12.png\tnor this\n", {}, "captions.tsv, line 11 … '11.png' … /images"),
        ("3.png\n", {}, "line 11"),
        ("\ta caption of nothing\n", {}, "line 11"),
        ("", {"split_column": 3}, "line 1 "),
        ("", {"split_column": 2}, "line 1 … 'picture 0' … images.splits"),
        ("", {"image_column": "file"}, "'file'"),
        ("", {"path": "nowhere"}, "images.path = 'nowhere'"),
        ("", {"captions": "nowhere.tsv"}, "nowhere.tsv"),
        ("", {"captions": "captions.doc"}, "captions.doc"),
        ("", {"max_length": 1}, "images.max_length = 1"),
    ],
)
def test_what_is_wrong_with_captions_is_named(files, line, changes, facts):
    with (files / "captions.tsv").open("a") as file:
        file.write(line)
    with refuses((DataError, ArgumentError), facts):
        prepared(files, **changes)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ('{"file": "1.png", "caption": "a"}', "'image' … images.image_column"),
        ('{"image": "1.png", "text": "a"}', "'caption' … images.caption_column"),
    ],
)
def test_keys_of_captions_that_are_called_otherwise_are_told_their_setting(files, line, facts):
    (files / "captions.jsonl").write_text(f"{line}\n")
    with refuses(DataError, facts):
        prepared(files, captions=str(files / "captions.jsonl"))


@pytest.mark.parametrize("above", ["../other.png", "sub/../../other.png", "{files}/other.png", "../images-2/1.png"])
def test_an_image_outside_of_the_folder_of_images_is_refused(files, above):
    (files / "images-2").mkdir()
    for place in ("other.png", "images-2/1.png"):
        (files / place).write_bytes(png())
    outside = above.format(files=files)
    with (files / "captions.tsv").open("a") as file:
        file.write(f"{outside}\tnot one of them\n")
    with refuses(DataError, "line 11", "no image", repr(outside)):
        prepared(files)


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
    with refuses(DataError, "4.png", "damaged"):
        prepared(files)
    assert not (files / "data/train.store").exists()


def test_no_captions_and_only_empty_captions(files):
    (files / "captions.tsv").write_text("")
    with refuses(DataError, "no captions"):
        prepared(files)
    (files / "captions.tsv").write_text("".join(f"{number}.png\t \n" for number in range(10)))
    with refuses(DataError, "images.split_column"):
        prepared(files)


def test_an_image_in_two_splits(files):
    (files / "captions.tsv").write_text("train\t1.png\ta\ntest\t1.png\tb\n")
    changes = {"image_column": 2, "caption_column": 3, "split_column": 1}
    with pytest.raises(DataError, match=r"line 2: '1\.png' is in split 'test'"):
        read_split(settings(files, **changes), "train")


@pytest.mark.slow
def test_zips_that_are_none_or_hold_bombs(files):
    (files / "broken.zip").write_bytes(b"PK\x03\x04 nothing")
    for name, fact in (("broken.zip", "complete zip"), ("absent.zip", "does not exist")):
        with refuses(DataError, name, fact):
            ImageFolder(files / name)
    with zipfile.ZipFile(files / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.png", b"\0" * 201_000_000)
        archive.writestr("many.png", bomb(50_000, 50_000))
    folder = ImageFolder(files / "bomb.zip")
    for name, fact in (("zeros.png", "201,000,000 bytes"), ("many.png", "not decoded")):
        with refuses(DataError, name, fact):
            folder.read(name)


@pytest.mark.parametrize(
    ("tables", "facts"),
    [
        ({"images": {}}, "images.path … images.captions … images.scenes"),
        ({"images": {"path": "x"}}, "images.path and images.captions"),
        ({"images": {"scenes": "fr"}}, "images.scenes = 'fr'"),
        ({"augment": {"flip": True}}, "augment.flip = true … left … right"),
        ({"augment": {"colour": 1.0}}, "augment.colour = 1.0"),
        ({"data": {}}, "[data] … images"),
        ({"encoder": {"kind": "rnn"}}, "encoder.kind = 'rnn' … grid, patches"),
        ({"encoder": {"blocks": []}}, "encoder.blocks = []"),
        ({"encoder": {"freeze": True}}, "encoder.freeze = true … encoder.weights"),
        ({"training": {"metric": "accuracy"}}, "metric = 'accuracy'"),
    ],
)
def test_a_recipe_that_cannot_work_says_why(tables, facts):
    with refuses(ConfigError, facts):
        make_recipe({"images": {"scenes": "en"}} | tables)


@pytest.mark.parametrize(
    ("setting", "fact"),
    [
        ({"tokenizer": {"shared": True}}, "not a setting"),
        ({"tokenizer": {"model": "own.model"}}, "not a setting"),
        ({"tokenizer": {"source_kind": "char"}}, "not a setting"),
        ({"tokenizer": {"source_form": "jamo"}}, "not a setting; did you mean target_form?"),
        ({"tokenizer": {"sampling": 0.1}}, "not a setting"),
        ({"tokenizer": {"edits": True}}, "not a setting"),
        ({"decoder": {"kind": "transducer"}}, "not one of transformer, rnn, hard"),
        ({"decoder": {"kind": "rnn", "vectors": "words.vec"}}, "not a setting"),
        ({"decoder": {"kind": "transformer", "copy": True}}, "not a setting"),
        ({"decoder": {"kind": "hard", "copy": True}}, "not a setting"),
        ({"decoder": {"kind": "rnn", "tied": "all"}}, "not one of 'none', 'output'"),
        ({"decoding": {"samples": 5}}, "not a setting"),
        ({"decoding": {"mbr": True}}, "not a setting"),
        ({"decoding": {"max_source": 9}}, "not a setting"),
        ({"decoding": {"engine": "ctranslate2"}}, "not a setting"),
        ({"decoding": {"precision": "int8"}}, "not one of 'auto', 'float32', 'fp16', 'bf16'"),
    ],
    ids=lambda case: ".".join([*case, *list(*case.values())[-1:]]) if isinstance(case, dict) else "",
)
def test_captions_do_not_have_the_settings_of_translation(setting, fact):
    ((section, table),) = setting.items()
    with refuses(ConfigError, f"{section}.{list(table)[-1]} ", fact):
        make_recipe({"images": {"scenes": "en"}} | setting)


def test_a_caption_must_find_its_positions():
    decoder = {"kind": "transformer", "positions": "learned", "longest": 40}
    with refuses(ConfigError, "decoder.longest = 40", "images.max_length = 40"):
        make_recipe({"images": {"scenes": "en", "max_length": 40}, "decoder": decoder})


def test_attention_that_a_decoder_does_not_have_cannot_be_trained():
    fixed = {"kind": "rnn", "attention": "none"}
    with refuses(ConfigError, "training.doubly_stochastic needs", 'decoder.attention = "none"'):
        make_recipe({"images": {"scenes": "en"}, "decoder": fixed, "training": {"doubly_stochastic": 1.0}})


def test_models_that_cannot_be():
    for make, facts in (
        (lambda: PatchEncoder(PatchEncoderConfig(patch=7), side=16), "encoder.patch = 7 … images.size = 16"),
        (lambda: GridEncoder(GridEncoderConfig(layout="resnet18"), side=16), "images.size = 16 … 32 … 33"),
    ):
        with refuses(ConfigError, facts):
            make()


def test_weights_of_another_network_are_named(tmp_path):
    network = GridEncoderConfig(blocks=(1,), channels=8).network()
    other = GridEncoderConfig(blocks=(1,), channels=4).network()
    for weights, facts in (
        (other.state_dict(), "conv1.weight … [4, 3, 3, 3] … [8, 3, 3, 3] … encoder.layout"),
        ({"a": torch.zeros(1)}, "conv1.weight"),
        ({**network.state_dict(), "head.weight": torch.zeros(1)}, "head.weight"),
        ([1, 2], "tensors"),
    ):
        torch.save(weights, tmp_path / "other.pth")
        with refuses(DataError, tmp_path / "other.pth", facts):
            begin_with_weights(network, tmp_path / "other.pth")
    with refuses(DataError, "no file", tmp_path / "absent.pth"):
        begin_with_weights(network, tmp_path / "absent.pth")


def test_a_file_of_weights_that_would_run_code_does_not(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "touched"), "w"))

    torch.save({"conv1.weight": Evil()}, tmp_path / "evil.pth")
    with refuses(DataError, tmp_path / "evil.pth", "damaged"):
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
    well("train", write(folder / "tiny.toml", TINY), "--out", folder / "model", "--device", "cpu")
    return folder / "model"


@pytest.mark.slow
def test_the_commands_say_in_one_line_what_is_wrong(model, tmp_path):
    (tmp_path / "empty").mkdir()
    for words, facts in (
        (("caption", model, tmp_path / "absent.jpg"), f"no image … {tmp_path / 'absent.jpg'}"),
        (("caption", model, tmp_path / "empty"), f"no images … {tmp_path / 'empty'}"),
        (("caption", tmp_path / "nothing", tmp_path / "absent.jpg"), f"no model folder … {tmp_path / 'nothing'}"),
        (("evaluate", model, "--source", tmp_path), "--source … --reference"),
        (("evaluate", model, "--report", "r.html"), "--report does not apply … captions images"),
        (("evaluate", model, "--sample"), "--sample does not apply … captions images"),
        (("evaluate", model, "--mbr", "4"), "--mbr does not apply … captions images"),
        (("look", model, tmp_path / "mistyped.jpg"), f"no image … {tmp_path / 'mistyped.jpg'}"),
        (("look", "mistyped.jpg"), "no image … mistyped.jpg"),
        (("translate", model), f"{model} … translates text … jumok inspect"),
    ):
        names(refused(*words), facts)


def test_a_captioner_wants_a_list_of_images(model):
    captioner = CAPTIONING.load(model)
    image = np.zeros((16, 16, 3), np.uint8)
    for call, facts in (
        (lambda: captioner.caption("a.jpg"), "[image]"),
        (lambda: captioner.caption([image], width=3), "width … decoding"),
        (lambda: captioner.attention(image, "a red circle").select(head=3), "head = 3 … 1"),
        (lambda: captioner.attention(image, ""), "caption … empty"),
        (lambda: Caption("a.jpg", "a circle", 0.0).attention(), "image"),
    ):
        with refuses(ArgumentError, facts):
            call()


@pytest.mark.parametrize("setting", [{"samples": 5}, {"mbr": True}, {"seed": 3}, {"engine": "jumok"}])
def test_captioning_does_not_have_the_settings_of_translation(model, setting):
    ((name, _),) = setting.items()
    with refuses(ArgumentError, f"{name} is not a setting of decoding"):
        CAPTIONING.load(model).caption([np.zeros((16, 16, 3), np.uint8)], **setting)


def test_captions_are_not_searched_in_int8(model):
    with refuses(ConfigError, "decoding.precision = 'int8' is not one of 'auto'"):
        CAPTIONING.load(model).caption([np.zeros((16, 16, 3), np.uint8)], precision="int8")


def test_test_images_that_have_gone_must_be_named(files, tmp_path):
    place = f'path = "{files / "images"}"\ncaptions = "{files / "captions.tsv"}"'
    recipe = TINY.replace('scenes = "en"\ncount = 30\nvalid_count = 4', place)
    well("train", write(tmp_path / "files.toml", recipe), "--out", tmp_path / "model", "--device", "cpu")
    (files / "images").rename(files / "moved")
    names(refused("evaluate", tmp_path / "model"), "test images", "--source FOLDER")
    well("evaluate", tmp_path / "model", "--source", files / "moved", "--reference", files / "captions.tsv")
