"""Captioners from the command line: train, resume, caption, evaluate, inspect."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.data import TokenizerConfig
from jumok.decoding import DecodingConfig
from jumok.errors import ConfigError, DataError
from jumok.images.encoder import GridEncoderConfig
from jumok.images.scenes import scene
from jumok.models import RnnDecoderConfig
from jumok.tasks import CAPTIONING, load_trained
from support.commands import jumok, well, write

RECIPE = """
[images]
scenes = "ko"
count = 60
valid_count = 6
size = 32
[tokenizer]
size = 60
[encoder]
stem = "large"
blocks = [1, 1]
channels = 8
width = 16
[decoder]
kind = "rnn"
width = 16
embedding = 8
[batch]
tokens = 200
[training]
steps = 8
learning_rate = 0.01
warmup = 2
validate_every = 4
metric = "bleu"
doubly_stochastic = 0.1
[decoding]
beam = 2
max_length = 20
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write(tmp_path_factory.mktemp("recipe") / "tiny.toml", RECIPE)


@pytest.fixture(scope="module")
def model(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "model"
    well("train", recipe, "--out", folder, "--device", "cpu")
    return folder


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(scene(number, split="test").picture(40)).save(folder / f"{number}.png")
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a small red circle", 40 * "a long text "])
def test_a_text_given_to_a_captioner_is_no_image_and_that_is_said(model, text):
    done = jumok("look", model, text)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"jumok: there is no image {text}. {model} captions images")
    assert done.err.count("\n") == 1


def test_a_folder_of_images_gets_a_line_for_each(model, pictures):
    lines = well("caption", model, pictures).out.splitlines()
    assert [line.split("\t")[0] for line in lines] == [str(pictures / f"{number}.png") for number in range(3)]
    found = CAPTIONING.load(model).caption([pictures / f"{number}.png" for number in range(3)])
    assert [line.split("\t")[1] for line in lines] == [one.text for one in found]


def test_one_file_that_is_no_image_costs_the_others_nothing(model, pictures):
    (pictures / "broken.png").write_bytes(b"no image")
    done = jumok("caption", model, pictures)
    assert done.code == 1
    assert "broken.png" in done.err
    assert len(done.out.splitlines()) == 3


def test_images_that_cannot_be_read_are_skipped_if_asked(model, pictures):
    (pictures / "broken.png").write_bytes(b"no image")
    captioner, files, errors = CAPTIONING.load(model), [pictures / f"{name}.png" for name in ("0", "broken", "1")], []
    assert [caption.image for caption in captioner.stream(files, skip=errors.append)] == [str(files[0]), str(files[2])]
    assert "broken.png" in str(*errors)
    with pytest.raises(DataError, match=r"broken\.png"):
        captioner.caption(files)


def test_json_has_scores_and_the_n_best(model, pictures):
    (row,) = map(json.loads, well("caption", model, pictures / "1.png", "--n-best", 2, "--json").out.splitlines())
    assert row["image"].endswith("1.png")
    assert row["text"] == row["n_best"][0]["text"]
    assert row["n_best"][0]["score"] >= row["n_best"][1]["score"]


@pytest.mark.slow
def test_a_resumed_run_is_the_same_to_the_bit(recipe, model, tmp_path):
    folder = tmp_path / "broken-off"
    well("train", recipe, "--out", folder, "--set", "training.steps=4", "--device", "cpu")
    well("train", recipe, "--out", folder, "--resume", "--device", "cpu")
    unbroken, resumed = (load_file(path / "model.safetensors") for path in (model, folder))
    assert unbroken.keys() == resumed.keys()
    assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken)


@pytest.mark.slow
def test_a_resume_with_other_images_is_refused(recipe, tmp_path):
    folder = tmp_path / "run"
    well("train", recipe, "--out", folder, "--set", "training.steps=4", "--device", "cpu")
    done = jumok("train", recipe, "--out", folder, "--resume", "--set", "images.count=50")
    assert done.code == 1
    assert "images.count was 60 and is now 50" in done.err


@pytest.mark.slow
def test_evaluate_scores_test_scenes_and_says_where_words_looked(model, tmp_path):
    found = json.loads(
        well("evaluate", model, "--metrics", "bleu,exact_match", "--json", "--save", tmp_path / "out.txt").out
    )
    assert found["images"] == 6
    assert [score["name"] for score in found["scores"]] == ["BLEU", "exact match"]
    named = sum(word.thing is not None for number in range(6) for word in scene(number, split="test").words("ko"))
    assert found["pointing"]["words"] == named
    assert 0 <= found["pointing"]["colour"] <= 100
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 6
    default = well("evaluate", model, "--beam", "3").out
    assert "\ncolour words that attend to their shape " in default
    assert [line.split()[0] for line in default.splitlines()[1:6]] == ["BLEU", "CIDEr-D", "METEOR", "chrF", "TER"]


def test_evaluate_takes_other_images_with_several_captions_each(model, pictures, tmp_path):
    caption = CAPTIONING.load(model).caption([pictures / "0.png"])[0].text
    rows = [("0.png", caption), ("0.png", "다른 말"), ("1.png", "아무 말")]
    write(tmp_path / "captions.tsv", "".join(f"{image}\t{text}\n" for image, text in rows))
    arguments = ("--source", pictures, "--reference", tmp_path / "captions.tsv", "--metrics", "exact_match,bleu")
    well("evaluate", model, *arguments, "--max-length", 1, "--save", tmp_path / "out")
    short = CAPTIONING.load(model).caption([pictures / "0.png", pictures / "1.png"], max_length=1)
    assert (tmp_path / "out").read_text().splitlines() == [caption.text for caption in short]
    found = json.loads(well("evaluate", model, *arguments, "--json").out)
    assert found["images"] == 2
    assert found["scores"][0]["value"] == 50
    assert "nrefs:var" in found["scores"][1]["signature"]
    assert "pointing" not in found


def test_inspect_shows_what_a_captioner_is_made_of(model):
    facts = json.loads(well("inspect", model, "--json").out)
    assert facts["encoder"] == "grid"
    assert facts["does"] == "captions images"
    assert "residual network" in facts["in words"]["encoder"]
    assert sum(facts["parts"].values()) == facts["parameters"]
    assert {"encoder", "decoder", "target embeddings"} <= set(facts["parts"])
    assert facts["training"]["steps"] > 0
    assert facts["regions"] == "4 × 4"
    assert facts["parameters"] > 1000
    assert load_trained(model)[0] is CAPTIONING


def test_a_map_is_over_the_grid_and_its_words_are_those_of_the_caption(model):
    captioner, picture = CAPTIONING.load(model), scene(0, split="test").picture(50)
    (found,) = captioner.caption([picture])
    shown = found.attention()
    assert " ".join(shown.target) == found.text == shown.title
    assert shown.weights.shape == (1, 1, len(shown.target), 16)
    assert (shown.layout.rows, shown.layout.columns) == (4, 4)
    assert torch.allclose(shown.weights.sum(-1), torch.ones(1, 1, len(shown.target)), atol=1e-5)
    np.testing.assert_array_equal(shown.layout.image, picture)  # the image itself, not the 32 × 32 pixels of the model
    assert captioner.attention(picture, "작은 빨간 별이").target == ("작은", "빨간", "별이")
    tokens = found.attention(words=False)
    assert len(tokens.target) == len(found.ids)


def test_a_map_lies_on_the_whole_image_where_the_model_saw_its_middle(model):
    captioner = CAPTIONING.load(model)
    middle = scene(0, split="test").picture(600)
    wide = np.full((600, 1000, 3), 255, np.uint8)
    wide[:, 200:800] = middle
    shown, alone = (captioner.attention(image, "작은 빨간 별이") for image in (wide, middle))
    torch.testing.assert_close(shown.weights, alone.weights)
    assert shown.layout.image.shape == (288, 480, 3)
    assert shown.layout.part == pytest.approx((0.0, 0.2, 1.0, 0.8))
    assert alone.layout.part == (0.0, 0.0, 1.0, 1.0)


def test_what_is_loaded_captions_like_what_was_trained(model):
    images = [scene(number, split="valid").picture(32) for number in range(4)]
    one, other = CAPTIONING.load(model), CAPTIONING.load(model)
    other.batch = 1
    found, alone = one.caption(images), other.caption(images)
    assert [caption.text for caption in found] == [caption.text for caption in alone]
    assert np.allclose([caption.score for caption in found], [caption.score for caption in alone], atol=1e-4)


@pytest.mark.slow
def test_look_shows_the_caption_and_where_each_word_looked_and_writes_what_is_asked_for(model, pictures, tmp_path):
    outs = [tmp_path / f"look.{kind}" for kind in ("png", "svg", "html", "json")]
    asked = [part for out in outs for part in ("-o", out)]
    done = well("look", model, pictures / "0.png", *asked, "--target", "작은 별이 있다")
    assert done.out.splitlines()[0] == "작은 별이 있다"
    assert all(word in done.out.splitlines()[1] for word in ("작은", "별이", "있다"))
    assert all(f"wrote {out}" in done.err and out.stat().st_size > 500 for out in outs)
    saved = AttentionMap.from_json(outs[-1].read_text(encoding="utf-8"))
    wanted = CAPTIONING.load(model, device="cpu").attention(pictures / "0.png", "작은 별이 있다")
    torch.testing.assert_close(saved.weights, wanted.weights, atol=1e-5, rtol=0)
    np.testing.assert_array_equal(saved.layout.image, wanted.layout.image)
    found = json.loads(well("look", model, pictures / "0.png", "--json", "--beam", "1").out)
    assert found["text"].split() == found["attention"]["target"]
    assert found["image"] == str(pictures / "0.png")
    assert found["score"] < 0
    np.testing.assert_allclose(np.sum(found["attention"]["weights"], -1), 1, atol=1e-4)
    tokens = json.loads(well("look", model, pictures / "0.png", "--json", "--tokens", "--target", "작은 별이").out)
    assert tokens["attention"]["target"][0].startswith("▁")


def test_what_cannot_be_looked_at_is_said_in_one_line(model, pictures):
    image = pictures / "0.png"
    for arguments, message in (
        ([], "jumok look"),
        ([pictures / "no.png"], "there is no image"),
        ([pictures / "notes.txt"], "notes.txt"),
        ([image, "--grid"], "--grid does not apply to"),
        ([image, "--node", "3"], "captions images; write: jumok look"),
        ([image, "--layer", "7"], "layer = 7 does not exist; there are 1"),
        ([image, "--target", ""], "the caption is empty"),
        ([image, "-o", "look.gif"], "look.gif should end in one of"),
    ):
        done = jumok("look", model, *arguments)
        assert done.code == 1
        assert message in done.err
        assert len(done.err.splitlines()) == 1
        assert done.out == ""


@pytest.mark.long
def test_a_run_begins_with_the_weights_of_a_file_and_keeps_them_frozen(recipe, tmp_path):
    source = GridEncoderConfig(stem="large", blocks=(1, 1), channels=8).network()
    torch.save({**source.state_dict(), "fc.weight": torch.zeros(10, 16)}, tmp_path / "weights.pth")
    changes = (f"encoder.weights={tmp_path / 'weights.pth'}", "encoder.freeze=true", "training.metric=loss")
    well("train", recipe, "--out", tmp_path / "run", "--device", "cpu", *(f"--set={change}" for change in changes))
    trained = load_file(tmp_path / "run/model.safetensors")
    for name, weight in source.state_dict().items():
        assert torch.equal(trained[f"encoder.network.{name}"], weight), name
    (tmp_path / "weights.pth").unlink()  # once trained, the folder is all there needs to be
    assert CAPTIONING.load(tmp_path / "run").caption([np.zeros((9, 9, 3), np.uint8)])


def test_the_average_of_captioners_is_their_mean_and_captions(model, pictures, tmp_path):
    newest = sorted((model / "checkpoints").iterdir())[-1] / "model.safetensors"
    well("average", model, newest, model, "--out", tmp_path / "mean")
    one, other, mean = map(load_file, (model / "model.safetensors", newest, tmp_path / "mean/model.safetensors"))
    for name in mean:
        if mean[name].is_floating_point():
            torch.testing.assert_close(mean[name], (2 * one[name] + other[name]) / 3)
    assert well("caption", tmp_path / "mean", pictures).out.count("\n") == 3
    assert "averaged over: 3 models" in (tmp_path / "mean/README.md").read_text()


def test_what_is_no_captioner_is_said_to_be_none(model, pictures, reverser, tmp_path):
    for arguments in (("caption", reverser, pictures / "0.png"), ("average", model, reverser, "--out", tmp_path / "x")):
        done = jumok(*arguments)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert f"{reverser} does not hold a model that captions images; `jumok inspect" in done.err


def test_a_captioner_saved_with_settings_of_translation_loads_if_they_have_their_defaults(model, tmp_path):
    trained = CAPTIONING.load(model, device="cpu").trained
    sections = {
        "tokenizer": TokenizerConfig(size=60, shared=False),
        "decoder": RnnDecoderConfig(width=16, embedding=8),
        "decoding": DecodingConfig(beam=2, max_length=20),
    }
    CAPTIONING.save(tmp_path, trained._replace(recipe=replace(trained.recipe, **sections)))
    assert "max_source = 0" in (tmp_path / "recipe.toml").read_text(encoding="utf-8")
    assert CAPTIONING.load(tmp_path, device="cpu").trained.recipe == trained.recipe
    sections["decoding"] = DecodingConfig(samples=3)
    CAPTIONING.save(tmp_path, trained._replace(recipe=replace(trained.recipe, **sections)))
    with pytest.raises(ConfigError, match=r"recipe.toml: decoding.samples is not a setting"):
        CAPTIONING.load(tmp_path, device="cpu")
